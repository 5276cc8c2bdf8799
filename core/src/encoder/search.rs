//! The literal search: two-pass tail-biting Viterbi over all 2^16 states, in a workspace of the caller's.

use super::{EncodeError, Metric, Outcome, ScaleRule, Score, Search, Target, finish, write_record};
use crate::program;
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

/// Memory for [`encode_row`]; contents before a call do not matter.
#[derive(Debug)]
pub struct Workspace<'a> {
    metrics: &'a mut [u32],
    decisions: &'a mut [u8],
    targets: &'a mut [i32],
    states: &'a mut [u16],
}

impl<'a> Workspace<'a> {
    /// A workspace from the caller's memory, or `None` when a part is smaller than [`WorkspaceSize::of`] says.
    pub fn new(
        layout: Layout,
        metrics: &'a mut [u32],
        decisions: &'a mut [u8],
        targets: &'a mut [i32],
        states: &'a mut [u16],
    ) -> Option<Workspace<'a>> {
        let size = WorkspaceSize::of(layout);
        let metrics = metrics.get_mut(..size.metrics)?;
        let decisions = decisions.get_mut(..size.decisions)?;
        let targets = targets.get_mut(..size.targets)?;
        let states = states.get_mut(..size.states)?;
        Some(Workspace { metrics, decisions, targets, states })
    }
}

/// Codes one row into one record.
///
/// # Errors
/// [`EncodeError`] when a value is not finite or the scale would be above the largest; `record` is untouched then.
///
/// # Panics
/// When `row` is not `layout.dim()` or `record` not `layout.record_bytes()` long, when the workspace was made for a
/// smaller layout, or when `search.variants` is not 1..=16.
pub fn encode_row(
    layout: Layout,
    row: &[f32],
    rule: ScaleRule,
    search: Search,
    workspace: &mut Workspace<'_>,
    record: &mut [u8],
) -> Result<Outcome, EncodeError> {
    assert_eq!(record.len(), layout.record_bytes(), "record length");
    assert!((1..=program::VARIANTS).contains(&search.variants), "{} variants", search.variants);
    let size = WorkspaceSize::of(layout);
    let targets = &mut workspace.targets[..size.targets];
    let target = Target::new(layout, row, rule, targets)?;
    if target.energy == 0.0 {
        record.fill(0);
        return Ok(Outcome::Zero);
    }
    let mut trellis = Trellis {
        layout,
        metric: Metric::new(layout.rate()),
        targets,
        metrics: &mut workspace.metrics[..size.metrics],
        decisions: &mut workspace.decisions[..size.decisions],
    };
    let dim = layout.dim() as usize;
    let (path, best) = workspace.states[..size.states].split_at_mut(dim);
    let mut found: Option<(Score, u8)> = None;
    for variant in 0..search.variants {
        trellis.two_passes(variant, search, path);
        let score = Score::of(trellis.targets, path, variant);
        if found.is_none_or(|(other, _)| score.beats(&other)) {
            found = Some((score, variant));
            best.copy_from_slice(path);
        }
    }
    let (mut score, variant) = found.expect("at least one variant was tried");
    for index in 0..search.recuts {
        let cut = search.cut(index, layout.dim());
        let seam = best[cut as usize] >> layout.shift(cut);
        trellis.pass(variant, cut, layout.dim(), Some(seam), path);
        let again = Score::of(trellis.targets, path, variant);
        if again.beats(&score) {
            score = again;
            best.copy_from_slice(path);
        }
    }
    let (scale, outcome) = finish(row, &target, best, variant, rule)?;
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
    /// A first pass around the seam finds the bits that overlap there, a second one goes once round between them.
    fn two_passes(&mut self, variant: u8, search: Search, path: &mut [u16]) {
        let dim = self.layout.dim();
        let window = search.first_pass(dim);
        self.pass(variant, dim - window, 2 * window, None, path);
        let seam = path[0] >> self.layout.shift(0);
        self.pass(variant, 0, dim, Some(seam), path);
    }

    /// The best path over `count` values from value `start` on, cyclically, written to `path` by value. With a seam,
    /// it starts and ends with that survivor; without, it starts and ends anywhere.
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
                    let index = program::hash(state as u16, variant) >> 8;
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
    use crate::record;
    use crate::trellis::{Rate, state};
    use std::vec;

    /// Exhaustive over nothing: but a code must be tail-biting, and any path the states of its code.
    #[test]
    fn paths_are_the_states_of_their_codes() {
        for (dim, quarters) in [(8, 8), (16, 4), (20, 6), (16, 7), (4, 16), (36, 13)] {
            let layout = Layout::new(dim, Rate::from_quarters(quarters).unwrap()).unwrap();
            let size = WorkspaceSize::of(layout);
            let (mut m, mut d) = (vec![0; size.metrics], vec![0; size.decisions]);
            let (mut z, mut s) = (vec![0; size.targets], vec![0; size.states]);
            let mut workspace = Workspace::new(layout, &mut m, &mut d, &mut z, &mut s).unwrap();
            let row: vec::Vec<f32> = (0..dim).map(|i| ((i * 37 % 11) as f32 - 5.0) * 0.01).collect();
            let mut record = vec![0xaa; layout.record_bytes()];
            let search = Search { variants: 2, window: 8, recuts: 1 };
            let outcome = encode_row(layout, &row, ScaleRule::Norm, search, &mut workspace, &mut record);
            assert_eq!(outcome, Ok(Outcome::Coded));
            let best = &s[dim as usize..];
            let record = record::Record::new(layout, &record);
            assert!(record.padding_is_zero(layout));
            for t in 0..dim {
                assert_eq!(state(layout, record.code, t), best[t as usize], "{dim} {quarters} {t}");
            }
        }
    }
}
