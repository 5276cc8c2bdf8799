//! 32 states in a 512-bit vector.
//!
//! Budget for 256 values at 2 bits, to bf16, as the machine code has it (`cargo bench -p condprog-cpu` measures it):
//! per 64 values 4 byte permutations that gather the code, 2 double-word shifts, 2 multiplications, 8 additions or
//! logic operations for the hash and the sign, 2 two-register byte permutations that look up both planes, 2 shifts and
//! 2 merges, 2 stores: 24 operations on two ports, 48 cycles for a row, and about 10 more for scale and tables.

use std::arch::x86_64::*;

use condprog_core::{Record, Scale};

use super::Half;
use super::plan::{Aligned, GROUP, Plan, Scratch, WideShuffle, unroll};
use super::scaled::{self, LEVELS, Planes};

static LEVEL_BYTES: Aligned<[u8; 128]> = Aligned(LEVELS);

/// Decodes rows to 16-bit numbers.
///
/// # Safety
/// The CPU must have the features of [`crate::Isa::Avx512`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
pub(super) unsafe fn rows16(plan: &Plan, records: &[&[u8]], half: Half, out: &mut [u16], scratch: &mut Scratch) {
    if plan.fits_vector() {
        rows16_of::<true>(plan, records, half, out, scratch);
    } else {
        rows16_of::<false>(plan, records, half, out, scratch);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
fn rows16_of<const VECTOR: bool>(plan: &Plan, records: &[&[u8]], half: Half, out: &mut [u16], scratch: &mut Scratch) {
    let dim = plan.layout.dim() as usize;
    for (bytes, out) in records.iter().zip(out.chunks_exact_mut(dim)) {
        let record = Record::new(plan.layout, bytes);
        if record.scale.is_zero() {
            out.fill(0);
            continue;
        }
        let own;
        let (planes, add) = match half {
            Half::Bf16 => scaled::bf16(record.scale),
            Half::F16 => {
                own = f16(record.scale);
                (&own, 0)
            }
        };
        let add = _mm512_set1_epi8(add as i8);
        // SAFETY: each plane is 128 aligned bytes.
        let (low, high) = unsafe {
            let (low, high) = (planes.low.as_ptr(), planes.high.as_ptr());
            let low = [_mm512_load_si512(low.cast()), _mm512_load_si512(low.add(64).cast())];
            let high = [_mm512_load_si512(high.cast()), _mm512_load_si512(high.add(64).cast())];
            (low, [_mm512_add_epi8(high[0], add), _mm512_add_epi8(high[1], add)])
        };
        let hashes = Hashes::<VECTOR>::new(plan, &record, scratch);
        let (mut pairs, tail) = (out.chunks_exact_mut(2 * GROUP), dim / GROUP & !1);
        for (pair, out) in pairs.by_ref().enumerate() {
            // SAFETY: both groups have all their values in the row of `dim`.
            let (h0, h1) = unsafe { (hashes.group(2 * pair), hashes.group(2 * pair + 1)) };
            let (v0, v1) = look_up(low, high, h0, h1);
            // SAFETY: there is room for twice 32 values.
            unsafe {
                _mm512_storeu_si512(out.as_mut_ptr().cast(), v0);
                _mm512_storeu_si512(out.as_mut_ptr().add(GROUP).cast(), v1);
            }
        }
        for (group, out) in (tail..).zip(pairs.into_remainder().chunks_mut(GROUP)) {
            // SAFETY: the groups behind the last pair, of which at least the first value is in the row.
            let hash = unsafe { hashes.group(group) };
            let (values, _) = look_up(low, high, hash, hash);
            let mask = !0 >> (GROUP - out.len());
            // SAFETY: masked to the values there is room for.
            unsafe { _mm512_mask_storeu_epi16(out.as_mut_ptr().cast(), mask, values) }
        }
    }
}

/// The magnitudes of the top bytes of two groups' hashes, signs set.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
fn look_up(low: [__m512i; 2], high: [__m512i; 2], h0: __m512i, h1: __m512i) -> (__m512i, __m512i) {
    let (bytes, top) = (_mm512_set1_epi16(0x00ff), _mm512_set1_epi8(i8::MIN));
    // 0xca selects by the first operand.
    let index = _mm512_ternarylogic_epi32(bytes, _mm512_srli_epi16(h0, 8), h1, 0xca);
    let low = _mm512_permutex2var_epi8(low[0], index, low[1]);
    let high = _mm512_permutex2var_epi8(high[0], index, high[1]);
    let high = _mm512_ternarylogic_epi32(high, index, top, 0xf8); // high | index & top
    (
        _mm512_ternarylogic_epi32(bytes, low, _mm512_slli_epi16(high, 8), 0xca),
        _mm512_ternarylogic_epi32(bytes, _mm512_srli_epi16(low, 8), high, 0xca),
    )
}

/// Decodes rows to binary32 numbers.
///
/// # Safety
/// As [`rows16`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
pub(super) unsafe fn rows32(plan: &Plan, records: &[&[u8]], out: &mut [f32], scratch: &mut Scratch) {
    if plan.fits_vector() {
        rows32_of::<true>(plan, records, out, scratch);
    } else {
        rows32_of::<false>(plan, records, out, scratch);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
fn rows32_of<const VECTOR: bool>(plan: &Plan, records: &[&[u8]], out: &mut [f32], scratch: &mut Scratch) {
    let dim = plan.layout.dim() as usize;
    // SAFETY: the table is 128 aligned bytes.
    let levels = unsafe {
        let levels = LEVEL_BYTES.0.as_ptr();
        [_mm512_load_si512(levels.cast()), _mm512_load_si512(levels.add(64).cast())]
    };
    for (bytes, out) in records.iter().zip(out.chunks_exact_mut(dim)) {
        let record = Record::new(plan.layout, bytes);
        if record.scale.is_zero() {
            out.fill(0.0);
            continue;
        }
        // Exact: alpha has 7 significant bits and the product 14.
        let alpha = _mm512_set1_ps(record.scale.alpha() as f32);
        let hashes = Hashes::<VECTOR>::new(plan, &record, scratch);
        for (group, out) in out.chunks_mut(GROUP).enumerate() {
            // SAFETY: a row of `dim` values is as many groups as its hashes have.
            let h = unsafe { hashes.group(group) };
            let magnitudes = _mm512_permutex2var_epi8(levels[0], _mm512_srli_epi16(h, 8), levels[1]);
            let magnitudes = _mm512_and_si512(magnitudes, _mm512_set1_epi16(0x00ff));
            let mut values = [0.0f32; GROUP];
            for half in 0..2 {
                let part = |x| if half == 0 { _mm512_castsi512_si256(x) } else { _mm512_extracti64x4_epi64(x, 1) };
                let signs = _mm512_slli_epi32(_mm512_cvtepu16_epi32(part(h)), 16);
                let signs = _mm512_and_si512(signs, _mm512_set1_epi32(i32::MIN));
                let product = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepu16_epi32(part(magnitudes))), alpha);
                let product = _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(product), signs));
                // SAFETY: 16 values from 16 * half on are within the array of 32.
                unsafe { _mm512_storeu_ps(values.as_mut_ptr().add(16 * half), product) }
            }
            out.copy_from_slice(&values[..out.len()]);
        }
    }
}

