//! The search of SPEC annex A for as many rows at a time as a vector has lanes.
//!
//! One row per 16-bit lane: a state costs one add with a memory operand and one minimum for all rows together, and
//! nothing is gathered. What makes it fast, and where it differs from the literal search without differing in results:
//!
//! * **Metrics** are 12 bits in the upper part of a lane; the low 4 bits carry which predecessor won, so a decision
//!   costs nothing, and the minimum takes the smallest predecessor of equals as it must. [`Metric`] sees to it that
//!   12 bits are enough.
//! * **Branch metrics** are a table of 256 vectors that is laid out so that the predecessors of a survivor stand side
//!   by side: their hashes differ by multiples of `2^(16 - K)`, so rotating the index byte left by `K` bits puts them
//!   in consecutive vectors, in different L1 sets. In index order they would be 4 KiB apart and evict each other.
//! * **Normalisation** costs nothing either: the smallest path metric is found every fourth step and taken off the
//!   next step's 256 branch metrics.
//! * **Decisions** of several survivors are packed into one lane word: 1 bit per survivor and row at 1 bit per value,
//!   2 bits at 2, 4 above. Keeping metrics instead would write eight times as much.

use condprog_core::Layout;
use condprog_core::encoder::{Metric, Search};
use condprog_core::program::{LEVELS, hash};

use super::lanes::Lanes;
use crate::memory::HugeVec;

const STATES: usize = 1 << 16;
/// Bits below a path metric, where decisions ride.
const TAG_BITS: u32 = 16 - Metric::PATH_BITS;
const METRIC_MASK: u16 = !0 << TAG_BITS;

/// One run of the trellis, the same for all rows of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    /// First value.
    start: u32,
    /// Number of values, cyclically from `start`.
    count: u32,
    /// Whether [`Block::seams`] says where each row starts and ends.
    seamed: bool,
}

/// Rows of one vector and everything their search needs.
pub(super) struct Block<V: Lanes> {
    layout: Layout,
    metric: Metric,
    /// Targets, `dim` vectors.
    pub(super) targets: HugeVec<V>,
    /// Path metrics before and after a step.
    metrics: [HugeVec<V>; 2],
    /// Branch metrics of a step, and room to sort them by row.
    branch: HugeVec<V>,
    /// Packed decisions, `dim * stride` vectors.
    decisions: HugeVec<V>,
    stride: usize,
    /// For `K` = 1..=4 at `K - 1`, if some step leaves `K` bits behind: byte offset of each state's branch metric,
    /// at `survivor << K | high bits`.
    offsets: [Vec<u16>; 4],
    /// Variant of each row.
    pub(super) variants: Vec<u8>,
    /// Survivor at the seam, for each row.
    seams: Vec<u16>,
    /// States found, `dim` for each row, row-major.
    pub(super) paths: Vec<u16>,
}

/// Decisions in one lane word, as the exponent of two, for steps that leave `K` bits behind.
const fn packed_log2(leave: u32) -> u32 {
    match leave {
        1 => 4,
        2 => 3,
        _ => 2,
    }
}

impl<V: Lanes> Block<V> {
    pub(super) fn new(layout: Layout) -> Block<V> {
        let dim = layout.dim() as usize;
        let shifts = (0..4.min(layout.dim())).map(|t| layout.shift(t));
        let (least, most) = shifts.fold((4, 1), |(least, most), shift| (shift.min(least), shift.max(most)));
        let survivors = STATES >> least;
        let stride = (least..=most).map(|k| STATES >> k >> packed_log2(k)).max().unwrap_or(0);
        // SAFETY: splat of the portable lanes needs nothing; for the others the caller has checked the CPU. The
        // buffers start as zero bytes, which every Lanes type allows.
        let zeros = |len| unsafe { HugeVec::zeroed(len) };
        Block {
            layout,
            metric: Metric::new(layout.rate()),
            targets: zeros(dim),
            metrics: [zeros(survivors), zeros(survivors)],
            branch: zeros(512),
            decisions: zeros(dim * stride),
            stride,
            offsets: std::array::from_fn(|i| {
                let leave = i as u32 + 1;
                if (least..=most).contains(&leave) { offsets::<V>(leave) } else { Vec::new() }
            }),
            variants: vec![0; V::ROWS],
            seams: vec![0; V::ROWS],
            paths: vec![0; V::ROWS * dim],
        }
    }

