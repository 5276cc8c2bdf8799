//! From a row to the fixed-point target of the search.

use super::Metric;
use crate::job::{EncodeError, ScaleRule};
use crate::trellis::Layout;

/// Fixed-point values are kept within this magnitude: 5,900 standard deviations, more than any row has.
const LIMIT: f64 = (1 << 20) as f64;

/// What a row is before the search: its energy, and how its values become quarter levels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// Sum of squares of the row, binary64, summed in column order.
    pub energy: f64,
}

impl Target {
    /// Checks a row and writes its direction in quarter levels, `round(4 * 44.01 * gain * sqrt(d) * e / |e|)`, to
    /// `out`. A row of zeros gives zeros.
    ///
    /// # Errors
    /// [`EncodeError::NonFinite`] for the first NaN or infinity.
    ///
    /// # Panics
    /// When `row` or `out` is not `layout.dim()` long.
    pub fn new(layout: Layout, row: &[f32], rule: ScaleRule, out: &mut [i32]) -> Result<Target, EncodeError> {
        assert_eq!(row.len(), layout.dim() as usize, "row length");
        assert_eq!(out.len(), row.len(), "target length");
        let mut energy = 0.0;
        for (column, &value) in row.iter().enumerate() {
            if !value.is_finite() {
                return Err(EncodeError::NonFinite { column, value });
            }
            energy += f64::from(value) * f64::from(value);
        }
        if energy == 0.0 {
            out.fill(0);
            return Ok(Target { energy });
        }
        let unit = match rule {
            // A level of one is worth alpha, so a quarter level is alpha / 4; a zero scale codes nothing.
            ScaleRule::Global(scale) if scale.is_zero() => 0.0,
            ScaleRule::Global(scale) => 4.0 / scale.alpha(),
            _ => sqrt(f64::from(layout.dim()) / energy) * Metric::new(layout.program(), layout.rate()).deviation(),
        };
        for (out, &value) in out.iter_mut().zip(row) {
            *out = round(f64::from(value) * unit);
        }
        Ok(Target { energy })
    }
}

/// Rounds half away from zero, within [`LIMIT`].
fn round(x: f64) -> i32 {
    if x < 0.0 { -((LIMIT.min(-x) + 0.5) as i32) } else { (LIMIT.min(x) + 0.5) as i32 }
}

/// The correctly rounded square root of a positive normal number; `core` has none.
pub(super) fn sqrt(x: f64) -> f64 {
    let bits = x.to_bits();
    debug_assert!(x > 0.0 && x.is_normal());
    let exponent = (bits >> 52) as i32 - 1075;
    let significand = u128::from(bits & ((1 << 52) - 1) | 1 << 52);
    // An even exponent, and a root of 62 bits or more: its lowest bit then only says whether the root is inexact.
    let up = 72 + (exponent & 1);
    let square = significand << up;
    let root = square.isqrt();
    let sticky = u64::from(root * root != square);
    (root as u64 | sticky) as f64 * crate::scale::power_of_two((exponent - up) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqrt_is_correctly_rounded() {
        let mut seed = 1u64;
        for i in 0..if cfg!(miri) { 100 } else { 200_000u64 } {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let exponent = 1023 - 300 + (seed >> 40) % 600;
            let x = match i {
                0..1000 => (i + 1) as f64,
                _ => f64::from_bits(exponent << 52 | seed & ((1 << 52) - 1)),
            };
            assert_eq!(sqrt(x).to_bits(), x.sqrt().to_bits(), "{x:e}");
        }
    }
}
