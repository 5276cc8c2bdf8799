//! Scaled magnitudes: all 128 values a row can have, worked out once per row.
//!
//! A row has one scale, so it has only 128 magnitudes. For bf16 even these need no arithmetic: scaling by a power of
//! two adds to the exponent, so a table for 64 significands and two exponents (an even and an odd one, since the
//! exponent's lowest bit is in the lower byte) serves all scales. Bytes are kept in two planes because 128 bytes are
//! what one two-register byte permutation looks up.

use condprog_core::Scale;
use condprog_core::rounding::{bf16_bits, f16_bits};
use condprog_core::scale::MANTISSA_BITS;

use crate::PROGRAM;

/// The magnitudes before scaling.
pub(super) const LEVELS: [u8; 128] = *PROGRAM.levels();

/// Low and high bytes of 128 magnitudes.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Planes {
    pub(super) low: [u8; 128],
    pub(super) high: [u8; 128],
}

impl Planes {
    #[inline(always)]
    pub(super) fn of(words: &[u16; 128]) -> Planes {
        Planes { low: words.map(|word| word as u8), high: words.map(|word| (word >> 8) as u8) }
    }
}

/// The exponent field of the tables' scales; bf16 has room on both sides.
const BASE: u32 = 32;

static BF16: [[Planes; 2]; 1 << MANTISSA_BITS] = bf16_planes();

const fn bf16_planes() -> [[Planes; 2]; 1 << MANTISSA_BITS] {
    let mut all = [[Planes { low: [0; 128], high: [0; 128] }; 2]; 1 << MANTISSA_BITS];
    let mut mantissa = 0;
    while mantissa < 1 << MANTISSA_BITS {
        let mut parity = 0;
        while parity < 2 {
            let scale = Scale::from_bits(((BASE as u16) + parity as u16) << MANTISSA_BITS | mantissa as u16);
            let mut i = 0;
            while i < 128 {
                let bits = bf16_bits(scale, LEVELS[i] as i8);
                all[mantissa][parity].low[i] = bits as u8;
                all[mantissa][parity].high[i] = (bits >> 8) as u8;
                i += 1;
            }
            parity += 1;
        }
        mantissa += 1;
    }
    all
}

/// The bf16 magnitudes of a scale other than zero: planes, and what is to be added to their high bytes.
#[inline(always)]
pub(super) fn bf16(scale: Scale) -> (&'static Planes, u8) {
    let exponent = scale.exponent();
    let planes = &BF16[(scale.significand() - 64) as usize][(exponent & 1) as usize];
    // Two in the exponent are one in the high byte.
    (planes, ((exponent >> 1) as u8).wrapping_sub((BASE >> 1) as u8))
}

/// The f16 magnitudes of a scale other than zero: subnormals and infinities keep them from being shared.
pub(super) fn f16(scale: Scale) -> Planes {
    Planes::of(&LEVELS.map(|level| f16_bits(scale, level as i8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_give_every_scaled_magnitude() {
        for bits in (1..=0x0fff).step_by(if cfg!(miri) { 2047 } else { 1 }) {
            let scale = Scale::from_bits(bits);
            let ((planes, add), half) = (bf16(scale), f16(scale));
            for (i, level) in LEVELS.into_iter().enumerate() {
                let value = u16::from_le_bytes([planes.low[i], planes.high[i].wrapping_add(add)]);
                assert_eq!(value, bf16_bits(scale, level as i8));
                assert_eq!(u16::from_le_bytes([half.low[i], half.high[i]]), f16_bits(scale, level as i8));
            }
        }
    }
}