    /// Runs the trellis and traces every row's best path back into `paths`.
    ///
    /// # Safety
    /// The CPU must have the instructions of `V`.
    #[inline(always)]
    pub(super) unsafe fn pass(&mut self, pass: &Pass) {
        let (dim, layout, metric) = (self.layout.dim(), self.layout, self.metric);
        let at = |i: u32| (pass.start + i) % dim;
        let survivors = |t: u32| STATES >> layout.shift(t);
        // SAFETY: the caller vouches for the CPU; all slices are bounded by their own lengths.
        unsafe {
            let first = survivors(at(0));
            if pass.seamed {
                let unreached = (metric.unreached() as u16) << TAG_BITS;
                self.metrics[0][..first].fill(V::splat(unreached));
                for (row, &seam) in self.seams.iter().enumerate() {
                    lane_mut(&mut self.metrics[0])[usize::from(seam) * V::ROWS + row] = 0;
                }
            } else {
                self.metrics[0][..first].fill(V::splat(0));
            }
            let mut least = V::splat(0);
            for i in 0..pass.count {
                let (t, next) = (at(i), at(i + 1));
                let (came, leave) = (layout.shift(t), layout.shift(next));
                branch(metric, self.targets[t as usize], leave, &self.variants, least, &mut self.branch);
                let [before, after] = &mut self.metrics;
                let step = Step {
                    before: &before[..survivors(t)],
                    after: &mut after[..survivors(next)],
                    branch: &self.branch[..256],
                    offsets: &self.offsets[leave as usize - 1],
                    decisions: &mut self.decisions[i as usize * self.stride..][..self.stride],
                };
                let normalize = (i + 1) % Metric::NORMALIZE_STEPS == 0;
                least = step.run(leave, came, normalize);
                if pass.seamed && i < metric.reach() {
                    // Paths that do not start at the seam must not grow beyond what a lane holds.
                    let unreached = V::splat((metric.unreached() as u16) << TAG_BITS);
                    for survivor in &mut after[..survivors(next)] {
                        *survivor = survivor.min(unreached);
                    }
                }
                self.metrics.swap(0, 1);
            }
            self.trace(pass);
        }
    }

    /// # Safety
    /// As [`Block::pass`].
    #[inline(always)]
    unsafe fn trace(&mut self, pass: &Pass) {
        let (dim, layout) = (self.layout.dim(), self.layout);
        let at = |i: u32| (pass.start + i) % dim;
        if !pass.seamed {
            let last = &self.metrics[0][..STATES >> layout.shift(at(pass.count))];
            // SAFETY: the caller vouches for the CPU.
            let ends = unsafe { first_least(last) };
            self.seams.copy_from_slice(lane(&[ends]));
        }
        let dim = dim as usize;
        let decisions = lane(&self.decisions);
        for i in (0..pass.count).rev() {
            let (t, leave) = (at(i) as usize, layout.shift(at(i + 1)));
            let came = layout.shift(at(i));
            let packed = packed_log2(leave);
            let width = TAG_BITS * 4 >> packed;
            let words = &decisions[i as usize * self.stride * V::ROWS..][..self.stride * V::ROWS];
            // Rows innermost: their loads are independent, so the misses overlap.
            for (row, survivor) in self.seams.iter_mut().enumerate() {
                let j = u32::from(*survivor);
                let word = words[(j >> packed) as usize * V::ROWS + row];
                let high = u32::from(word) >> (width * (j & ((1 << packed) - 1))) & ((1 << leave) - 1);
                let state = high << (16 - leave) | j;
                self.paths[row * dim + t] = state as u16;
                *survivor = (state >> came) as u16;
            }
        }
    }
}

