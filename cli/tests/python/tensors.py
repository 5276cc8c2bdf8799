"""Safetensors files with any data type, written and read by their bytes: Python's safetensors has no FP8 for NumPy."""

import json
import struct

import ml_dtypes
import numpy as np

DTYPES = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "U32": np.dtype("<u4"),
    "I64": np.dtype("<i8"),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def header_of(shapes, metadata=None):
    """The header of a file, length included, of `{name: (dtype, shape)}`, and the bytes of all data."""
    entries, end = {"__metadata__": metadata} if metadata else {}, 0
    for name, (dtype, shape) in shapes.items():
        start, end = end, end + DTYPES[dtype].itemsize * int(np.prod(shape, dtype=object))
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text, end


def write_file(path, tensors):
    header, _ = header_of({name: (NAMES[array.dtype], array.shape) for name, array in tensors.items()})
    with open(path, "wb") as file:
        file.write(header)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())


def read_file(path, mode="r"):
    """All tensors of a file, as arrays over its mapped bytes, and its metadata. What is changed in mode "r+" is changed
    in the file."""
    data = np.memmap(path, np.uint8, mode)
    start = 8 + int(data[:8].view("<u8")[0])
    header = json.loads(bytes(data[8:start]))
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        first, end = entry["data_offsets"]
        tensors[name] = data[start + first : start + end].view(DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors, metadata


def write_checkpoint(folder, files):
    """A folder of numbered files, each a dictionary of tensors, with their index."""
    folder.mkdir(parents=True)
    weight_map, size = {}, 0
    for number, tensors in enumerate(files, 1):
        name = f"model-{number:05}-of-{len(files):05}.safetensors"
        write_file(folder / name, tensors)
        weight_map |= dict.fromkeys(tensors, name)
        size += sum(array.nbytes for array in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
