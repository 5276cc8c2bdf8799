// Decoder of format version 1 for NVIDIA GPUs: a request of row ids in, rows in request order out, one launch.
//
// core/SPEC.md says what is computed; this file says how. The same text is compiled by NVRTC for the device and by a
// host C++ compiler for the tests (kernels/host-shim), so it uses no header and no library.
//
// Two kernels per output format:
//
//   decode_r<RATE>_d<DIM>_<out>   one layout of the common ones, all constants known to the compiler
//   decode_any_<out>              any layout, any mix of rates over segments, outputs of any alignment
//
// THE COMMON LAYOUTS
//
// A warp takes a chunk of up to 8 rows at a time. Lane j looks up row j of the chunk: id, segment, address. Then, per
// row, lane l loads the l-th aligned 4-byte word that the record touches: one coalesced load per record, whatever its
// alignment (records are only 2-byte aligned), so the memory system sees each sector once. That matters most when the
// table lies in host memory. The loads of a chunk are all issued before the first is used, and the next chunk's are in
// flight while this one is decoded from shared memory, where the records lie aligned, one 32-bit code word to a word.
//
// A lane decodes the values of one 16-byte store: 8 of bf16 or f16, 4 of f32. As 4 values of r/4 bits are whole bits,
// such a group starts at a whole bit and all its shifts are constants. Values of one chunk are consecutive in the
// output, so each step of a warp stores 512 consecutive bytes, also where rows are not a multiple of that (d = 160:
// 8 rows are 5 full steps).
//
// Per value: h = s (2s + 1) + (v << 12), of which bits 15..8 are wanted. With h / 2 = s * s + (s >> 1) + (v << 11)
// those are bits 14..7, which is a byte offset into the table of 256 signed levels when an entry is repeated for each
// of the 32 banks: lane l always reads bank l, no two lanes of a warp ever conflict, and the address is one AND-OR.
// The 32 KiB table is written at the start of a block; the grid is no larger than the device can hold at once.
//
// The product alpha * level is exact in binary32 and in bf16's fused multiply-add before its one rounding, so the
// rounding that SPEC section 7 asks for is the one the instruction makes. Adding +0 turns the -0 of a zero row into
// +0 and changes nothing else; a missing row is a record with a zero scale.
//
// BUDGET, 196,608 rows of d = 256 at 2 bits to bf16, 132 SMs at 1.755 GHz, 4.3 TB/s. Counted in the machine code
// (prebuilt/static-report.txt) and not measured: none of this has run on a GPU yet. 1,489 rows per SM, 372 per
// scheduler.
//
//   traffic    100.7 MB written; a record of 66 bytes touches 3 sectors of 32: 18.9 MB read (13.0 MB of them used); ids
//              0.8 to 1.6 MB. 121 MB: 28.1 us. (Counting the bytes used only: 113.7 MB, 26 us.)
//   issue      a row is one step of 68 instructions (8 values per lane: 5 each, and 28) and an eighth of a chunk's 245:
//              99 instructions of a warp, 36,700 cycles, 20.9 us
//   integer    45 of them on the pipe that takes one per 2 cycles: 90 cycles a row, 33,700 cycles, 19.2 us
//   shared     8 table reads, 3 of the record, 1 write, 5 shuffles, 2 for the scale, 4 for the store, 2 for the load:
//              25 cycles of the SM a row, 37,300 cycles, 21.2 us
//   start      the table is 256 cycles of stores for a block, 3 blocks at once: 0.5 us
//
// The three kinds of work and the traffic go on side by side, in 48 warps of an SM, so the traffic should bind: 28 us
// and what does not overlap. At 1 us of latency 4.3 TB/s need 57 records in flight per SM; there are 48 * 8.
//
// HOST MEMORY. The 18.9 MB of records cross PCIe, 96 bytes each in one or two requests: 0.34 ms at 55 GB/s (0.24 ms for
// the bytes used). At 2.5 us of latency that needs 11 records in flight per SM.
//
// ANY LAYOUT. Lanes load the words around their group straight from memory, those of two rows at once; shifts are in
// registers; the end of a code is joined to its start where a group needs it. A step is at most 233 instructions, not
// 68, and mostly about half of that, so mixed rates are bound by issue slots, not by memory: an estimate of 30 to 60 us
// for the request above. Layouts that are worth more than that get a kernel by a line in COMMON_LAYOUTS.

