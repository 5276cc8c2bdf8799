//! Round to nearest: uniform levels, a binary16 scale per row, and for asymmetric grids a binary16 offset.

use half::f16;

use crate::rows::Rows;

/// Which levels a row is rounded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Grid {
    /// `2^bits` levels around zero, zero itself not among them: `scale * (i - (2^bits - 1) / 2)`.
    Symmetric,
    /// `offset + scale * i`.
    Asymmetric,
}

/// How scale and offset follow from a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clip {
    /// The outermost levels lie on the largest magnitude, or on minimum and maximum.
    Range,
    /// Those of the smallest squared error, found by search.
    Optimal,
}

/// Ratios of the full range that the search starts from.
const STARTS: i32 = 24;
/// Times that scale and offset are fitted to the codes and the row is coded again.
const REFITS: usize = 2;

pub(super) fn restore(rows: &Rows, bits: u32, grid: Grid, clip: Clip) -> Rows {
    rows.map(|row, out| {
        let range = Levels::of_range(row, bits, grid, 1.0);
        let levels = match clip {
            Clip::Range => range,
            Clip::Optimal => {
                let starts = (1..=STARTS).map(|i| Levels::of_range(row, bits, grid, f64::from(i) / f64::from(STARTS)));
                let fitted = starts.flat_map(|start| {
                    let steps = std::iter::successors(Some(start), |levels| Some(levels.refit(row)));
                    steps.take(REFITS + 1).collect::<Vec<_>>()
                });
                fitted.min_by(|a, b| a.error(row).total_cmp(&b.error(row))).unwrap_or(range)
            }
        };
        for (out, &value) in out.iter_mut().zip(row) {
            *out = levels.value(levels.code(value)) as f32;
        }
    })
}

/// The levels `offset + scale * i`, `0 <= i <= top`, of one row.
#[derive(Clone, Copy, Debug)]
struct Levels {
    scale: f64,
    offset: f64,
    top: f64,
    grid: Grid,
}

impl Levels {
    /// Levels as they are stored: scale and offset rounded to binary16. A symmetric grid has no offset of its own.
    fn stored(scale: f64, offset: f64, top: f64, grid: Grid) -> Levels {
        let round = |value: f64| f16::from_f32(value as f32).to_f64();
        let scale = round(scale);
        let offset = match grid {
            Grid::Symmetric => -scale * top / 2.0,
            Grid::Asymmetric => round(offset),
        };
        Levels { scale, offset, top, grid }
    }

    /// Levels that span a part of the row's range.
    fn of_range(row: &[f32], bits: u32, grid: Grid, part: f64) -> Levels {
        let top = f64::from((1u32 << bits) - 1);
        let (low, high) = row
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), &v| (l.min(f64::from(v)), h.max(f64::from(v))));
        let (low, high) = match grid {
            Grid::Symmetric => (-high.max(-low), high.max(-low)),
            Grid::Asymmetric => (low, high),
        };
        let (middle, half) = ((low + high) / 2.0, (high - low) / 2.0 * part);
        Levels::stored(2.0 * half / top, middle - half, top, grid)
    }

    fn code(&self, value: f32) -> f64 {
        if self.scale == 0.0 {
            return 0.0;
        }
        ((f64::from(value) - self.offset) / self.scale).round_ties_even().clamp(0.0, self.top)
    }

    fn value(&self, code: f64) -> f64 {
        self.offset + self.scale * code
    }

    fn error(&self, row: &[f32]) -> f64 {
        row.iter().map(|&value| (f64::from(value) - self.value(self.code(value))).powi(2)).sum()
    }

    /// The least-squares scale and offset of the codes that these levels give.
    fn refit(&self, row: &[f32]) -> Levels {
        let n = row.len() as f64;
        let (mut x, mut xx, mut y, mut xy) = (0.0, 0.0, 0.0, 0.0);
        for &value in row {
            let code = match self.grid {
                Grid::Symmetric => self.code(value) - self.top / 2.0,
                Grid::Asymmetric => self.code(value),
            };
            let value = f64::from(value);
            (x, xx, y, xy) = (x + code, xx + code * code, y + value, xy + code * value);
        }
        let (scale, offset) = match self.grid {
            Grid::Symmetric => (xy / xx, 0.0),
            Grid::Asymmetric => {
                let scale = (n * xy - x * y) / (n * xx - x * x);
                (scale, (y - scale * x) / n)
            }
        };
        // All codes equal: nothing to fit.
        if scale.is_finite() { Levels::stored(scale, offset, self.top, self.grid) } else { *self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_on_the_grid_come_back() {
        let row = vec![-3.0, -1.0, 1.0, 3.0, 1.0, -1.0, 3.0, -3.0];
        let rows = Rows::new(8, row);
        for clip in [Clip::Range, Clip::Optimal] {
            assert_eq!(restore(&rows, 2, Grid::Symmetric, clip), rows);
        }
        let rows = Rows::new(4, vec![0.5, 1.5, 2.5, 3.5]);
        for clip in [Clip::Range, Clip::Optimal] {
            assert_eq!(restore(&rows, 2, Grid::Asymmetric, clip), rows);
        }
    }

    #[test]
    fn zero_and_constant_rows_are_harmless() {
        for grid in [Grid::Symmetric, Grid::Asymmetric] {
            for clip in [Clip::Range, Clip::Optimal] {
                assert_eq!(restore(&Rows::new(4, vec![0.0; 4]), 3, grid, clip).values(), [0.0; 4]);
            }
        }
        assert_eq!(restore(&Rows::new(4, vec![2.0; 4]), 3, Grid::Asymmetric, Clip::Range).values(), [2.0; 4]);
    }

    #[test]
    fn optimal_clip_is_never_worse() {
        let rows = Rows::gaussian(20, 64, 1);
        for grid in [Grid::Symmetric, Grid::Asymmetric] {
            let error = |clip| {
                let restored = restore(&rows, 2, grid, clip);
                let square = |(a, b): (&[f32], &[f32])| a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f32>();
                rows.iter().zip(restored.iter()).map(square).collect::<Vec<_>>()
            };
            assert!(error(Clip::Optimal).iter().zip(error(Clip::Range)).all(|(best, range)| *best <= range * 1.0001));
        }
    }
}
