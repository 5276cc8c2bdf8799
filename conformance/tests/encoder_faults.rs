//! The encoder suite notices faults: the reference encoder with one fault each.

use condprog_conformance::{Verdict, check_encoder, first_encoder_failure, reference};
use condprog_core::encoder::{EncodeBatch, EncodeError, LayoutMismatch, Outcome, ScaleRule, Search};
use condprog_core::{Encoder, Job};

/// What is wrong with an encoder.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// The last variant is not tried.
    Variants,
    /// The first pass looks at one value less on each side.
    Window,
    /// The last re-cut is left out.
    Recuts,
    /// Every scale rule is taken for norm.
    Rule,
    /// Scales come out one step too large.
    Scale,
    /// Padding bits are ones.
    Padding,
    /// A row after an error is coded as zeros.
    AfterError,
    /// Row 32 of a call, and every 32nd after it, is the row before it.
    Lanes,
    /// The record of an error is not cleared.
    ErrorRecord,
    /// A row that underflows is said to be coded.
    Outcome,
    /// Errors name column 0.
    Column,
}

const FAULTS: [Fault; 11] = [
    Fault::Variants,
    Fault::Window,
    Fault::Recuts,
    Fault::Rule,
    Fault::Scale,
    Fault::Padding,
    Fault::AfterError,
    Fault::Lanes,
    Fault::ErrorRecord,
    Fault::Outcome,
    Fault::Column,
];

/// The reference encoder with a fault.
struct Faulty(Job, Fault);

impl Encoder for Faulty {
    type Error = LayoutMismatch;

    fn job(&self) -> &Job {
        &self.0
    }

    fn preferred_rows(&self) -> usize {
        32
    }

    fn encode_batch(&self, batch: EncodeBatch<'_>) -> Result<(), LayoutMismatch> {
        LayoutMismatch::check(&batch, self.0.layout)?;
        let (rows, records, outcomes) = batch.into_parts();
        outcomes.copy_from_slice(&self.1.encode(self.0.clone(), rows, records));
        Ok(())
    }
}

impl Fault {
    fn encode(self, mut job: Job, rows: &[f32], records: &mut [u8]) -> Vec<Result<Outcome, EncodeError>> {
        let layout = job.layout;
        let (dim, stride) = (layout.dim() as usize, layout.record_bytes());
        let mut rows = rows.to_vec();
        let search = job.search;
        let (mut variants, mut window, mut recuts) = (search.variants(), search.window(), search.recuts());
        match self {
            Fault::Variants => variants = (variants - 1).max(1),
            Fault::Window => window = search.first_pass(layout.dim()).saturating_sub(1).max(1),
            Fault::Recuts => recuts = recuts.saturating_sub(1),
            Fault::Rule => job.rule = ScaleRule::Norm,
            Fault::Lanes => (32..rows.len() / dim).step_by(32).for_each(|row| {
                rows.copy_within((row - 1) * dim..row * dim, row * dim);
            }),
            Fault::AfterError => (1..rows.len() / dim).for_each(|row| {
                if rows[(row - 1) * dim..row * dim].iter().any(|value| !value.is_finite()) {
                    rows[row * dim..(row + 1) * dim].fill(0.0);
                }
            }),
            _ => {}
        }
        job.search = Search::new(variants, window, recuts).expect("not more variants than before");
        let mut outcomes = reference(job, &rows, records);
        for (record, outcome) in records.chunks_exact_mut(stride).zip(&mut outcomes) {
            let is_coded = *outcome == Ok(Outcome::Coded);
            match (self, outcome) {
                (Fault::Scale, _) if is_coded => record[stride - 2] ^= 1,
                (Fault::Padding, _) if is_coded && !layout.code_bits().is_multiple_of(8) => record[stride - 3] |= 1,
                (Fault::ErrorRecord, Err(_)) => record[0] = 1,
                (Fault::Outcome, outcome @ Ok(Outcome::Underflow)) => *outcome = Ok(Outcome::Coded),
                (
                    Fault::Column,
                    Err(EncodeError::NonFinite { column, .. } | EncodeError::ScaleAbove { column, .. }),
                ) => {
                    *column = 0;
                }
                _ => {}
            }
        }
        outcomes
    }
}

fn with(fault: Fault, job: Job) -> Result<Faulty, LayoutMismatch> {
    Ok(Faulty(job, fault))
}

#[test]
fn the_encoder_without_a_fault_is_exact() {
    assert_eq!(check_encoder("no fault", |job| with(Fault::None, job)).verdict, Verdict::Exact);
}

#[test]
fn every_fault_is_noticed() {
    for fault in FAULTS {
        match first_encoder_failure(|job| with(fault, job)) {
            Some(failure) => println!("{fault:?}: {failure}"),
            None => panic!("{fault:?} was not noticed"),
        }
    }
}
