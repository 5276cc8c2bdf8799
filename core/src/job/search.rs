//! How much of the search to do.

use core::fmt;

use crate::program::VARIANTS;

/// How much of the search to do: a named [`effort`](Search::effort), or explicit numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Search {
    variants: u8,
    window: u32,
    recuts: u8,
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

    /// A search by explicit numbers.
    ///
    /// Variants 0 up to `variants - 1` are tried, and the best one is kept, the first of equals. The first pass looks at
    /// `window` values on each side of the seam; half the row width or more means the whole row, 0 means 1. Then follow
    /// `recuts` passes over the best variant, each with the seam at another place.
    ///
    /// # Errors
    /// [`SearchError`] unless `1 <= variants <= `[`VARIANTS`].
    pub const fn new(variants: u8, window: u32, recuts: u8) -> Result<Search, SearchError> {
        if variants == 0 || variants > VARIANTS {
            return Err(SearchError { variants });
        }
        Ok(Search { variants, window, recuts })
    }

    /// Variants tried, 1..=16.
    pub const fn variants(self) -> u8 {
        self.variants
    }

    /// Values on each side of the seam that the first pass looks at, whatever the row width.
    pub const fn window(self) -> u32 {
        self.window
    }

    /// Passes over the best variant after the first two.
    pub const fn recuts(self) -> u8 {
        self.recuts
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

/// A search over a number of variants that a record cannot name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchError {
    variants: u8,
}

impl fmt::Display for SearchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "search tries {} variants, expected 1 to {VARIANTS}", self.variants)
    }
}

impl core::error::Error for SearchError {}
