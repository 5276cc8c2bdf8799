//! Rates, widths and the tail-biting bitshift trellis (SPEC section 4).

use core::fmt;
use core::str::FromStr;

use crate::program::Program;
use crate::scale::SCALE_BYTES;

/// Bits of a trellis state.
pub const STATE_BITS: u32 = 16;

/// Largest row width of format version 1.
pub const MAX_DIM: u32 = 1 << 16;

/// Bits per value in quarter bits, 4..=16: 1, 1.25, ..., 4 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u8);

impl Rate {
    /// 1 bit per value.
    pub const MIN: Rate = Rate(4);
    /// 2 bits per value, the usual rate.
    pub const TWO: Rate = Rate(8);
    /// 4 bits per value.
    pub const MAX: Rate = Rate(16);

    /// A rate from quarter bits per value.
    ///
    /// # Errors
    /// [`LayoutError::Rate`] unless `4 <= quarters <= 16`.
    pub const fn from_quarters(quarters: u32) -> Result<Rate, LayoutError> {
        if quarters < 4 || quarters > 16 {
            return Err(LayoutError::Rate { quarters });
        }
        Ok(Rate(quarters as u8))
    }

    /// Quarter bits per value, 4..=16.
    #[inline]
    pub const fn quarters(self) -> u32 {
        self.0 as u32
    }

    /// Every rate of format version 1, ascending.
    pub fn all() -> impl Iterator<Item = Rate> {
        (4..=16).map(Rate)
    }

    /// Bit at which state `t` starts in an endless code: `floor(t * r / 4)`.
    #[inline]
    pub const fn bit_offset(self, t: u32) -> u32 {
        (t as u64 * self.0 as u64 / 4) as u32
    }
}

/// Bits per value, as users write it: `2`, `1.5`, `2.25`.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fraction = ["", ".25", ".5", ".75"][(self.0 % 4) as usize];
        write!(f, "{}{fraction}", self.0 / 4)
    }
}

impl FromStr for Rate {
    type Err = ParseRateError;

    fn from_str(s: &str) -> Result<Rate, ParseRateError> {
        let (whole, fraction) = s.split_once('.').unwrap_or((s, "0"));
        let quarter = match fraction {
            "0" | "00" => 0,
            "25" => 1,
            "5" | "50" => 2,
            "75" => 3,
            _ => return Err(ParseRateError(())),
        };
        let digit = whole.len() == 1 && whole.as_bytes()[0].is_ascii_digit();
        if !digit {
            return Err(ParseRateError(()));
        }
        Rate::from_quarters(u32::from(whole.as_bytes()[0] - b'0') * 4 + quarter).map_err(|_| ParseRateError(()))
    }
}

/// The text is not a rate of format version 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseRateError(());

impl fmt::Display for ParseRateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a rate: expected bits per value from 1 to 4 in steps of 0.25, such as 2 or 1.5")
    }
}

impl core::error::Error for ParseRateError {}

/// Width, rate and program of the rows of one segment: everything a record's bytes need to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    dim: u32,
    rate: Rate,
    program: Program,
}

impl Layout {
    /// A layout for rows of `dim` values at `rate`, with the default program.
    ///
    /// # Errors
    /// [`LayoutError`] unless `1 <= dim <= `[`MAX_DIM`], `dim * r / 4` is a whole number of bits, and that number
    /// is at least 16.
    pub const fn new(dim: u32, rate: Rate) -> Result<Layout, LayoutError> {
        if dim == 0 || dim > MAX_DIM {
            return Err(LayoutError::Dim { dim });
        }
        if !(dim * rate.quarters()).is_multiple_of(4) {
            return Err(LayoutError::FractionalCode { dim, rate });
        }
        if dim * rate.quarters() / 4 < STATE_BITS {
            return Err(LayoutError::ShortCode { dim, rate });
        }
        Ok(Layout { dim, rate, program: Program::V1 })
    }

    /// The same width and rate with another program.
    #[inline]
    #[must_use]
    pub const fn with_program(self, program: Program) -> Layout {
        Layout { program, ..self }
    }

    /// Values per row.
    #[inline]
    pub const fn dim(self) -> u32 {
        self.dim
    }

    /// Bits per value.
    #[inline]
    pub const fn rate(self) -> Rate {
        self.rate
    }

    /// What turns states into levels.
    #[inline]
    pub const fn program(self) -> Program {
        self.program
    }

    /// `N`, the bits of the cyclic code.
    #[inline]
    pub const fn code_bits(self) -> u32 {
        self.dim * self.rate.quarters() / 4
    }

