//! The literal search: two-pass tail-biting Viterbi over all 2^16 states, in a workspace of the caller's.

use core::cell::RefCell;
use core::fmt;

use super::{EncodeBatch, EncodeError, Encoder, Job, LayoutMismatch, Outcome, Search};
use crate::hazmat::{Metric, Score, Target, finish, write_record};
use crate::trellis::{Layout, STATE_BITS};

/// Elements a [`Workspace`] needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkspaceSize {
    /// Path metrics, `u32`.
    pub metrics: usize,
    /// Decisions, `u8`: one per survivor and value.
    pub decisions: usize,
    /// Targets, `i32`.
    pub targets: usize,
    /// States, `u16`.
    pub states: usize,
}

impl WorkspaceSize {
    /// What rows of this layout need.
    pub const fn of(layout: Layout) -> WorkspaceSize {
        let dim = layout.dim() as usize;
        // A step that shifts by one bit keeps 2^15 survivors, one that shifts by k keeps 2^(16 - k).
        let least_shift = layout.rate().quarters() / 4;
        let survivors = 1 << (STATE_BITS - least_shift);
        WorkspaceSize { metrics: 2 * survivors, decisions: dim * survivors, targets: dim, states: 2 * dim }
    }
}

/// Memory for a [`ReferenceEncoder`]; contents before do not matter. Each part may be longer than [`WorkspaceSize::of`]
/// says, not shorter.
#[derive(Debug)]
pub struct Workspace<'a> {
    /// Path metrics.
    pub metrics: &'a mut [u32],
    /// Decisions.
    pub decisions: &'a mut [u8],
    /// Targets.
    pub targets: &'a mut [i32],
    /// States.
    pub states: &'a mut [u16],
}

/// A part of a [`Workspace`] is too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkspaceError {
    part: &'static str,
    got: usize,
    expected: usize,
}

impl fmt::Display for WorkspaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WorkspaceError { part, got, expected } = self;
        write!(f, "workspace has room for {got} {part}, expected at least {expected}")
    }
}

impl core::error::Error for WorkspaceError {}

/// The literal encoder of SPEC annex A, one row after the other in memory that is lent to it: slow, and the oracle for
/// every other one.
#[derive(Debug)]
pub struct ReferenceEncoder<'a> {
    job: Job,
    workspace: RefCell<Workspace<'a>>,
}

impl<'a> ReferenceEncoder<'a> {
    /// An encoder for a job.
    ///
    /// # Errors
    /// [`WorkspaceError`] when a part of the workspace is smaller than [`WorkspaceSize::of`] the job's layout.
    pub fn new(job: Job, workspace: Workspace<'a>) -> Result<ReferenceEncoder<'a>, WorkspaceError> {
        let size = WorkspaceSize::of(job.layout);
        let Workspace { metrics, decisions, targets, states } = workspace;
        let workspace = Workspace {
            metrics: part("path metrics", metrics, size.metrics)?,
            decisions: part("decisions", decisions, size.decisions)?,
            targets: part("targets", targets, size.targets)?,
            states: part("states", states, size.states)?,
        };
        Ok(ReferenceEncoder { job, workspace: RefCell::new(workspace) })
    }
}

/// The first `expected` items.
fn part<'a, T>(part: &'static str, items: &'a mut [T], expected: usize) -> Result<&'a mut [T], WorkspaceError> {
    let got = items.len();
    items.get_mut(..expected).ok_or(WorkspaceError { part, got, expected })
}

impl Encoder for ReferenceEncoder<'_> {
    type Error = LayoutMismatch;

    fn job(&self) -> &Job {
        &self.job
    }

    fn preferred_rows(&self) -> usize {
        1
    }

    fn encode_batch(&self, batch: EncodeBatch<'_>) -> Result<(), LayoutMismatch> {
        let layout = self.job.layout;
        LayoutMismatch::check(&batch, layout)?;
        // Nobody else has it: the encoder is not Sync, and nothing below calls back.
        let workspace = &mut *self.workspace.borrow_mut();
        let (rows, records, outcomes) = batch.into_parts();
        let rows = rows.chunks_exact(layout.dim() as usize).zip(records.chunks_exact_mut(layout.record_bytes()));
        for ((row, record), outcome) in rows.zip(outcomes) {
            record.fill(0);
            *outcome = encode_row(&self.job, row, workspace, record);
        }
        Ok(())
    }
}

/// Codes one row into a record of zeros, which it stays when the row cannot be coded. The workspace's parts are exactly as
/// long as the job needs.
fn encode_row(
    job: &Job,
    row: &[f32],
    workspace: &mut Workspace<'_>,
    record: &mut [u8],
) -> Result<Outcome, EncodeError> {
    let Job { layout, rule, search } = *job;
    let Workspace { metrics, decisions, targets, states } = workspace;
    let target = Target::new(layout, row, rule, targets)?;
    if target.energy == 0.0 {
        return Ok(Outcome::Zero);
    }
    let metric = Metric::new(layout.program(), layout.rate());
    let mut trellis = Trellis { layout, metric, targets, metrics, decisions };
    let (path, best) = states.split_at_mut(layout.dim() as usize);
    trellis.two_passes(0, search, best);
    let (mut score, mut variant) = (Score::of(layout, trellis.targets, best, 0), 0);
    for other in 1..search.variants() {
        trellis.two_passes(other, search, path);
        let again = Score::of(layout, trellis.targets, path, other);
        if again.beats(&score) {
            (score, variant) = (again, other);
            best.copy_from_slice(path);
        }
    }
    for index in 0..search.recuts() {
        let cut = search.cut(index, layout.dim());
        let seam = best[cut as usize] >> layout.shift(cut);
        trellis.pass(variant, cut, layout.dim(), Some(seam), path);
        let again = Score::of(layout, trellis.targets, path, variant);
        if again.beats(&score) {
            score = again;
            best.copy_from_slice(path);
        }
    }
    let (scale, outcome) = finish(layout, row, &target, best, variant, rule)?;
    write_record(layout, best, scale, record);
    Ok(outcome)
}

