//! The [`Encoder`] trait and the batches it takes.

use core::fmt;

use super::{EncodeError, Job, Outcome};
use crate::decoder::{BackendError, ErrorKind};
use crate::trellis::Layout;

/// Rows to be coded, and room for what comes of them, checked against a layout: whole rows, and one record and one
/// outcome for each. Only [`EncodeBatch::new`] makes one.
#[derive(Debug)]
pub struct EncodeBatch<'a> {
    layout: Layout,
    rows: &'a [f32],
    records: &'a mut [u8],
    outcomes: &'a mut [Result<Outcome, EncodeError>],
}

impl<'a> EncodeBatch<'a> {
    /// Checks a batch: `rows` is row-major, `records` are back to back. Any number of rows, 0 included. What `records` and
    /// `outcomes` hold before does not matter.
    ///
    /// # Errors
    /// [`EncodeBatchError`] when `rows` is not a whole number of rows, or `records` or `outcomes` are not as many.
    pub fn new(
        layout: Layout,
        rows: &'a [f32],
        records: &'a mut [u8],
        outcomes: &'a mut [Result<Outcome, EncodeError>],
    ) -> Result<EncodeBatch<'a>, EncodeBatchError> {
        let dim = layout.dim() as usize;
        if !rows.len().is_multiple_of(dim) {
            return Err(EncodeBatchError::PartialRow { values: rows.len(), dim: layout.dim() });
        }
        let count = rows.len() / dim;
        let expected = count as u128 * layout.record_bytes() as u128;
        if records.len() as u128 != expected {
            return Err(EncodeBatchError::RecordBytes { got: records.len(), expected });
        }
        if outcomes.len() != count {
            return Err(EncodeBatchError::Outcomes { got: outcomes.len(), expected: count });
        }
        Ok(EncodeBatch { layout, rows, records, outcomes })
    }

    /// The layout the batch was checked against. An encoder refuses a batch made for another layout than its own.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.outcomes.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }

    /// The rows, the records to be filled, and the outcomes to be filled.
    pub fn into_parts(self) -> (&'a [f32], &'a mut [u8], &'a mut [Result<Outcome, EncodeError>]) {
        (self.rows, self.records, self.outcomes)
    }
}

/// A batch whose parts do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeBatchError {
    /// The values are not a whole number of rows.
    PartialRow {
        /// Got.
        values: usize,
        /// Values per row.
        dim: u32,
    },
    /// The records are not one for each row.
    RecordBytes {
        /// Got, in bytes.
        got: usize,
        /// Expected, in bytes.
        expected: u128,
    },
    /// The outcomes are not one for each row.
    Outcomes {
        /// Got.
        got: usize,
        /// Expected.
        expected: usize,
    },
}

impl fmt::Display for EncodeBatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            EncodeBatchError::PartialRow { values, dim } => {
                write!(f, "batch has {values} values, expected a multiple of the row width {dim}")
            }
            EncodeBatchError::RecordBytes { got, expected } => {
                write!(f, "records have room for {got} bytes, expected {expected} (rows times record bytes)")
            }
            EncodeBatchError::Outcomes { got, expected } => {
                write!(f, "there is room for {got} outcomes, expected {expected}, one for each row")
            }
        }
    }
}

impl core::error::Error for EncodeBatchError {}

/// A [`Job`] made ready for encoding by one backend; how it spreads rows over threads or a device is up to it.
///
/// The same row gives the same record in every backend that follows SPEC annex A; the conformance crate checks it.
pub trait Encoder {
    /// The backend's error.
    type Error: BackendError;

    /// The job this encoder does.
    fn job(&self) -> &Job;

    /// Rows that the backend codes together: batches of a multiple of it waste nothing. At least 1; any other number of
    /// rows works too. Of a backend on threads, what one thread codes together: whoever has rows enough gives a multiple
    /// of it for each thread, in one call or in several at once.
    fn preferred_rows(&self) -> usize;

    /// Codes a checked batch: writes every outcome, and every record. The record of a row that could not be coded is all
    /// zero.
    ///
    /// # Errors
    /// The backend's own. Records and outcomes are unspecified after an error.
    fn encode_batch(&self, batch: EncodeBatch<'_>) -> Result<(), Self::Error>;

    /// Checks a batch and codes it.
    ///
    /// # Errors
    /// [`EncodeFailure::Batch`] when the parts do not fit together, [`EncodeFailure::Backend`] from the backend. Rows that
    /// the format cannot hold are no error here: `outcomes` names them.
    fn encode(
        &self,
        rows: &[f32],
        records: &mut [u8],
        outcomes: &mut [Result<Outcome, EncodeError>],
    ) -> Result<(), EncodeFailure<Self::Error>> {
        let batch = EncodeBatch::new(self.job().layout, rows, records, outcomes).map_err(EncodeFailure::Batch)?;
        self.encode_batch(batch).map_err(EncodeFailure::Backend)
    }
}

/// Why [`Encoder::encode`] failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeFailure<E> {
    /// The parts of the batch do not fit together.
    Batch(EncodeBatchError),
    /// The backend failed.
    Backend(E),
}

/// As the error it holds.
impl<E: fmt::Display> fmt::Display for EncodeFailure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EncodeFailure::Batch(error) => error.fmt(f),
            EncodeFailure::Backend(error) => error.fmt(f),
        }
    }
}

impl<E: core::error::Error + 'static> core::error::Error for EncodeFailure<E> {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            EncodeFailure::Batch(error) => error.source(),
            EncodeFailure::Backend(error) => error.source(),
        }
    }
}

/// The batch was made for rows of another layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutMismatch {
    /// Layout the batch was checked against.
    pub got: Layout,
    /// Layout of the encoder's job.
    pub expected: Layout,
}

impl LayoutMismatch {
    /// Checks that a batch was made for `expected`.
    ///
    /// # Errors
    /// Itself, when it was not.
    pub fn check(batch: &EncodeBatch<'_>, expected: Layout) -> Result<(), LayoutMismatch> {
        if batch.layout() == expected { Ok(()) } else { Err(LayoutMismatch { got: batch.layout(), expected }) }
    }
}

impl fmt::Display for LayoutMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (got, expected) = (self.got, self.expected);
        write!(
            f,
            "batch was checked against rows of {} values at {} bits ({}), expected {} values at {} bits ({})",
            got.dim(),
            got.rate(),
            got.program(),
            expected.dim(),
            expected.rate(),
            expected.program()
        )
    }
}

impl core::error::Error for LayoutMismatch {}

impl BackendError for LayoutMismatch {
    fn kind(&self) -> ErrorKind {
        ErrorKind::ShapeMismatch
    }
}
