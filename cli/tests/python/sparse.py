"""A checkpoint of 110 GB, with rows in three places of each table and holes between, which read as zeros:

    python sparse.py CONDPROG FOLDER

It is opened and planned, and ranges of it are coded in little memory: at the start, where byte offsets pass 2^32 or
rows 2^31, and at the end. The records must be those of the same rows in a small file. Then rows beyond 2^31 of a table
file of 22 GB must decode to what `decode.decode` makes of their records.
"""

import json
import os
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import xxhash
from safetensors import safe_open

import families
import tensors
from decode import decode

# Widths and rows.
TABLES = {"layers.1.engram.embed": (256, 150_000_000), "layers.14.engram.embed": (32, 2**31 + 40_000_000)}
# Rows of a range, and how many of them are no hole: the first ones, or the last ones of a table.
RANGE, REAL = 128, 96
MEMORY = 512 << 20


class Program:
    """Runs the command with a bound on its memory, and keeps the most it has had."""

    def __init__(self, path):
        self.path, self.peak = path, 0

    def __call__(self, *arguments):
        command = [self.path, *map(str, arguments), "--json"]
        limit = partial(resource.setrlimit, resource.RLIMIT_DATA, (MEMORY, MEMORY))
        run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=limit)
        text = run.stdout.read()
        _, status, usage = os.wait4(run.pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0, command
        self.peak = max(self.peak, usage.ru_maxrss << 10)
        return json.loads(text)


def ranges(rows):
    across = 2**31 if rows > 2**31 else 2**32 // 256
    return [(0, RANGE), (across - RANGE // 2, across + RANGE // 2), (rows - RANGE, rows)]


def make(folder):
    """Both files. Gives the range and the name in the small file of each piece."""
    rng = np.random.default_rng(5)
    shapes, small, pieces, asked = {}, {}, [], []
    for name, (dim, rows) in TABLES.items():
        shapes[f"{name}.weight"] = ("F8_E4M3", (rows, dim))
        shapes[f"{name}.scale"] = ("F8_E8M0", (rows, dim // 32))
        for number, (first, end) in enumerate(ranges(rows)):
            hole = RANGE - REAL if end == rows else 0
            asked.append((f"{name}.weight", first, end, hole, f"{name}.{number}.weight"))
            for part, array in zip(("weight", "scale"), families.grouped(families.rows(rng, REAL, dim))):
                pieces.append((f"{name}.{part}", first + hole, array))
                whole = np.zeros((RANGE, array.shape[1]), np.uint8)
                whole[hole : hole + REAL] = array.view(np.uint8)
                small[f"{name}.{number}.{part}"] = whole.view(array.dtype)
    header, size = tensors.header_of(shapes)
    write_sparse(folder / "large.safetensors", header, size, pieces)
    tensors.write_file(folder / "small.safetensors", small)
    return asked


def write_sparse(path, header, size, pieces):
    """A file of holes but for some rows of its tensors."""
    entries = json.loads(header[8:])
    with open(path, "wb") as file:
        file.truncate(len(header) + size)
        file.write(header)
        for name, row, array in pieces:
            file.seek(len(header) + entries[name]["data_offsets"][0] + row * array.shape[1])
            file.write(array.tobytes())


def records(path):
    with safe_open(path, "np") as file:
        (table,) = json.loads(file.metadata()["condprog.tables"])
        (segment,) = table["segments"]
        return table, file.get_tensor(segment["tensor"])


def check_ranges(condprog, folder, asked):
    """Records of the ranges: what rows are real, and what they are."""
    found = []
    for name, first, end, hole, small_name in asked:
        options = ["--effort", 0, "--force"]
        part, small = folder / "part.safetensors", folder / "from-small.safetensors"
        rows = ["--tensor", name, "--rows", f"{first}..{end}"]
        condprog("compress", folder / "large.safetensors", "-o", part, *rows, *options)
        condprog("compress", folder / "small.safetensors", "-o", small, "--tensor", small_name, *options)
        table, own = records(part)
        _, expected = records(small)
        total = TABLES[name.removesuffix(".weight")][1]
        assert (table["first_row"], table["rows"], table["table_rows"]) == (first, RANGE, total), table
        assert (own == expected).all(), f"{name}, row {first + np.argwhere(own != expected)[0][0]}: another record"
        real = own[hole : hole + REAL]
        assert real.any(axis=1).sum() > 0.9 * REAL and own.any(axis=1).sum() == real.any(axis=1).sum()
        found.append((name, first, own))
        print(f"{name}, rows {first}..{end}: as from a small file")
    return found


def check_long_range(condprog, folder, found):
    """Many blocks, in no more memory: around row 2^31 all are holes but those that are known."""
    name, first, known = found[4]
    start, end = 2**31 - 2**20, 2**31 + 2**20
    part = folder / "part.safetensors"
    rows = ["--tensor", name, "--rows", f"{start}..{end}", "--effort", 0, "--force"]
    condprog("compress", folder / "large.safetensors", "-o", part, *rows)
    _, own = records(part)
    assert (own[first - start : first - start + RANGE] == known).all()
    assert own.any(axis=1).sum() == known.any(axis=1).sum(), "holes are no zero rows"
    condprog("verify", part)
    print(f"{name}, rows {start}..{end}: the same, and zero rows around them")


def check_decoding(condprog, folder, found):
    """A table file of all rows, put together by hand: records beyond 2^32 bytes, ids beyond 2^31."""
    name, (dim, rows) = list(TABLES.items())[1]
    name += ".weight"
    pieces = [(name, first, own) for table, first, own in found if table == name]
    _, metadata = tensors.read_file(folder / "part.safetensors")
    (table,) = json.loads(metadata["condprog.tables"])
    (segment,) = table["segments"]
    blocks = -(-rows // segment["checksums"]["block_rows"])
    table |= {"rows": rows, "first_row": 0}
    segment |= {"rows": rows}
    segment["checksums"]["xxh3_64"] = xxhash.xxh3_64_hexdigest(bytes(8 * blocks))
    del metadata["condprog.part"]
    # The checksum of another header.
    metadata["condprog.checksum"] = "xxh3-64"
    shapes = {f"{name}#checksums": ("I64", (blocks,)), name: ("U8", (rows, segment["record_bytes"]))}
    header, size = tensors.header_of(shapes, metadata | {"condprog.tables": json.dumps([table])})
    write_sparse(folder / "table.safetensors", header, size, pieces)
    ids = np.concatenate([np.arange(first - 1, first + RANGE + 1) for _, first, _ in pieces])
    expected = np.zeros((len(ids), dim), np.float32)
    for place, (_, _, own) in enumerate(pieces):
        expected[place * (RANGE + 2) + 1 :][:RANGE] = decode(own, dim, segment["rate_quarters"])
    np.save(folder / "ids.npy", ids)
    ask = ["rows", folder / "table.safetensors", "--ids-file", folder / "ids.npy", "--missing", "zero"]
    condprog(*ask, "-o", folder / "rows.npy")
    got = np.load(folder / "rows.npy")
    assert (got.view(np.uint32) == expected.view(np.uint32)).all(), "rows differ"
    print(f"{len(ids)} ids from {ids[0]} to {ids[-1]} of a table of {rows} rows: as decoded here")


def main(program, folder):
    folder, condprog = Path(folder), Program(program)
    asked = make(folder)
    large = folder / "large.safetensors"
    plan = condprog("plan", large)
    told = {table["name"]: table["rows"] for table in plan["tables"]}
    assert told == {f"{name}.weight": rows for name, (_, rows) in TABLES.items()}, told
    found = check_ranges(condprog, folder, asked)
    check_long_range(condprog, folder, found)
    check_decoding(condprog, folder, found)
    on_disk = sum(path.stat().st_blocks * 512 for path in folder.iterdir())
    assert on_disk < 64 << 20, f"{on_disk} bytes on the disk"
    print(
        f"{large.stat().st_size / 1e9:.1f} GB, of which {on_disk / 1e6:.1f} MB are on the disk with all that was made"
    )
    print(f"peak memory: {condprog.peak >> 20} MiB, of {MEMORY >> 20} allowed")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