#ifndef CONDPROG_HOST
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
typedef int i32;

// a * b + c on two bf16 numbers, each rounded once, to nearest even.
__device__ __forceinline__ u32 fma_bf16x2(u32 a, u32 b, u32 c) {
    u32 d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

// Bytes of b:a by the four nibbles of `order`, which must be below 8 (__byte_perm would mask them first).
__device__ __forceinline__ u32 permute(u32 a, u32 b, u32 order) {
    u32 d;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(order));
    return d;
}

// Two binary32 numbers to f16 bits, to nearest even, with subnormals and infinities; `high` to the upper half.
__device__ __forceinline__ u32 pack_f16x2(float high, float low) {
    u32 d;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
    return d;
}
#endif

// ---- What the host passes; kernels/src/cuda.rs has the same structures ----

// Consecutive rows of one layout, their records back to back at any address. Aligned 4-byte words that hold a byte of
// a record must be readable.
struct Segment {
    u64 first; // id of the first row; ascending, 0 in the first segment
    u64 records; // address
    u32 record_bytes;
    u32 rate; // quarter bits per value
};

struct Request {
    const void* ids;         // `count` signed integers of `id_bytes` bytes
    void* out;               // `count` rows of `dim` values; for the common layouts 16-byte aligned
    u64* missing;            // where the least position of an id that names no row goes (by minimum); may be null
    const Segment* segments; // `segment_count` of them, at least 1
    u64 count;
    u64 rows; // ids below this name a row
    u32 segment_count;
    u32 dim;
    u32 id_bytes;   // 4 or 8
    u32 chunk_log2; // rows that a warp takes at a time, as a power of two: 0..3
};

// ---- Numbers of the format; a test compares them with core's ----

#define STATE_BITS 16
#define EXPONENT_BIAS 48
#define MANTISSA_BITS 6

static __constant__ u8 LEVELS[128] = {
    1,  1,  1,  2,  2,  2,  3,  3,  4,  4,  5,  5,  5,  6,  6,  7,
    7,  8,  8,  8,  9,  9,  10, 10, 11, 11, 12, 12, 12, 13, 13, 14,
    14, 15, 15, 16, 16, 17, 17, 17, 18, 18, 19, 19, 20, 20, 21, 21,
    22, 22, 23, 23, 24, 24, 25, 25, 26, 26, 27, 27, 28, 28, 29, 29,
    30, 31, 31, 32, 32, 33, 33, 34, 34, 35, 36, 36, 37, 37, 38, 39,
    39, 40, 41, 41, 42, 43, 43, 44, 45, 46, 46, 47, 48, 49, 49, 50,
    51, 52, 53, 54, 55, 56, 57, 57, 59, 60, 61, 62, 63, 64, 65, 67,
    68, 70, 71, 73, 75, 77, 79, 81, 83, 86, 89, 93, 97, 103, 111, 127,
};

// ---- Shape of the launch; a test compares them with kernels/src/cuda.rs ----

#define WARP 32
#define BLOCK 512
#define BLOCKS_PER_SM 3
#define CHUNK 8

#define ALL_LANES 0xffffffffu
#define TABLE_WORDS (256 * WARP)

// ---- The program: table of signed levels, one value ----

