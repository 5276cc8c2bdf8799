//! The encoder's contract and a literal implementation of it (SPEC annex A).
//!
//! A decoder needs none of this. The search is integer arithmetic, so that one row gives one record on every machine
//! and at every thread count; faster encoders share [`Target`], [`Metric`] and [`finish`] and replace only the search.
//! Any code is a valid code: what an encoder finds decides quality, never correctness.

mod metric;
mod scale;
mod search;
mod target;

pub use metric::Metric;
pub use scale::{ScaleRule, finish};
pub use search::{Workspace, WorkspaceSize, encode_row};
pub use target::Target;

use core::fmt;

use crate::program;
use crate::scale::Scale;
use crate::trellis::Layout;

/// How much of the search to do, see [`Search::effort`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Search {
    /// Variants tried, 1..=16: 0 up to `variants - 1`, the best one kept, the first of equals.
    pub variants: u8,
    /// Values on each side of the seam that the first pass looks at; half the row width or more means the whole row.
    pub window: u32,
    /// Passes more over the best variant, each with the seam at another place.
    pub recuts: u8,
}

impl Search {
    /// The highest effort.
    pub const MAX_EFFORT: u8 = 4;

    /// What an effort of 0..=4 does; a larger number means 4.
    ///
    /// Variants buy more than anything else that costs as much. A short first pass costs up to 0.7 % of MSE at the
    /// seam, which a re-cut pass over the best variant mostly gives back; at the ends of the dial the first pass is
    /// whole. On Gaussian rows of 256 values at 2 bits the relative MSE is 0.0683, 0.0677, 0.0671, 0.0665 and 0.0655, at
    /// about 1, 2, 4, 8 and 22 times the work.
    ///
    /// | effort | variants | first pass, values each side of the seam | re-cut passes |
    /// |---|---|---|---|
    /// | 0 | 1 | all | 0 |
    /// | 1 | 2 | 48 | 1 |
    /// | 2 | 4 | 48 | 1 |
    /// | 3 | 8 | 48 | 1 |
    /// | 4 | 16 | all | 2 |
    pub const fn effort(effort: u8) -> Search {
        match effort {
            0 => Search { variants: 1, window: u32::MAX, recuts: 0 },
            1 => Search { variants: 2, window: 48, recuts: 1 },
            2 => Search { variants: 4, window: 48, recuts: 1 },
            3 => Search { variants: 8, window: 48, recuts: 1 },
            _ => Search { variants: 16, window: u32::MAX, recuts: 2 },
        }
    }

    /// Values on each side of the seam that the first pass covers in a row of `dim` values: at least one.
    pub const fn first_pass(self, dim: u32) -> u32 {
        match self.window {
            0 => 1,
            window if window < dim / 2 => window,
            _ => dim / 2,
        }
    }

    /// Where re-cut pass `index` (0-based) puts the seam in a row of `dim` values.
    pub const fn cut(self, index: u8, dim: u32) -> u32 {
        (dim as u64 * (index as u64 + 1) / (self.recuts as u64 + 1)) as u32
    }
}

/// How good a code is, in exact integers: the larger `dot^2 / norm`, the smaller its angle to the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Score {
    /// Sum of target times level.
    pub dot: i64,
    /// Sum of squared levels.
    pub norm: u64,
}

impl Score {
    /// The score of a path, one state per value.
    pub fn of(target: &[i32], path: &[u16], variant: u8) -> Score {
        let mut score = Score { dot: 0, norm: 0 };
        for (&z, &state) in target.iter().zip(path) {
            let level = program::value(state, variant);
            score.dot += i64::from(z) * i64::from(level);
            score.norm += (i32::from(level) * i32::from(level)) as u64;
        }
        score
    }

    /// Whether this code points closer to the row than `other`.
    pub fn beats(&self, other: &Score) -> bool {
        let square = |dot: i64| (dot.unsigned_abs() as u128).pow(2);
        match (self.dot > 0, other.dot > 0) {
            (true, true) => square(self.dot) * other.norm as u128 > square(other.dot) * self.norm as u128,
            (ours, theirs) => ours && !theirs,
        }
    }
}

/// Writes the code of a path, one state per value, with zero padding bits. Each state gives the bits that leave it.
///
/// # Panics
/// When `path` is not `layout.dim()` or `code` not `layout.code_bytes()` long.
pub fn write_code(layout: Layout, path: &[u16], code: &mut [u8]) {
    assert_eq!(path.len(), layout.dim() as usize, "path length");
    assert_eq!(code.len(), layout.code_bytes(), "code length");
    code.fill(0);
    for (t, &state) in (0..).zip(path) {
        let bits = layout.shift(t + 1);
        let at = layout.rate().bit_offset(t);
        for i in 0..bits {
            let bit = (state >> (15 - i) & 1) as u8;
            code[((at + i) / 8) as usize] |= bit << (7 - (at + i) % 8);
        }
    }
}

/// Writes the record of a path, one state per value, with its scale; a zero scale makes a zero record.
///
/// # Panics
/// When `path` is not `layout.dim()` or `bytes` not `layout.record_bytes()` long.
pub fn write_record(layout: Layout, path: &[u16], scale: Scale, bytes: &mut [u8]) {
    assert_eq!(bytes.len(), layout.record_bytes(), "record length");
    if scale == Scale::ZERO {
        return bytes.fill(0);
    }
    let (code, tail) = bytes.split_at_mut(layout.code_bytes());
    write_code(layout, path, code);
    tail.copy_from_slice(&scale.to_bits().to_le_bytes());
}

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Coded.
    Coded,
    /// All values were zero: a zero record.
    Zero,
    /// The scale was below the smallest: a zero record.
    Underflow,
}

/// A row that format version 1 cannot hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EncodeError {
    /// A value is a NaN or an infinity.
    NonFinite {
        /// Its column.
        column: usize,
        /// Got.
        value: f32,
    },
    /// The scale would be above the largest.
    ScaleAbove {
        /// The column with the largest magnitude.
        column: usize,
        /// Its value.
        value: f32,
    },
}

impl EncodeError {
    /// The column to blame.
    pub fn column(&self) -> usize {
        match *self {
            EncodeError::NonFinite { column, .. } | EncodeError::ScaleAbove { column, .. } => column,
        }
    }
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            EncodeError::NonFinite { column, value } => {
                write!(f, "value in column {column} is {value}, expected a finite number")
            }
            EncodeError::ScaleAbove { column, value } => write!(
                f,
                "row scale is above 65024, the largest there is (largest value: {value:e} in column {column})"
            ),
        }
    }
}

impl core::error::Error for EncodeError {}
