//! Codebooks over normalised rows: Lloyd-Max and k-means vector quantization, a binary16 scale per row.

use half::f16;

use crate::kmeans::Codebook;
use crate::noise::Noise;
use crate::rows::{Rows, dot, energy};

/// Points a codebook is trained on.
const POINTS: usize = 1 << 18;
/// Rounds of Lloyd's algorithm for vectors.
const ROUNDS: usize = 12;

/// The Lloyd-Max quantizer of a Gaussian: its positive levels, ascending.
///
/// Levels are the means of their cells, cells end half-way between levels; iterated on the density itself, not on a
/// sample.
pub fn lloyd_max(bits: u32) -> Vec<f64> {
    let density = |x: f64| libm::exp(-x * x / 2.0) / std::f64::consts::TAU.sqrt();
    let upper = |x: f64| libm::erfc(x / std::f64::consts::SQRT_2) / 2.0;
    let count = 1usize << (bits - 1);
    let mut levels: Vec<f64> = (0..count).map(|i| 3.0 * (i as f64 + 0.5) / count as f64).collect();
    for _ in 0..2_000 {
        let mut edges = vec![0.0];
        edges.extend(levels.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0));
        for (i, level) in levels.iter_mut().enumerate() {
            let low = edges[i];
            let (mass, moment) = match edges.get(i + 1) {
                Some(&high) => (upper(low) - upper(high), density(low) - density(high)),
                None => (upper(low), density(low)),
            };
            *level = moment / mass;
        }
    }
    levels
}

/// Lloyd-Max on rows of unit deviation, then the least-squares scale.
pub(super) fn restore_lloyd_max(rows: &Rows, bits: u32) -> Rows {
    let levels = lloyd_max(bits);
    rows.map(|row, out| {
        let unit = (energy(row) / row.len() as f64).sqrt();
        for (out, &value) in out.iter_mut().zip(row) {
            let magnitude = f64::from(value).abs() / unit;
            let nearest = levels.iter().min_by(|a, b| (*a - magnitude).abs().total_cmp(&(*b - magnitude).abs()));
            *out = nearest.map_or(0.0, |&level| level.copysign(f64::from(value)) as f32);
        }
        scale_least_squares(row, out);
    })
}

/// Vectors that a codebook of `2^(2N)` centres of `N` values is trained on at least: two for each centre.
pub(super) const fn least_vectors(values: u32) -> u64 {
    2 << (2 * values)
}

/// K-means on vectors of `N` values of normalised rows, `2^(2N)` centres: 2 bits per value. Trained on `fit`, which must
/// have [`least_vectors`], then the least-squares scale.
pub(super) fn restore_vq<const N: usize>(rows: &Rows, fit: &Rows, seed: u64) -> Rows {
    let normalised = fit.map(|row, out| {
        let unit = (energy(row) / row.len() as f64).sqrt();
        for (out, &value) in out.iter_mut().zip(row) {
            *out = if unit > 0.0 { (f64::from(value) / unit) as f32 } else { 0.0 };
        }
    });
    let points: Vec<[f32; N]> = normalised.iter().flat_map(|row| row.as_chunks::<N>().0).copied().collect();
    let size = 1 << (2 * N);
    let mut noise = Noise::new(seed);
    let keep = crate::noise::sample(points.len() as u64, POINTS as u64, noise.next_u64());
    let points: Vec<[f32; N]> = keep.into_iter().map(|index| points[index as usize]).collect();
    let book = Codebook::train(&points, size, ROUNDS, noise.next_u64());
    rows.map(|row, out| {
        let unit = (energy(row) / row.len() as f64).sqrt();
        for (out, chunk) in out.as_chunks_mut::<N>().0.iter_mut().zip(row.as_chunks::<N>().0) {
            let point = chunk.map(|value| (f64::from(value) / unit) as f32);
            *out = if unit > 0.0 { book.centres()[book.nearest(&point).0] } else { [0.0; N] };
        }
        scale_least_squares(row, out);
    })
}

/// Multiplies a row's levels by the binary16 scale of least squared error.
fn scale_least_squares(row: &[f32], out: &mut [f32]) {
    let norm = energy(out);
    let scale = if norm > 0.0 { f16::from_f32((dot(row, out) / norm) as f32).to_f32() } else { 0.0 };
    out.iter_mut().for_each(|value| *value *= scale);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lloyd_max_levels_are_the_published_ones() {
        let close = |levels: Vec<f64>, expected: &[f64]| {
            assert_eq!(levels.len(), expected.len());
            assert!(levels.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-3), "{levels:?}");
        };
        close(lloyd_max(1), &[0.7979]);
        close(lloyd_max(2), &[0.4528, 1.510]);
        close(lloyd_max(3), &[0.2451, 0.7560, 1.344, 2.152]);
        close(lloyd_max(4), &[0.1284, 0.3881, 0.6568, 0.9424, 1.256, 1.618, 2.069, 2.733]);
    }
}
