//! When a row is in doubt, from what is known of it beside its source row.
//!
//! No limit here finds a row guilty: there are rows that any code of the rate holds badly, and the bytes decide (see
//! `recode.rs`). A limit that is too narrow costs time, one that is too wide lets a row pass unless it is in the sample.

use condprog_core::encoder::ScaleRule;
use condprog_core::hazmat::Metric;
use condprog_core::{Layout, Scale};

/// The relative squared error of restored Gaussian rows, by bits per value from 1 in steps of half a bit: the larger of
/// those for rows of 256 and of 160 values in `backend-cpu/quality.csv`, effort 0.
const GAUSSIAN: [f64; 7] = [0.29299, 0.14010, 0.06888, 0.03443, 0.01731, 0.00885, 0.00454];

/// The part of the Gaussian rows' cosine that any row should have.
///
/// Rows of real tables have 0.8 of it and more. The worst rows that could be made up for the search, each with one value of
/// 100 standard deviations among 1,024, have 0.52 of it, one-hot rows 0.85. Rows that have nothing to do with each other
/// have a cosine of 0, give or take the root of one by their width: 0.06 at 256.
const MARGIN: f64 = 0.4;

/// Codes of fewer bits hold some ordinary rows badly, now and then with a cosine below 0.
const LEAST_CODE_BITS: u32 = 64;

/// How far the length or the projection of a restored row may be from what its scale rule makes it: twice what rounding to
/// a significand of seven bits does.
const SCALE_STEP: f64 = 1.0 / 64.0;

/// What a row is beside its source row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    /// Sum of squared differences.
    pub(super) error: f64,
    /// Sum of squares of the source row.
    pub(super) energy: f64,
    /// Sum of products.
    pub(super) dot: f64,
    /// Sum of squares of the restored row.
    pub(super) length: f64,
}

impl Figures {
    pub(super) fn of(source: &[f32], restored: &[f32]) -> Figures {
        let (mut error, mut energy, mut dot, mut length) = (0.0, 0.0, 0.0, 0.0);
        for (&e, &r) in source.iter().zip(restored) {
            let (e, r) = (f64::from(e), f64::from(r));
            error += (e - r) * (e - r);
            energy += e * e;
            dot += e * r;
            length += r * r;
        }
        Figures { error, energy, dot, length }
    }

    /// Zeros restored as zeros have no error.
    pub(super) fn relative_mse(&self) -> f64 {
        relative(self.error, self.energy)
    }

    pub(super) fn cosine(&self) -> f64 {
        if self.length > 0.0 { self.dot / (self.energy * self.length).sqrt() } else { 0.0 }
    }

    pub(super) fn norm_ratio(&self) -> f64 {
        (self.length / self.energy).sqrt()
    }
}

pub(super) fn relative(error: f64, energy: f64) -> f64 {
    if error == 0.0 { 0.0 } else { error / energy }
}

/// The limits of the rows of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The scale rule, where this version knows it.
    rule: Option<ScaleRule>,
    /// The least cosine, of a row and of the mean over rows.
    pub(super) cosine: f64,
    /// Rows of less energy are not what the scale is made for, so their direction is left to chance.
    least_energy: f64,
    /// The sum of squares above and below which a row has, by its scale, no reason to be restored as zeros.
    coded: (f64, f64),
}

impl Limits {
    pub(super) fn new(layout: Layout, rule: Option<ScaleRule>) -> Limits {
        // The energy of rows whose values have one deviation at a scale, as the search counts.
        let energy_at = |alpha: f64| {
            let deviation = alpha * Metric::new(layout.program(), layout.rate()).deviation() / 4.0;
            f64::from(layout.dim()) * deviation * deviation
        };
        let global = match rule {
            Some(ScaleRule::Global(scale)) => Some(scale),
            _ => None,
        };
        let coded = match global {
            Some(scale) if scale.is_zero() => (f64::INFINITY, f64::INFINITY),
            Some(_) => (0.0, f64::INFINITY),
            // A factor of 4 for what a scale rule makes of it, or of a row that is not even.
            None => (16.0 * energy_at(Scale::MIN.alpha()), energy_at(Scale::MAX.alpha()) / 16.0),
        };
        let step = (layout.rate().quarters() as usize - 4) / 2;
        // Of restored rows that have the length of their sources, the error is twice what the cosine lacks.
        let cosine = MARGIN * (1.0 - GAUSSIAN[step] / 2.0);
        Limits {
            rule,
            cosine: if layout.code_bits() < LEAST_CODE_BITS { -1.0 } else { cosine },
            least_energy: global.map_or(0.0, |scale| energy_at(scale.alpha()) / 4.0),
            coded,
        }
    }

    /// Whether the direction of a row says something.
    pub(super) fn counts(&self, row: &Figures) -> bool {
        row.energy.is_finite() && row.energy > self.least_energy && row.length > 0.0
    }

    /// Whether a row is so unlike its source row that it should be looked at.
    pub(super) fn doubt(&self, row: &Figures) -> bool {
        if row.length == 0.0 {
            return row.energy > self.coded.0 && row.energy < self.coded.1;
        }
        // What is zero or not finite is restored as zeros.
        if row.energy == 0.0 || !row.energy.is_finite() {
            return true;
        }
        if self.counts(row) && row.cosine() < self.cosine {
            return true;
        }
        let ratio = match self.rule {
            Some(ScaleRule::Norm) => row.norm_ratio(),
            Some(ScaleRule::Projection) => row.dot / row.energy,
            Some(ScaleRule::LeastSquares) => row.length / row.dot,
            _ => 1.0,
        };
        (ratio - 1.0).abs() > SCALE_STEP
    }
}

#[cfg(test)]
mod tests {
    use condprog_core::Rate;

    use super::*;

    #[test]
    fn the_figures_are_those_of_the_quality_table() {
        let table = include_str!("../../../backend-cpu/quality.csv");
        for (step, &expected) in GAUSSIAN.iter().enumerate() {
            let key = |dim: u32| format!("{dim},{},0,", 1.0 + step as f64 / 2.0);
            let figure = |dim| -> f64 {
                let line = table.lines().find(|line| line.starts_with(&key(dim))).unwrap();
                line.split(',').nth(3).unwrap().parse().unwrap()
            };
            assert_eq!(figure(256).max(figure(160)), expected);
        }
        for rate in 4..=16 {
            let limits = Limits::new(Layout::new(256, Rate::from_quarters(rate).unwrap()).unwrap(), None);
            assert!((0.34..0.4).contains(&limits.cosine), "{limits:?}");
        }
    }

    #[test]
    fn rows_that_were_made_zero_with_reason_are_not_in_doubt() {
        let layout = Layout::new(256, Rate::TWO).unwrap();
        let zero = |energy| Figures { error: energy, energy, ..Figures::default() };
        let limits = Limits::new(layout, Some(ScaleRule::Norm));
        for energy in [0.0, 1e-30, 1e20, f64::INFINITY, f64::NAN] {
            assert!(!limits.doubt(&zero(energy)), "{energy}");
        }
        assert!(limits.doubt(&zero(1e-9)) && limits.doubt(&zero(1e9)));
        // Under one scale for all, no row is zero but for a scale of zero.
        let global = |scale| Limits::new(layout, Some(ScaleRule::Global(scale)));
        assert!(global(Scale::MIN).doubt(&zero(1e-40)) && !global(Scale::ZERO).doubt(&zero(1.0)));
    }
}
