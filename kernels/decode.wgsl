// Conditional Program, format version 1: decodes the rows of a request. Section numbers are those of core/SPEC.md.
//
// Integers only. WGSL promises neither a rounding mode nor subnormals, and drivers do differ, so no float type and no
// float literal appears below: outputs are computed as bits, two 16-bit values or one binary32 to a word.
//
// Baseline WebGPU only: no optional feature, default limits. The kernels crate asserts every number here that
// core defines to be core's.

// Section 3.1: the magnitudes of the shared program, four to a word, the first in the low byte. A private array and
// not a constant, which naga copies at each look-up, or workgroup memory, whose barrier costs a software driver more
// than the decoding: 0.08, 0.37 and 1.12 M rows/s on lavapipe, and 1.26 packed.
var<private> LEVELS: array<u32, 32> = array<u32, 32>(
    0x02010101, 0x03030202, 0x05050404, 0x07060605, 0x08080807, 0x0a0a0909, 0x0c0c0b0b, 0x0e0d0d0c,
    0x100f0f0e, 0x11111110, 0x13131212, 0x15151414, 0x17171616, 0x19191818, 0x1b1b1a1a, 0x1d1d1c1c,
    0x201f1f1e, 0x22212120, 0x24242322, 0x27262525, 0x29292827, 0x2c2b2b2a, 0x2f2e2e2d, 0x32313130,
    0x36353433, 0x39393837, 0x3e3d3c3b, 0x4341403f, 0x49474644, 0x514f4d4b, 0x5d595653, 0x7f6f6761,
);

// Section 4: bits of a state. Section 5: mantissa bits of a scale, and alpha = (64 + m) * 2^(x - ALPHA_BIAS).
const STATE_BITS: u32 = 16;
const MANTISSA_BITS: u32 = 6;
const ALPHA_BIAS: u32 = 54;

// Threads of a workgroup.
const WORKGROUP: u32 = 64;

// A group is what a thread decodes at a time: eight values. Eight steps are a whole number of bits at every rate, so
// a group's first state starts at a whole bit; at most 4 bits per value, its states lie within 7 * 4 + 16 = 44 bits.
// Rows are padded to whole groups in the output.
const GROUP: u32 = 8;

// Consecutive groups of a row that one thread decodes.
override groups_per_thread: u32 = 1;

// The record number of a row that is missing and gives zeros.
const MISSING: u32 = 0xffffffff;

const BF16: u32 = 0;
const F16: u32 = 1;
const F32: u32 = 2;

// A part of a table: records of one layout, in one binding.
struct Part {
    dim: u32,
    rate: u32, // quarter bits per value
    code_bits: u32,
    record_bytes: u32,
    index: u32,
}

// The part's records back to back, as in a file, and at least 12 more bytes.
@group(0) @binding(0) var<storage, read> records: array<u32>;
@group(0) @binding(1) var<uniform> part: Part;
// For each part of the table, by its index, where its jobs start in this array and how many they are; then the jobs. A
// job is a record, counted in its part, and the row's place in the output, counted in rows.
@group(1) @binding(0) var<storage, read> request: array<vec2<u32>>;
@group(1) @binding(1) var<storage, read_write> output: array<vec4<u32>>;

@compute @workgroup_size(WORKGROUP)
fn decode_bf16(@builtin(global_invocation_id) id: vec3<u32>) {
    decode(id.x, BF16);
}

@compute @workgroup_size(WORKGROUP)
fn decode_f16(@builtin(global_invocation_id) id: vec3<u32>) {
    decode(id.x, F16);
}

@compute @workgroup_size(WORKGROUP)
fn decode_f32(@builtin(global_invocation_id) id: vec3<u32>) {
    decode(id.x, F32);
}

// Decodes the groups of one thread; dtype is a constant where this is called.
fn decode(thread: u32, dtype: u32) {
    let groups = (part.dim + GROUP - 1) / GROUP;
    let threads_per_row = (groups + groups_per_thread - 1) / groups_per_thread;
    let row = thread / threads_per_row;
    let jobs = request[part.index];
    if row >= jobs.y {
        return;
    }
    let job = request[jobs.x + row];
    let first = (thread - row * threads_per_row) * groups_per_thread;
    let end = min(first + groups_per_thread, groups);
    // A missing row is decoded as a zero row.
    var start = 0u;
    var scale = 0u;
    if job.x != MISSING {
        start = job.x * part.record_bytes * 8;
        scale = scale_field(start);
    }
    for (var group = first; group < end; group++) {
        var words: array<u32, 8>;
        if (scale & 0xfff) != 0 {
            words = group_words(start, scale, group, dtype);
        }
        let at = job.y * groups + group;
        if dtype == F32 {
            output[2 * at] = vec4(words[0], words[1], words[2], words[3]);
            output[2 * at + 1] = vec4(words[4], words[5], words[6], words[7]);
        } else {
            output[at] = vec4(
                words[0] | (words[1] << 16),
                words[2] | (words[3] << 16),
                words[4] | (words[5] << 16),
                words[6] | (words[7] << 16),
            );
        }
    }
}