    /// Bytes of the code in a record, the last one zero-padded.
    #[inline]
    pub const fn code_bytes(self) -> usize {
        self.code_bits().div_ceil(8) as usize
    }

    /// Bytes of a record, and the stride between records: the code and two scale bytes.
    #[inline]
    pub const fn record_bytes(self) -> usize {
        self.code_bytes() + SCALE_BYTES
    }

    /// Bits by which the code advances from state `t - 1` to state `t`, cyclically: `shift(0)` is the step over the
    /// seam, from state `dim - 1` to state 0. In 1..=4.
    #[inline]
    pub const fn shift(self, t: u32) -> u32 {
        let t = if t == 0 { self.dim } else { t };
        self.rate.bit_offset(t) - self.rate.bit_offset(t - 1)
    }
}

/// A width or rate that format version 1 does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutError {
    /// The rate is outside 4..=16 quarter bits.
    Rate {
        /// Got, in quarter bits per value.
        quarters: u32,
    },
    /// The width is 0 or above [`MAX_DIM`].
    Dim {
        /// Got.
        dim: u32,
    },
    /// `dim * rate` is not a whole number of bits.
    FractionalCode {
        /// Got.
        dim: u32,
        /// Got.
        rate: Rate,
    },
    /// The code would be shorter than one state.
    ShortCode {
        /// Got.
        dim: u32,
        /// Got.
        rate: Rate,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            LayoutError::Rate { quarters } => {
                write!(f, "rate is {quarters} quarter bits per value, expected 4 to 16")
            }
            LayoutError::Dim { dim } => write!(f, "row width is {dim}, expected 1 to {MAX_DIM}"),
            LayoutError::FractionalCode { dim, rate } => write!(
                f,
                "row width {dim} at {rate} bits per value makes {}/4 bits, expected a whole number of bits",
                dim * rate.quarters()
            ),
            LayoutError::ShortCode { dim, rate } => write!(
                f,
                "row width {dim} at {rate} bits per value makes a code of {} bits, expected at least {STATE_BITS}",
                dim * rate.quarters() / 4
            ),
        }
    }
}

impl core::error::Error for LayoutError {}

/// State `t` of a code: the 16 bits that start at bit `floor(t * r / 4)`, wrapping at `N` (SPEC section 4.2).
///
/// Literal, a bit at a time; backends have faster ways to the same number.
///
/// # Panics
/// When `code` is shorter than `layout.code_bytes()` or `t >= layout.dim()`.
pub fn state(layout: Layout, code: &[u8], t: u32) -> u16 {
    assert!(t < layout.dim(), "state {t} of a row of {} values", layout.dim());
    let start = layout.rate().bit_offset(t);
    let mut state = 0;
    for i in 0..STATE_BITS {
        let bit = (start + i) % layout.code_bits();
        let byte = code[(bit / 8) as usize];
        state = state << 1 | u16::from(byte >> (7 - bit % 8) & 1);
    }
    state
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn rates_round_trip_through_text() {
        for rate in Rate::all() {
            assert_eq!(rate.to_string().parse(), Ok(rate));
        }
        assert_eq!("2.0".parse(), Ok(Rate::TWO));
        for bad in ["", "0", "0.75", "4.25", "5", "2.1", "-2", "2.", "22", "NaN", " 2", "2.5 "] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }

    #[test]
    fn layouts_allow_what_the_spec_allows() {
        let r = |q| Rate::from_quarters(q).unwrap();
        assert_eq!(Layout::new(256, r(8)).unwrap().record_bytes(), 66);
        assert_eq!(Layout::new(160, r(8)).unwrap().record_bytes(), 42);
        assert_eq!(Layout::new(0, r(8)), Err(LayoutError::Dim { dim: 0 }));
        assert_eq!(Layout::new(MAX_DIM + 1, r(8)), Err(LayoutError::Dim { dim: MAX_DIM + 1 }));
        assert_eq!(Layout::new(33, r(5)), Err(LayoutError::FractionalCode { dim: 33, rate: r(5) }));
        assert_eq!(Layout::new(7, r(8)), Err(LayoutError::ShortCode { dim: 7, rate: r(8) }));
        assert!(Layout::new(8, r(8)).is_ok() && Layout::new(4, r(16)).is_ok());
        assert!(Rate::from_quarters(3).is_err() && Rate::from_quarters(17).is_err());
    }

    #[test]
    fn shifts_go_once_round_the_code() {
        for rate in Rate::all() {
            for dim in [16, 32, 36, 160, 256] {
                let layout = Layout::new(dim, rate).unwrap();
                let total: u32 = (0..dim).map(|t| layout.shift(t)).sum();
                assert_eq!(total, layout.code_bits());
            }
        }
    }
}