// Writes the binary32 bits of the signed level of each h[15:8], once for every bank.
__device__ __forceinline__ void fill_table(u32 (&table)[TABLE_WORDS]) {
    for (u32 i = threadIdx.x; i < TABLE_WORDS / 4; i += blockDim.x) {
        u32 entry = i / (WARP / 4);
        u32 bits = __float_as_uint((float)LEVELS[entry & 127]) | (entry & 128) << 24;
        *(uint4*)&table[4 * i] = make_uint4(bits, bits, bits, bits);
    }
}

// Binary32 bits of the signed level of the state in bits 15..0 of `x`, with the variant in bits 14..11 of `scale`.
// Bits above them do not matter.
__device__ __forceinline__ u32 signed_level(const u32 (&table)[TABLE_WORDS], u32 lane, u32 x, u32 scale) {
    u32 half_hash = x * x + ((x >> 1) + scale);
    return table[((half_hash & 0x7f80) | lane << 2) >> 2];
}

// The 32 bits from bit `at` on of the 64 bits high:low, most significant first, at the low end: bits above the state
// may hold what precedes it.
__device__ __forceinline__ u32 state_at(u32 high, u32 low, u32 at) {
    return at <= STATE_BITS ? high >> (STATE_BITS - at) : __funnelshift_l(low, high, at - STATE_BITS);
}

// ---- Scales ----

// A scale field as the rows need it: the binary32 bits of alpha, which end in zeros, and among those v << 11.
__device__ __forceinline__ u32 scale_word(u32 field) {
    const u32 exponent_and_mantissa = field & 0xfff;
    const u32 alpha = (exponent_and_mantissa << (23 - MANTISSA_BITS)) + ((127 - EXPONENT_BIAS) << 23);
    return (exponent_and_mantissa ? alpha : 0) | (field >> 1 & 0x7800);
}

// ---- Output formats: values in pairs ----

struct Bf16 {
    static constexpr u32 SIZE = 2;
    u32 alpha; // twice; alpha has 7 significant bits and bf16 has 8
    __device__ __forceinline__ explicit Bf16(u32 scale) : alpha(permute(scale, 0, 0x3232)) {}
    __device__ __forceinline__ void pair(u32 first, u32 second, u32* words) const {
        words[0] = fma_bf16x2(alpha, permute(first, second, 0x7632), 0);
    }
};

struct F16 {
    static constexpr u32 SIZE = 2;
    float alpha;
    __device__ __forceinline__ explicit F16(u32 scale) : alpha(__uint_as_float(scale & 0xffff0000)) {}
    __device__ __forceinline__ void pair(u32 first, u32 second, u32* words) const {
        words[0] = pack_f16x2(__fmaf_rn(alpha, __uint_as_float(second), 0.0f),
                              __fmaf_rn(alpha, __uint_as_float(first), 0.0f));
    }
};

struct F32 {
    static constexpr u32 SIZE = 4;
    float alpha;
    __device__ __forceinline__ explicit F32(u32 scale) : alpha(__uint_as_float(scale & 0xffff0000)) {}
    __device__ __forceinline__ void pair(u32 first, u32 second, u32* words) const {
        words[0] = __float_as_uint(__fmaf_rn(alpha, __uint_as_float(first), 0.0f));
        words[1] = __float_as_uint(__fmaf_rn(alpha, __uint_as_float(second), 0.0f));
    }
};

// ---- Rows ----

// What rows of zeros are read from by the kernels of the common layouts: a zero code and a zero scale.
static __device__ const u32 ZEROS[WARP] = {0};

__device__ __forceinline__ i64 read_id(const Request& request, u64 position) {
    if (request.id_bytes == 8) return __ldg((const i64*)request.ids + position);
    return __ldg((const i32*)request.ids + position);
}

// Where a row is stored.
struct Place {
    u64 record; // address; 0 for a row of zeros
    u32 rate;
};

