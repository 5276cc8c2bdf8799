//! The 16-bit scale field: variant and local scale of a row (SPEC section 5).

/// Mantissa bits of a scale.
pub const MANTISSA_BITS: u32 = 6;

/// Bytes of the scale field.
pub const SCALE_BYTES: usize = 2;

/// The scale field of a record as it is stored: bits 15..12 the variant, bits 11..6 the exponent `x`, bits 5..0 the
/// mantissa `m`. Bits 11..0 all zero mean a zero row, else `alpha = (1 + m / 64) * 2^(x - 48)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scale(u16);

impl Scale {
    /// The scale field of a zero record.
    pub const ZERO: Scale = Scale(0);
    /// The smallest alpha, variant 0: `(1 + 1/64) * 2^-48`.
    pub const MIN: Scale = Scale(1);
    /// The largest alpha, variant 0: `(1 + 63/64) * 2^15`.
    pub const MAX: Scale = Scale(0x0fff);

    /// The field from its bits; every bit pattern is valid.
    #[inline]
    pub const fn from_bits(bits: u16) -> Scale {
        Scale(bits)
    }

    /// The field as stored, to be written little-endian.
    #[inline]
    pub const fn to_bits(self) -> u16 {
        self.0
    }

    /// The same alpha with another variant, of which the low four bits count.
    #[inline]
    pub const fn with_variant(self, variant: u8) -> Scale {
        Scale(self.0 & 0x0fff | (variant as u16) << 12)
    }

    /// The variant, 0..=15.
    #[inline]
    pub const fn variant(self) -> u8 {
        (self.0 >> 12) as u8
    }

    /// Whether the row is a zero row.
    #[inline]
    pub const fn is_zero(self) -> bool {
        self.0 & 0x0fff == 0
    }

    /// The exponent field `x`, 0..=63.
    #[inline]
    pub const fn exponent(self) -> u32 {
        (self.0 >> MANTISSA_BITS & 0x3f) as u32
    }

    /// `64 + m`, in 64..=127: the significand as an integer.
    #[inline]
    pub const fn significand(self) -> u32 {
        64 + (self.0 & 0x3f) as u32
    }

    /// Alpha as a number, exact; 0 for a zero row.
    pub const fn alpha(self) -> f64 {
        if self.is_zero() {
            return 0.0;
        }
        self.significand() as f64 * power_of_two(self.exponent() as i32 - 54)
    }

    /// The nearest scale to `alpha`, variant 0, a tie going to the larger one.
    ///
    /// `at_least(twice_significand, exponent)` says whether the exact alpha is at least
    /// `twice_significand / 2 * 2^(exponent - 54)`; it must be monotone. This is how a scale is rounded without a
    /// square root: the caller compares squares.
    ///
    /// [`Nearest::Below`] when alpha rounds to less than [`Scale::MIN`], [`Nearest::Above`] when it rounds to more
    /// than [`Scale::MAX`].
    pub fn nearest(at_least: impl Fn(u32, u32) -> bool) -> Nearest {
        // Scales ascend with their bits, and the lower edge of scale `bits` is half a unit below its significand,
        // except that the unit halves below a power of two.
        let edge = |bits: u16| {
            let scale = Scale(bits);
            match (scale.significand(), scale.exponent()) {
                (64, exponent) => at_least(255, exponent - 1),
                (significand, exponent) => at_least(2 * significand - 1, exponent),
            }
        };
        if !edge(Scale::MIN.0) {
            return Nearest::Below;
        }
        if at_least(255, 63) {
            return Nearest::Above;
        }
        let (mut low, mut high) = (Scale::MIN.0, Scale::MAX.0);
        while low < high {
            let middle = (low + high).div_ceil(2);
            if edge(middle) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        Nearest::Scale(Scale(low))
    }
}

/// Where an alpha falls, see [`Scale::nearest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nearest {
    /// Too small to be stored.
    Below,
    /// The nearest scale.
    Scale(Scale),
    /// Too large to be stored.
    Above,
}

/// `2^e`, exact, for `-1022 <= e <= 1023`; `core` has no `exp2`.
pub const fn power_of_two(e: i32) -> f64 {
    f64::from_bits(((1023 + e) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scale_is_nearest_to_itself_and_to_what_lies_around_it() {
        let near = |alpha: f64| Scale::nearest(|s, x| alpha >= f64::from(s) / 2.0 * power_of_two(x as i32 - 54));
        for bits in (1..=0x0fffu16).step_by(if cfg!(miri) { 585 } else { 1 }) {
            let scale = Scale::from_bits(bits);
            let unit = power_of_two(scale.exponent() as i32 - 54);
            for offset in [-0.24, 0.0, 0.49] {
                assert_eq!(near(scale.alpha() + offset * unit), Nearest::Scale(scale), "{bits:#x} {offset}");
            }
        }
        assert_eq!(near(0.0), Nearest::Below);
        assert_eq!(near(Scale::MIN.alpha() * 0.99), Nearest::Below);
        assert_eq!(near(65536.0), Nearest::Above);
        assert_eq!(near(f64::INFINITY), Nearest::Above);
    }

    #[test]
    fn alpha_is_what_the_spec_says() {
        assert_eq!(Scale::MIN.alpha(), (1.0 + 1.0 / 64.0) / 281_474_976_710_656.0);
        assert_eq!(Scale::MAX.alpha(), 127.0 / 64.0 * 32768.0);
        assert_eq!(Scale::from_bits(0xf000).alpha(), 0.0);
        assert_eq!(Scale::from_bits(0x0c00).alpha(), 1.0);
    }
}
