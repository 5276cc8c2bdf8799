//! Branch metrics: the integer distances the search adds up.

use crate::program::Program;
use crate::trellis::Rate;

/// Levels of [`Program::V1`] per standard deviation of a Gaussian source: `127 / Q(255.5 / 256)`.
const LEVELS_PER_DEVIATION: f64 = 127.0 / 2.885_634_912_426_757;

/// The metric of one program and rate: how large a standard deviation is in quarter levels, how squares are shifted down, and
/// where a branch metric saturates.
///
/// The metric of level `v` for a target `z`, both in quarter levels, is
/// `min(max, ((z - 4v)^2 - (z - 4w)^2) >> down)`, `w` the level nearest to `z`. Taking off each step's smallest metric
/// keeps a row with an outlier from saturating every path. `max` is as large as lets all path metrics fit in
/// `path_bits` once the smallest one is taken off every `normalize_steps` steps: any survivor is reached from the best
/// one in `reach` steps, so no two of them are further than `reach * max` apart. Where `max` is less than about twice
/// the variance of a row, paths pay it for a wrong sign, and rows get much worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    program: Program,
    gain: u16,
    down: u32,
    reach: u32,
    path_bits: u32,
    normalize_steps: u32,
}

impl Metric {
    /// Targets are clamped to this magnitude, in quarter levels, where metrics are formed: 23 standard deviations,
    /// eight times the largest level.
    pub const TARGET_LIMIT: i32 = 4095;

    /// The metric of a program at a rate.
    pub const fn new(program: Program, rate: Rate) -> Metric {
        let Program::V1 = program;
        // By measurement on Gaussian rows: gain in thousandths, shift, bits of a path metric, steps to normalise after.
        // Fewer bits leave an encoder with 16-bit lanes more room for what it carries beside the metric.
        let (gain, down, path_bits, normalize_steps) = match rate.quarters() {
            4 => (1000, 8, 14, 4),
            5 => (1000, 8, 14, 4),
            6 => (1000, 8, 14, 4),
            7 => (1000, 8, 14, 4),
            8 => (1000, 8, 12, 4),
            9 => (1000, 7, 12, 4),
            10 => (1000, 7, 12, 4),
            11 => (975, 7, 12, 4),
            12 => (952, 7, 12, 1),
            13 => (943, 7, 12, 1),
            14 => (930, 7, 12, 1),
            15 => (917, 6, 12, 1),
            _ => (909, 6, 12, 1),
        };
        Metric { program, gain, down, reach: 64u32.div_ceil(rate.quarters()), path_bits, normalize_steps }
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

    /// Bits that hold any path metric.
    pub const fn path_bits(self) -> u32 {
        self.path_bits
    }

    /// Steps after which the smallest path metric is to be taken off all of them, at the latest.
    pub const fn normalize_steps(self) -> u32 {
        self.normalize_steps
    }

    /// Where a branch metric saturates.
    pub const fn max(self) -> u32 {
        ((1 << self.path_bits) - 2) / (self.reach + self.normalize_steps)
    }

    /// A path metric no path from the seam can have: larger than `reach * max`.
    pub const fn unreached(self) -> u32 {
        self.reach * self.max() + 1
    }

    /// The branch metrics of one target value, indexed by the top byte of the state hash.
    pub fn branch(self, target: i32, out: &mut [u32; 256]) {
        let target = target.clamp(-Self::TARGET_LIMIT, Self::TARGET_LIMIT);
        let levels = self.program.levels();
        let distance = |index: usize| {
            let level = 4 * i32::from(levels[index & 127]);
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
