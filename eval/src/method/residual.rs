//! Structured residual: a stored mean and principal components, and a code for what they leave.

use half::f16;
use nalgebra::{DMatrix, DMatrixView, SymmetricEigen};

use crate::rows::{Rows, dot};

/// The mean of rows and the directions of largest variance around it, orthonormal.
#[derive(Clone, Debug)]
pub struct Principal {
    /// The mean.
    pub mean: Vec<f32>,
    /// Directions, the one of largest variance first.
    pub components: Vec<Vec<f32>>,
    /// Variance along every direction, descending, `dim` of them.
    pub variances: Vec<f64>,
}

impl Principal {
    /// Of `rows`, with the first `count` directions; `centred` takes the mean off first, else it is zero.
    pub fn of(rows: &Rows, count: usize, centred: bool) -> Principal {
        let (dim, n) = (rows.dim(), rows.len().max(1) as f64);
        let mut mean = vec![0.0f64; dim];
        if centred {
            for row in rows.iter() {
                mean.iter_mut().zip(row).for_each(|(mean, &value)| *mean += f64::from(value) / n);
            }
        }
        // Rows are the columns of this matrix.
        let matrix = DMatrixView::from_slice(rows.values(), dim, rows.len()).map(f64::from);
        let mut covariance = DMatrix::zeros(dim, dim);
        covariance.gemm(1.0 / n, &matrix, &matrix.transpose(), 0.0);
        for i in 0..dim {
            for j in 0..dim {
                covariance[(i, j)] -= mean[i] * mean[j];
            }
        }
        let eigen = SymmetricEigen::new(covariance);
        let mut order: Vec<usize> = (0..dim).collect();
        order.sort_by(|&a, &b| eigen.eigenvalues[b].total_cmp(&eigen.eigenvalues[a]));
        let component = |&index: &usize| eigen.eigenvectors.column(index).iter().map(|&v| v as f32).collect();
        Principal {
            mean: mean.into_iter().map(|value| f16::from_f64(value).to_f32()).collect(),
            components: order.iter().take(count).map(component).collect(),
            variances: order.iter().map(|&index| eigen.eigenvalues[index].max(0.0)).collect(),
        }
    }

    /// The part of every row that mean and components give, their coefficients rounded to binary16 as they are stored.
    pub(super) fn project(&self, rows: &Rows) -> Rows {
        rows.map(|row, out| {
            let centred: Vec<f32> = row.iter().zip(&self.mean).map(|(value, mean)| value - mean).collect();
            out.copy_from_slice(&self.mean);
            for component in &self.components {
                let coefficient = f16::from_f64(dot(&centred, component)).to_f32();
                out.iter_mut().zip(component).for_each(|(out, c)| *out += coefficient * c);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Noise;

    #[test]
    fn finds_the_direction_that_was_put_in() {
        let mut noise = Noise::new(1);
        let mut direction: Vec<f32> = noise.normals(32);
        let unit = dot(&direction, &direction).sqrt() as f32;
        direction.iter_mut().for_each(|v| *v /= unit);
        let rows: Vec<f32> = (0..4_000)
            .flat_map(|_| {
                let along = noise.normal() as f32 * 5.0;
                let own = noise.normals(32);
                own.iter().zip(&direction).map(|(own, d)| 0.25 + own + along * d).collect::<Vec<_>>()
            })
            .collect();
        let rows = Rows::new(32, rows);
        let principal = Principal::of(&rows, 2, true);
        assert!(dot(&principal.components[0], &direction).abs() > 0.995);
        assert!((principal.variances[0] - 26.0).abs() < 1.5 && (principal.variances[1] - 1.0).abs() < 0.3);
        assert!(principal.mean.iter().all(|mean| (mean - 0.25).abs() < 0.25));
        let left: Vec<f32> =
            rows.values().iter().zip(principal.project(&rows).values()).map(|(row, part)| row - part).collect();
        let share = dot(&left, &left) / dot(rows.values(), rows.values());
        assert!((share - 30.0 / (32.0 + 25.0 + 2.0)).abs() < 0.03, "{share}");
    }
}
