"""A decoder of format version 1 in NumPy, written from core/SPEC.md alone, and what uses it:

    python decode.py TABLE.safetensors RESTORED.safetensors [SOURCE.safetensors]

compares rows of the bf16 file RESTORED, as Python's safetensors loads it, with the rows of TABLE as this decoder gives
them, bit for bit; and with SOURCE prints how far a few rows are from theirs.
"""

import json
import sys

import ml_dtypes
import numpy as np
from safetensors import safe_open

# SPEC section 3: the 128 levels.
LEVEL = np.array(
    """1 1 1 2 2 2 3 3 4 4 5 5 5 6 6 7 7 8 8 8 9 9 10 10 11 11 12 12 12 13 13 14
    14 15 15 16 16 17 17 17 18 18 19 19 20 20 21 21 22 22 23 23 24 24 25 25 26 26 27 27 28 28 29 29
    30 31 31 32 32 33 33 34 34 35 36 36 37 37 38 39 39 40 41 41 42 43 43 44 45 46 46 47 48 49 49 50
    51 52 53 54 55 56 57 57 59 60 61 62 63 64 65 67 68 70 71 73 75 77 79 81 83 86 89 93 97 103 111 127""".split(),
    dtype=np.int64,
)


def decode(records, dim, quarters):
    """Rows of exact f32 numbers from records, uint8 [rows, record_bytes]."""
    bits = dim * quarters // 4
    code = np.unpackbits(records[:, :-2], axis=1)[:, :bits].astype(np.int64)
    states = np.zeros((len(records), dim), np.int64)
    first = np.arange(dim) * quarters // 4
    for i in range(16):
        states = states * 2 + code[:, (first + i) % bits]
    field = records[:, -2].astype(np.int64) | records[:, -1].astype(np.int64) << 8
    variant, exponent, mantissa = field >> 12, field >> 6 & 63, field & 63
    hashes = (states * (2 * states + 1) + (variant << 12)[:, None]) & 0xFFFF
    values = np.where(hashes >> 15 == 1, -1, 1) * LEVEL[hashes >> 8 & 127]
    scales = np.where((exponent | mantissa) == 0, 0.0, np.ldexp(64.0 + mantissa, exponent - 54))
    rows = np.where(scales[:, None] == 0, 0.0, scales[:, None] * values)
    exact = rows.astype(np.float32)
    assert (exact == rows).all(), "every product is exact in f32"
    return exact


def read_rows(path, name, rows):
    """Rows of a tensor, read from the file itself: safetensors has no FP8 for NumPy."""
    types = {"F32": "<f4", "F16": "<f2", "BF16": ml_dtypes.bfloat16}
    types |= {"F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E8M0": ml_dtypes.float8_e8m0fnu}
    file = np.memmap(path, np.uint8, "r")
    length = int(file[:8].view("<u8")[0])
    tensor = json.loads(bytes(file[8 : 8 + length]))[name]
    start, end = (8 + length + offset for offset in tensor["data_offsets"])
    return file[start:end].reshape(tensor["shape"][0], -1)[rows].view(types[tensor["dtype"]])


def source_rows(path, source, rows):
    """Rows of the source as f32."""
    data = read_rows(path, source["name"], rows).astype(np.float32)
    if source.get("scale"):
        scales = read_rows(path, source["scale"]["name"], rows).astype(np.float32)
        data = (data * scales.repeat(32, axis=1)).astype(ml_dtypes.bfloat16)
    return data.astype(np.float32)


def main(table_path, restored_path, source_path=None):
    compared = 0
    with safe_open(table_path, "np") as file, safe_open(restored_path, "np") as restored:
        for table in json.loads(file.metadata()["condprog.tables"]):
            rng = np.random.default_rng(1)
            whole = restored.get_slice(table["source"]["name"])
            assert whole.get_shape() == [table["rows"], table["dim"]], whole.get_shape()
            for segment in table["segments"]:
                count, start = segment["rows"], segment["first_row"]
                rows = np.unique(np.r_[0, count - 1, rng.integers(0, count, 1000)])
                tensor = file.get_slice(segment["tensor"])
                records = np.stack([tensor[int(row) : int(row) + 1][0] for row in rows])
                ours = decode(records, table["dim"], segment["rate_quarters"])
                theirs = np.stack([whole[int(start + row) : int(start + row) + 1][0] for row in rows])
                assert theirs.dtype == ml_dtypes.bfloat16, theirs.dtype
                same = ours.astype(ml_dtypes.bfloat16).view(np.uint16) == theirs.view(np.uint16)
                assert same.all(), f"row {start + rows[np.argwhere(~same)[0][0]]} of {table['name']} differs"
                compared += len(rows)
                if source_path:
                    e = source_rows(source_path, table["source"], start + rows)
                    mse = np.square(e - ours, dtype=np.float64).sum() / np.square(e, dtype=np.float64).sum()
                    print(f"{table['name']}: relative MSE of {len(rows)} rows: {mse:.4f}")
    assert compared > 0
    print(f"{compared} rows have the bits of a decoder written from the specification")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
