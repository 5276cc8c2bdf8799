//! The search of SPEC annex A for as many rows at a time as a vector has lanes.
//!
//! One row per 16-bit lane: a state costs one add with a memory operand and one minimum for all rows together, and
//! nothing is gathered. What makes it fast, and where it differs from the literal search without differing in results:
//!
//! * **Metrics** are 12 or 14 bits in the upper part of a lane; the low bits, the tag, carry which predecessor won, so a
//!   decision costs nothing, and the minimum takes the smallest predecessor of equals as it must. [`Metric`] sees to it
//!   that the bits are enough.
//! * **Branch metrics** are a table of 256 vectors that is laid out so that the predecessors of a survivor stand side
//!   by side: their hashes differ by multiples of `2^(16 - K)`, so rotating the index byte left by `K` bits puts them
//!   in consecutive vectors, in different L1 sets. In index order they would be 4 KiB apart and evict each other.
//! * **Normalisation** costs nothing either: the smallest path metric is found every fourth step and taken off the
//!   next step's 256 branch metrics.
//! * **In place**, where two arrays of path metrics would fill the second-level cache, see [`StepInPlace`]. (Two steps at
//!   a time, sixteen survivors in and out, were a quarter faster as a bare loop and no faster in the encoder. Prefetching
//!   the metrics slowed it down.)
//! * **Decisions** of several survivors are packed into one lane word: 1 bit per survivor and row at 1 bit per value,
//!   2 bits at 2, 4 above. Keeping metrics instead would write eight times as much.

use condprog_core::Layout;
use condprog_core::encoder::Search;
use condprog_core::hazmat::Metric;
use condprog_memory::HugeBuffer;

use super::lanes::Lanes;
use crate::PROGRAM;
use crate::error::CpuError;