struct Trellis<'a> {
    layout: Layout,
    metric: Metric,
    targets: &'a [i32],
    metrics: &'a mut [u32],
    decisions: &'a mut [u8],
}

impl Trellis<'_> {
    /// A first pass around the seam finds the bits that overlap there, a second pass goes around once between them.
    fn two_passes(&mut self, variant: u8, search: Search, path: &mut [u16]) {
        let dim = self.layout.dim();
        let window = search.first_pass(dim);
        self.pass(variant, dim - window, 2 * window, None, path);
        let seam = path[0] >> self.layout.shift(0);
        self.pass(variant, 0, dim, Some(seam), path);
    }

    /// The best path over `count` values, starting at value `start`, cyclically, written to `path` by value. With a
    /// seam, it starts and ends with that survivor; without, it starts and ends anywhere.
    ///
    /// A survivor before value `t` is what a state has left once the `shift(t)` bits that came in last are gone.
    fn pass(&mut self, variant: u8, start: u32, count: u32, seam: Option<u16>, path: &mut [u16]) {
        let (dim, layout) = (self.layout.dim(), self.layout);
        let at = |i: u32| (start + i) % dim;
        let survivors = |t: u32| 1usize << (STATE_BITS - layout.shift(t));
        let (mut before, mut after) = self.metrics.split_at_mut(self.metrics.len() / 2);
        let stride = before.len();
        match seam {
            None => before[..survivors(at(0))].fill(0),
            Some(seam) => {
                before[..survivors(at(0))].fill(u32::MAX / 2);
                before[usize::from(seam)] = 0;
            }
        }
        let mut branch = [0; 256];
        for i in 0..count {
            let (t, next) = (at(i), at(i + 1));
            self.metric.branch(self.targets[t as usize], &mut branch);
            let (came, leave) = (layout.shift(t), layout.shift(next));
            for (j, after) in after[..survivors(next)].iter_mut().enumerate() {
                let (mut least, mut from) = (u32::MAX, 0);
                for high in 0..1usize << leave {
                    let state = (high << (STATE_BITS - leave)) | j;
                    let index = layout.program().hash(state as u16, variant) >> 8;
                    let metric = before[state >> came] + branch[usize::from(index)];
                    if metric < least {
                        (least, from) = (metric, high as u8);
                    }
                }
                *after = least;
                self.decisions[i as usize * stride + j] = from;
            }
            (before, after) = (after, before);
        }
        let last = &before[..survivors(at(count))];
        let mut j = match seam {
            Some(seam) => usize::from(seam),
            None => (0..last.len()).min_by_key(|&j| last[j]).unwrap_or(0),
        };
        for i in (0..count).rev() {
            let (t, leave) = (at(i), layout.shift(at(i + 1)));
            let high = usize::from(self.decisions[i as usize * stride + j]);
            let state = (high << (STATE_BITS - leave)) | j;
            path[t as usize] = state as u16;
            j = state >> layout.shift(t);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoder::ScaleRule;
    use crate::record;
    use crate::trellis::{Rate, state};
    use std::vec;

    /// Exhaustive over nothing: but a code must be tail-biting, and any path the states of its code.
    #[test]
    #[cfg_attr(miri, ignore = "hours")]
    fn paths_are_the_states_of_their_codes() {
        for (dim, quarters) in [(8, 8), (16, 4), (20, 6), (16, 7), (4, 16), (36, 13)] {
            let layout = Layout::new(dim, Rate::from_quarters(quarters).unwrap()).unwrap();
            let size = WorkspaceSize::of(layout);
            let (mut m, mut d) = (vec![0; size.metrics], vec![0; size.decisions]);
            let (mut z, mut s) = (vec![0; size.targets], vec![0; size.states]);
            let workspace = Workspace { metrics: &mut m, decisions: &mut d, targets: &mut z, states: &mut s };
            let job = Job::new(layout, ScaleRule::Norm, Search::new(2, 8, 1).unwrap());
            let encoder = ReferenceEncoder::new(job, workspace).unwrap();
            let row: vec::Vec<f32> = (0..dim).map(|i| ((i * 37 % 11) as f32 - 5.0) * 0.01).collect();
            let mut record = vec![0xaa; layout.record_bytes()];
            let mut outcomes = [Ok(Outcome::Zero)];
            encoder.encode(&row, &mut record, &mut outcomes).unwrap();
            assert_eq!(outcomes, [Ok(Outcome::Coded)]);
            let best = &s[dim as usize..];
            let record = record::Record::new(layout, &record);
            assert!(record.padding_is_zero(layout));
            for t in 0..dim {
                assert_eq!(state(layout, record.code, t), best[t as usize], "{dim} {quarters} {t}");
            }
        }
    }
}