/// Views vectors as their lanes.
fn lane<V: Lanes>(vectors: &[V]) -> &[u16] {
    // SAFETY: Lanes promises ROWS * 2 bytes per vector without invalid bit patterns or padding; u16 aligns to less.
    unsafe { std::slice::from_raw_parts(vectors.as_ptr().cast(), vectors.len() * V::ROWS) }
}

/// Views vectors as their lanes, to be written.
pub(super) fn lane_mut<V: Lanes>(vectors: &mut [V]) -> &mut [u16] {
    // SAFETY: as `lane`, and any lanes make a valid vector.
    unsafe { std::slice::from_raw_parts_mut(vectors.as_mut_ptr().cast(), vectors.len() * V::ROWS) }
}

/// Where in the branch-metric table each state's entry is, variant 0.
fn offsets<V: Lanes>(leave: u32) -> Vec<u16> {
    (0..STATES)
        .map(|i| {
            let (survivor, high) = (i >> leave, i & ((1 << leave) - 1));
            let index = (hash((high << (16 - leave) | survivor) as u16, 0) >> 8) as u8;
            u16::from(index.rotate_left(leave)) * size_of::<V>() as u16
        })
        .collect()
}

/// The branch metrics of one value for all rows, less `least`, in the layout of [`offsets`], in the first half of
/// `out`.
///
/// # Safety
/// As [`Block::pass`].
#[inline(always)]
unsafe fn branch<V: Lanes>(metric: Metric, target: V, leave: u32, variants: &[u8], least: V, out: &mut [V]) {
    let (sorted, by_index) = out.split_at_mut(256);
    let variant = variants[0];
    let uniform = variants.iter().all(|&v| v == variant);
    // SAFETY: the caller vouches for the CPU.
    unsafe {
        let magnitude = target.abs();
        let mut nearest = V::splat(u16::MAX);
        for level in LEVELS {
            nearest = nearest.min(magnitude.sub(V::splat(4 * u16::from(level))).abs());
        }
        let down = metric.down();
        let (max, high_max) = (V::splat(metric.max() as u16), V::splat((1 << down) - 1));
        for (i, level) in LEVELS.into_iter().enumerate() {
            let level = V::splat(4 * u16::from(level));
            for (index, distance) in [(i, target.sub(level)), (i | 128, target.add(level))] {
                let distance = distance.abs();
                // (a - b)(a + b) has up to 25 bits; what is too large to be shifted into 16 is above `max` anyway.
                let (less, more) = (distance.sub(nearest), distance.add(nearest));
                let high = less.mul_high(more).min(high_max).shift_left(16 - down);
                let low = less.mul_low(more).shift_right(down);
                let value = high.add(low).min(max).shift_left(TAG_BITS).sub(least);
                if uniform {
                    sorted[place(index, variant, leave)] = value;
                } else {
                    by_index[index] = value;
                }
            }
        }
    }
    if !uniform {
        // Only in re-cut passes, whose rows have each found their best variant.
        let (sorted, by_index) = (lane_mut(sorted), lane(by_index));
        for index in 0..256 {
            for (row, &variant) in variants.iter().enumerate() {
                sorted[place(index, variant, leave) * V::ROWS + row] = by_index[index * V::ROWS + row];
            }
        }
    }
}

/// Where the branch metric of a level is in the layout of [`offsets`]: a variant adds `v << 12` to the hash.
#[inline(always)]
fn place(index: usize, variant: u8, leave: u32) -> usize {
    usize::from((index as u8).wrapping_sub(variant << 4).rotate_left(leave))
}

