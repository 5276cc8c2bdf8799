//! Output values: the exact product, and its one rounding to bf16 and f16 (SPEC section 7).
//!
//! Integer arithmetic only, so that it says the same on every machine.

use crate::scale::Scale;

/// Bits of the binary32 number `alpha * level`, exact; +0 for a zero row.
///
/// `level` is a value of [`crate::program`], in -127..=-1 or 1..=127.
#[inline]
pub const fn f32_bits(scale: Scale, level: i8) -> u32 {
    if scale.is_zero() {
        return 0;
    }
    let sign = (level as i32 as u32) & 0x8000_0000;
    // At most 127 * 127: 14 bits. The product is normal: its exponent lies between -48 and 22.
    let product = scale.significand() * level.unsigned_abs() as u32;
    let top = 31 - product.leading_zeros();
    let exponent = scale.exponent() + top + (127 - 54);
    sign | exponent << 23 | (product << (23 - top)) & 0x007f_ffff
}

/// Bits of `alpha * level` rounded to bf16, to nearest, ties to even.
#[inline]
pub const fn bf16_bits(scale: Scale, level: i8) -> u16 {
    let bits = f32_bits(scale, level);
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// Bits of `alpha * level` rounded to f16, to nearest, ties to even, with subnormals; what rounds beyond 65504 is an
/// infinity.
#[inline]
pub const fn f16_bits(scale: Scale, level: i8) -> u16 {
    let bits = f32_bits(scale, level);
    let sign = (bits >> 16 & 0x8000) as u16;
    let exponent = (bits >> 23 & 0xff) as i32 - 127;
    if exponent < -25 {
        return sign; // below half of the smallest subnormal, and zero rows
    }
    if exponent > 15 {
        return sign | 0x7c00;
    }
    let significand = bits & 0x007f_ffff | 0x0080_0000;
    // Bits to drop: 13 for normal results, more below 2^-14; the kept part then has its exponent field added, and a
    // carry out of the mantissa moves into it as it must.
    let (drop, base) = if exponent >= -14 { (13, (exponent + 14) as u32) } else { ((13 - 14 - exponent) as u32, 0) };
    let kept = significand >> drop;
    let rest = significand & ((1 << drop) - 1);
    let half = 1 << (drop - 1);
    let up = (rest > half || rest == half && kept & 1 == 1) as u32;
    sign | ((base << 10) + kept + up) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::power_of_two;

    #[test]
    fn f32_is_the_exact_product_for_every_scale_and_level() {
        for bits in (0..=0x0fffu16).step_by(if cfg!(miri) { 819 } else { 1 }) {
            let scale = Scale::from_bits(bits);
            for level in (-127..=127i8).filter(|&l| l != 0) {
                let got = f32::from_bits(f32_bits(scale, level));
                if scale.is_zero() {
                    assert_eq!(got.to_bits(), 0);
                } else {
                    assert_eq!(f64::from(got), scale.alpha() * f64::from(level));
                    assert!(got.is_normal());
                }
            }
        }
    }

    /// Value of f16 bits, infinities as 65536: where the next number would lie.
    fn f16_value(bits: u16) -> f64 {
        let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f64::from(bits & 0x3ff));
        let magnitude = match exponent {
            0 => mantissa * power_of_two(-24),
            e => (1024.0 + mantissa) * power_of_two(e - 25),
        };
        if bits & 0x8000 != 0 { -magnitude } else { magnitude }
    }

    /// Value of bf16 bits.
    fn bf16_value(bits: u16) -> f64 {
        f64::from(f32::from_bits(u32::from(bits) << 16))
    }

    fn is_nearest(exact: f64, bits: u16, value: fn(u16) -> f64) -> bool {
        let error = |b: u16| (value(b) - exact).abs();
        let mut ok = true;
        for neighbour in [bits.wrapping_sub(1), bits + 1] {
            if neighbour & 0x8000 != bits & 0x8000 {
                continue;
            }
            ok &= error(bits) < error(neighbour) || error(bits) == error(neighbour) && bits & 1 == 0;
        }
        ok
    }

    #[test]
    fn halves_are_the_nearest_numbers_for_every_scale_and_level() {
        for bits in (1..=0x0fffu16).step_by(if cfg!(miri) { 819 } else { 1 }) {
            let scale = Scale::from_bits(bits);
            for level in (-127..=127i8).filter(|&l| l != 0) {
                let exact = scale.alpha() * f64::from(level);
                assert!(is_nearest(exact, bf16_bits(scale, level), bf16_value), "bf16 {bits:#x} {level}");
                let half = f16_bits(scale, level);
                if exact.abs() >= 65520.0 {
                    assert_eq!(half & 0x7fff, 0x7c00);
                } else {
                    assert!(is_nearest(exact, half, f16_value), "f16 {bits:#x} {level} {half:#x}");
                }
                assert_eq!(half >> 15 != 0, level < 0);
            }
        }
    }
}
