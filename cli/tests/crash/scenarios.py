"""What is done to the files of a folder, small enough for hundreds of runs: a few blocks of narrow rows."""

import hashlib
import json
import os
import random
import struct
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CODING = ["--effort", "0", "--block-rows", "4"]
# Where many blocks would be those of other scenarios again.
FEW_BLOCKS = ["--effort", "0", "--block-rows", "8"]
TABLES = ["--tensor", "t.*"]
SHARDS = ["--shard-size", "80"]
# What no command has to do with.
UNRELATED = "notes.txt"


@dataclass(frozen=True)
class Scenario:
    name: str
    make: Callable
    """Makes the sources in a folder: `make(condprog, folder)`."""
    command: list
    """What is run there."""
    other: list
    """Another command with the same output."""
    input: str
    """The file among the sources that the command reads first."""
    last: str | None = None
    """Of an output of several files: the one that says that all are there."""
    links_weights: bool = False
    """Whether weights of the sources may get second names in the output."""


def write_tensors(path, tensors):
    """A safetensors file of `{name: shape}` in F32: normal numbers that depend on the name alone."""
    header, data = {}, bytearray()
    for name, shape in tensors.items():
        numbers, count = random.Random(name), shape[0] * (shape[1] if len(shape) > 1 else 1)
        start = len(data)
        data += struct.pack(f"<{count}f", *(numbers.gauss(0, 1) for _ in range(count)))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def source(_, folder):
    write_tensors(folder / "in.safetensors", {"t.a": [12, 16], "t.b": [8, 16], "norm": [8]})
    (folder / UNRELATED).write_text("nothing to do with tables\n")