__device__ __forceinline__ Place locate(const Request& request, u64 position, i64 id) {
    // A negative id is above every row count as an unsigned number.
    if ((u64)id >= request.rows) {
        if (request.missing) atomicMin(request.missing, position);
        return {0, 4};
    }
    // The last segment that starts at or before the row: one without rows is never it.
    u32 index = 0;
    for (u32 left = request.segment_count; left > 1;) {
        u32 half = left / 2;
        if (__ldg(&request.segments[index + half].first) <= (u64)id) index += half;
        left -= half;
    }
    const Segment* segment = &request.segments[index];
    u64 row = (u64)id - __ldg(&segment->first);
    return {__ldg(&segment->records) + row * __ldg(&segment->record_bytes), __ldg(&segment->rate)};
}

// The work of one warp: chunks of rows that start at `first`, `first + step`, ... below the request's count.
struct Share {
    u32 lane, warp;
    u64 first, step;
};

__device__ __forceinline__ Share share_of(const Request& request) {
    Share share;
    share.lane = threadIdx.x % WARP;
    // Through a shuffle, so that the compiler sees that a warp does not diverge.
    share.warp = __shfl_sync(ALL_LANES, threadIdx.x / WARP, 0);
    const u32 warps = blockDim.x / WARP;
    share.first = ((u64)blockIdx.x * warps + share.warp) << request.chunk_log2;
    share.step = ((u64)gridDim.x * warps) << request.chunk_log2;
    return share;
}

// Rows of the chunk that starts at `first`, 0 beyond the end of the request.
__device__ __forceinline__ u32 rows_from(const Request& request, u64 first) {
    const u32 most = 1u << request.chunk_log2;
    if (first + most <= request.count) return most;
    return first < request.count ? (u32)(request.count - first) : 0;
}

__device__ __forceinline__ i64 read_id_of(const Request& request, u64 first, u32 rows, u32 lane) {
    return lane < rows ? read_id(request, first + lane) : 0;
}

__device__ __forceinline__ Place locate_row_of(const Request& request, u64 first, u32 rows, u32 lane, i64 id) {
    if (lane < rows) return locate(request, first + lane, id);
    return {0, 4};
}

__device__ __forceinline__ u64 shuffle(u64 value, u32 lane) {
    u32 low = __shfl_sync(ALL_LANES, (u32)value, lane);
    u32 high = __shfl_sync(ALL_LANES, (u32)(value >> 32), lane);
    return (u64)high << 32 | low;
}

// ---- The common layouts ----

template <u32 RATE, u32 DIM> struct Layout {
    static constexpr u32 BITS = DIM * RATE / 4;
    static constexpr u32 WORDS = BITS / 32;
    static constexpr u32 RECORD = BITS / 8 + 2;
    static_assert(BITS % 32 == 0, "code words are whole");
    static_assert((RECORD + 3 + 3) / 4 <= WARP, "a record is one load of a warp");
};

// One chunk of records on their way from memory.
struct Flight {
    u32 words[CHUNK]; // of record j the word that is this lane's
    u32 turn;         // of the record of this lane's row: by how many bytes it misses a word, in each of four nibbles
};

template <u32 RECORD> __device__ __forceinline__ Flight load_chunk(Place place, u32 lane) {
    Flight flight;
    const u64 record = place.record ? place.record : (u64)(size_t)ZEROS;
    const u64 word = record & ~3ull;
    flight.turn = (u32)(record & 3) * 0x1111;
    // A lane loads when the record reaches into its word: always, from some offset on, or never.
    const u32 least = 4 * lane < RECORD ? 0 : (4 * lane - RECORD + 1) * 0x1111;
#pragma unroll
    for (u32 j = 0; j < CHUNK; j++) {
        const u32* own = (const u32*)(size_t)shuffle(word, j) + lane;
        flight.words[j] = __shfl_sync(ALL_LANES, flight.turn, j) >= least ? __ldg(own) : 0;
    }
    return flight;
}

