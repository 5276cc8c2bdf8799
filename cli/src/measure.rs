//! Times, as medians.

use std::time::{Duration, Instant};

use crate::error::Error;

/// Time spent in the stages of a request on a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stages {
    pub(crate) upload: Duration,
    pub(crate) kernel: Duration,
    pub(crate) readback: Duration,
}

/// Fewest runs that a median is made of.
const FEWEST: usize = 3;

/// The median time of a job, over as many runs as fit in `budget` and at least three, after one that does not count.
pub(crate) fn median(budget: Duration, mut job: impl FnMut() -> Result<(), Error>) -> Result<Duration, Error> {
    job()?;
    let (mut times, start) = (Vec::new(), Instant::now());
    while times.len() < FEWEST || start.elapsed() < budget {
        let before = Instant::now();
        job()?;
        times.push(before.elapsed());
    }
    Ok(middle(&mut times))
}

/// The median of some times.
pub(crate) fn middle<T: Ord + Copy>(times: &mut [T]) -> T {
    times.sort_unstable();
    times[times.len() / 2]
}

/// A stream of numbers: SplitMix64. Which rows are asked for and what is in them is the same in every run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Ids of rows of a table.
    pub(crate) fn ids(&mut self, count: usize, rows: u64) -> Vec<i64> {
        (0..count).map(|_| (u128::from(self.next()) * u128::from(rows) >> 64) as i64).collect()
    }

    /// Numbers that are nearly Gaussian, mean 0 and deviation 1: sums of twelve evenly distributed ones.
    pub(crate) fn gaussian(&mut self, count: usize) -> Vec<f32> {
        let mut draw = || (0..6).map(|_| self.next()).fold(0, |sum, n| sum + (n >> 32) + (n & 0xffff_ffff));
        (0..count).map(|_| (draw() as f64 / 2f64.powi(32) - 6.0) as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_are_in_range() {
        let mut random = Random::new(1);
        assert!(random.ids(1000, 7).iter().all(|id| (0..7).contains(id)));
        let values = random.gaussian(10_000);
        let square = values.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>() / 10_000.0;
        assert!((0.95..1.05).contains(&square), "mean square {square}");
    }
}
