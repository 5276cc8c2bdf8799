//! Core's reference encoder over whole batches: what every encoder is held to.

use condprog_core::encoder::{EncodeError, Encoder, Job, Outcome, ReferenceEncoder, Workspace, WorkspaceSize};

/// The rows as core's reference encodes them. Fills the records, and says what became of each row.
///
/// # Panics
/// When `rows` is not a whole number of rows or `records` not as many.
pub fn reference(job: Job, rows: &[f32], records: &mut [u8]) -> Vec<Result<Outcome, EncodeError>> {
    let size = WorkspaceSize::of(job.layout);
    let (mut metrics, mut decisions) = (vec![0; size.metrics], vec![0; size.decisions]);
    let (mut targets, mut states) = (vec![0; size.targets], vec![0; size.states]);
    let workspace =
        Workspace { metrics: &mut metrics, decisions: &mut decisions, targets: &mut targets, states: &mut states };
    let mut outcomes = vec![Ok(Outcome::Zero); rows.len() / job.layout.dim() as usize];
    let encoder = ReferenceEncoder::new(job, workspace).expect("the workspace is as large as it says");
    encoder.encode(rows, records, &mut outcomes).unwrap_or_else(|error| panic!("{error}"));
    outcomes
}

/// An outcome as the vectors have it. Texts are compared because a NaN in an error does not equal itself.
pub(crate) fn outcome_text(outcome: &Result<Outcome, EncodeError>) -> String {
    match outcome {
        Ok(Outcome::Coded) => "coded".into(),
        Ok(Outcome::Zero) => "zero".into(),
        Ok(Outcome::Underflow) => "underflow".into(),
        Err(EncodeError::NonFinite { column, value }) => format!("{value} in column {column}"),
        Err(EncodeError::ScaleAbove { column, .. }) => format!("scale above the largest, column {column}"),
        Err(other) => other.to_string(),
    }
}
