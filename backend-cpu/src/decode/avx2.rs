//! 16 states in a 256-bit vector, in 128-bit lanes of eight.
//!
//! Budget for 32 values at any rate, to bf16: 4 loads of code bytes, 4 byte shuffles, 4 multiplications and 2 merges
//! give the states (AVX2 has no shift by lanes of 16 bits: multiplying by a power of two shifts), 2 multiplications and
//! 6 additions their hashes, 4 operations the index bytes; looking 32 of them up in 128 entries of two planes takes 7
//! subtractions, 16 shuffles and 16 exclusive ors; 6 more for sign, exponent and interleaving, and 2 stores: about 75
//! operations on three ports, 200 cycles for 256 values.

use std::arch::x86_64::*;

use condprog_core::{Record, Scale};

use super::Half;
use super::plan::{Aligned, GROUP, Plan, Scratch, unroll};
use super::scaled::{self, LEVELS, Planes};

static LEVEL_BYTES: Aligned<[u8; 128]> = Aligned(LEVELS);

/// Decodes rows to 16-bit numbers.
///
/// # Safety
/// The CPU must have the features of [`crate::Isa::Avx2`].
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn rows16(plan: &Plan, records: &[&[u8]], half: Half, out: &mut [u16], scratch: &mut Scratch) {
    let (layout, dim, stride) = (plan.layout, plan.layout.dim() as usize, Scratch::stride(plan.layout));
    let codes = scratch.room(layout, records.len());
    unroll_all(plan, records, codes);
    let rows = records.iter().zip(codes.chunks_exact(stride)).zip(out.chunks_exact_mut(dim));
    for ((bytes, code), out) in rows {
        let scale = Record::new(layout, bytes).scale;
        if scale.is_zero() {
            out.fill(0);
            continue;
        }
        let own;
        let (planes, add) = match half {
            Half::Bf16 => scaled::bf16(scale),
            Half::F16 => {
                own = f16(scale);
                (&own, 0)
            }
        };
        let planes = [tables(&planes.low), tables(&planes.high)];
        let add = _mm256_set1_epi8(add as i8);
        let hashes = Hashes::new(plan, code, scale.variant());
        for (group, out) in out.chunks_mut(GROUP).enumerate() {
            // SAFETY: a row of `dim` values is as many groups as its hashes have.
            let (h0, h1) = unsafe { hashes.group(group) };
            let index = index(h0, h1);
            let sign = _mm256_and_si256(index, _mm256_set1_epi8(i8::MIN));
            let [low, high] = look_up(&planes, index);
            let high = _mm256_or_si256(_mm256_add_epi8(high, add), sign);
            // `index` packed lane by lane, unpacking undoes it.
            let values = [_mm256_unpacklo_epi8(low, high), _mm256_unpackhi_epi8(low, high)];
            if let Ok(out) = <&mut [u16; GROUP]>::try_from(&mut *out) {
                // SAFETY: there is room for 32 values.
                unsafe { store16(out, values) }
            } else {
                let mut all = [0; GROUP];
                // SAFETY: there is room for 32 values.
                unsafe { store16(&mut all, values) }
                out.copy_from_slice(&all[..out.len()]);
            }
        }
    }
}