// Lays a chunk down in shared memory, a word per lane and record: code words with their first bit on top, then the
// scale. What follows is never read.
__device__ __forceinline__ void stage_chunk(const Flight& flight, u32 words, u32* stage, u32 lane) {
    const u32 order = lane == words ? 0x0010 : 0x0123;
#pragma unroll
    for (u32 j = 0; j < CHUNK; j++) {
        u32 turn = __shfl_sync(ALL_LANES, flight.turn, j);
        u32 next = __shfl_down_sync(ALL_LANES, flight.words[j], 1);
        stage[j * WARP + lane] = permute(flight.words[j], next, order + turn);
    }
    __syncwarp();
    // The scale of record j is lane j's to prepare.
    if (lane < CHUNK) {
        u32* scale = &stage[lane * WARP + words];
        *scale = scale_word(*scale);
    }
    __syncwarp();
}

template <u32 RATE, u32 DIM, class OUT>
__device__ __forceinline__ void decode_chunk(const u32 (&table)[TABLE_WORDS], const u32* stage, u32 lane, u32 rows,
                                             u8* out) {
    constexpr u32 WORDS = Layout<RATE, DIM>::WORDS, GROUP = 16 / OUT::SIZE, GROUPS = DIM / GROUP;
    static_assert(DIM % GROUP == 0, "rows are whole groups");
    const u32 steps = (rows * GROUPS + WARP - 1) / WARP;
    out += 16 * lane;
#pragma unroll 1
    for (u32 step = 0; step < steps; step++, out += 16 * WARP) {
        u32 row, group;
        if constexpr (GROUPS % WARP == 0) { // a step lies within a row
            row = step / (GROUPS / WARP);
            group = step % (GROUPS / WARP) * WARP + lane;
        } else {
            row = (step * WARP + lane) / GROUPS;
            group = (step * WARP + lane) % GROUPS;
            if (row >= rows) return;
        }
        const u32 bit = group * (GROUP * RATE / 4), word = bit / 32, shift = bit % 32;
        const u32* code = stage + row * WARP;
        const u32 first = code[word];
        const u32 second = code[word + 1 == WORDS ? 0 : word + 1]; // the code is cyclic
        const u32 scale = code[WORDS];
        const u32 high = __funnelshift_l(second, first, shift), low = second << shift;
        const OUT output(scale);
        u32 words[4];
#pragma unroll
        for (u32 j = 0; j < GROUP; j += 2) {
            u32 a = signed_level(table, lane, state_at(high, low, j * RATE / 4), scale);
            u32 b = signed_level(table, lane, state_at(high, low, (j + 1) * RATE / 4), scale);
            output.pair(a, b, &words[j * OUT::SIZE / 4]);
        }
        *(uint4*)out = make_uint4(words[0], words[1], words[2], words[3]);
    }
}

template <u32 RATE, u32 DIM, class OUT>
__device__ __forceinline__ void decode_common(const Request& request, u32 (&table)[TABLE_WORDS],
                                              u32 (&stages)[BLOCK / WARP][CHUNK * WARP]) {
    typedef Layout<RATE, DIM> L;
    const Share share = share_of(request);
    const u32 lane = share.lane;
    u32* stage = stages[share.warp];
    u64 first = share.first;
    u32 rows = rows_from(request, first);

    // The first ids travel while the table is written.
    i64 id = read_id_of(request, first, rows, lane);
    fill_table(table);
    __syncthreads();
    if (rows == 0) return;

    u64 next = first + share.step;
    u32 next_rows = rows_from(request, next);
    Flight flight = load_chunk<L::RECORD>(locate_row_of(request, first, rows, lane, id), lane);
    id = read_id_of(request, next, next_rows, lane);
    while (true) {
        stage_chunk(flight, L::WORDS, stage, lane);
        u8* out = (u8*)request.out + first * (DIM * OUT::SIZE);
        const u32 now = rows;
        first = next;
        rows = next_rows;
        if (rows) {
            flight = load_chunk<L::RECORD>(locate_row_of(request, first, rows, lane, id), lane);
            next = first + share.step;
            next_rows = rows_from(request, next);
            id = read_id_of(request, next, next_rows, lane);
        }
        decode_chunk<RATE, DIM, OUT>(table, stage, lane, now, out);
        if (!rows) return;
        __syncwarp();
    }
}

