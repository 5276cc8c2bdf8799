//! What every backend implements: [`Decoder`], over a [`Batch`] that has been checked (SPEC section 8).
//!
//! ```
//! use condprog_core::{Decoder, Layout, Missing, Output, Rate, ReferenceDecoder, Segment, Table};
//!
//! // One record of eight values at 2 bits: two code bytes and a scale of 1 (0x0c00, little-endian).
//! let records = [0b0001_1011, 0b0110_0011, 0x00, 0x0c];
//! let segments = [Segment { rows: 1, layout: Layout::new(8, Rate::TWO)?, records: &records }];
//! let decoder = ReferenceDecoder::new(Table::new(&segments)?);
//! let mut rows = [0.0f32; 16];
//! decoder.decode(&[0, -1], Missing::Zero, Output::F32(&mut rows))?;
//! assert!(rows[..8].iter().all(|v| *v != 0.0) && rows[8..] == [0.0; 8]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::fmt;

use crate::reference;
use crate::table::{Table, TableShape};

/// Number format of decoded values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// bfloat16, rounded once.
    Bf16,
    /// IEEE binary16, rounded once.
    F16,
    /// IEEE binary32, exact.
    F32,
}

impl Dtype {
    /// Every output format.
    pub const ALL: [Dtype; 3] = [Dtype::Bf16, Dtype::F16, Dtype::F32];

    /// Bytes per value.
    pub const fn size(self) -> usize {
        match self {
            Dtype::Bf16 | Dtype::F16 => 2,
            Dtype::F32 => 4,
        }
    }

    /// The usual short name.
    pub const fn name(self) -> &'static str {
        match self {
            Dtype::Bf16 => "bf16",
            Dtype::F16 => "f16",
            Dtype::F32 => "f32",
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What to do with an id that is negative or not below the row count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Missing {
    /// Give a row of zeros, as serving stacks want it for padding (-1) and rows they do not own.
    Zero,
    /// Refuse the request, naming position and id; nothing is written.
    Error,
}

/// Where rows go: row-major, `ids * dim` values, in request order. 16-bit formats as their bits.
#[derive(Debug)]
pub enum Output<'a> {
    /// Bits of bf16 numbers.
    Bf16(&'a mut [u16]),
    /// Bits of f16 numbers.
    F16(&'a mut [u16]),
    /// Binary32 numbers.
    F32(&'a mut [f32]),
}

impl Output<'_> {
    /// Values that fit.
    pub fn len(&self) -> usize {
        match self {
            Output::Bf16(out) | Output::F16(out) => out.len(),
            Output::F32(out) => out.len(),
        }
    }

    /// Whether no value fits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number format of the values.
    pub fn dtype(&self) -> Dtype {
        match self {
            Output::Bf16(_) => Dtype::Bf16,
            Output::F16(_) => Dtype::F16,
            Output::F32(_) => Dtype::F32,
        }
    }
}

/// A request that has been checked against a table's shape: every id names a row or is to give zeros, and the output
/// has room for exactly `ids * dim` values. Only [`Batch::new`] makes one.
#[derive(Debug)]
pub struct Batch<'a> {
    shape: TableShape,
    ids: &'a [i64],
    output: Output<'a>,
}

impl<'a> Batch<'a> {
    /// Checks a request. Any number of ids, 0 included; duplicates are fine.
    ///
    /// # Errors
    /// [`BatchError::MissingRow`] for the first id outside `0..shape.rows` under [`Missing::Error`];
    /// [`BatchError::OutputLength`] when the output does not hold exactly `ids * dim` values.
    pub fn new(
        shape: TableShape,
        ids: &'a [i64],
        missing: Missing,
        output: Output<'a>,
    ) -> Result<Batch<'a>, BatchError> {
        let expected = ids.len() as u128 * u128::from(shape.dim);
        if output.len() as u128 != expected {
            return Err(BatchError::OutputLength { got: output.len(), expected });
        }
        if missing == Missing::Error
            && let Some(position) = ids.iter().position(|&id| !names_row(id, shape.rows))
        {
            return Err(BatchError::MissingRow { position, id: ids[position], rows: shape.rows });
        }
        Ok(Batch { shape, ids, output })
    }

    /// The shape the request was checked against. A backend refuses a batch made for another shape than its own.
    pub fn shape(&self) -> TableShape {
        self.shape
    }

    /// The ids as asked. Those outside `0..rows` give rows of zeros.
    pub fn ids(&self) -> &'a [i64] {
        self.ids
    }

    /// Number format of the output.
    pub fn dtype(&self) -> Dtype {
        self.output.dtype()
    }

    /// The ids and the output, to be filled with `ids * dim` values in request order.
    pub fn into_parts(self) -> (&'a [i64], Output<'a>) {
        (self.ids, self.output)
    }
}

/// A request that does not fit its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchError {
    /// An id names no row, and the caller asked for an error.
    MissingRow {
        /// Where in the request.
        position: usize,
        /// Got.
        id: i64,
        /// Rows of the table; ids are expected in `0..rows`.
        rows: u64,
    },
    /// The output is not `ids * dim` values long.
    OutputLength {
        /// Got, in values.
        got: usize,
        /// Expected, in values.
        expected: u128,
    },
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            BatchError::MissingRow { position, id, rows } => {
                write!(f, "id {id} at position {position} names no row, expected 0 to {}", i128::from(rows) - 1)
            }
            BatchError::OutputLength { got, expected } => {
                write!(f, "output holds {got} values, expected {expected} (ids times row width)")
            }
        }
    }
}

