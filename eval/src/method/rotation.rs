//! A random rotation within a row: random signs, then a Walsh-Hadamard transform.

use crate::noise::Noise;

/// Random signs and a Walsh-Hadamard transform over blocks of the largest power of two that divides the width (the
/// whole row at 256, five blocks of 32 at 160). Orthonormal.
#[derive(Clone, Debug)]
pub(super) struct Rotation {
    signs: Vec<f32>,
    block: usize,
}

impl Rotation {
    pub(super) fn new(dim: usize, seed: u64) -> Rotation {
        let mut noise = Noise::new(seed);
        let signs = (0..dim).map(|_| if noise.next_u64() >> 63 == 0 { 1.0 } else { -1.0 }).collect();
        Rotation { signs, block: 1 << dim.trailing_zeros() }
    }

    pub(super) fn forward(&self, row: &[f32], out: &mut [f32]) {
        for ((out, &value), sign) in out.iter_mut().zip(row).zip(&self.signs) {
            *out = value * sign;
        }
        out.chunks_exact_mut(self.block).for_each(transform);
    }

    pub(super) fn inverse(&self, row: &[f32], out: &mut [f32]) {
        out.copy_from_slice(row);
        out.chunks_exact_mut(self.block).for_each(transform);
        for (out, sign) in out.iter_mut().zip(&self.signs) {
            *out *= sign;
        }
    }
}

/// The orthonormal Walsh-Hadamard transform, its own inverse.
fn transform(values: &mut [f32]) {
    let mut half = 1;
    while half < values.len() {
        for pair in values.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
    let unit = 1.0 / (values.len() as f32).sqrt();
    values.iter_mut().for_each(|value| *value *= unit);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Rows, energy};

    #[test]
    fn rotations_keep_lengths_and_invert_and_spread() {
        for dim in [256, 160, 384] {
            let rotation = Rotation::new(dim, 7);
            let rows = Rows::gaussian(3, dim, 8);
            let there = rows.map(|row, out| rotation.forward(row, out));
            let back = there.map(|row, out| rotation.inverse(row, out));
            assert!((energy(there.values()) / energy(rows.values()) - 1.0).abs() < 1e-5);
            assert!(rows.values().iter().zip(back.values()).all(|(a, b)| (a - b).abs() < 1e-5));
            let mut hot = vec![0.0; dim];
            hot[1] = 1.0;
            let mut out = vec![0.0; dim];
            rotation.forward(&hot, &mut out);
            let expected = 1.0 / (rotation.block as f32).sqrt();
            assert!(out[..rotation.block].iter().all(|v| (v.abs() - expected).abs() < 1e-6));
        }
    }
}