def run(condprog, folder, *arguments):
    subprocess.run([condprog, *arguments, "--quiet"], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def parts(*options):
    def make(condprog, folder):
        source(condprog, folder)
        for part in range(3):
            share = ["-o", f"part-{part}.safetensors", "--part", f"{part}/3"]
            run(condprog, folder, "compress", "in.safetensors", *share, *TABLES, *CODING, *options)

    return make


def table(condprog, folder):
    source(condprog, folder)
    run(condprog, folder, "compress", "in.safetensors", "-o", "table.safetensors", *TABLES, *CODING)


def single_checkpoint(_, folder):
    checkpoint = folder / "model"
    checkpoint.mkdir()
    write_tensors(checkpoint / "model.safetensors", {"t.a": [12, 16], "t.b": [8, 16], "norm": [8]})
    (checkpoint / "config.json").write_text('{"model_type": "x"}\n')
    (checkpoint / "tokenizer.json").write_text("{}\n")
    (folder / UNRELATED).write_text("nothing to do with tables\n")


def indexed_checkpoint(_, folder):
    """One file with tables and other weights, one with a table alone, one with other weights, of which one could be
    compressed too."""
    checkpoint = folder / "model"
    checkpoint.mkdir()
    files = [{"t.a": [12, 16], "norm": [8]}, {"t.b": [8, 16]}, {"head.weight": [6, 8], "bias": [4]}]
    weight_map, size = {}, 0
    for number, tensors in enumerate(files, 1):
        name = f"model-{number:05}-of-00003.safetensors"
        write_tensors(checkpoint / name, tensors)
        weight_map |= dict.fromkeys(tensors, name)
        size += sum(4 * shape[0] * (shape[1] if len(shape) > 1 else 1) for shape in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": weight_map}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    (checkpoint / "config.json").write_text('{"model_type": "x"}\n')
    (checkpoint / "tokenizer.json").write_text("{}\n")
    (folder / UNRELATED).write_text("nothing to do with tables\n")


def nested_checkpoint(condprog, folder):
    """With folders of other files in it, one in the other."""
    single_checkpoint(condprog, folder)
    (folder / "model/pooling/more").mkdir(parents=True)
    (folder / "model/pooling/config.json").write_text('{"pooling": "mean"}\n')
    (folder / "model/pooling/more/weights.bin").write_bytes(bytes(range(256)))


def cached_checkpoint(condprog, folder):
    """As a hub's cache has it: files that are named for their content, and links to them by their own names."""
    indexed_checkpoint(condprog, folder)
    blobs, snapshot = folder / "cache/blobs", folder / "cache/snapshots/0123abcd"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for path in sorted((folder / "model").iterdir()):
        blob = blobs / hashlib.sha256(path.read_bytes()).hexdigest()
        path.rename(blob)
        (snapshot / path.name).symlink_to(os.path.relpath(blob, snapshot))
    (folder / "model").rmdir()


def table_and_checkpoint(condprog, folder):
    indexed_checkpoint(condprog, folder)
    run(condprog, folder, "compress", "model", "-o", "table.safetensors", *TABLES, *CODING)


def whole(layout, make, checkpoint, weights, *other):
    command = ["compress", checkpoint, "-o", "whole", "--whole", *TABLES, *FEW_BLOCKS, *SHARDS]
    index = "whole/model.safetensors.index.json"
    return Scenario(
        f"compress-whole-{layout}", make, command, [*command, *other], f"{checkpoint}/{weights}", index, True
    )


OUT = ["-o", "out.safetensors"]
INDEX = "out.safetensors.index.json"
PARTS = [f"part-{part}.safetensors" for part in (2, 0, 1)]
INDEXED = "model-00001-of-00003.safetensors"
COMPRESS = ["compress", "in.safetensors", *OUT, *TABLES, *CODING]
DECOMPRESS = ["decompress", "table.safetensors", *OUT, "--dtype"]
WHOLE_AGAIN = ["decompress", "table.safetensors", "-o", "whole", "--whole", "model", "--dtype"]
ROWS = ["rows", "table.safetensors", "--tensor", "t.a", "-o", "out.npy", "--ids"]
ANOTHER_RATE = ["--rate", "3"]
# One file of weights is then not linked, but written without its table.
ANOTHER_TABLE = ["--tensor", "head.*"]
SCENARIOS = [
    Scenario("compress", source, COMPRESS, [*COMPRESS, *ANOTHER_RATE], "in.safetensors"),
    Scenario(
        "compress-sharded",
        source,
        [*COMPRESS, *SHARDS],
        [*COMPRESS, *SHARDS, *ANOTHER_RATE],
        "in.safetensors",
        INDEX,
    ),
    Scenario(
        "compress-part",
        source,
        [*COMPRESS, "--part", "1/2"],
        [*COMPRESS, "--part", "0/2"],
        "in.safetensors",
    ),
    Scenario("join", parts(), ["join", *PARTS, *OUT], COMPRESS, PARTS[0]),
    Scenario("join-sharded", parts(*SHARDS), ["join", *PARTS, *OUT], [*COMPRESS, *SHARDS], PARTS[0], INDEX),
    whole("single", single_checkpoint, "model", "model.safetensors", *ANOTHER_RATE),
    whole("indexed", indexed_checkpoint, "model", INDEXED, *ANOTHER_TABLE),
    whole("nested", nested_checkpoint, "model", "model.safetensors", *ANOTHER_RATE),
    whole("cached", cached_checkpoint, "cache/snapshots/0123abcd", INDEXED, *ANOTHER_TABLE),
    Scenario("decompress", table, [*DECOMPRESS, "f32"], [*DECOMPRESS, "bf16"], "table.safetensors"),
    Scenario(
        "decompress-whole",
        table_and_checkpoint,
        [*WHOLE_AGAIN, "f32"],
        [*WHOLE_AGAIN, "bf16"],
        "table.safetensors",
        "whole/model.safetensors.index.json",
        True,
    ),
    Scenario("rows", table, [*ROWS, "7,0,11,3"], [*ROWS, "5"], "table.safetensors"),
]


def weights(folder):
    """The names of the files with weights, and of those that links to weights lead to."""
    folder = Path(folder).resolve()
    return frozenset(str(path.resolve().relative_to(folder)) for path in folder.rglob("*.safetensors"))
