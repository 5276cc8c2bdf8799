// The part of CUDA C++ that the kernels use, for a host compiler: qualifiers, built-in variables, intrinsics, and
// collectives on top of block.h. Everything computes the same bits as the device.
#pragma once

#define CONDPROG_HOST 1

#include <bit>
#include <cmath>
#include <cstdint>

#include "block.h"

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef unsigned long long u64;
typedef int32_t i32;
typedef long long i64;

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __constant__ const
// In a section of their own, so that a block starts with poison instead of what the last one left.
#define __shared__ static __attribute__((section("condprog_shared")))

struct alignas(16) uint4 {
    u32 x, y, z, w;
};
inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }

#define threadIdx (block::self->index)
#define blockIdx (block::grid.block)
#define blockDim (block::grid.threads)
#define gridDim (block::grid.blocks)

#define __syncthreads() block::wait(block::Wait::Block, __LINE__)
#define __syncwarp() block::wait(block::Wait::Warp, __LINE__)
#define __shfl_sync(mask, value, lane) shuffle_from((mask), (value), (u32)(lane) % 32, __LINE__)
#define __shfl_down_sync(mask, value, delta)                                                                          \
    shuffle_from((mask), (value), block::lane() + (delta) < 32 ? block::lane() + (delta) : block::lane(), __LINE__)

template <class T> T shuffle_from(u32 mask, T value, u32 lane, int line) {
    static_assert(sizeof(T) == 4, "a shuffle moves 32 bits");
    if (mask != 0xffffffffu) block::fail("a shuffle of part of a warp is not modelled", line);
    return std::bit_cast<T>(block::exchange(std::bit_cast<u32>(value), lane, line));
}

inline u32 __float_as_uint(float value) { return std::bit_cast<u32>(value); }
inline float __uint_as_float(u32 bits) { return std::bit_cast<float>(bits); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }

inline u32 __funnelshift_l(u32 low, u32 high, u32 shift) {
    return (u32)(((u64)high << 32 | low) << (shift & 31) >> 32);
}

template <class T> T __ldg(const T* address) { return *address; }

inline u64 atomicMin(u64* address, u64 value) {
    const int order = __ATOMIC_RELAXED;
    u64 old = __atomic_load_n(address, order);
    while (value < old && !__atomic_compare_exchange_n(address, &old, value, false, order, order)) {
    }
    return old;
}

// ---- The kernels' own wrappers of single instructions ----

inline u32 permute(u32 a, u32 b, u32 order) {
    const u64 bytes = (u64)b << 32 | a;
    u32 result = 0;
    for (int i = 0; i < 4; i++) {
        const u32 nibble = order >> 4 * i & 15;
        if (nibble > 7) block::fail("a byte selector above 7 is not modelled", (int)order);
        result |= (u32)(bytes >> 8 * nibble & 0xff) << 8 * i;
    }
    return result;
}

// Binary32 to bf16 bits, to nearest even; no NaN.
inline u32 round_to_bf16(float value) {
    const u32 bits = __float_as_uint(value);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

inline u32 fma_bf16x2(u32 a, u32 b, u32 c) {
    // A product of two bf16 numbers has 16 bits: exact in binary32, as long as nothing but zero is added.
    if (c != 0) block::fail("fma_bf16x2 is modelled for an addend of zero", (int)c);
    const float low = __fmaf_rn(__uint_as_float(a << 16), __uint_as_float(b << 16), 0.0f);
    const float high = __fmaf_rn(__uint_as_float(a & 0xffff0000), __uint_as_float(b & 0xffff0000), 0.0f);
    return round_to_bf16(high) << 16 | round_to_bf16(low);
}

// Binary32 to f16 bits, to nearest even, with subnormals and infinities; no NaN.
inline u32 round_to_f16(float value) {
    const u32 sign = __float_as_uint(value) >> 16 & 0x8000;
    const float magnitude = std::fabs(value);
    if (magnitude >= 65520.0f) return sign | 0x7c00;
    // The unit in the last place: 2^-24 for subnormals, else 10 bits below the leading one. Dividing by a power of two
    // is exact, and nearbyint rounds to even.
    const int exponent = magnitude < 0x1p-14f ? -14 : std::ilogb(magnitude);
    const u32 units = (u32)std::nearbyint(std::ldexp((double)magnitude, 10 - exponent));
    return sign | (((u32)(exponent + 14) << 10) + units);
}

inline u32 pack_f16x2(float high, float low) { return round_to_f16(high) << 16 | round_to_f16(low); }
