//! Rows in memory.

use rayon::prelude::*;

use crate::noise::Noise;

/// Rows of one width, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    dim: usize,
    values: Vec<f32>,
}

impl Rows {
    /// Rows of `dim` values each.
    ///
    /// # Panics
    /// When `dim` is 0 or `values` is not a whole number of rows.
    pub fn new(dim: usize, values: Vec<f32>) -> Rows {
        assert!(dim > 0 && values.len().is_multiple_of(dim), "{} values in rows of {dim}", values.len());
        Rows { dim, values }
    }

    /// Standard normal rows.
    pub fn gaussian(rows: usize, dim: usize, seed: u64) -> Rows {
        Rows::new(dim, Noise::new(seed).normals(rows * dim))
    }

    /// Values per row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.values.len() / self.dim
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// All values, row-major.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// One row.
    pub fn row(&self, index: usize) -> &[f32] {
        &self.values[index * self.dim..(index + 1) * self.dim]
    }

    /// The rows in order.
    pub fn iter(&self) -> std::slice::ChunksExact<'_, f32> {
        self.values.chunks_exact(self.dim)
    }

    /// The first rows, at most `count`.
    pub fn head(&self, count: usize) -> Rows {
        Rows::new(self.dim, self.values[..count.min(self.len()) * self.dim].to_vec())
    }

    /// The first values of each row.
    ///
    /// # Panics
    /// When rows have not that many, or `dim` is 0.
    pub fn narrowed(&self, dim: usize) -> Rows {
        assert!(dim <= self.dim, "{dim} of {} values", self.dim);
        Rows::new(dim, self.iter().flat_map(|row| &row[..dim]).copied().collect())
    }

    /// Which rows are not all zeros.
    pub fn nonzero(&self) -> Vec<usize> {
        (0..self.len()).filter(|&row| self.row(row).iter().any(|&value| value != 0.0)).collect()
    }

    /// The rows at some places.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn select(&self, places: &[usize]) -> Rows {
        Rows::new(self.dim, places.iter().flat_map(|&place| self.row(place)).copied().collect())
    }

    /// Largest magnitude of all values; 0 without rows.
    pub fn largest(&self) -> f32 {
        self.values.iter().fold(0.0, |largest, value| value.abs().max(largest))
    }

    /// Root mean square of all values; 0 without rows.
    pub fn rms(&self) -> f64 {
        (energy(&self.values) / self.values.len().max(1) as f64).sqrt()
    }

    /// Applies `f(row, out)` to every row, on the threads of the current pool.
    pub fn map(&self, f: impl Fn(&[f32], &mut [f32]) + Sync) -> Rows {
        let mut out = vec![0.0; self.values.len()];
        out.par_chunks_exact_mut(self.dim)
            .zip(self.values.par_chunks_exact(self.dim))
            .for_each(|(out, row)| f(row, out));
        Rows::new(self.dim, out)
    }
}

/// Sum of squares, binary64.
pub fn energy(values: &[f32]) -> f64 {
    values.iter().map(|&value| f64::from(value) * f64::from(value)).sum()
}

/// Inner product, binary64.
pub fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}