// ---- Any layout ----

// Aligned words around a bit of a code; 44 bits are needed and 31 more may precede them.
struct Words {
    u32 word[3];
};

// Loads what a group at bit `bit` needs, up to the end of the code.
__device__ __forceinline__ Words load_words(u64 record, u32 code_bytes, u32 bit) {
    u64 address = (record + bit / 8) & ~3ull;
    Words words;
#pragma unroll
    for (u32 k = 0; k < 3; k++) {
        u64 at = address + 4 * k;
        words.word[k] = at < record + code_bytes ? __ldg((const u32*)(size_t)at) : 0;
    }
    return words;
}

// The 64 bits at bit `bit`, of which the first 44 are good, or fewer where the code ends before.
__device__ __forceinline__ u64 window(const Words& words, u64 record, u32 bit) {
    u32 shift = (u32)(record + bit / 8) % 4 * 8 + bit % 8;
    u32 a = permute(words.word[0], 0, 0x0123);
    u32 b = permute(words.word[1], 0, 0x0123);
    u32 c = permute(words.word[2], 0, 0x0123);
    return (u64)__funnelshift_l(b, a, shift) << 32 | __funnelshift_l(c, b, shift);
}

__device__ __forceinline__ u64 first_bits(u64 bits, u32 count) { return bits & ~(~0ull >> count); }

// The same with the start of the code after its end. Once is enough: a code has 16 bits or more, and the last value of
// a row starts before its end.
__device__ __forceinline__ u64 cyclic_window(u64 bits, u64 record, u32 code_bits, u32 bit) {
    const u32 left = code_bits - bit;
    if (left >= 44) return bits;
    u64 head = window(load_words(record, (code_bits + 7) / 8, 0), record, 0);
    return first_bits(bits, left) | head >> left;
}

// Up to GROUP values at `out`, with the widest stores that alignment and length allow.
template <class OUT>
__device__ __forceinline__ void store_group(u8* out, bool aligned, u32 values, const u32 (&words)[4]) {
    if (aligned && values * OUT::SIZE >= 16) {
        *(uint4*)out = make_uint4(words[0], words[1], words[2], words[3]);
        return;
    }
#pragma unroll
    for (u32 j = 0; j < 16 / OUT::SIZE; j++) {
        if (j >= values) break;
        if (OUT::SIZE == 4) ((u32*)out)[j] = words[j];
        else ((u16*)out)[j] = (u16)(words[j / 2] >> j % 2 * 16);
    }
}

#define ANY_CHUNK 2