/// The first position of the smallest metric, for each row.
///
/// # Safety
/// As [`Block::pass`].
#[inline(always)]
unsafe fn first_least<V: Lanes>(metrics: &[V]) -> V {
    // SAFETY: the caller vouches for the CPU.
    unsafe {
        let (mask, zero) = (V::splat(METRIC_MASK), V::splat(0));
        let least = metrics.iter().fold(V::splat(u16::MAX), |least, &m| least.min(m)).and_or(mask, zero);
        let mut first = zero;
        for (j, &metric) in metrics.iter().enumerate().rev() {
            first = metric.and_or(mask, zero).if_equal(least, V::splat(j as u16), first);
        }
        first
    }
}

/// One step of the trellis.
struct Step<'a, V> {
    before: &'a [V],
    after: &'a mut [V],
    branch: &'a [V],
    offsets: &'a [u16],
    decisions: &'a mut [V],
}

impl<V: Lanes> Step<'_, V> {
    /// # Safety
    /// As [`Block::pass`].
    #[inline(always)]
    unsafe fn run(self, leave: u32, came: u32, normalize: bool) -> V {
        // SAFETY: the caller vouches for the CPU.
        unsafe {
            match (leave, came) {
                (1, 1) => self.of::<1, 1>(normalize),
                (1, 2) => self.of::<1, 2>(normalize),
                (2, 1) => self.of::<2, 1>(normalize),
                (2, 2) => self.of::<2, 2>(normalize),
                (2, 3) => self.of::<2, 3>(normalize),
                (3, 2) => self.of::<3, 2>(normalize),
                (3, 3) => self.of::<3, 3>(normalize),
                (3, 4) => self.of::<3, 4>(normalize),
                (4, 3) => self.of::<4, 3>(normalize),
                (4, 4) => self.of::<4, 4>(normalize),
                _ => unreachable!("shifts of a rate differ by at most one"),
            }
        }
    }

    #[inline(always)]
    unsafe fn of<const LEAVE: u32, const CAME: u32>(self, normalize: bool) -> V {
        // SAFETY: the caller vouches for the CPU.
        unsafe { if normalize { self.step::<LEAVE, CAME, true>() } else { self.step::<LEAVE, CAME, false>() } }
    }

    /// `after[j] = min over the 2^LEAVE states s with low bits j of before[s >> CAME] + branch[s]`; the `2^CAME`
    /// survivors that share their predecessors are done together. Returns the smallest metric if asked to.
    ///
    /// # Safety
    /// As [`Block::pass`].
    #[inline(always)]
    unsafe fn step<const LEAVE: u32, const CAME: u32, const NORMALIZE: bool>(self) -> V {
        let packed = 1usize << packed_log2(LEAVE);
        let words = (STATES >> LEAVE) / packed;
        let groups = STATES >> LEAVE >> CAME;
        // The loops below stay within these.
        assert!(self.before.len() == STATES >> CAME && self.after.len() == STATES >> LEAVE);
        assert!(self.offsets.len() == STATES && self.branch.len() == 256 && self.decisions.len() >= words);
        let (before, after, offsets) = (self.before.as_ptr(), self.after.as_mut_ptr(), self.offsets.as_ptr());
        let (branch, decisions) = (self.branch.as_ptr().cast::<u8>(), self.decisions.as_mut_ptr());
        // SAFETY: the CPU is vouched for by the caller. `high << .. | middle` is below STATES >> CAME, `j` below
        // STATES >> LEAVE and `j << LEAVE | high` below STATES, since middle < groups; offsets are below
        // 256 * size_of::<V>() and multiples of it (see `offsets`); the decision word is j / packed < words.
        unsafe {
            let metric_mask = V::splat(METRIC_MASK);
            let mut least = V::splat(u16::MAX);
            // Survivors whose decisions fill a word, or one group if that is more.
            let span = if packed > 1 << CAME { packed } else { 1 << CAME };
            let mut won = [V::splat(0); 16];
            for first in (0..groups << CAME).step_by(span) {
                for group in 0..span >> CAME {
                    let middle = (first >> CAME) + group;
                    let mut from = [V::splat(0); 16];
                    for (high, from) in from[..1 << LEAVE].iter_mut().enumerate() {
                        // The tag is repeated through the low bits, so that packing mostly needs no shifts.
                        let tag = match LEAVE {
                            1 => high * 0b1111,
                            2 => high * 0b0101,
                            _ => high,
                        };
                        let metric = *before.add(high << (16 - LEAVE - CAME) | middle);
                        *from = metric.and_or(metric_mask, V::splat(tag as u16));
                    }
                    for low in 0..1usize << CAME {
                        let j = middle << CAME | low;
                        let at = offsets.add(j << LEAVE);
                        let mut best = from[0].add(*branch.add(usize::from(*at)).cast::<V>());
                        for (high, from) in from[..1 << LEAVE].iter().enumerate().skip(1) {
                            best = best.min(from.add(*branch.add(usize::from(*at.add(high))).cast::<V>()));
                        }
                        *after.add(j) = best;
                        if NORMALIZE {
                            least = least.min(best);
                        }
                        won[group << CAME | low] = best;
                    }
                }
                for word in 0..span / packed {
                    *decisions.add(first / packed + word) = pack::<V, LEAVE>(&won[word * packed..]);
                }
            }
            if NORMALIZE { least.and_or(metric_mask, V::splat(0)) } else { V::splat(0) }
        }
    }
}

