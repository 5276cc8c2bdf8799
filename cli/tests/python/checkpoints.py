"""Miniature checkpoints of every family, the whole way, against computations of its own:

    python checkpoints.py CONDPROG SOURCE_VALUES FOLDER

The numbers of every source row, the records of every file and what each command makes of them are computed here once
more from the formats' texts (`families.values`, `decode.decode`), and compared bit for bit. Then every fault of a
checkpoint, of parts or of ids must be refused with its message.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors import safe_open

import families
import faults
import tensors
from decode import decode

# Bounds of the mean relative squared error of a row, by quarter bits per value, and a little more for short tables.
WORST = {4: 0.42, 6: 0.19, 8: 0.1, 10: 0.052, 12: 0.028, 16: 0.01}
RECORDS_PER_FILE = 20_000


class Condprog:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder

    def run(self, *arguments):
        # Where it is unset, Mesa's Vulkan drivers complain on stderr.
        environment = {"XDG_RUNTIME_DIR": str(self.folder)} | os.environ
        # What takes half a minute would report its progress.
        environment["CONDPROG_PROGRESS_SECONDS"] = "86400"
        command = [self.program, *map(str, arguments)]
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)

    def __call__(self, *arguments):
        """What it prints with --json; it must succeed and complain of nothing."""
        run = self.run(*arguments, "--json")
        assert (run.returncode, run.stderr) == (0, ""), (arguments, run.returncode, run.stderr)
        return json.loads(run.stdout)

    def backends(self):
        """Those of this build that have a device here. The CPU always has."""
        text = self.run("rows", "--help").stdout
        return ["cpu", *(name for name in ("wgpu", "cuda") if f"- {name}:" in text)]


def same_bits(got, expected, what):
    assert got.shape == expected.shape, (what, got.shape, expected.shape)
    integer = f"u{got.dtype.itemsize}"
    differ = np.argwhere((got.view(integer) != expected.view(integer)).any(axis=1))
    assert len(differ) == 0, f"{what}: {len(differ)} rows differ, the first is {differ[0][0]}"


def check_source_values(program, folder, checkpoint):
    """The rows as the encoder sees them, read in uneven pieces across tensors and files."""
    out = folder / f"{checkpoint.name}.values"
    options = checkpoint.options
    patterns = [options[1], "--scale", options[3]] if "--join-tensors" in options else []
    subprocess.run([program, folder / checkpoint.name, out, *patterns], check=True)
    tables = json.loads((out / "tables.json").read_text())
    assert [table["name"] for table in tables] == list(checkpoint.tables), tables
    for table in tables:
        got = np.fromfile(out / table["file"], "<f4").reshape(table["rows"], table["dim"])
        expected = checkpoint.values(table["name"])
        nan = np.isnan(expected)
        assert (np.isnan(got) == nan).all(), f"{table['name']}: NaN elsewhere"
        same_bits(np.where(nan, 0, got), np.where(nan, 0, expected), table["name"])
    return sum(table["rows"] * table["dim"] for table in tables)


def read_tables(index):
    """Decoded rows of every table of an output with an index, as Python's safetensors sees its files. Also the rate of
    every row, and the rows at which segments begin."""
    listed = json.loads(index.read_text())
    seen, size, pieces = {}, 0, {}
    for name in sorted(set(listed["weight_map"].values())):
        with safe_open(index.parent / name, "np") as file:
            records = {tensor: file.get_tensor(tensor) for tensor in file.keys()}
            tables = json.loads(file.metadata()["condprog.tables"])
        seen |= dict.fromkeys(records, name)
        in_file = sum(tensor.nbytes for tensor in records.values())
        size += in_file
        assert in_file <= RECORDS_PER_FILE, f"{name} has {in_file} bytes of tensors"
        for table in tables:
            for segment in table["segments"]:
                quarters = segment["rate_quarters"]
                tensor = records[segment["tensor"]]
                assert tensor.dtype == np.uint8 and len(tensor) == segment["rows"], segment
                first = table["first_row"] + segment["first_row"]
                rows = decode(tensor, table["dim"], quarters)
                pieces.setdefault(table["name"], []).append((first, rows, quarters))
    assert listed["weight_map"] == seen, "the index has other tensors than the files"
    assert listed["metadata"]["total_size"] == size, (listed["metadata"], size)
    tables = {}
    for name, parts in pieces.items():
        parts.sort(key=lambda part: part[0])
        starts = [first for first, _, _ in parts]
        lengths = [len(rows) for _, rows, _ in parts]
        assert starts == [0, *np.cumsum(lengths)[:-1]], f"segments of {name} have gaps"
        rates = np.repeat([quarters for _, _, quarters in parts], lengths)
        tables[name] = (np.concatenate([rows for _, rows, _ in parts]), rates, starts)
    return tables


def expected_rates(checkpoint, table):
    """Quarter bits of every row, from the options."""
    rows = len(checkpoint.values(table))
    options = dict(zip(checkpoint.options[::2], checkpoint.options[1::2]))
    rates = np.full(rows, int(4 * float(options.get("--rate", 2))))
    pairs = list(zip(checkpoint.options[::2], checkpoint.options[1::2]))
    for text in (value for option, value in pairs if option == "--rate-rows"):
        place, rate = text.split("=")
        first, end = map(int, place.split(".."))
        rates[first:end] = int(4 * float(rate))
    if "--rate-order" in options:
        if len(checkpoint.tables[table]) == 12:
            heads = [len(checkpoint.tensors()[name]) for name, _ in checkpoint.tables[table]]
        else:
            primes = [n for n in range(2, 2000) if all(n % d for d in range(2, int(n**0.5) + 1))]
            heads = next(run for i in range(len(primes)) if sum(run := primes[i : i + 24]) == rows)
        orders = np.repeat(np.repeat([2, 3, 4], len(heads) // 3), heads)
        for pair in options["--rate-order"].split(","):
            order, rate = pair.split("=")
            rates[orders == int(order)] = int(4 * float(rate))
    return rates


def check_rows(condprog, checkpoint, table, rows, starts):
    """Rows across segments and files, in any order, some twice, some that are not there; on every backend."""
    rng = np.random.default_rng(2)
    edges = [id + step for id in [0, *starts, len(rows)] for step in (-1, 0, 1)]
    ids = np.r_[edges, edges[::-3], rng.integers(0, len(rows), 200), 2**62, -(2**63)].astype(np.int64)
    is_there = (ids >= 0) & (ids < len(rows))
    expected = np.where(is_there[:, None], rows[np.where(is_there, ids, 0)], np.float32(0))
    np.save(condprog.folder / "ids.npy", ids)
    ran = []
    for backend in condprog.backends():
        for dtype, bits in (("f32", expected), ("bf16", expected.astype(ml_dtypes.bfloat16).view(np.uint16))):
            out = condprog.folder / f"{backend}.{dtype}.npy"
            ask = ["rows", f"{checkpoint.name}.out.safetensors.index.json", "--tensor", table, "--missing", "zero"]
            ask += ["--ids-file", "ids.npy", "--backend", backend, "--dtype", dtype, "-o", out]
            run = condprog.run(*ask)
            if backend != "cpu" and run.returncode == 1 and f"error: backend {backend}: no " in run.stderr:
                assert backend not in os.environ.get("CONDPROG_REQUIRE", ""), run.stderr
                continue
            assert (run.returncode, run.stderr) == (0, ""), (ask, run.stderr)
            same_bits(np.load(out), bits, f"{table} on {backend}")
            out.unlink()
            ran.append(backend)
    return sorted(set(ran))


def check_restored(checkpoint, path, tables):
    """The source again: its names, types and shapes, and numbers as near to the decoded ones as its types allow."""
    source = checkpoint.tensors()
    wanted = {name for parts in checkpoint.tables.values() for pair in parts for name in pair if name}
    with safe_open(path, "np") as file:
        assert set(file.keys()) == wanted, set(file.keys()) ^ wanted
        for name in wanted:
            about = file.get_slice(name)
            assert about.get_shape() == list(source[name].shape), (name, about.get_shape())
            assert about.get_dtype() == tensors.NAMES[source[name].dtype], (name, about.get_dtype())
    restored, _ = tensors.read_file(path)
    for table, parts in checkpoint.tables.items():
        decoded, first = tables[table][0].astype(np.float64), 0
        for name, scale in parts:
            elements = restored[name]
            rows = decoded[first : first + len(elements)]
            first += len(elements)
            if scale is None:
                same_bits(elements, rows.astype(elements.dtype), name)
                continue
            factor = restored[scale].astype(np.float64)
            if factor.size == 1:
                assert restored[scale].tobytes() == source[scale].tobytes(), f"{scale} is kept"
            elif factor.shape[1] > 1:
                largest = np.abs(rows).reshape(len(rows), -1, 32).max(axis=2)
                smallest = np.ceil(np.log2(np.where(largest > 0, largest, 448) / 448))
                assert (factor == 2.0**smallest).all(), f"{scale}: not the smallest powers of two"
                factor = factor.repeat(32, axis=1)
            numbers, units = elements.astype(np.float64), rows / factor
            if elements.dtype == np.int8:
                reach, step = 127, np.full(rows.shape, 0.5)
            else:
                exponent = np.floor(np.log2(np.maximum(np.abs(units), 2.0**-6)))
                reach, step = 448, 2.0 ** (exponent - 4)
            assert (np.abs(numbers - units.clip(-reach, reach)) <= step).all(), f"{name} is not the nearest there is"
            if factor.size > 1:
                assert (np.abs(units) <= reach * (1 + 2**-50)).all(), f"{scale} does not hold its rows"


def check(condprog, source_values, checkpoint):
    tensors.write_checkpoint(condprog.folder / checkpoint.name, checkpoint.files)
    # What a config says is not what decides.
    config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    if checkpoint.name.startswith("qwen"):
        # But for the number of shards, which nothing else says.
        config["text_config"] = {"split_ngram_parts": 128}
    (condprog.folder / checkpoint.name / "config.json").write_text(json.dumps(config))
    values = check_source_values(source_values, condprog.folder, checkpoint)

    output, source = f"{checkpoint.name}.out.safetensors", checkpoint.name
    options = ["--effort", 0, "--block-rows", 32, "--shard-size", RECORDS_PER_FILE, *checkpoint.options]
    compressed = condprog("compress", source, "-o", output, *options)
    index = condprog.folder / f"{output}.index.json"
    tables = read_tables(index)
    assert list(tables) == list(checkpoint.tables) == [table["name"] for table in compressed["tables"]]
    verified = condprog("verify", index, "--against", source)
    inspected = condprog("inspect", index)
    assert verified["whole"] is True
    backends = []
    for place, (table, (rows, rates, starts)) in enumerate(tables.items()):
        expected = checkpoint.values(table)
        assert (rates == expected_rates(checkpoint, table)).all(), f"{table} has other rates"
        zero = ~expected.any(axis=1)
        assert compressed["tables"][place]["zero_rows"] == zero.sum() == (~rows.any(axis=1)).sum()
        error = np.square(expected - rows, dtype=np.float64).sum(axis=1)
        energy = np.square(expected, dtype=np.float64).sum(axis=1)
        for quarters in set(rates):
            own = (rates == quarters) & ~zero
            relative = (error[own] / energy[own]).mean()
            assert relative < WORST[quarters], f"{table} at {quarters / 4} bits has error {relative}"
        for found in (verified["tables"][place], inspected["tables"][place]):
            assert (found["name"], found["rows"]) == (table, len(rows)), found
        told = verified["tables"][place]["relative_mse"]
        assert abs(told / (error.sum() / energy.sum()) - 1) < 1e-6, (told, error.sum() / energy.sum())
        backends = check_rows(condprog, checkpoint, table, rows, starts)
    for dtype in ("bf16", "source"):
        condprog("decompress", index, "-o", f"{dtype}.safetensors", "--dtype", dtype)
    with safe_open(condprog.folder / "bf16.safetensors", "np") as file:
        for table, parts in checkpoint.tables.items():
            whole = np.concatenate([file.get_tensor(name) for name, _ in parts])
            same_bits(whole, tables[table][0].astype(ml_dtypes.bfloat16), f"{table} in bf16")
    check_restored(checkpoint, condprog.folder / "source.safetensors", tables)
    for dtype in ("bf16", "source"):
        (condprog.folder / f"{dtype}.safetensors").unlink()
    files = len(compressed["files"])
    print(
        f"{checkpoint.name}: {values} source values, {files} output files, rows on {', '.join(backends)}: as computed"
    )


def main(program, source_values, folder):
    folder = Path(folder).resolve()
    condprog = Condprog(Path(program).resolve(), folder)
    for checkpoint in families.all_families():
        check(condprog, Path(source_values).resolve(), checkpoint)
    extremes = families.extremes(np.random.default_rng(3))
    tensors.write_checkpoint(folder / extremes.name, extremes.files)
    values = check_source_values(Path(source_values).resolve(), folder, extremes)
    print(f"{extremes.name}: {values} source values: as computed")
    count = faults.check(condprog)
    print(f"{count} faults are refused, each with its message")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
