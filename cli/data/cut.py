#!/usr/bin/env python3
"""Cuts rows out of an FP8 table with scales, and writes them as a small safetensors file of the same form.

This made demo.safetensors, once:

    python3 cut.py engram-fp8.safetensors demo.safetensors 4096

Rows are taken at even distances, so that every head of the hashed table is in the sample.
"""

import json
import struct
import sys

NAMES = ["layers.1.engram.embed.weight", "layers.1.engram.embed.scale"]


def main(source, output, count):
    with open(source, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        rows = header[NAMES[0]]["shape"][0]
        chosen = [i * rows // count for i in range(count)]
        entries, data = {"__metadata__": {"format": "pt"}}, b""
        for name in NAMES:
            tensor = header[name]
            width, start = tensor["shape"][1], 8 + length + tensor["data_offsets"][0]
            begin = len(data)
            for row in chosen:
                file.seek(start + row * width)
                data += file.read(width)
            entries[name] = {
                "dtype": tensor["dtype"],
                "shape": [count, width],
                "data_offsets": [begin, len(data)],
            }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(output, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
