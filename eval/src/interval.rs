//! Means with 95 % intervals.

use serde::Serialize;

use crate::noise::Noise;

/// A mean and half the width of its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// Half the width of the interval.
    pub half: f64,
}

impl Interval {
    /// Of independent values, by Student's t; a single value has no interval (NaN).
    pub fn of(values: &[f64]) -> Interval {
        let (mean, error) = mean_and_error(values);
        Interval { mean, half: student(values.len().saturating_sub(1)) * error }
    }

    /// Of a mean over strata that weigh the same, each with independent values.
    pub fn of_strata(strata: &[Vec<f64>]) -> Interval {
        let parts: Vec<_> = strata.iter().map(|values| mean_and_error(values)).collect();
        let count = parts.len() as f64;
        let mean = parts.iter().map(|part| part.0).sum::<f64>() / count;
        let error = parts.iter().map(|part| part.1 * part.1).sum::<f64>().sqrt() / count;
        let freedom = strata.iter().map(|values| values.len().saturating_sub(1)).sum();
        Interval { mean, half: student(freedom) * error }
    }
}

fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let square = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    (mean, (square / (n - 1.0) / n).sqrt())
}

/// The 97.5 % point of Student's t, to 0.5 %.
fn student(freedom: usize) -> f64 {
    const SMALL: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    match freedom {
        0 => f64::NAN,
        1..=10 => SMALL[freedom - 1],
        // Cornish-Fisher, first two terms.
        _ => 1.96 + 2.372 / freedom as f64 + 2.823 / (freedom as f64).powi(2),
    }
}

/// The ratio of two sums over the same strata and items, and a 95 % interval from a seeded bootstrap that draws items
/// within each stratum, both sides together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The ratio.
    pub ratio: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Ratio {
    /// Redraws of the bootstrap.
    const DRAWS: usize = 4_000;

    /// Of strata of pairs (above, below).
    ///
    /// # Panics
    /// When a stratum has no item.
    pub fn of(strata: &[Vec<(f64, f64)>], seed: u64) -> Ratio {
        // Strata weigh the same, whatever their counts. `pick` says which item stands for one.
        let ratio = |mut pick: Box<dyn FnMut(usize, usize) -> usize + '_>| {
            let (mut above, mut below) = (0.0, 0.0);
            for items in strata {
                for index in 0..items.len() {
                    let (a, b) = items[pick(items.len(), index)];
                    above += a / items.len() as f64;
                    below += b / items.len() as f64;
                }
            }
            above / below
        };
        let mut noise = Noise::new(seed);
        let mut draws: Vec<f64> =
            (0..Ratio::DRAWS).map(|_| ratio(Box::new(|count, _| noise.below(count as u64) as usize))).collect();
        draws.sort_by(f64::total_cmp);
        let at = |part: f64| draws[((Ratio::DRAWS - 1) as f64 * part) as usize];
        Ratio { ratio: ratio(Box::new(|_, index| index)), low: at(0.025), high: at(0.975) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_cover_the_truth_as_often_as_they_say() {
        let mut noise = Noise::new(9);
        let covered = (0..2_000)
            .filter(|_| {
                let values: Vec<f64> = (0..8).map(|_| noise.normal()).collect();
                let interval = Interval::of(&values);
                interval.mean.abs() < interval.half
            })
            .count();
        assert!((1_860..1_940).contains(&covered), "{covered} of 2000");
    }

    #[test]
    fn strata_take_differences_between_them_out() {
        let strata = [vec![1.0, 1.1, 0.9, 1.0], vec![5.0, 5.1, 4.9, 5.0]];
        let pooled = Interval::of(&strata.concat());
        let interval = Interval::of_strata(&strata);
        assert!((interval.mean - 3.0).abs() < 1e-12);
        assert!(interval.half < 0.1 && pooled.half > 1.0);
    }

    #[test]
    fn ratios_of_proportional_pairs_are_sharp() {
        let mut noise = Noise::new(1);
        let strata: Vec<Vec<_>> =
            (0..3).map(|_| (0..8).map(|_| 1.0 + noise.unit()).map(|b| (0.8 * b, b)).collect()).collect();
        let ratio = Ratio::of(&strata, 2);
        assert!((ratio.ratio - 0.8).abs() < 1e-9 && (ratio.high - ratio.low).abs() < 1e-9);
        let loose: Vec<Vec<_>> = (0..3).map(|_| (0..8).map(|_| (noise.unit(), noise.unit())).collect()).collect();
        let ratio = Ratio::of(&loose, 2);
        assert!(ratio.low < ratio.ratio && ratio.ratio < ratio.high);
    }
}