// The output bits of the eight values of a group.
fn group_words(start: u32, scale: u32, group: u32, dtype: u32) -> array<u32, 8> {
    let window = cyclic_bits(start, group * (GROUP * part.rate / 4));
    var words: array<u32, 8>;
    for (var i = 0u; i < GROUP; i++) {
        let state = funnel(window.x, window.y, i * part.rate / 4) >> (32 - STATE_BITS);
        let bits = binary32(scale, hash(state, scale >> 12));
        switch dtype {
            case BF16: {
                words[i] = round_bf16(bits);
            }
            case F16: {
                words[i] = round_f16(bits);
            }
            default: {
                words[i] = bits;
            }
        }
    }
    return words;
}

// Section 3.2.
fn hash(state: u32, variant: u32) -> u32 {
    return (state * (2 * state + 1) + (variant << 12)) & 0xffff;
}

// Section 3.3: the magnitude; the sign is bit 15 of the hash.
fn level(h: u32) -> u32 {
    let index = (h >> 8) & 0x7f;
    return (LEVELS[index / 4] >> (index % 4 * 8)) & 0xff;
}

// Section 7: bits of the exact product of alpha and the level a hash stands for. Always a normal number.
fn binary32(scale: u32, h: u32) -> u32 {
    let significand = (1u << MANTISSA_BITS) | (scale & ((1u << MANTISSA_BITS) - 1));
    let exponent = (scale >> MANTISSA_BITS) & 0x3f;
    let product = significand * level(h);
    let top = firstLeadingBit(product);
    let sign = (h & 0x8000) << 16;
    return sign | ((exponent + top + (127 - ALPHA_BIAS)) << 23) | ((product << (23 - top)) & 0x7fffff);
}

// To nearest, ties to even.
fn round_bf16(bits: u32) -> u32 {
    return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

// To nearest, ties to even, with subnormals and infinities.
fn round_f16(bits: u32) -> u32 {
    let sign = (bits >> 16) & 0x8000;
    let exponent = (bits >> 23) & 0xff;
    if exponent < 127 - 25 {
        return sign; // below half of the smallest subnormal
    }
    if exponent > 127 + 15 {
        return sign | 0x7c00;
    }
    let significand = (bits & 0x7fffff) | 0x800000;
    // Bits to drop: 13 for a normal result, more for a subnormal one. The exponent field is then added to what is
    // kept, less the one that a normal significand's leading bit adds; a carry moves into it as it must.
    let drop = max(13, 126 - min(exponent, 113));
    let kept = significand >> drop;
    let rounded = (significand + (1u << (drop - 1)) - 1 + (kept & 1)) >> drop;
    return sign | (((max(exponent, 113) - 113) << 10) + rounded);
}

// Section 5: the field behind the code, little-endian.
fn scale_field(start: u32) -> u32 {
    let bits = record_bits(start + (part.record_bytes - 2) * 8).x;
    return (bits >> 24) | ((bits >> 8) & 0xff00);
}

// Section 4.2: the bits of the cyclic code from bit `at` on, which lies below code_bits; as many of the 64 as the states
// of the row's values need. The last state starts before the code's end and is no longer than the code, so the code
// comes round once at most.
fn cyclic_bits(start: u32, at: u32) -> vec2<u32> {
    var bits = record_bits(start + at);
    // Of these the first `have` are the code's; its head follows them.
    let have = part.code_bits - at;
    if have < 64 {
        let head = record_bits(start);
        if have < 32 {
            bits.x = (bits.x & ~(0xffffffffu >> have)) | (head.x >> have);
            bits.y = funnel(head.x, head.y, 32 - have);
        } else {
            bits.y = (bits.y & ~(0xffffffffu >> (have - 32))) | (head.x >> (have - 32));
        }
    }
    return bits;
}

// 64 bits of the binding from bit `at` on, most significant bit of byte 0 first.
fn record_bits(at: u32) -> vec2<u32> {
    let word = at / 32;
    let a = big_endian(records[word]);
    let b = big_endian(records[word + 1]);
    let c = big_endian(records[word + 2]);
    return vec2(funnel(a, b, at % 32), funnel(b, c, at % 32));
}

// The 32 bits of high:low from bit `at` on, `at` below 32.
fn funnel(high: u32, low: u32, at: u32) -> u32 {
    return (high << at) | ((low >> 1) >> (31 - at));
}

fn big_endian(word: u32) -> u32 {
    return (word << 24) | ((word << 8) & 0xff0000) | ((word >> 8) & 0xff00) | (word >> 24);
}
