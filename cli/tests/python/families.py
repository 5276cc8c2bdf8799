"""Miniature checkpoints of the model families: true names, types, widths and numbers of tensors, few rows.

Each is a list of files, and its tables: the tensors that each is joined from, in row order, with their scales.
"""

from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

BF16, E4M3, E8M0 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu
QWEN = "model.language_model.layers.1.ple.ple_embedding.ngram_embedding"
LONGCAT = "model.ngram_embeddings.embedders"


@dataclass
class Checkpoint:
    name: str
    files: list
    # Of each table, the tensors in row order, each with the name of its scales or None.
    tables: dict
    # What `compress` is told: nothing, where it must tell the model itself.
    options: list = field(default_factory=list)

    def tensors(self):
        return {name: array for file in self.files for name, array in file.items()}

    def values(self, table):
        """The numbers of a table: of scaled ones the product in binary32, rounded to bf16."""
        tensors = self.tensors()
        return np.concatenate([values(tensors[name], scale and tensors[scale]) for name, scale in self.tables[table]])


def values(elements, scale):
    """Numbers of one tensor as binary32."""
    numbers = elements.astype(np.float32)
    if scale is None:
        return numbers
    factor = scale.astype(np.float32)
    if factor.size > 1 and factor.shape[1] > 1:
        factor = factor.repeat(32, axis=1)
    with np.errstate(over="ignore"):  # large elements with the largest scales are infinite
        return (numbers * factor).astype(BF16).astype(np.float32)


def rows(rng, count, dim):
    """Rows as tables have them: nearly Gaussian, of very different lengths, a few of zeros only."""
    values = rng.standard_normal((count, dim)) * 2.0 ** rng.uniform(-8, 1, (count, 1))
    values[rng.random(count) < 0.02] = 0
    return values.astype(np.float32)


def grouped(values):
    """FP8 with a power of two for 32 columns of a row."""
    groups = values.reshape(len(values), -1, 32)
    largest = np.abs(groups).max(axis=2, keepdims=True)
    exponent = np.where(largest > 0, np.ceil(np.log2(np.where(largest > 0, largest, 1) / 448)), 0)
    elements = (groups / 2.0**exponent).astype(E4M3).reshape(values.shape)
    return elements, (exponent[:, :, 0] + 127).astype(np.uint8).view(E8M0)


def per_row(values, dtype, largest, scale_dtype):
    scale = np.abs(values).max(axis=1, keepdims=True) / largest
    scale = np.where(scale > 0, scale, 1).astype(scale_dtype)
    elements = values / scale.astype(np.float32)
    return (elements.round().clip(-128, 127) if dtype == np.int8 else elements).astype(dtype), scale


def others(rng, layer):
    """Tensors of the rest of a model: weights in blocks with scales of their own, which are no tables' scales."""
    weight = rng.integers(0, 0x70, (256, 128)).astype(np.uint8).view(E4M3)
    return {
        f"layers.{layer}.attn.wq.weight": weight,
        f"layers.{layer}.attn.wq.scale": np.full((2, 1), 120, np.uint8).view(E8M0),
        f"layers.{layer}.engram.norm.weight": np.ones(256, BF16),
    }


def deepseek(rng):
    """Rows are sums of 24 consecutive primes, from 2 and from 3 on. No scales lie in the file of their weights."""
    first, second = "layers.1.engram.embed", "layers.14.engram.embed"
    a, a_scale = grouped(rows(rng, 963, 256))
    b, b_scale = grouped(rows(rng, 1058, 256))
    files = [
        {"embed.weight": rows(rng, 50, 64).astype(BF16), f"{first}.weight": a, **others(rng, 1)},
        {f"{second}.weight": b, f"{first}.scale": a_scale},
        {**others(rng, 14), f"{second}.scale": b_scale, "head.weight": rows(rng, 50, 64).astype(BF16)},
    ]
    tables = {f"{name}.weight": [(f"{name}.weight", f"{name}.scale")] for name in (first, second)}
    return Checkpoint("deepseek", files, tables, ["--rate-order", "2=3,3=2,4=1.5"])


