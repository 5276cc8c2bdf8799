//! The paper's trellis code: 16-bit states, two values per step, a table of 512 pairs ("HYB", L = 16, V = 2, Q = 9).
//!
//! A state `s` gives `h = s(s + 1) mod 2^16`; bits 14..6 of `h` choose a pair, bit 15 flips the sign of its first
//! value. Two-pass tail-biting Viterbi search over binary32 metrics.

use condprog_core::encoder::ScaleRule;
use half::bf16;
use rayon::prelude::*;

use super::alpha;
use crate::error::Error;
use crate::kmeans::Codebook;
use crate::noise::Noise;
use crate::rows::{Rows, dot, energy};

const STATE_BITS: u32 = 16;
const STATES: usize = 1 << STATE_BITS;
/// Pairs in the table.
const PAIRS: usize = 512;
/// Rows that are searched together.
const LANES: usize = 16;
/// A metric no path has.
const UNREACHED: f32 = 1e30;

type Lanes = [f32; LANES];

/// The table: k-means over seeded Gaussian pairs, folded onto a positive first value since the sign is free, and
/// scaled so that the values of all states have deviation 1.
///
/// A value that is made before the threads start, not a static that the first of them makes: making it takes the threads
/// of the pool, all of which may be waiting for it then.
#[derive(Debug)]
pub(super) struct Pairs(Vec<[f32; 2]>);

impl Pairs {
    pub(super) fn new() -> Pairs {
        let mut noise = Noise::new(0x5eed);
        let points: Vec<[f32; 2]> =
            (0..1 << 18).map(|_| [noise.normal().abs() as f32, noise.normal() as f32]).collect();
        let book = Codebook::train(&points, PAIRS, 40, 1);
        let value = |index: usize| book.centres()[index & (PAIRS - 1)];
        let energy: f64 = (0..STATES).flat_map(|s| value(pair_index(s as u16)).map(|v| f64::from(v).powi(2))).sum();
        let unit = (energy / (2 * STATES) as f64).sqrt();
        Pairs(book.centres().iter().map(|pair| pair.map(|v| (f64::from(v) / unit) as f32)).collect())
    }
}

/// Index of a state's pair among the 1,024 signed ones: bit 9 is the sign.
fn pair_index(state: u16) -> usize {
    usize::from(state.wrapping_mul(state.wrapping_add(1)) >> 6)
}

/// The two values of a signed pair.
fn pair(table: &[[f32; 2]], index: usize) -> [f32; 2] {
    let [a, b] = table[index & (PAIRS - 1)];
    if index & PAIRS != 0 { [-a, b] } else { [a, b] }
}

/// Codes rows by the trellis and scales them: `half_bits` is the rate in half bits per value, 2 to 8.
pub(super) fn restore(
    rows: &Rows,
    pairs: &Pairs,
    half_bits: u32,
    rule: ScaleRule<()>,
    global: f64,
) -> Result<Rows, Error> {
    let dim = rows.dim();
    let need = |need: &str| Err(Error::Need { method: "the HYB trellis".into(), need: need.into() });
    if !dim.is_multiple_of(2) || (dim as u32 / 2 * half_bits) < STATE_BITS {
        return need("an even row width and codes of at least 16 bits");
    }
    let unit = |row: &[f32]| match rule {
        ScaleRule::Global(()) => 1.0 / global,
        _ => (dim as f64 / energy(row)).sqrt(),
    };
    let mut out = vec![0.0; rows.values().len()];
    let chunks = out.par_chunks_mut(LANES * dim).zip(rows.values().par_chunks(LANES * dim));
    chunks.for_each_init(
        || Search::new(pairs, dim / 2, half_bits),
        |search, (out, rows)| {
            search.code(rows, unit, out);
            for (row, out) in rows.chunks_exact(dim).zip(out.chunks_exact_mut(dim)) {
                let scale = bf16::from_f64(alpha(rule, energy(row), dot(row, out), energy(out), global)).to_f32();
                out.iter_mut().for_each(|value| *value *= scale);
            }
        },
    );
    Ok(Rows::new(dim, out))
}

struct Search<'a> {
    table: &'a [[f32; 2]],
    /// Steps of a row, and bits by which each shifts the state.
    steps: usize,
    shift: u32,
    /// For survivor `j` and predecessor bits `hi`, at `j << shift | hi`: the signed pair of the state `hi .. j`.
    pairs: Vec<u16>,
    targets: Vec<[Lanes; 2]>,
    /// Path metrics of all survivors after 0, 1, 2, ... steps.
    metrics: Vec<Lanes>,
    branch: Vec<Lanes>,
}

