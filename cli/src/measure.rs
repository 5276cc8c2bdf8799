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

/// A stream of numbers. Which rows are asked for and what is in them is the same in every run.
pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(fastrand::Rng::with_seed(seed))
    }

    /// Bytes of any value.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }

    /// Ids of rows of a table.
    pub(crate) fn ids(&mut self, count: usize, rows: u64) -> Vec<i64> {
        (0..count).map(|_| self.0.u64(0..rows) as i64).collect()
    }

    /// Numbers that are nearly Gaussian, mean 0 and deviation 1: sums of twelve evenly distributed ones.
    pub(crate) fn gaussian(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| (0..12).map(|_| self.0.f32()).sum::<f32>() - 6.0).collect()
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
