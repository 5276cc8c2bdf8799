//! A logical table in memory: segments of records, borrowed (SPEC sections 6 and 8).

use crate::error::TableError;
use crate::trellis::Layout;

/// A run of consecutive rows that share one layout, and their records back to back.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// Number of rows, 0 allowed.
    pub rows: u64,
    /// Width and rate.
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
    /// [`TableError`] when there is no segment, widths differ, a segment's records are not `rows * record_bytes`
    /// long, or the rows are more than `i64::MAX`.
    pub fn new(segments: &'a [Segment<'a>]) -> Result<Table<'a>, TableError> {
        let first = segments.first().ok_or(TableError::NoSegments)?;
        let mut rows = 0u64;
        for (index, segment) in segments.iter().enumerate() {
            if segment.layout.dim() != first.layout.dim() {
                return Err(TableError::Dim {
                    segment: index,
                    got: segment.layout.dim(),
                    expected: first.layout.dim(),
                });
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
        Ok(Table { segments, shape: TableShape { rows, dim: first.layout.dim() } })
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
