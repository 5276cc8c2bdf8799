//! Every instruction set codes every row to the bytes of the reference encoder.

use condprog_core::encoder::{EncodeError, Outcome, ReferenceEncoder, ScaleRule, Search, Workspace, WorkspaceSize};
use condprog_core::{Encoder, Job, Layout, Rate};
use condprog_cpu::{CpuEncoder, Isa};

/// A row of a seeded generator: a sum of four uniform numbers, about normal.
fn rows(count: usize, dim: u32, mut seed: u64) -> Vec<f32> {
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..count * dim as usize).map(|_| next() + next() + next() + next()).collect()
}

fn reference(
    layout: Layout,
    rows: &[f32],
    rule: ScaleRule,
    search: Search,
) -> (Vec<u8>, Vec<Result<Outcome, EncodeError>>) {
    let size = WorkspaceSize::of(layout);
    let (mut m, mut d) = (vec![0; size.metrics], vec![0; size.decisions]);
    let (mut z, mut s) = (vec![0; size.targets], vec![0; size.states]);
    let workspace = Workspace { metrics: &mut m, decisions: &mut d, targets: &mut z, states: &mut s };
    let encoder = ReferenceEncoder::new(Job::new(layout, rule, search), workspace).unwrap();
    let count = rows.len() / layout.dim() as usize;
    let (mut records, mut outcomes) = (vec![0; count * layout.record_bytes()], vec![Ok(Outcome::Zero); count]);
    encoder.encode(rows, &mut records, &mut outcomes).unwrap();
    (records, outcomes)
}

fn check(layout: Layout, rows: &[f32], rule: ScaleRule, search: Search) {
    let (expected, outcomes) = reference(layout, rows, rule, search);
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_supported()) {
        let encoder = CpuEncoder::with_isa(Job::new(layout, rule, search), isa).unwrap();
        assert_eq!(encoder.isa(), isa);
        let (mut records, mut got) = (vec![0xaa; expected.len()], vec![Ok(Outcome::Underflow); outcomes.len()]);
        encoder.encode(rows, &mut records, &mut got).unwrap();
        // As text: a NaN in an error is not equal to itself.
        assert_eq!(format!("{got:?}"), format!("{outcomes:?}"), "{isa}");
        assert!(records == expected, "{isa} {layout:?} {rule:?} {search:?}");
    }
}

#[test]
fn every_rate() {
    let search = Search::new(2, 8, 1).unwrap();
    for rate in Rate::all() {
        let layout = Layout::new(32, rate).unwrap();
        check(layout, &rows(3, 32, 1 + u64::from(rate.quarters())), ScaleRule::Norm, search);
    }
}

#[test]
fn widths_that_are_short_odd_and_long() {
    for (dim, quarters) in [(8, 8), (4, 16), (9, 8), (16, 4), (20, 6), (33, 12), (250, 8)] {
        let layout = Layout::new(dim, Rate::from_quarters(quarters).unwrap()).unwrap();
        check(layout, &rows(2, dim, 9), ScaleRule::Projection, Search::new(1, 64, 2).unwrap());
    }
}

#[test]
fn more_rows_than_a_block_with_different_variants() {
    let layout = Layout::new(16, Rate::TWO).unwrap();
    check(layout, &rows(37, 16, 5), ScaleRule::LeastSquares, Search::new(3, 64, 1).unwrap());
}

#[test]
fn rows_that_are_hard() {
    let layout = Layout::new(64, Rate::TWO).unwrap();
    let mut all = rows(9, 64, 3);
    let mut each = all.chunks_exact_mut(64);
    let mut next = || each.next().unwrap();
    next().fill(0.0);
    let one_hot = next();
    one_hot.fill(0.0);
    one_hot[17] = 3.0;
    next()[5] = f32::NAN;
    next()[63] = f32::NEG_INFINITY;
    next().iter_mut().for_each(|x| *x *= 1e-30);
    next().iter_mut().for_each(|x| *x *= 1e30);
    next()[0] = 60.0; // an outlier
    next().iter_mut().for_each(|x| *x = x.powi(5)); // heavy tails
    next().fill(1.0);
    check(layout, &all, ScaleRule::Norm, Search::new(1, 64, 0).unwrap());
}
