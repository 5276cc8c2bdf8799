//! How far restored rows are from their source, and how Gaussian rows are.

use rayon::prelude::*;
use serde::Serialize;

use crate::interval::Interval;
use crate::method::Principal;
use crate::noise::Noise;
use crate::rows::{Rows, dot, energy};

/// Random directions that rows are read out along.
const READOUTS: usize = 64;
/// Seed of the directions.
const SEED: u64 = 0x0d1c;

/// What became of one row. Rows of zeros are left out of all measures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowError {
    /// `|e - r|^2 / |e|^2`.
    pub relative_mse: f64,
    /// Cosine of the angle between them; 0 when the restored row is zero.
    pub cosine: f64,
    /// `|r| / |e|`.
    pub norm_ratio: f64,
}

/// The error of each row, `None` for source rows of zeros.
///
/// # Panics
/// When the shapes differ.
pub fn row_errors(source: &Rows, restored: &Rows) -> Vec<Option<RowError>> {
    assert_eq!((source.dim(), source.len()), (restored.dim(), restored.len()), "shapes");
    let pairs = source.values().par_chunks_exact(source.dim()).zip(restored.values().par_chunks_exact(source.dim()));
    pairs
        .map(|(source, restored)| {
            let (whole, kept, along) = (energy(source), energy(restored), dot(source, restored));
            let lost: f64 = source.iter().zip(restored).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
            (whole > 0.0).then(|| RowError {
                relative_mse: lost / whole,
                cosine: if kept > 0.0 { along / (whole * kept).sqrt() } else { 0.0 },
                norm_ratio: (kept / whole).sqrt(),
            })
        })
        .collect()
}

/// The measures of a method on a sample of rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measures {
    /// Rows measured; rows of zeros are not among them.
    pub rows: usize,
    /// Mean relative MSE over rows.
    pub relative_mse: Interval,
    /// Median over rows.
    pub median: f64,
    /// 99th percentile over rows.
    pub p99: f64,
    /// Largest over rows.
    pub worst: f64,
    /// Place of that row in the sample.
    pub worst_row: usize,
    /// Mean weighted by how often the trace asks for a row; NaN without a trace.
    pub traced_mse: f64,
    /// Mean cosine.
    pub cosine: f64,
    /// Mean cosine weighted by the trace; NaN without one.
    pub traced_cosine: f64,
    /// Mean norm ratio.
    pub norm_ratio: f64,
    /// Mean norm ratio weighted by the trace; NaN without one.
    pub traced_norm_ratio: f64,
    /// Slope of readouts of the restored rows on readouts of the source rows, along random directions: below 1, every
    /// readout is shrunk.
    pub readout_slope: f64,
    /// Root mean square error of a readout, relative to that of readouts of the source.
    pub readout_error: f64,
    /// Weighted by the trace; NaN without one.
    pub traced_readout_error: f64,
}

impl Measures {
    /// Of restored rows, with a weight per row where a trace is given.
    ///
    /// # Panics
    /// When shapes differ, there is not one weight for each row, or all rows are zero.
    pub fn of(source: &Rows, restored: &Rows, weights: Option<&[f64]>) -> Measures {
        let errors = row_errors(source, restored);
        let kept: Vec<(usize, RowError)> = errors.iter().enumerate().filter_map(|(i, e)| Some((i, (*e)?))).collect();
        assert!(!kept.is_empty(), "all rows are zero");
        let mut sorted: Vec<f64> = kept.iter().map(|(_, error)| error.relative_mse).collect();
        let relative_mse = Interval::of(&sorted);
        sorted.sort_by(f64::total_cmp);
        let quantile = |part: f64| sorted[((sorted.len() - 1) as f64 * part).round() as usize];
        let worst = kept.iter().max_by(|a, b| a.1.relative_mse.total_cmp(&b.1.relative_mse)).expect("not empty");
        let mean = |of: fn(&RowError) -> f64| kept.iter().map(|(_, e)| of(e)).sum::<f64>() / kept.len() as f64;
        let traced = |of: fn(&RowError) -> f64| {
            let weights = weights.unwrap_or(&[]);
            assert!(weights.is_empty() || weights.len() == source.len(), "a weight for each row");
            let weight = |row: usize| weights.get(row).copied().unwrap_or(0.0);
            let sum: f64 = kept.iter().map(|(row, error)| weight(*row) * of(error)).sum();
            sum / kept.iter().map(|(row, _)| weight(*row)).sum::<f64>()
        };
        let (readout_slope, readout_error) = readouts(source, restored, None);
        Measures {
            rows: kept.len(),
            relative_mse,
            median: quantile(0.5),
            p99: quantile(0.99),
            worst: worst.1.relative_mse,
            worst_row: worst.0,
            traced_mse: traced(|e| e.relative_mse),
            cosine: mean(|e| e.cosine),
            traced_cosine: traced(|e| e.cosine),
            norm_ratio: mean(|e| e.norm_ratio),
            traced_norm_ratio: traced(|e| e.norm_ratio),
            readout_slope,
            readout_error,
            traced_readout_error: weights.map_or(f64::NAN, |weights| readouts(source, restored, Some(weights)).1),
        }
    }
}

