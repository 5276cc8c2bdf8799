//! A logical table in memory: segments of records, borrowed (SPEC sections 6 and 8).

use core::fmt;

use crate::trellis::Layout;

/// A run of consecutive rows that share one layout, and their records back to back.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// Number of rows, 0 allowed.
    pub rows: u64,
    /// Width, rate and program.
    pub layout: Layout,
    /// The records, `rows * layout.record_bytes()` bytes, any alignment.
    pub records: &'a [u8],
}

impl<'a> Segment<'a> {
    /// The record of a row, counted from the start of the segment.
    ///
    /// # Panics
    /// When `row >= self.rows`, or the records are too short for it.
    #[inline]
    pub fn record(&self, row: u64) -> &'a [u8] {
        assert!(row < self.rows, "row {row} of a segment of {} rows", self.rows);
        let bytes = self.layout.record_bytes();
        // In range of usize: the caller's slice of records holds it.
        let start = row as usize * bytes;
        &self.records[start..start + bytes]
    }
}

/// Rows and width of a table: what a request is checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableShape {
    /// Rows; ids below this name a row.
    pub rows: u64,
    /// Values per row.
    pub dim: u32,
}

impl TableShape {
    /// The shape of the table that segments make together.
    ///
    /// # Errors
    /// [`TableError`] when there is no segment, widths differ, a segment's records are not `rows * record_bytes`
    /// long, or the rows are more than `i64::MAX`.
    pub fn of<S: Segments + ?Sized>(segments: &S) -> Result<TableShape, TableError> {
        if segments.count() == 0 {
            return Err(TableError::NoSegments);
        }
        let dim = segments.segment(0).layout.dim();
        let mut rows = 0u64;
        for index in 0..segments.count() {
            let segment = segments.segment(index);
            if segment.layout.dim() != dim {
                return Err(TableError::Dim { segment: index, got: segment.layout.dim(), expected: dim });
            }
            let expected = u128::from(segment.rows) * segment.layout.record_bytes() as u128;
            if segment.records.len() as u128 != expected {
                return Err(TableError::RecordBytes { segment: index, got: segment.records.len(), expected });
            }
            rows = rows
                .checked_add(segment.rows)
                .filter(|&rows| rows <= i64::MAX as u64)
                .ok_or(TableError::Rows { segment: index })?;
        }
        Ok(TableShape { rows, dim })
    }
}

/// What holds the segments of a table, in row order: borrowed, as [`Table`] has them, or owned, so that a decoder can keep
/// alive what it reads.
///
/// An implementation is not trusted: code that makes a table of segments checks them with [`TableShape::of`]. An
/// implementation gives the same segments each time; where it does not, a decoder may give wrong rows or panic.
pub trait Segments {
    /// Number of segments.
    fn count(&self) -> usize;

    /// The segment at `index`, below [`Segments::count`]. Decoders ask once for each row: this has to be cheap.
    ///
    /// # Panics
    /// May, when `index` is not below the count.
    fn segment(&self, index: usize) -> Segment<'_>;
}

impl Segments for [Segment<'_>] {
    #[inline]
    fn count(&self) -> usize {
        self.len()
    }

    #[inline]
    fn segment(&self, index: usize) -> Segment<'_> {
        self[index]
    }
}

impl Segments for Table<'_> {
    #[inline]
    fn count(&self) -> usize {
        self.segments.len()
    }

    #[inline]
    fn segment(&self, index: usize) -> Segment<'_> {
        self.segments[index]
    }
}

impl<S: Segments + ?Sized> Segments for &S {
    #[inline]
    fn count(&self) -> usize {
        (**self).count()
    }

    #[inline]
    fn segment(&self, index: usize) -> Segment<'_> {
        (**self).segment(index)
    }
}

/// A table whose segments have been checked: one width, and records of the right length.
///
/// Rows are numbered through the segments in order. Rates may differ from segment to segment.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    segments: &'a [Segment<'a>],
    shape: TableShape,
}

impl<'a> Table<'a> {
    /// Checks the segments of a table.
    ///
    /// # Errors
    /// As [`TableShape::of`].
    pub fn new(segments: &'a [Segment<'a>]) -> Result<Table<'a>, TableError> {
        Ok(Table { segments, shape: TableShape::of(segments)? })
    }

    /// Rows and width.
    pub fn shape(&self) -> TableShape {
        self.shape
    }

    /// The segments, in row order.
    pub fn segments(&self) -> &'a [Segment<'a>] {
        self.segments
    }

    /// Layout and record of a row, or `None` when there is no such row.
    pub fn record(&self, row: u64) -> Option<(Layout, &'a [u8])> {
        let mut left = row;
        for segment in self.segments {
            if left < segment.rows {
                return Some((segment.layout, segment.record(left)));
            }
            left -= segment.rows;
        }
        None
    }
}

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
