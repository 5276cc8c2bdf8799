//! Seeded random numbers, the same on every machine.

/// A stream of numbers: SplitMix64.
#[derive(Clone, Debug)]
pub struct Noise {
    state: u64,
    /// The second normal number of a pair, until it is asked for.
    spare: Option<f64>,
}

impl Noise {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Noise {
        Noise { state: seed, spare: None }
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        (u128::from(self.next_u64()) * u128::from(bound) >> 64) as u64
    }

    /// A number in `(0, 1]`.
    pub fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// A standard normal number, by Box and Muller; libm gives the same bits everywhere.
    pub fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let radius = libm::sqrt(-2.0 * libm::log(self.unit()));
        let (sin, cos) = libm::sincos(std::f64::consts::TAU * self.unit());
        self.spare = Some(radius * sin);
        radius * cos
    }

    /// Standard normal numbers.
    pub fn normals(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.normal() as f32).collect()
    }
}

/// `count` different numbers in `0..bound`, ascending; all of them when there are no more than that.
pub fn sample(bound: u64, count: u64, seed: u64) -> Vec<u64> {
    if count >= bound {
        return (0..bound).collect();
    }
    // Floyd's algorithm: every subset is equally likely, and memory is that of the sample.
    let mut noise = Noise::new(seed);
    let mut chosen = std::collections::BTreeSet::new();
    for upper in bound - count..bound {
        let pick = noise.below(upper + 1);
        if !chosen.insert(pick) {
            chosen.insert(upper);
        }
    }
    chosen.into_iter().collect()
}

/// `count` different numbers in `0..bound` that are not among `taken`, which ascend; as many as there are when there are
/// fewer. Ascending.
pub fn sample_beside(bound: u64, taken: &[u64], count: u64, seed: u64) -> Vec<u64> {
    let mut passed = 0;
    let free = sample(bound - taken.len() as u64, count, seed);
    let number = |rank: u64| {
        while taken.get(passed).is_some_and(|&taken| taken <= rank + passed as u64) {
            passed += 1;
        }
        rank + passed as u64
    };
    free.into_iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_splitmix64() {
        // The published first numbers of seed 1234567.
        let mut noise = Noise::new(1_234_567);
        let first = [noise.next_u64(), noise.next_u64(), noise.next_u64()];
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn normal_numbers_have_the_moments_of_a_gaussian() {
        let values = Noise::new(5).normals(200_000);
        let moment = |p: i32| values.iter().map(|v| f64::from(*v).powi(p)).sum::<f64>() / values.len() as f64;
        assert!(moment(1).abs() < 0.01 && (moment(2) - 1.0).abs() < 0.015);
        assert!(moment(3).abs() < 0.03 && (moment(4) - 3.0).abs() < 0.1);
    }

    #[test]
    fn samples_are_distinct_in_range_and_spread() {
        let ids = sample(1_000, 100, 3);
        assert_eq!(ids.len(), 100);
        assert!(ids.is_sorted_by(|a, b| a < b) && *ids.last().unwrap() < 1_000);
        let mean = ids.iter().sum::<u64>() as f64 / 100.0;
        assert!((mean - 499.5).abs() < 100.0, "{mean}");
        assert_eq!(sample(5, 9, 0), [0, 1, 2, 3, 4]);
        assert_ne!(sample(1_000, 100, 4), ids);
    }

    #[test]
    fn a_second_sample_has_nothing_of_the_first() {
        for (first, second) in [(0, 10), (300, 400), (500, 500), (999, 5), (1_000, 5)] {
            let taken = sample(1_000, first, 1);
            let beside = sample_beside(1_000, &taken, second, 2);
            assert_eq!(beside.len() as u64, second.min(1_000 - first));
            assert!(beside.is_sorted_by(|a, b| a < b) && beside.last().is_none_or(|&last| last < 1_000));
            assert!(beside.iter().all(|id| taken.binary_search(id).is_err()));
        }
        assert_eq!(sample_beside(8, &[0, 1, 4, 7], 9, 0), [2, 3, 5, 6]);
    }
}
