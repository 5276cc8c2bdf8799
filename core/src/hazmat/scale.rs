//! From a found code to the scale field.

use super::Target;
use crate::job::{EncodeError, Outcome, ScaleRule};
use crate::scale::{Nearest, Scale, power_of_two};
use crate::trellis::Layout;

/// The scale field, variant included, of a row that was coded as `path`.
///
/// Sums are binary64 in column order, the rounding to the nearest scale compares exactly; so the field is the same on
/// every machine. Where the code does not point along the row at all (a product that is not positive, which only an
/// adversarial row can have), [`ScaleRule::Projection`] and [`ScaleRule::LeastSquares`] fall back to
/// [`ScaleRule::Norm`].
///
/// # Errors
/// [`EncodeError::ScaleAbove`] when the scale is above [`Scale::MAX`].
pub fn finish(
    layout: Layout,
    row: &[f32],
    target: &Target,
    path: &[u16],
    variant: u8,
    rule: ScaleRule,
) -> Result<(Scale, Outcome), EncodeError> {
    if target.energy == 0.0 {
        return Ok((Scale::ZERO, Outcome::Zero));
    }
    let (mut dot, mut norm) = (0.0, 0u64);
    for (&value, &state) in row.iter().zip(path) {
        let level = layout.program().value(state, variant);
        dot += f64::from(value) * f64::from(level);
        norm += (i32::from(level) * i32::from(level)) as u64;
    }
    // alpha as a ratio of two sums, or for Norm its square: compared with the edges between scales, never divided.
    let edge = |twice: u32, exponent: u32| f64::from(twice) * power_of_two(exponent as i32 - 55);
    let nearest = match rule {
        ScaleRule::Global(scale) if scale.is_zero() => Nearest::Below,
        ScaleRule::Global(scale) => Nearest::Scale(scale),
        ScaleRule::Projection if dot > 0.0 => Scale::nearest(|s, x| target.energy >= dot * edge(s, x)),
        ScaleRule::LeastSquares if dot > 0.0 => Scale::nearest(|s, x| dot >= norm as f64 * edge(s, x)),
        // norm is below 2^30 and the squared edge has 16 bits: their product is exact.
        _ => Scale::nearest(|s, x| target.energy >= norm as f64 * edge(s, x) * edge(s, x)),
    };
    match nearest {
        Nearest::Below => Ok((Scale::ZERO, Outcome::Underflow)),
        Nearest::Scale(scale) => Ok((scale.with_variant(variant), Outcome::Coded)),
        Nearest::Above => {
            let column = (0..row.len()).max_by(|&a, &b| row[a].abs().total_cmp(&row[b].abs())).unwrap_or(0);
            Err(EncodeError::ScaleAbove { column, value: row[column] })
        }
    }
}