impl core::error::Error for BatchError {}

/// Whether an id names one of `rows` rows.
#[inline]
pub const fn names_row(id: i64, rows: u64) -> bool {
    // A negative id is above i64::MAX as u64, and no table has that many rows.
    (id as u64) < rows
}

/// What generic code needs to know of a backend's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No device, driver or adapter that this backend could use: not a fault of the table or the request.
    Unavailable,
    /// The device or the host has no room for the table or the request.
    OutOfMemory,
    /// The table or request is beyond a limit of this backend, which the message names.
    Unsupported,
    /// The batch was made for a table of another shape.
    ShapeMismatch,
    /// The device was lost; decoders built on it are gone with it.
    DeviceLost,
    /// Anything else the device or driver refused.
    Other,
}

/// A backend's own error type.
pub trait BackendError: core::error::Error {
    /// What generic code needs to know.
    fn kind(&self) -> ErrorKind;
}

/// A table made ready for decoding by one backend.
///
/// Decoding the same record gives the same bits in every backend (SPEC section 7); the conformance crate checks it.
pub trait Decoder {
    /// The backend's error.
    type Error: BackendError;

    /// Rows and width of the table.
    fn shape(&self) -> TableShape;

    /// Writes the rows of a checked request, in request order, zeros where an id names no row.
    ///
    /// # Errors
    /// The backend's own. The output's contents are unspecified after an error.
    fn decode_batch(&self, batch: Batch<'_>) -> Result<(), Self::Error>;

    /// Checks a request and decodes it.
    ///
    /// # Errors
    /// [`DecodeError::Batch`] when the request does not fit, [`DecodeError::Backend`] from the backend.
    fn decode(&self, ids: &[i64], missing: Missing, output: Output<'_>) -> Result<(), DecodeError<Self::Error>> {
        let batch = Batch::new(self.shape(), ids, missing, output).map_err(DecodeError::Batch)?;
        self.decode_batch(batch).map_err(DecodeError::Backend)
    }
}

/// Why [`Decoder::decode`] failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError<E> {
    /// The request does not fit the table.
    Batch(BatchError),
    /// The backend failed.
    Backend(E),
}

/// As the error it holds.
impl<E: fmt::Display> fmt::Display for DecodeError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Batch(error) => error.fmt(f),
            DecodeError::Backend(error) => error.fmt(f),
        }
    }
}

impl<E: core::error::Error + 'static> core::error::Error for DecodeError<E> {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            DecodeError::Batch(error) => error.source(),
            DecodeError::Backend(error) => error.source(),
        }
    }
}

/// The batch was made for a table of another shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapeMismatch {
    /// Shape the batch was checked against.
    pub got: TableShape,
    /// Shape of the decoder's table.
    pub expected: TableShape,
}

impl ShapeMismatch {
    /// Checks that a batch was made for `expected`.
    ///
    /// # Errors
    /// Itself, when it was not.
    pub fn check(batch: &Batch<'_>, expected: TableShape) -> Result<(), ShapeMismatch> {
        if batch.shape() == expected { Ok(()) } else { Err(ShapeMismatch { got: batch.shape(), expected }) }
    }
}

impl fmt::Display for ShapeMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (got, expected) = (self.got, self.expected);
        write!(
            f,
            "request was checked against a table of {} rows of {} values, expected {} rows of {}",
            got.rows, got.dim, expected.rows, expected.dim
        )
    }
}

impl core::error::Error for ShapeMismatch {}

impl BackendError for ShapeMismatch {
    fn kind(&self) -> ErrorKind {
        ErrorKind::ShapeMismatch
    }
}

/// The literal decoder of [`crate::reference`] over a borrowed table: the oracle, and enough for firmware-style use.
#[derive(Clone, Copy, Debug)]
pub struct ReferenceDecoder<'a> {
    table: Table<'a>,
}

impl<'a> ReferenceDecoder<'a> {
    /// A decoder over a checked table.
    pub fn new(table: Table<'a>) -> ReferenceDecoder<'a> {
        ReferenceDecoder { table }
    }
}

impl Decoder for ReferenceDecoder<'_> {
    type Error = ShapeMismatch;

    fn shape(&self) -> TableShape {
        self.table.shape()
    }

    fn decode_batch(&self, batch: Batch<'_>) -> Result<(), ShapeMismatch> {
        ShapeMismatch::check(&batch, self.shape())?;
        let (ids, output) = batch.into_parts();
        match output {
            Output::Bf16(out) => rows(&self.table, ids, out, 0, reference::decode_bf16),
            Output::F16(out) => rows(&self.table, ids, out, 0, reference::decode_f16),
            Output::F32(out) => rows(&self.table, ids, out, 0.0, reference::decode_f32),
        }
        Ok(())
    }
}

fn rows<T: Copy>(
    table: &Table<'_>,
    ids: &[i64],
    out: &mut [T],
    zero: T,
    decode: fn(crate::trellis::Layout, &[u8], &mut [T]),
) {
    for (&id, out) in ids.iter().zip(out.chunks_exact_mut(table.shape().dim as usize)) {
        match u64::try_from(id).ok().and_then(|row| table.record(row)) {
            Some((layout, record)) => decode(layout, record, out),
            None => out.fill(zero),
        }
    }
}