def spread(tensors, files):
    """Tensors over files, in no order that their names have."""
    spread = [{} for _ in range(files)]
    for number, (name, array) in enumerate(tensors.items()):
        spread[number * 37 % files][name] = array
    return spread


def qwen(rng, kind):
    """128 shards of 5 to 11 rows, over five files and the scales."""
    elements, scales, parts = {}, {}, []
    for shard in range(128):
        name = f"{QWEN}.shard_{shard}"
        numbers = rows(rng, int(rng.choice([5, 7, 9, 11])), 160)
        if kind == "bf16":
            elements[f"{name}.weight"], scale = numbers.astype(BF16), None
        elif kind == "fp8":
            elements[f"{name}.weight"] = (numbers * 200).clip(-448, 448).astype(E4M3)
            scales[scale := f"{QWEN}.weight_scale"] = np.array([0.000199], BF16)
        else:
            dtype, largest = (np.int8, 127) if kind == "int8-rows" else (E4M3, 448)
            scale_dtype = np.float32 if kind == "int8-rows" else BF16
            scale = f"{name}.weight_scale"
            elements[f"{name}.weight"], scales[scale] = per_row(numbers, dtype, largest, scale_dtype)
        parts.append((f"{name}.weight", scale))
    last = {"model.language_model.embed_tokens.weight": rows(rng, 20, 64).astype(BF16), **scales}
    options = {
        "bf16": ["--model", "qwen3.8", "--rate-rows", "0..301=3", "--rate-rows", "700..703=1.5"],
        "int8-rows": ["--rate", "2.5"],
    }
    return Checkpoint(f"qwen-{kind}", [*spread(elements, 5), last], {f"{QWEN}.weight": parts}, options.get(kind, []))


def longcat(rng):
    """Twelve tables, each two rows longer than the one before."""
    tensors = {f"{LONGCAT}.{i}.weight": rows(rng, 64 + 2 * i + 1, 256).astype(BF16) for i in range(12)}
    files = [*spread(tensors, 3), {"model.embed_tokens.weight": rows(rng, 20, 64).astype(BF16)}]
    tables = {f"{LONGCAT}.weight": [(name, None) for name in tensors]}
    return Checkpoint("longcat", files, tables, ["--rate-order", "2=4,4=1"])


def unknown(rng):
    """A model that is not known: names say nothing, one scale for all lies elsewhere."""
    tensors = {f"lookup.piece{i}.data": (rows(rng, 30 + i, 64) * 90).clip(-448, 448).astype(E4M3) for i in range(11)}
    files = [*spread(tensors, 2), {"lookup.unit": np.array(0.004, np.float32), "other": rows(rng, 9, 64)}]
    tables = {"lookup": [(name, "lookup.unit") for name in tensors]}
    options = ["--join-tensors", "lookup=lookup.piece*.data", "--scale-tensor", "lookup.unit"]
    return Checkpoint("unknown", files, tables, options)


def extremes(rng):
    """All element codes with all scale bytes: NaN codes, subnormal products, scale bytes 0 and 255."""
    name = "layers.1.engram.embed"
    elements = np.tile(np.arange(256, dtype=np.uint8), (256, 1))
    scales = (np.arange(256)[:, None] + np.arange(8)).astype(np.uint8)
    files = [{f"{name}.weight": elements.view(E4M3)}, {f"{name}.scale": scales.view(E8M0)}]
    return Checkpoint("extremes", files, {f"{name}.weight": [(f"{name}.weight", f"{name}.scale")]})


def all_families():
    rng = np.random.default_rng(1)
    kinds = ["bf16", "fp8", "fp8-rows", "int8-rows"]
    return [deepseek(rng), *(qwen(rng, kind) for kind in kinds), longcat(rng), unknown(rng)]