/// Decodes rows to binary32 numbers.
///
/// # Safety
/// As [`rows16`].
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn rows32(plan: &Plan, records: &[&[u8]], out: &mut [f32], scratch: &mut Scratch) {
    let (layout, dim, stride) = (plan.layout, plan.layout.dim() as usize, Scratch::stride(plan.layout));
    let codes = scratch.room(layout, records.len());
    unroll_all(plan, records, codes);
    let levels = [tables(&LEVEL_BYTES.0)];
    let rows = records.iter().zip(codes.chunks_exact(stride)).zip(out.chunks_exact_mut(dim));
    for ((bytes, code), out) in rows {
        let scale = Record::new(layout, bytes).scale;
        if scale.is_zero() {
            out.fill(0.0);
            continue;
        }
        // Exact: alpha has 7 significant bits and the product 14.
        let alpha = _mm256_set1_ps(scale.alpha() as f32);
        let hashes = Hashes::new(plan, code, scale.variant());
        for (group, out) in out.chunks_mut(GROUP).enumerate() {
            // SAFETY: a row of `dim` values is as many groups as its hashes have.
            let (h0, h1) = unsafe { hashes.group(group) };
            let index = index(h0, h1);
            let [magnitudes] = look_up(&levels, index);
            let negative = _mm256_cmpgt_epi8(_mm256_setzero_si256(), index);
            let level = _mm256_sub_epi8(_mm256_xor_si256(magnitudes, negative), negative);
            // Back to the order of values: `index` packed lane by lane.
            let ordered = _mm256_permute4x64_epi64(level, 0b11_01_10_00);
            let mut bytes = [0i8; GROUP];
            // SAFETY: the array is 32 bytes.
            unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), ordered) }
            let mut values = [0.0f32; GROUP];
            for (values, bytes) in values.chunks_exact_mut(8).zip(bytes.chunks_exact(8)) {
                // SAFETY: eight bytes are read and eight values written.
                unsafe {
                    let level = _mm256_cvtepi8_epi32(_mm_loadl_epi64(bytes.as_ptr().cast()));
                    _mm256_storeu_ps(values.as_mut_ptr(), _mm256_mul_ps(_mm256_cvtepi32_ps(level), alpha));
                }
            }
            out.copy_from_slice(&values[..out.len()]);
        }
    }
}

/// As [`scaled::f16`]; the conversion rounds once, to nearest even, whatever the CPU's rounding mode.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn f16(scale: Scale) -> Planes {
    let alpha = _mm256_set1_ps(scale.alpha() as f32);
    let mut words = [0; 128];
    for (words, levels) in words.chunks_exact_mut(8).zip(LEVEL_BYTES.0.chunks_exact(8)) {
        // SAFETY: eight bytes are read and eight words written.
        unsafe {
            let levels = _mm256_cvtepu8_epi32(_mm_loadl_epi64(levels.as_ptr().cast()));
            let values = _mm256_mul_ps(_mm256_cvtepi32_ps(levels), alpha);
            let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(values);
            _mm_storeu_si128(words.as_mut_ptr().cast(), halves);
        }
    }
    Planes::of(&words)
}

/// All codes first: what is stored here is read back in other pieces, which would stall if it were still in flight.
fn unroll_all(plan: &Plan, records: &[&[u8]], codes: &mut [u8]) {
    for (bytes, code) in records.iter().zip(codes.chunks_exact_mut(Scratch::stride(plan.layout))) {
        unroll(plan.layout, Record::new(plan.layout, bytes).code, code);
    }
}

/// # Safety
/// The CPU must have AVX2.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store16(out: &mut [u16; GROUP], values: [__m256i; 2]) {
    let out = out.as_mut_ptr().cast::<__m256i>();
    // SAFETY: 32 values are two vectors.
    unsafe {
        _mm256_storeu_si256(out, values[0]);
        _mm256_storeu_si256(out.add(1), values[1]);
    }
}

/// The top bytes of 32 hashes, sign and index, as `unpack` will want them: lane by lane.
#[inline]
#[target_feature(enable = "avx2")]
fn index(h0: __m256i, h1: __m256i) -> __m256i {
    _mm256_packus_epi16(_mm256_srli_epi16(h0, 8), _mm256_srli_epi16(h1, 8))
}

/// 128 bytes to be looked up by shuffles of 16: each table holds the difference to the one before, so that the
/// exclusive or of all tables up to the one an index falls into is the entry.
#[inline]
#[target_feature(enable = "avx2")]
fn tables(bytes: &[u8; 128]) -> [__m256i; 8] {
    let mut tables = [_mm256_setzero_si256(); 8];
    let mut before = _mm256_setzero_si256();
    for (table, bytes) in tables.iter_mut().zip(bytes.chunks_exact(16)) {
        // SAFETY: 16 bytes are read.
        let own = unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(bytes.as_ptr().cast())) };
        *table = _mm256_xor_si256(own, before);
        before = own;
    }
    tables
}

