"""A host in Python that decodes into a tensor of PyTorch's on PyTorch's current stream.

cargo build --release -p condprog-cuda --example c_abi
python3 backend-cuda/examples/c_abi.py target/release/examples/libc_abi.so
"""

import ctypes
import sys

RATE, DIM, ROWS = 8, 256, 1000  # 2 bits per value: records of 66 bytes
BF16, F16, F32 = range(3)


def library(path):
    lib = ctypes.CDLL(path)
    pointer, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
    lib.condprog_cuda_error.restype = ctypes.c_char_p
    lib.condprog_cuda_open.argtypes = [
        u32, ctypes.c_char_p, ctypes.c_size_t, u64, u32, u32, ctypes.c_double, ctypes.POINTER(pointer),
    ]
    lib.condprog_cuda_enqueue.argtypes = [pointer, pointer, pointer, u32, u64, pointer, u32, pointer]
    lib.condprog_cuda_close.argtypes = [pointer]
    return lib


def main():
    lib = library(sys.argv[1])
    records = bytes((i * i // 7 + i) % 256 for i in range(ROWS * 66))
    decoder = ctypes.c_void_p()
    if lib.condprog_cuda_open(0, records, len(records), ROWS, DIM, RATE, 1.0, ctypes.byref(decoder)):
        print("not run:", lib.condprog_cuda_error().decode())
        return 0
    try:
        import torch
    except ImportError:
        print("not run: PyTorch is not installed")
        lib.condprog_cuda_close(decoder)
        return 0

    ids = torch.tensor([5, -1, 0], dtype=torch.int32, device="cuda")
    rows = torch.empty(len(ids), DIM, dtype=torch.bfloat16, device="cuda")
    missing = torch.full((1,), -1, dtype=torch.int64, device="cuda")  # all ones: none is missing
    stream = torch.cuda.current_stream().cuda_stream
    status = lib.condprog_cuda_enqueue(
        decoder, stream, ids.data_ptr(), ids.element_size(), len(ids), rows.data_ptr(), BF16, missing.data_ptr()
    )
    if status:
        print(lib.condprog_cuda_error().decode(), file=sys.stderr)
        return 1
    # In stream order, as any operation of PyTorch's; reading a value waits.
    print("rows:", rows.float().norm(dim=1).tolist(), "first missing position:", missing.item())
    lib.condprog_cuda_close(decoder)
    return 0


sys.exit(main())