/// The tags of `1 << packed_log2(LEAVE)` survivors in one lane word, the first one lowest.
///
/// Functions, not closures: a closure would be compiled without the caller's instruction set.
///
/// # Safety
/// As [`Block::pass`].
#[inline(always)]
unsafe fn pack<V: Lanes, const LEAVE: u32>(won: &[V]) -> V {
    let half = (1 << packed_log2(LEAVE)) / 2;
    // SAFETY: the caller vouches for the CPU.
    unsafe {
        let (low, high) = (pack_byte::<V, LEAVE>(&won[..half]), pack_byte::<V, LEAVE>(&won[half..]));
        low.select(high.shift_left(8), V::splat(0x00ff))
    }
}

/// # Safety
/// As [`Block::pass`].
#[inline(always)]
unsafe fn pack_byte<V: Lanes, const LEAVE: u32>(won: &[V]) -> V {
    let half = (1 << packed_log2(LEAVE)) / 4;
    // SAFETY: the caller vouches for the CPU.
    unsafe {
        let (low, high) = (pack_nibble::<V, LEAVE>(&won[..half]), pack_nibble::<V, LEAVE>(&won[half..]));
        low.select(high.shift_left(4), V::splat(0x000f))
    }
}

/// # Safety
/// As [`Block::pass`].
#[inline(always)]
unsafe fn pack_nibble<V: Lanes, const LEAVE: u32>(won: &[V]) -> V {
    // SAFETY: the caller vouches for the CPU.
    unsafe {
        match LEAVE {
            1 => {
                let low = won[0].select(won[1], V::splat(0b0001));
                let high = won[2].select(won[3], V::splat(0b0100));
                low.select(high, V::splat(0b0011))
            }
            2 => won[0].select(won[1], V::splat(0b0011)),
            _ => won[0],
        }
    }
}

/// The two passes of a search; `run` is [`Block::pass`] at some level.
pub(super) fn two_passes<V: Lanes>(block: &mut Block<V>, search: Search, run: &impl Fn(&mut Block<V>, &Pass)) {
    let dim = block.layout.dim();
    let window = search.first_pass(dim);
    run(block, &Pass { start: dim - window, count: 2 * window, seamed: false });
    cut(block, 0, run);
}

/// One pass once round, between the seams that the paths have before value `at`.
pub(super) fn cut<V: Lanes>(block: &mut Block<V>, at: u32, run: &impl Fn(&mut Block<V>, &Pass)) {
    let dim = block.layout.dim();
    let shift = block.layout.shift(at);
    for (seam, path) in block.seams.iter_mut().zip(block.paths.chunks_exact(dim as usize)) {
        *seam = path[at as usize] >> shift;
    }
    run(block, &Pass { start: at, count: dim, seamed: true });
}