template <class OUT>
__device__ __forceinline__ void decode_any(const Request& request, u32 (&table)[TABLE_WORDS]) {
    constexpr u32 GROUP = 16 / OUT::SIZE;
    const Share share = share_of(request);
    const u32 lane = share.lane;
    const u32 groups = (request.dim + GROUP - 1) / GROUP;
    const u64 row_bytes = (u64)request.dim * OUT::SIZE;
    const bool aligned = row_bytes % 16 == 0 && (size_t)request.out % 16 == 0;
    fill_table(table);
    __syncthreads();

    for (u64 first = share.first; first < request.count; first += share.step) {
        const u32 rows = rows_from(request, first);
        const Place own =
            locate_row_of(request, first, rows, lane, read_id_of(request, first, rows, lane));
#pragma unroll 1
        for (u32 done = 0; done < rows; done += ANY_CHUNK) {
            // The first group of each lane, for several rows at once.
            Words ahead[ANY_CHUNK];
            u32 scales[ANY_CHUNK], rates[ANY_CHUNK];
            u64 records[ANY_CHUNK];
#pragma unroll
            for (u32 j = 0; j < ANY_CHUNK; j++) {
                records[j] = shuffle(own.record, (done + j) % WARP);
                rates[j] = __shfl_sync(ALL_LANES, own.rate, (done + j) % WARP);
                scales[j] = 0;
                ahead[j] = {{0, 0, 0}};
                if (!records[j]) continue;
                u32 code_bytes = (request.dim * rates[j] / 4 + 7) / 8;
                const u8* scale = (const u8*)(size_t)(records[j] + code_bytes);
                scales[j] = scale_word(__ldg(scale) | (u32)__ldg(scale + 1) << 8);
                if (lane < groups) ahead[j] = load_words(records[j], code_bytes, lane * (GROUP * rates[j] / 4));
            }
#pragma unroll
            for (u32 j = 0; j < ANY_CHUNK; j++) {
                if (done + j >= rows) break;
                const u32 rate = rates[j], code_bits = request.dim * rate / 4;
                const OUT output(scales[j]);
                u8* out = (u8*)request.out + (first + done + j) * row_bytes;
#pragma unroll 1
                for (u32 group = lane; group < groups; group += WARP) {
                    u32 bit = group * (GROUP * rate / 4);
                    u64 bits = 0;
                    if (records[j]) {
                        Words words = ahead[j];
                        if (group != lane) words = load_words(records[j], (code_bits + 7) / 8, bit);
                        bits = cyclic_window(window(words, records[j], bit), records[j], code_bits, bit);
                    }
                    u32 high = (u32)(bits >> 32), low = (u32)bits, words[4];
#pragma unroll
                    for (u32 k = 0; k < GROUP; k += 2) {
                        u32 a = signed_level(table, lane, state_at(high, low, k * rate / 4), scales[j]);
                        u32 b = signed_level(table, lane, state_at(high, low, (k + 1) * rate / 4), scales[j]);
                        output.pair(a, b, &words[k * OUT::SIZE / 4]);
                    }
                    u32 left = request.dim - group * GROUP;
                    store_group<OUT>(out + (u64)group * 16, aligned, left < GROUP ? left : GROUP, words);
                }
            }
        }
    }
}

// ---- Entry points ----

#define COMMON(NAME, RATE, DIM, OUT)                                                                                  \
    extern "C" __global__ void __launch_bounds__(BLOCK, BLOCKS_PER_SM) NAME(const Request request) {                  \
        __shared__ __align__(16) u32 table[TABLE_WORDS];                                                              \
        __shared__ u32 stages[BLOCK / WARP][CHUNK * WARP];                                                            \
        decode_common<RATE, DIM, OUT>(request, table, stages);                                                        \
    }

#define COMMON_LAYOUTS(SUFFIX, OUT)                                                                                   \
    COMMON(decode_r8_d160_##SUFFIX, 8, 160, OUT)                                                                      \
    COMMON(decode_r6_d256_##SUFFIX, 6, 256, OUT)                                                                      \
    COMMON(decode_r8_d256_##SUFFIX, 8, 256, OUT)                                                                      \
    COMMON(decode_r10_d256_##SUFFIX, 10, 256, OUT)                                                                    \
    COMMON(decode_r12_d256_##SUFFIX, 12, 256, OUT)

#define ANY(NAME, OUT)                                                                                                \
    extern "C" __global__ void __launch_bounds__(BLOCK, BLOCKS_PER_SM) NAME(const Request request) {                  \
        __shared__ __align__(16) u32 table[TABLE_WORDS];                                                              \
        decode_any<OUT>(request, table);                                                                              \
    }

COMMON_LAYOUTS(bf16, Bf16)
COMMON_LAYOUTS(f16, F16)
COMMON_LAYOUTS(f32, F32)
ANY(decode_any_bf16, Bf16)
ANY(decode_any_f16, F16)
ANY(decode_any_f32, F32)
