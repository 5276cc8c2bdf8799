// What the benchmark of the CUDA backend needs beside the decoder: tables of given contents, and the plain gather that
// decoding is compared with. Compiled like decode.cu; run on the CPU by the same tests.

#ifndef CONDPROG_HOST
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
#endif

#define GATHER_BLOCK 256
#define GATHER_AHEAD 4

// Word i of the contents; kernels/src/cuda.rs has the same function.
__device__ __forceinline__ u32 content(u64 index) {
    u64 z = (index + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 32) * 0xd6e8feb86659fd93ull;
    return (u32)(z ^ z >> 32);
}

// Writes words first..first + count of the contents to `out`.
extern "C" __global__ void __launch_bounds__(GATHER_BLOCK) fill(u32* out, u64 first, u64 count) {
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) out[i] = content(first + i);
}

// Copies rows of 16 << UNITS_LOG2 bytes: a thread moves 16 bytes at a time and has several loads in flight. Every id
// names a row.
template <u32 UNITS_LOG2>
__device__ __forceinline__ void gather(const uint4* __restrict__ table, const i64* __restrict__ ids,
                                       uint4* __restrict__ out, u64 count) {
    const u64 units = count << UNITS_LOG2, step = (u64)gridDim.x * blockDim.x;
    const u64 mask = (1u << UNITS_LOG2) - 1;
    u64 unit = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (; unit + (GATHER_AHEAD - 1) * step < units; unit += GATHER_AHEAD * step) {
        uint4 ahead[GATHER_AHEAD];
#pragma unroll
        for (u32 k = 0; k < GATHER_AHEAD; k++) {
            const u64 at = unit + k * step;
            ahead[k] = __ldg(table + ((u64)__ldg(ids + (at >> UNITS_LOG2)) << UNITS_LOG2) + (at & mask));
        }
#pragma unroll
        for (u32 k = 0; k < GATHER_AHEAD; k++) out[unit + k * step] = ahead[k];
    }
    for (; unit < units; unit += step)
        out[unit] = __ldg(table + ((u64)__ldg(ids + (unit >> UNITS_LOG2)) << UNITS_LOG2) + (unit & mask));
}

// Rows of 256 values in bf16.
extern "C" __global__ void __launch_bounds__(GATHER_BLOCK)
    gather_512(const uint4* table, const i64* ids, uint4* out, u64 count) {
    gather<5>(table, ids, out, count);
}

// Rows of 256 values in 8 bits, left as they are.
extern "C" __global__ void __launch_bounds__(GATHER_BLOCK)
    gather_256(const uint4* table, const i64* ids, uint4* out, u64 count) {
    gather<4>(table, ids, out, count);
}