/// Slope and relative error of readouts of rows along random directions. Rows weigh by their energy, as readouts do.
fn readouts(source: &Rows, restored: &Rows, weights: Option<&[f64]>) -> (f64, f64) {
    let dim = source.dim();
    let directions = Noise::new(SEED).normals(READOUTS * dim);
    let weight = |row: usize| weights.map_or(1.0, |weights| weights[row]);
    let sums = (0..source.len()).into_par_iter().map(|row| {
        let mut sums = [0.0; 3];
        for direction in directions.chunks_exact(dim) {
            let (x, y) = (dot(source.row(row), direction), dot(restored.row(row), direction));
            let parts = [x * x, x * y, (x - y) * (x - y)];
            sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += weight(row) * part);
        }
        sums
    });
    // Collected first: a parallel sum would depend on how the work was split.
    let [xx, xy, lost] =
        sums.collect::<Vec<_>>().into_iter().fold([0.0; 3], |a, b| [a[0] + b[0], a[1] + b[1], a[2] + b[2]]);
    (xy / xx, (lost / xx).sqrt())
}

/// How Gaussian rows are, their directions scaled to unit deviation, beside Gaussian rows of the same number and width.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gaussianity {
    /// Rows looked at.
    pub rows: usize,
    /// Mean of all values.
    pub mean: f64,
    /// Skewness.
    pub skewness: f64,
    /// Kurtosis less 3.
    pub excess_kurtosis: f64,
    /// 99th percentile over rows of the largest magnitude in the row.
    pub p99_largest: f64,
    /// Share of the energy along the first 1, 4 and 16 principal directions, the mean not taken off.
    pub principal: [f64; 3],
    /// The same for Gaussian rows.
    pub gaussian_principal: [f64; 3],
    /// Smallest, median and largest norm.
    pub norms: [f64; 3],
}

impl Gaussianity {
    /// Of rows, rows of zeros left out.
    ///
    /// # Panics
    /// When all rows are zero.
    pub fn of(rows: &Rows) -> Gaussianity {
        let dim = rows.dim();
        let mut norms = Vec::new();
        let mut values = Vec::new();
        let mut largest = Vec::new();
        for row in rows.iter().filter(|row| energy(row) > 0.0) {
            let norm = energy(row).sqrt();
            let unit = (dim as f64).sqrt() / norm;
            norms.push(norm);
            values.extend(row.iter().map(|&value| (f64::from(value) * unit) as f32));
            largest.push(row.iter().fold(0.0, |largest, &value| f64::from(value).abs().max(largest)) * unit);
        }
        assert!(!norms.is_empty(), "all rows are zero");
        let n = values.len() as f64;
        let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
        let moment = |p: i32| values.iter().map(|&v| (f64::from(v) - mean).powi(p)).sum::<f64>() / n;
        let deviation = moment(2).sqrt();
        let shares = |rows: &Rows| {
            let variances = Principal::of(rows, 0, false).variances;
            let all: f64 = variances.iter().sum();
            [1, 4, 16].map(|count| variances.iter().take(count).sum::<f64>() / all)
        };
        norms.sort_by(f64::total_cmp);
        largest.sort_by(f64::total_cmp);
        let count = norms.len();
        let (skewness, excess_kurtosis) = (moment(3) / deviation.powi(3), moment(4) / deviation.powi(4) - 3.0);
        let gaussian_principal = shares(&Rows::gaussian(count, dim, SEED));
        Gaussianity {
            rows: count,
            mean,
            skewness,
            excess_kurtosis,
            p99_largest: largest[(count - 1) * 99 / 100],
            principal: shares(&Rows::new(dim, values)),
            gaussian_principal,
            norms: [norms[0], norms[count / 2], norms[count - 1]],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_of_known_errors() {
        let source = Rows::new(2, vec![3.0, 4.0, 0.0, 0.0, 1.0, 0.0]);
        let restored = Rows::new(2, vec![3.0, 4.0, 0.0, 0.0, 0.0, 0.5]);
        let measures = Measures::of(&source, &restored, Some(&[3.0, 5.0, 1.0]));
        assert_eq!((measures.rows, measures.worst_row, measures.worst), (2, 2, 1.25));
        assert_eq!((measures.relative_mse.mean, measures.cosine, measures.norm_ratio), (0.625, 0.5, 0.75));
        assert_eq!((measures.traced_mse, measures.traced_cosine, measures.traced_norm_ratio), (0.3125, 0.75, 0.875));
    }

    #[test]
    fn shrunk_rows_have_a_slope_below_one() {
        let source = Rows::gaussian(50, 32, 1);
        let restored = source.map(|row, out| out.iter_mut().zip(row).for_each(|(out, v)| *out = 0.9 * v));
        let measures = Measures::of(&source, &restored, None);
        assert!((measures.readout_slope - 0.9).abs() < 1e-6 && (measures.readout_error - 0.1).abs() < 1e-6);
        assert!(measures.traced_mse.is_nan() && (measures.relative_mse.mean - 0.01).abs() < 1e-8);
    }

    #[test]
    fn gaussian_rows_are_gaussian_and_cubed_ones_are_not() {
        let rows = Rows::gaussian(3_000, 32, 2);
        let found = Gaussianity::of(&rows);
        // Rows of unit length have lighter tails: excess kurtosis -6 / (d + 2).
        assert!((found.excess_kurtosis + 6.0 / 34.0).abs() < 0.05, "{found:?}");
        assert!((found.principal[0] / found.gaussian_principal[0] - 1.0).abs() < 0.1, "{found:?}");
        let cubed = rows.map(|row, out| out.iter_mut().zip(row).for_each(|(out, v)| *out = v * v * v));
        assert!(Gaussianity::of(&cubed).excess_kurtosis > 3.0);
    }
}
