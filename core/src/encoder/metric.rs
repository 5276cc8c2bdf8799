//! Branch metrics: the integer distances the search adds up.

use crate::program::LEVELS;
use crate::trellis::Rate;

/// Levels per standard deviation of a Gaussian source: `127 / Q(255.5 / 256)`.
const LEVELS_PER_DEVIATION: f64 = 127.0 / 2.885_634_912_426_757;

/// The metric of one rate: how large a standard deviation is in quarter levels, how squares are shifted down, and
/// where a branch metric saturates.
///
/// The metric of level `v` for a target `z`, both in quarter levels, is
/// `min(max, ((z - 4v)^2 - (z - 4w)^2) >> down)`, `w` the level nearest to `z`. Taking off each step's smallest metric
/// keeps a row with an outlier from saturating every path. `max` is small enough that, once the smallest path metric
/// is taken off every fourth step, all path metrics fit in 12 bits: any survivor is reached from the best one in
/// `reach` steps, so no two of them are further than `reach * max` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    gain: u16,
    down: u32,
    reach: u32,
}

impl Metric {
    /// Targets are clamped to this magnitude, in quarter levels, where metrics are formed: 23 standard deviations,
    /// eight times the largest level.
    pub const TARGET_LIMIT: i32 = 4095;
    /// Bits of a path metric.
    pub const PATH_BITS: u32 = 12;
    /// A path metric has its smallest taken off after so many steps at the latest.
    pub const NORMALIZE_STEPS: u32 = 4;

    /// The metric of a rate.
    pub const fn new(rate: Rate) -> Metric {
        // Gain in thousandths and shift, by measurement on Gaussian rows.
        let (gain, down) = match rate.quarters() {
            4 => (1000, 9),
            5 => (1000, 9),
            6 => (1000, 8),
            7 => (1000, 8),
            8 => (1000, 8),
            9 => (1000, 7),
            10 => (1000, 7),
            11 => (1025, 7),
            12 => (1050, 6),
            13 => (1060, 6),
            14 => (1075, 6),
            15 => (1090, 5),
            _ => (1100, 5),
        };
        Metric { gain, down, reach: 64u32.div_ceil(rate.quarters()) }
    }

    /// Quarter levels per standard deviation of the row.
    pub const fn deviation(self) -> f64 {
        4.0 * LEVELS_PER_DEVIATION * self.gain as f64 / 1000.0
    }

    /// Bits by which squared distances are shifted down.
    pub const fn down(self) -> u32 {
        self.down
    }

    /// Steps in which every survivor can be reached from any other.
    pub const fn reach(self) -> u32 {
        self.reach
    }

    /// Where a branch metric saturates.
    pub const fn max(self) -> u32 {
        ((1 << Self::PATH_BITS) - 2) / (self.reach + Self::NORMALIZE_STEPS)
    }

    /// A path metric no path from the seam can have: larger than `reach * max`.
    pub const fn unreached(self) -> u32 {
        self.reach * self.max() + 1
    }

    /// The branch metrics of one target value, indexed by the top byte of the state hash.
    pub fn branch(self, target: i32, out: &mut [u32; 256]) {
        let target = target.clamp(-Self::TARGET_LIMIT, Self::TARGET_LIMIT);
        let distance = |index: usize| {
            let level = 4 * i32::from(LEVELS[index & 127]);
            (target - if index & 128 == 0 { level } else { -level }).unsigned_abs()
        };
        let mut nearest = u32::MAX;
        for index in 0..256 {
            nearest = nearest.min(distance(index));
        }
        for (index, out) in out.iter_mut().enumerate() {
            let distance = distance(index);
            *out = (((distance - nearest) * (distance + nearest)) >> self.down).min(self.max());
        }
    }
}
