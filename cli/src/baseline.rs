//! What compressed tables are compared with: round-to-nearest between the least and the greatest value of a row.

use half::f16;

/// Bytes that a row takes: its codes, and offset and step as f16.
pub(crate) fn row_bytes(dim: usize, bits: u32) -> usize {
    (dim * bits as usize).div_ceil(8) + 4
}

/// A row after it was rounded to one of `2^bits` values at even distances.
pub(crate) fn restore(row: &[f32], bits: u32, out: &mut [f32]) {
    let (least, greatest) =
        row.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), &v| (low.min(v), high.max(v)));
    let top = ((1u32 << bits) - 1) as f32;
    let offset = f16::from_f32(least).to_f32();
    let step = f16::from_f32((greatest - least) / top).to_f32();
    for (out, &value) in out.iter_mut().zip(row) {
        let code = if step > 0.0 { ((value - offset) / step).round_ties_even().clamp(0.0, top) } else { 0.0 };
        *out = offset + step * code;
    }
}

/// Sum of squared errors over the sum of squares, of all rows after [`restore`].
pub(crate) fn relative_mse(rows: &[f32], dim: usize, bits: u32) -> f64 {
    let mut restored = vec![0.0; dim];
    let (mut error, mut energy) = (0.0, 0.0);
    for row in rows.chunks_exact(dim) {
        restore(row, bits, &mut restored);
        for (&e, &r) in row.iter().zip(&restored) {
            error += (f64::from(e) - f64::from(r)).powi(2);
            energy += f64::from(e).powi(2);
        }
    }
    error / energy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_on_the_grid_stay() {
        let row = [-1.0, -0.5, 0.0, 0.5, 0.5, -1.0];
        let mut out = [0.0; 6];
        restore(&row, 2, &mut out);
        assert_eq!(out, row);
        restore(&[0.25; 6], 2, &mut out);
        assert_eq!(out, [0.25; 6]);
        assert_eq!((row_bytes(256, 2), row_bytes(256, 4), row_bytes(3, 2)), (68, 132, 5));
    }

    #[test]
    fn values_between_go_to_the_nearer_one() {
        let mut out = [0.0; 4];
        restore(&[0.0, 0.4, 1.6, 3.0], 2, &mut out);
        assert_eq!(out, [0.0, 0.0, 2.0, 3.0]);
        assert!((relative_mse(&[0.0, 0.4, 1.6, 3.0], 4, 2) - 0.32 / 11.72).abs() < 1e-7);
    }
}
