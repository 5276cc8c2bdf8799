"""Checks the published formats bit for bit against ml_dtypes.

    cargo run --release -p condprog-eval --example formats -- FOLDER
    python eval/tests/formats.py FOLDER          (needs numpy and ml_dtypes)
"""

import sys
from pathlib import Path

import ml_dtypes
import numpy as np

E2M1, E4M3, E8M0 = ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu
folder = Path(sys.argv[1])
failures = checked = 0


def read(name, dtype=np.uint8):
    return np.fromfile(folder / name, dtype)


def check(name, got, expected):
    global failures, checked
    got, expected = got.reshape(-1), expected.reshape(-1)
    assert got.size == expected.size > 0, f"{name}: {got.size} of {expected.size}"
    wrong = np.flatnonzero(got != expected)
    checked += got.size
    failures += wrong.size
    first = f", first at {wrong[0]}: {got[wrong[0]]} for {expected[wrong[0]]}" if wrong.size else ""
    print(f"{name}: {got.size} compared, {wrong.size} differ{first}")


def e2m1(x):
    return np.clip(x, -6, 6).astype(E2M1).view(np.uint8)


def e4m3(x):
    return np.clip(x, -448, 448).astype(E4M3).view(np.uint8)


def e8m0(exponents):
    return np.ldexp(1.0, np.clip(exponents, -127, 127)).astype(np.float32).astype(E8M0).view(np.uint8)


values = read("values.f32", np.float32).astype(np.float64).reshape(-1, 32)
largest = np.abs(values).max(axis=1)
some = largest > 0

# OCP MX: the exponent of the largest magnitude less that of the largest element; a block of zeros is written as zeros.
exponents = np.where(some, np.frexp(np.where(some, largest, 1))[1] - 1 - 2, -127)
scales = e8m0(exponents)
check("mxfp4 scales", read("mxfp4.scales"), scales)
codes = e2m1(values / np.ldexp(1.0, exponents)[:, None])
check("mxfp4 elements", read("mxfp4.codes"), np.where(some[:, None], codes, 0))

# FP8: the smallest power of two with which nothing is above 448.
mantissa, exponent = np.frexp(np.where(some, largest, 448) / 448)
exponents = np.where(mantissa > 0.5, exponent, exponent - 1)
check("fp8 scales", read("fp8.scales"), e8m0(exponents))
check("fp8 elements", read("fp8.codes"), e4m3(values / np.ldexp(1.0, exponents)[:, None]))

# NVFP4: e4m3 scales of blocks of 16 over a binary32 scale of the table.
values = read("nvfp4.values", np.float32).astype(np.float64).reshape(-1, 16)
largest = np.abs(values).max(axis=1)
table = np.float32(largest.max() / (6 * 448))
check("nvfp4 table scale", read("nvfp4.global", np.float32), np.array([table]))
scales = e4m3(largest / 6 / np.float64(table))
check("nvfp4 scales", read("nvfp4.scales"), scales)
units = (scales.view(E4M3).astype(np.float32) * table).astype(np.float64)
codes = e2m1(values / np.where(units > 0, units, 1)[:, None])
check("nvfp4 elements", read("nvfp4.codes"), np.where(units[:, None] > 0, codes, 0))

values = read("single.f32", np.float32).astype(np.float64)
check("e2m1", read("single.e2m1"), e2m1(values))
check("e4m3", read("single.e4m3"), e4m3(np.abs(values)))

print(f"{checked} compared, {failures} differ")
sys.exit(failures > 0)