/// As [`scaled::f16`]; the conversion rounds once, to nearest even, whatever the CPU's rounding mode.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
fn f16(scale: Scale) -> Planes {
    let alpha = _mm512_set1_ps(scale.alpha() as f32);
    let mut words = [0; 128];
    for (words, levels) in words.chunks_exact_mut(16).zip(LEVEL_BYTES.0.chunks_exact(16)) {
        // SAFETY: 16 bytes are read and 16 words written.
        unsafe {
            let levels = _mm512_cvtepu8_epi32(_mm_loadu_si128(levels.as_ptr().cast()));
            let values = _mm512_mul_ps(_mm512_cvtepi32_ps(levels), alpha);
            let halves = _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(values);
            _mm256_storeu_si256(words.as_mut_ptr().cast(), halves);
        }
    }
    Planes::of(&words)
}

/// The state hashes of one row. `VECTOR` says that the code is one vector and each group has its shuffles; else the code
/// is unrolled in memory, and moves on with the group while the shuffles stay.
struct Hashes<'a, const VECTOR: bool> {
    vector: __m512i,
    unrolled: &'a [u8],
    code_step: usize,
    shuffles: &'a [WideShuffle],
    groups: usize,
    shifts: __m512i,
    variant: __m512i,
}

impl<'a, const VECTOR: bool> Hashes<'a, VECTOR> {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
    fn new(plan: &'a Plan, record: &Record<'_>, scratch: &'a mut Scratch) -> Hashes<'a, VECTOR> {
        // SAFETY: shifts are 64 aligned bytes.
        let shifts = unsafe { _mm512_load_si512(plan.shifts.0.as_ptr().cast()) };
        let variant = _mm512_set1_epi16((u16::from(record.scale.variant()) << 12) as i16);
        let groups = (plan.layout.dim() as usize).div_ceil(GROUP);
        let (shuffles, code_step) = (&plan.wide[..], plan.group_bytes);
        if VECTOR {
            assert!(shuffles.len() == groups && record.code.len() <= 64);
            let mask = !0 >> (64 - record.code.len());
            // SAFETY: masked to the bytes the code has, at most 64.
            let vector = unsafe { _mm512_maskz_loadu_epi8(mask, record.code.as_ptr().cast()) };
            Hashes { vector, unrolled: &[], code_step, shuffles, groups, shifts, variant }
        } else {
            let unrolled = scratch.room(plan.layout, 1);
            unroll(plan.layout, record.code, unrolled);
            assert!(unrolled.len() >= (groups - 1) * code_step + 64 && shuffles.len() == 1);
            Hashes { vector: _mm512_setzero_si512(), unrolled, code_step, shuffles, groups, shifts, variant }
        }
    }

    /// The hashes of the 32 states of a group.
    ///
    /// # Safety
    /// `group` must be below the number of groups of the row, `dim` by [`GROUP`] rounded up.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
    unsafe fn group(&self, group: usize) -> __m512i {
        debug_assert!(group < self.groups);
        // SAFETY: `new` has checked both slices for all groups, of which this is one. Shuffles are 64 aligned bytes
        // each.
        let (code, first, third) = unsafe {
            let shuffle = self.shuffles.as_ptr().add(if VECTOR { group } else { 0 });
            let code = if VECTOR {
                self.vector
            } else {
                _mm512_loadu_si512(self.unrolled.as_ptr().add(group * self.code_step).cast())
            };
            (
                code,
                _mm512_load_si512((&raw const (*shuffle).first).cast()),
                _mm512_load_si512((&raw const (*shuffle).third).cast()),
            )
        };
        let first = _mm512_permutexvar_epi8(first, code);
        let third = _mm512_permutexvar_epi8(third, code);
        let state = _mm512_shldv_epi16(first, third, self.shifts);
        // s * (2s + 1) = s * 2s + s
        let square = _mm512_mullo_epi16(state, _mm512_add_epi16(state, state));
        _mm512_add_epi16(square, _mm512_add_epi16(state, self.variant))
    }
}
