//! 32 states in a 512-bit vector.
//!
//! Budget for 256 values at 2 bits, to bf16, as the machine code has it (`cargo bench -p condprog-cpu` measures it):
//! per 64 values 4 byte permutations that gather the code, 2 double-word shifts, 2 multiplications, 8 additions or
//! logic operations for the hash and the sign, 2 two-register byte permutations that look up both planes, 2 shifts and
//! 2 merges, 2 stores: 24 operations on two ports, 48 cycles for a row, and about 10 more for scale and tables.

use std::arch::x86_64::*;

use condprog_core::Record;
use condprog_core::program::LEVELS;

use super::plan::{Aligned, GROUP, Plan, Scratch, unroll};
use super::{Half, scaled};

static LEVEL_BYTES: Aligned<[u8; 128]> = Aligned(LEVELS);

/// Decodes rows to 16-bit numbers.
///
/// # Safety
/// The CPU must have the features of [`crate::Level::Avx512`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
pub(super) unsafe fn rows16(plan: &Plan, records: &[&[u8]], half: Half, out: &mut [u16], scratch: &mut Scratch) {
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
                own = scaled::f16(record.scale);
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
        let hashes = Hashes::new(plan, &record, scratch);
        let (bytes, top) = (_mm512_set1_epi16(0x00ff), _mm512_set1_epi8(0x80u8 as i8));
        let mut store = |group: usize, values: __m512i| {
            let out = &mut out[group * GROUP..];
            if out.len() >= GROUP {
                // SAFETY: there is room for 32 values.
                unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), values) }
            } else {
                // SAFETY: masked to the values there is room for.
                unsafe { _mm512_mask_storeu_epi16(out.as_mut_ptr().cast(), first(out.len()), values) }
            }
        };
        let groups = dim.div_ceil(GROUP);
        for group in (0..groups).step_by(2) {
            let pair = group + 1 < groups;
            let h0 = hashes.group(group);
            let h1 = if pair { hashes.group(group + 1) } else { h0 };
            // Top bytes of both groups side by side: sign and index.
            let index = _mm512_ternarylogic_epi32(bytes, _mm512_srli_epi16(h0, 8), h1, 0xca);
            let low = _mm512_permutex2var_epi8(low[0], index, low[1]);
            let high = _mm512_permutex2var_epi8(high[0], index, high[1]);
            let high = _mm512_ternarylogic_epi32(high, index, top, 0xf8); // high | index & top
            store(group, _mm512_ternarylogic_epi32(bytes, low, _mm512_slli_epi16(high, 8), 0xca));
            if pair {
                store(group + 1, _mm512_ternarylogic_epi32(bytes, _mm512_srli_epi16(low, 8), high, 0xca));
            }
        }
    }
}

/// Decodes rows to binary32 numbers.
///
/// # Safety
/// As [`rows16`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
pub(super) unsafe fn rows32(plan: &Plan, records: &[&[u8]], out: &mut [f32], scratch: &mut Scratch) {
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
        let hashes = Hashes::new(plan, &record, scratch);
        for (group, out) in out.chunks_mut(GROUP).enumerate() {
            let h = hashes.group(group);
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

/// A mask of the first `count` words, below 32.
fn first(count: usize) -> __mmask32 {
    (1 << count) - 1
}

/// The state hashes of one row.
struct Hashes<'a> {
    plan: &'a Plan,
    /// The whole code, where it fits.
    vector: __m512i,
    /// Else the unrolled code.
    unrolled: &'a [u8],
    shifts: __m512i,
    variant: __m512i,
}

impl<'a> Hashes<'a> {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
    fn new(plan: &'a Plan, record: &Record<'_>, scratch: &'a mut Scratch) -> Hashes<'a> {
        let code = record.code;
        // SAFETY: shifts are 64 aligned bytes.
        let shifts = unsafe { _mm512_load_si512(plan.shifts.0.as_ptr().cast()) };
        let variant = _mm512_set1_epi16((u16::from(record.scale.variant()) << 12) as i16);
        if plan.fits_vector() {
            // SAFETY: the code is at least 64 bytes, or masked to the bytes it has.
            let vector = unsafe {
                match code.len() {
                    64.. => _mm512_loadu_si512(code.as_ptr().cast()),
                    bytes => _mm512_maskz_loadu_epi8((1 << bytes) - 1, code.as_ptr().cast()),
                }
            };
            Hashes { plan, vector, unrolled: &[], shifts, variant }
        } else {
            let room = scratch.room(plan.layout, 1);
            unroll(plan.layout, code, room);
            Hashes { plan, vector: _mm512_setzero_si512(), unrolled: room, shifts, variant }
        }
    }

    /// The hashes of the 32 states of a group.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
    fn group(&self, group: usize) -> __m512i {
        let (shuffle, code) = if self.unrolled.is_empty() {
            (&self.plan.wide[group], self.vector)
        } else {
            let code = &self.unrolled[group * self.plan.group_bytes..][..64];
            // SAFETY: 64 bytes.
            (&self.plan.wide[0], unsafe { _mm512_loadu_si512(code.as_ptr().cast()) })
        };
        // SAFETY: shuffles are 64 aligned bytes each.
        let (first, third) = unsafe {
            let load = |bytes: &[u8; 64]| _mm512_load_si512(bytes.as_ptr().cast());
            (load(&shuffle.first), load(&shuffle.third))
        };
        let first = _mm512_permutexvar_epi8(first, code);
        let third = _mm512_permutexvar_epi8(third, code);
        let state = _mm512_shldv_epi16(first, third, self.shifts);
        // s * (2s + 1) = s * 2s + s
        let square = _mm512_mullo_epi16(state, _mm512_add_epi16(state, state));
        _mm512_add_epi16(square, _mm512_add_epi16(state, self.variant))
    }
}