impl<'a> Search<'a> {
    fn new(pairs: &'a Pairs, steps: usize, shift: u32) -> Search<'a> {
        let table = &pairs.0[..];
        let survivors = STATES >> shift;
        let state = |j: usize, hi: usize| hi << (STATE_BITS - shift) | j;
        let pairs = (0..STATES).map(|i| pair_index(state(i >> shift, i & ((1 << shift) - 1)) as u16) as u16).collect();
        Search {
            table,
            steps,
            shift,
            pairs,
            targets: vec![[[0.0; LANES]; 2]; steps],
            metrics: vec![[0.0; LANES]; survivors * (steps + 1)],
            branch: vec![[0.0; LANES]; 2 * PAIRS],
        }
    }

    fn survivors(&self) -> usize {
        STATES >> self.shift
    }

    /// Writes the values of the best code of each row, rows being scaled by `unit(row)` first.
    fn code(&mut self, rows: &[f32], unit: impl Fn(&[f32]) -> f64, out: &mut [f32]) {
        let dim = 2 * self.steps;
        for (lane, row) in rows.chunks_exact(dim).enumerate() {
            let unit = unit(row);
            for (target, pair) in self.targets.iter_mut().zip(row.as_chunks::<2>().0) {
                let scaled = pair.map(|value| (f64::from(value) * unit) as f32);
                // A row of zeros has no direction; it is coded as zeros and its scale is zero.
                [target[0][lane], target[1][lane]] = scaled.map(|v| if v.is_finite() { v } else { 0.0 });
            }
        }
        let lanes = rows.len() / dim;
        let mut paths = vec![vec![0u16; self.steps]; lanes];
        self.pass(self.steps / 2, None, &mut paths);
        let seams: Vec<usize> = paths.iter().map(|path| usize::from(path[0]) >> self.shift).collect();
        self.pass(0, Some(&seams), &mut paths);
        for (path, out) in paths.iter().zip(out.chunks_exact_mut(dim)) {
            for (&state, out) in path.iter().zip(out.as_chunks_mut::<2>().0) {
                *out = pair(self.table, pair_index(state));
            }
        }
    }

    /// Once round the row from step `start`. With `seams`, each row's path begins and ends in its seam.
    fn pass(&mut self, start: usize, seams: Option<&[usize]>, paths: &mut [Vec<u16>]) {
        let survivors = self.survivors();
        self.metrics[..survivors].fill([if seams.is_some() { UNREACHED } else { 0.0 }; LANES]);
        for (lane, &seam) in seams.unwrap_or(&[]).iter().enumerate() {
            self.metrics[seam][lane] = 0.0;
        }
        for i in 0..self.steps {
            let target = self.targets[(start + i) % self.steps];
            for (index, branch) in self.branch.iter_mut().enumerate() {
                let [a, b] = pair(self.table, index);
                for (lane, branch) in branch.iter_mut().enumerate() {
                    *branch = (target[0][lane] - a).powi(2) + (target[1][lane] - b).powi(2);
                }
            }
            let (done, next) = self.metrics.split_at_mut((i + 1) * survivors);
            let before = &done[i * survivors..];
            let per_survivor = self.pairs.chunks_exact(1 << self.shift);
            for ((j, after), pairs) in next[..survivors].iter_mut().enumerate().zip(per_survivor) {
                let mut least = [f32::INFINITY; LANES];
                for (hi, &index) in pairs.iter().enumerate() {
                    let from = &before[(hi << (STATE_BITS - self.shift) | j) >> self.shift];
                    let branch = &self.branch[usize::from(index)];
                    for lane in 0..LANES {
                        let metric = from[lane] + branch[lane];
                        least[lane] = if metric < least[lane] { metric } else { least[lane] };
                    }
                }
                *after = least;
            }
        }
        for (lane, path) in paths.iter_mut().enumerate() {
            self.trace_back(start, seams.map(|seams| seams[lane]), lane, path);
        }
    }

    /// Decisions are not stored: on the way back the few predecessors of one survivor are compared again.
    fn trace_back(&self, start: usize, seam: Option<usize>, lane: usize, path: &mut [u16]) {
        let survivors = self.survivors();
        let metric = |i: usize, j: usize| self.metrics[i * survivors + j][lane];
        let last = |&a: &usize, &b: &usize| metric(self.steps, a).total_cmp(&metric(self.steps, b));
        let mut j = seam.or_else(|| (0..survivors).min_by(last)).unwrap_or(0);
        for i in (0..self.steps).rev() {
            let t = (start + i) % self.steps;
            let cost = |state: usize| {
                let [a, b] = pair(self.table, pair_index(state as u16));
                let [x, y] = self.targets[t];
                metric(i, state >> self.shift) + ((x[lane] - a).powi(2) + (y[lane] - b).powi(2))
            };
            let states = (0..1usize << self.shift).map(|hi| hi << (STATE_BITS - self.shift) | j);
            let state = states.min_by(|&a, &b| cost(a).total_cmp(&cost(b))).unwrap_or(0);
            path[t] = state as u16;
            j = state >> self.shift;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_bite_their_tails() {
        let pairs = Pairs::new();
        for half_bits in [2, 3, 4, 6, 8] {
            let mut search = Search::new(&pairs, 16, half_bits);
            let rows = Rows::gaussian(5, 32, 2);
            let mut out = vec![0.0; rows.values().len()];
            search.code(rows.values(), |_| 1.0, &mut out);
            let mut paths = vec![vec![0u16; 16]; 5];
            let seams = vec![9; 5];
            search.pass(0, Some(&seams), &mut paths);
            for path in paths {
                for t in 0..16 {
                    let next = usize::from(path[(t + 1) % 16]) >> half_bits;
                    assert_eq!(usize::from(path[t]) & (search.survivors() - 1), next);
                }
                assert_eq!(usize::from(path[0]) >> half_bits, 9);
            }
        }
    }

    #[test]
    fn error_of_gaussian_rows_is_that_of_the_code() {
        // At 2 bits, lengths restored: 0.0707 to 0.0717 by table, and 0.0625 is the bound.
        let rows = Rows::gaussian(96, 256, 3);
        let restored = restore(&rows, &Pairs::new(), 4, ScaleRule::Norm, 1.0).unwrap();
        let error: f64 = rows
            .iter()
            .zip(restored.iter())
            .map(|(row, restored)| {
                let difference: Vec<f32> = row.iter().zip(restored).map(|(a, b)| a - b).collect();
                energy(&difference) / energy(row)
            })
            .sum::<f64>()
            / 96.0;
        assert!((error - 0.0712).abs() < 0.0015, "{error}");
    }

    #[test]
    fn rows_of_zeros_stay_zeros() {
        let restored = restore(&Rows::new(32, vec![0.0; 64]), &Pairs::new(), 4, ScaleRule::Norm, 1.0).unwrap();
        assert!(restored.values().iter().all(|&v| v == 0.0));
    }
}