const STATES: usize = 1 << 16;
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
    pub(super) targets: HugeBuffer<V>,
    /// Path metrics before and after a step; the second array is empty where steps work in place.
    metrics: [HugeBuffer<V>; 2],
    /// Branch metrics of a step, and room to sort them by row.
    branch: HugeBuffer<V>,
    /// Packed decisions, `dim * stride` vectors.
    decisions: HugeBuffer<V>,
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
    /// # Errors
    /// [`CpuError::Memory`].
    pub(super) fn new(layout: Layout) -> Result<Block<V>, CpuError> {
        let dim = layout.dim() as usize;
        let shifts = (0..4.min(layout.dim())).map(|t| layout.shift(t));
        let (least, most) = shifts.fold((4, 1), |(least, most), shift| (shift.min(least), shift.max(most)));
        let survivors = STATES >> least;
        let stride = (least..=most).map(|k| STATES >> k >> packed_log2(k)).max().unwrap_or(0);
        let zeros = |len: usize| {
            HugeBuffer::zeroed(len).map_err(|source| CpuError::Memory { bytes: len * size_of::<V>(), source })
        };
        Ok(Block {
            layout,
            metric: Metric::new(layout.program(), layout.rate()),
            targets: zeros(dim)?,
            // Where shifts differ, two arrays of different lengths take turns.
            metrics: [zeros(survivors)?, zeros(if V::IN_PLACE && least == most { 0 } else { survivors })?],
            branch: zeros(512)?,
            decisions: zeros(dim * stride)?,
            stride,
            offsets: std::array::from_fn(|i| {
                let leave = i as u32 + 1;
                if (least..=most).contains(&leave) { offsets::<V>(leave) } else { Vec::new() }
            }),
            variants: vec![0; V::ROWS],
            seams: vec![0; V::ROWS],
            paths: vec![0; V::ROWS * dim],
        })
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
            let in_place = V::IN_PLACE && self.metrics[1].is_empty();
            let first = survivors(at(0));
            let tag_bits = 16 - metric.path_bits();
            let unreached = (metric.unreached() as u16) << tag_bits;
            if pass.seamed {
                self.metrics[0][..first].fill(V::splat(unreached));
                for (row, &seam) in self.seams.iter().enumerate() {
                    let place = if in_place { scatter(usize::from(seam)) } else { usize::from(seam) };
                    lane_mut(&mut self.metrics[0])[place * V::ROWS + row] = 0;
                }
            } else {
                self.metrics[0][..first].fill(V::splat(0));
            }
            let (mut least, mut turned) = (V::splat(0), 0);
            for i in 0..pass.count {
                let (t, next) = (at(i), at(i + 1));
                let (came, leave) = (layout.shift(t), layout.shift(next));
                branch(metric, self.targets[t as usize], leave, &self.variants, least, &mut self.branch);
                let normalize = (i + 1).is_multiple_of(metric.normalize_steps());
                let [before, after] = &mut self.metrics;
                let decisions = &mut self.decisions[i as usize * self.stride..][..self.stride];
                let (branch, offsets) = (&self.branch[..256], &self.offsets[leave as usize - 1][..]);
                if in_place {
                    let step = StepInPlace { metrics: before, turned, branch, offsets, decisions };
                    least = step.run(leave, tag_bits, normalize);
                    turned = (turned + leave) % (16 - leave);
                } else {
                    let (before, after) = (&before[..survivors(t)], &mut after[..survivors(next)]);
                    least = Step { before, after, branch, offsets, decisions }.run(leave, came, tag_bits, normalize);
                    self.metrics.swap(0, 1);
                }
                if pass.seamed && i < metric.reach() {
                    // Paths that do not start at the seam must not grow beyond what a lane holds.
                    let unreached = V::splat(unreached);
                    for survivor in &mut self.metrics[0][..survivors(next)] {
                        *survivor = survivor.min(unreached);
                    }
                }
            }
            if !pass.seamed {
                let bits = survivors(at(pass.count)).ilog2();
                let metrics = &self.metrics[0][..];
                let ends = if in_place {
                    first_least(bits, tag_bits, |j| metrics[turn(j, bits, turned)])
                } else {
                    first_least(bits, tag_bits, |j| metrics[j])
                };
                self.seams.copy_from_slice(lane(&[ends]));
            }
            self.trace(pass);
        }
    }

    /// Follows the decisions back from the survivors in `seams`.
    fn trace(&mut self, pass: &Pass) {
        let (dim, layout) = (self.layout.dim(), self.layout);
        let at = |i: u32| (pass.start + i) % dim;
        let dim = dim as usize;
        let decisions = lane(&self.decisions);
        for i in (0..pass.count).rev() {
            let (t, leave) = (at(i) as usize, layout.shift(at(i + 1)));
            let came = layout.shift(at(i));
            let packed = packed_log2(leave);
            let width = 16 >> packed;
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
    bytemuck::cast_slice(vectors)
}

/// Views vectors as their lanes, to be written.
pub(super) fn lane_mut<V: Lanes>(vectors: &mut [V]) -> &mut [u16] {
    bytemuck::cast_slice_mut(vectors)
}

/// Where in the branch-metric table each state's entry is, variant 0.
fn offsets<V: Lanes>(leave: u32) -> Vec<u16> {
    (0..STATES)
        .map(|i| {
            let (survivor, high) = (i >> leave, i & ((1 << leave) - 1));
            let index = (PROGRAM.hash((high << (16 - leave) | survivor) as u16, 0) >> 8) as u8;
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
        for &level in PROGRAM.levels() {
            nearest = nearest.min(magnitude.sub(V::splat(4 * u16::from(level))).abs());
        }
        let down = metric.down();
        let tag_bits = 16 - metric.path_bits();
        let (max, high_max) = (V::splat(metric.max() as u16), V::splat((1 << down) - 1));
        for (i, level) in PROGRAM.levels().iter().enumerate() {
            let level = V::splat(4 * u16::from(*level));
            for (index, distance) in [(i, target.sub(level)), (i | 128, target.add(level))] {
                let distance = distance.abs();
                // (a - b)(a + b) has up to 25 bits; what is too large to be shifted into 16 is above `max` anyway.
                let (less, more) = (distance.sub(nearest), distance.add(nearest));
                let high = less.mul_high(more).min(high_max).shift_left(16 - down);
                let low = less.mul_low(more).shift_right(down);
                let value = high.add(low).min(max).shift_left(tag_bits).sub(least);
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

/// The first of `1 << bits` survivors with the smallest metric, for each row.
///
/// # Safety
/// As [`Block::pass`].
#[inline(always)]
unsafe fn first_least<V: Lanes>(bits: u32, tag_bits: u32, metric: impl Fn(usize) -> V) -> V {
    // SAFETY: the caller vouches for the CPU.
    unsafe {
        let (mask, zero) = (V::splat(!0 << tag_bits), V::splat(0));
        let mut least = V::splat(u16::MAX);
        for j in 0..1 << bits {
            least = least.min(metric(j));
        }
        least = least.and_or(mask, zero);
        let mut first = zero;
        for j in (0..1 << bits).rev() {
            first = metric(j).and_or(mask, zero).if_equal(least, V::splat(j as u16), first);
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
    unsafe fn run(self, leave: u32, came: u32, tag_bits: u32, normalize: bool) -> V {
        // SAFETY: the caller vouches for the CPU.
        unsafe {
            match (leave, came, tag_bits) {
                (1, 1, 2) => self.of::<1, 1, 2>(normalize),
                (1, 2, 2) => self.of::<1, 2, 2>(normalize),
                (2, 1, 2) => self.of::<2, 1, 2>(normalize),
                (2, 2, 2) => self.of::<2, 2, 2>(normalize),
                (2, 2, 4) => self.of::<2, 2, 4>(normalize),
                (2, 3, 4) => self.of::<2, 3, 4>(normalize),
                (3, 2, 4) => self.of::<3, 2, 4>(normalize),
                (3, 3, 4) => self.of::<3, 3, 4>(normalize),
                (3, 4, 4) => self.of::<3, 4, 4>(normalize),
                (4, 3, 4) => self.of::<4, 3, 4>(normalize),
                (4, 4, 4) => self.of::<4, 4, 4>(normalize),
                _ => unreachable!("no rate has steps of {came} and {leave} bits with {tag_bits} bits of tag"),
            }
        }
    }

    #[inline(always)]
    unsafe fn of<const LEAVE: u32, const CAME: u32, const TAG: u32>(self, normalize: bool) -> V {
        // SAFETY: the caller vouches for the CPU.
        unsafe {
            if normalize { self.step::<LEAVE, CAME, TAG, true>() } else { self.step::<LEAVE, CAME, TAG, false>() }
        }
    }

    /// `after[j] = min over the 2^LEAVE states s with low bits j of before[s >> CAME] + branch[s]`; the `2^CAME`
    /// survivors that share their predecessors are done together. Returns the smallest metric if asked to.
    ///
    /// # Safety
    /// As [`Block::pass`].
    #[inline(always)]
    unsafe fn step<const LEAVE: u32, const CAME: u32, const TAG: u32, const NORMALIZE: bool>(self) -> V {
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
            let metric_mask = V::splat(!0 << TAG);
            let mut least = V::splat(u16::MAX);
            // Survivors whose decisions fill a word, or one group if that is more.
            let span = if packed > 1 << CAME { packed } else { 1 << CAME };
            let mut won = [V::splat(0); 16];
            for first in (0..groups << CAME).step_by(span) {
                for group in 0..span >> CAME {
                    let middle = (first >> CAME) + group;
                    let mut from = [V::splat(0); 16];
                    for (high, from) in from[..1 << LEAVE].iter_mut().enumerate() {
                        let metric = *before.add(high << (16 - LEAVE - CAME) | middle);
                        *from = metric.and_or(metric_mask, V::splat(tag::<LEAVE, TAG>(high)));
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
                    *decisions.add(first / packed + word) = pack::<V, LEAVE, TAG>(&won[word * packed..]);
                }
            }
            if NORMALIZE { least.and_or(metric_mask, V::splat(0)) } else { V::splat(0) }
        }
    }
}

/// One step of the trellis where as many bits come in as leave: the `2^K` survivors that share their predecessors are
/// as many as these, and take their places.
///
/// Half the memory of two arrays decides the speed: 2^14 survivors of 64 bytes fill half of a 2 MiB cache, and two
/// arrays of them all of it. The price is that survivor `j` moves: after steps that shifted by `turned` bits in
/// total it is at `j` rotated right by `turned`.
struct StepInPlace<'a, V> {
    metrics: &'a mut [V],
    turned: u32,
    branch: &'a [V],
    offsets: &'a [u16],
    decisions: &'a mut [V],
}

/// Where survivor `j` of `bits` bits is after steps that shifted by `turned` bits, below `bits`. Linear over exclusive or.
#[inline(always)]
const fn turn(j: usize, bits: u32, turned: u32) -> usize {
    scatter((j >> turned | j << (bits - turned)) & ((1 << bits) - 1))
}

/// Permutes places within each 64 so that no two of the last dozens touched have the same low address bits: a load
/// waits for a store in flight that agrees with it in the lowest 12, whatever lies above. Of 14 bits, seven digits of
/// two, any three neighbours in a circle, the one that tells predecessors apart and the two that count groups, land in
/// different bits.
#[inline(always)]
const fn scatter(place: usize) -> usize {
    place ^ (place >> 6 & 63) ^ (place >> 12 & 3) * 0b01_01_01
}

impl<V: Lanes> StepInPlace<'_, V> {
    /// # Safety
    /// As [`Block::pass`].
    #[inline(always)]
    unsafe fn run(self, leave: u32, tag_bits: u32, normalize: bool) -> V {
        // SAFETY: the caller vouches for the CPU.
        unsafe {
            match (leave, tag_bits, normalize) {
                (1, 2, false) => self.step::<1, 2, false>(),
                (1, 2, true) => self.step::<1, 2, true>(),
                (2, 4, false) => self.step::<2, 4, false>(),
                (2, 4, true) => self.step::<2, 4, true>(),
                (3, 4, false) => self.step::<3, 4, false>(),
                (3, 4, true) => self.step::<3, 4, true>(),
                (4, 4, false) => self.step::<4, 4, false>(),
                (4, 4, true) => self.step::<4, 4, true>(),
                _ => unreachable!("no whole rate has steps of {leave} bits with {tag_bits} bits of tag"),
            }
        }
    }

    /// # Safety
    /// As [`Block::pass`].
    #[inline(always)]
    unsafe fn step<const K: u32, const TAG: u32, const NORMALIZE: bool>(self) -> V {
        let bits = 16 - K;
        let packed = 1usize << packed_log2(K);
        let words = (STATES >> K) / packed;
        // The loops below stay within these.
        assert!(self.metrics.len() == STATES >> K && self.turned < bits);
        assert!(self.offsets.len() == STATES && self.branch.len() == 256 && self.decisions.len() >= words);
        let (metrics, offsets) = (self.metrics.as_mut_ptr(), self.offsets.as_ptr());
        let (branch, decisions) = (self.branch.as_ptr().cast::<u8>(), self.decisions.as_mut_ptr());
        let mut place = [0; 16];
        for (high, place) in place[..1 << K].iter_mut().enumerate() {
            *place = turn(high << (bits - K), bits, self.turned);
        }
        // SAFETY: the CPU is vouched for by the caller. `turn` gives numbers below 1 << bits, the length of metrics;
        // bounds of the rest as in `Step::step`.
        unsafe {
            let metric_mask = V::splat(!0 << TAG);
            let mut least = V::splat(u16::MAX);
            let span = if packed > 1 << K { packed } else { 1 << K };
            let mut won = [V::splat(0); 16];
            for first in (0..1usize << bits).step_by(span) {
                for group in 0..span >> K {
                    let middle = (first >> K) + group;
                    let at_metric = turn(middle, bits, self.turned);
                    let mut from = [V::splat(0); 16];
                    for (high, from) in from[..1 << K].iter_mut().enumerate() {
                        let metric = *metrics.add(at_metric ^ place[high]);
                        *from = metric.and_or(metric_mask, V::splat(tag::<K, TAG>(high)));
                    }
                    for low in 0..1usize << K {
                        let at = offsets.add((middle << K | low) << K);
                        let mut best = from[0].add(*branch.add(usize::from(*at)).cast::<V>());
                        for (high, from) in from[..1 << K].iter().enumerate().skip(1) {
                            best = best.min(from.add(*branch.add(usize::from(*at.add(high))).cast::<V>()));
                        }
                        *metrics.add(at_metric ^ place[low]) = best;
                        if NORMALIZE {
                            least = least.min(best);
                        }
                        won[group << K | low] = best;
                    }
                }
                for word in 0..span / packed {
                    *decisions.add(first / packed + word) = pack::<V, K, TAG>(&won[word * packed..]);
                }
            }
            if NORMALIZE { least.and_or(metric_mask, V::splat(0)) } else { V::splat(0) }
        }
    }
}

/// What a metric carries in its low `TAG` bits to say that it came from predecessor `high`: repeated where it is
/// shorter, so that packing needs fewer shifts.
#[inline(always)]
const fn tag<const LEAVE: u32, const TAG: u32>(high: usize) -> u16 {
    match TAG / LEAVE {
        2 => (high << LEAVE | high) as u16,
        _ => high as u16,
    }
}

/// The tags of `1 << packed_log2(LEAVE)` survivors in one lane word, the first one lowest.
///
/// Functions, not closures: a closure would be compiled without the caller's instruction set.
///
/// # Safety
/// As [`Block::pass`].
#[inline(always)]
unsafe fn pack<V: Lanes, const LEAVE: u32, const TAG: u32>(won: &[V]) -> V {
    let half = (1 << packed_log2(LEAVE)) / 2;
    // SAFETY: the caller vouches for the CPU.
    unsafe {
        let (low, high) = (pack_byte::<V, LEAVE, TAG>(&won[..half]), pack_byte::<V, LEAVE, TAG>(&won[half..]));
        low.select(high.shift_left(8), V::splat(0x00ff))
    }
}

/// # Safety
/// As [`Block::pass`].
#[inline(always)]
unsafe fn pack_byte<V: Lanes, const LEAVE: u32, const TAG: u32>(won: &[V]) -> V {
    let half = (1 << packed_log2(LEAVE)) / 4;
    // SAFETY: the caller vouches for the CPU.
    unsafe {
        let (low, high) = (pack_nibble::<V, LEAVE, TAG>(&won[..half]), pack_nibble::<V, LEAVE, TAG>(&won[half..]));
        low.select(high.shift_left(4), V::splat(0x000f))
    }
}

/// # Safety
/// As [`Block::pass`].
#[inline(always)]
unsafe fn pack_nibble<V: Lanes, const LEAVE: u32, const TAG: u32>(won: &[V]) -> V {
    // SAFETY: the caller vouches for the CPU.
    unsafe {
        match (LEAVE, TAG) {
            (1, _) => {
                let low = won[0].select(won[1], V::splat(0b0001));
                let high = won[2].select(won[3], V::splat(0b0001));
                low.select(high.shift_left(2), V::splat(0b0011))
            }
            (2, 2) => won[0].select(won[1].shift_left(2), V::splat(0b0011)),
            (2, _) => won[0].select(won[1], V::splat(0b0011)),
            _ => won[0],
        }
    }
}

/// The two passes of a search; `run` is [`Block::pass`] with some instruction set.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::portable::{self, Words};
    use condprog_core::Rate;

    /// One value is the least that goes through every pointer of a pass, for Miri to watch: minutes, with `--ignored`.
    #[test]
    #[cfg_attr(miri, ignore = "minutes")]
    fn a_pass_over_one_value_finds_its_nearest_level() {
        let layout = Layout::new(4, Rate::MAX).unwrap();
        let mut block = Block::<Words>::new(layout).unwrap();
        let targets = [0, 4, -4, 5, 100, -508, 4095, -4095i16];
        lane_mut(&mut block.targets)[..Words::ROWS].copy_from_slice(&targets.map(|target| target as u16));
        // SAFETY: the portable pass needs nothing of the CPU.
        unsafe { portable::pass(&mut block, &Pass { start: 0, count: 1, seamed: false }) }
        for (row, target) in targets.into_iter().enumerate() {
            let target = i32::from(target);
            let distance = |level: i32| (target - 4 * level).abs();
            let found = i32::from(PROGRAM.value(block.paths[row * 4], 0));
            let levels = PROGRAM.levels().map(i32::from);
            let nearest = levels.into_iter().flat_map(|level| [distance(level), distance(-level)]).min();
            // Metrics are shifted down: what is nearly as near counts as equal.
            let down = Metric::new(PROGRAM, Rate::MAX).down();
            assert!(distance(found).pow(2) - nearest.unwrap_or(0).pow(2) < 1 << down, "{target}: {found}");
        }
    }
}
