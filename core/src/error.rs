//! Errors of the format. Each says what was got and what was expected; a backend has its own error type and says
//! through [`crate::decoder::ErrorKind`] what generic code needs to know.

use core::fmt;

use crate::trellis::{MAX_DIM, Rate, STATE_BITS};

/// A width or rate that format version 1 does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutError {
    /// The rate is outside 4..=16 quarter bits.
    Rate {
        /// Got, in quarter bits per value.
        quarters: u32,
    },
    /// The width is 0 or above [`MAX_DIM`].
    Dim {
        /// Got.
        dim: u32,
    },
    /// `dim * rate` is not a whole number of bits.
    FractionalCode {
        /// Got.
        dim: u32,
        /// Got.
        rate: Rate,
    },
    /// The code would be shorter than one state.
    ShortCode {
        /// Got.
        dim: u32,
        /// Got.
        rate: Rate,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            LayoutError::Rate { quarters } => {
                write!(f, "rate is {quarters} quarter bits per value, expected 4 to 16")
            }
            LayoutError::Dim { dim } => write!(f, "row width is {dim}, expected 1 to {MAX_DIM}"),
            LayoutError::FractionalCode { dim, rate } => write!(
                f,
                "row width {dim} at {rate} bits per value makes {}/4 bits, expected a whole number of bits",
                dim * rate.quarters()
            ),
            LayoutError::ShortCode { dim, rate } => write!(
                f,
                "row width {dim} at {rate} bits per value makes a code of {} bits, expected at least {STATE_BITS}",
                dim * rate.quarters() / 4
            ),
        }
    }
}

impl core::error::Error for LayoutError {}

/// Segments that do not make a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableError {
    /// There is no segment; the width of such a table would be unknown.
    NoSegments,
    /// The records of a segment are not `rows * record_bytes` long.
    RecordBytes {
        /// Index of the segment.
        segment: usize,
        /// Got, in bytes.
        got: usize,
        /// Expected, in bytes.
        expected: u128,
    },
    /// A segment has another width than the first one.
    Dim {
        /// Index of the segment.
        segment: usize,
        /// Got.
        got: u32,
        /// Expected.
        expected: u32,
    },
    /// The rows of all segments are more than an id can name (`i64::MAX`).
    Rows {
        /// Index of the segment at which the count passes the limit.
        segment: usize,
    },
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            TableError::NoSegments => f.write_str("table has 0 segments, expected at least 1"),
            TableError::RecordBytes { segment, got, expected } => {
                write!(f, "records of segment {segment} are {got} bytes, expected {expected}")
            }
            TableError::Dim { segment, got, expected } => {
                write!(f, "row width of segment {segment} is {got}, expected {expected} as in segment 0")
            }
            TableError::Rows { segment } => {
                write!(f, "row count up to segment {segment} is above 2^63 - 1, the largest id")
            }
        }
    }
}

impl core::error::Error for TableError {}

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