/// Looks the low seven bits of 32 bytes up in several tables. A shuffle gives zero where its index is negative, and
/// `index - 16k` is that for the tables above the one it falls into.
///
/// One call for all planes: called twice, the compiler would not inline it.
#[inline]
#[target_feature(enable = "avx2")]
fn look_up<const PLANES: usize>(planes: &[[__m256i; 8]; PLANES], index: __m256i) -> [__m256i; PLANES] {
    let mut step = _mm256_and_si256(index, _mm256_set1_epi8(127));
    let mut entries = [_mm256_setzero_si256(); PLANES];
    for k in 0..8 {
        for (entry, tables) in entries.iter_mut().zip(planes) {
            *entry = _mm256_xor_si256(*entry, _mm256_shuffle_epi8(tables[k], step));
        }
        step = _mm256_sub_epi8(step, _mm256_set1_epi8(16));
    }
    entries
}

/// The state hashes of one row.
struct Hashes<'a> {
    plan: &'a Plan,
    code: &'a [u8],
    groups: usize,
    variant: __m256i,
}

impl<'a> Hashes<'a> {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new(plan: &'a Plan, code: &'a [u8], variant: u8) -> Hashes<'a> {
        let groups = (plan.layout.dim() as usize).div_ceil(GROUP);
        assert!(code.len() >= (groups - 1) * plan.group_bytes + plan.lane_offsets[3] + 16, "room for 16 bytes");
        Hashes { plan, code, groups, variant: _mm256_set1_epi16((u16::from(variant) << 12) as i16) }
    }

    /// The hashes of the 32 states of a group: values 0..8 and 8..16 in the lanes of the first vector, 16..24 and
    /// 24..32 in those of the second. [`index`] and `unpack` keep each lane together.
    ///
    /// # Safety
    /// `group` must be below the number of groups of the row, `dim` by [`GROUP`] rounded up.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn group(&self, group: usize) -> (__m256i, __m256i) {
        debug_assert!(group < self.groups);
        // SAFETY: `new` has checked that all lanes of all groups have 16 bytes, and this is one of them.
        unsafe {
            let code = self.code.as_ptr().add(group * self.plan.group_bytes);
            (self.lanes(code, 0), self.lanes(code, 2))
        }
    }

    /// Lanes `lane` and `lane + 1` of a group, `lane` being 0 or 2.
    ///
    /// # Safety
    /// From `code` on, 16 bytes must be readable behind the offsets of both lanes.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn lanes(&self, code: *const u8, lane: usize) -> __m256i {
        let plan = self.plan;
        // No closures here: they would be compiled without the instruction set, and called.
        // SAFETY: the caller vouches for the code; shuffles and powers are 64 bytes, of which 32 from 16 * lane bytes on
        // are read.
        let (code, first, third, powers) = unsafe {
            let (first, third, powers) = (plan.narrow.0[0].as_ptr(), plan.narrow.0[1].as_ptr(), plan.powers.0.as_ptr());
            (
                _mm256_loadu2_m128i(
                    code.add(plan.lane_offsets[lane + 1]).cast(),
                    code.add(plan.lane_offsets[lane]).cast(),
                ),
                _mm256_loadu_si256(first.add(16 * lane).cast()),
                _mm256_loadu_si256(third.add(16 * lane).cast()),
                _mm256_loadu_si256(powers.add(8 * lane).cast()),
            )
        };
        let first = _mm256_mullo_epi16(_mm256_shuffle_epi8(code, first), powers);
        // The third byte alone, in the low half: shifted left and then by eight to the right. (A high product of it in
        // the upper half would do the same, but the compiler makes eight instructions of that.)
        let third = _mm256_srli_epi16(_mm256_mullo_epi16(_mm256_shuffle_epi8(code, third), powers), 8);
        let state = _mm256_or_si256(first, third);
        // s * (2s + 1) = s * 2s + s
        let square = _mm256_mullo_epi16(state, _mm256_add_epi16(state, state));
        _mm256_add_epi16(square, _mm256_add_epi16(state, self.variant))
    }
}
