//! Checks of a table file: checksums, padding and counts; and whether its rows are those of a source.
//!
//! | file | what it does |
//! |---|---|
//! | `check.rs` | what a file says of itself: checksums, padding, counts |
//! | `compare.rs` | every row beside its source row: figures, and which rows are in doubt |
//! | `limits.rs` | when a row, or the mean of some, is in doubt |
//! | `recode.rs` | rows in doubt and a sample of the others are coded again: the bytes decide |

mod check;
mod compare;
mod limits;
mod recode;

use std::num::NonZeroUsize;

use condprog_checkpoint::{Checkpoint, RowSource};
use condprog_table::format::TableInfo;
use condprog_table::source::SourcePart;
use condprog_table::{Damage, Tables};
use serde::Serialize;

use self::check::check;
use self::compare::compare;
use crate::codec::Codec;
use crate::error::Error;
use crate::stream::{Counter, Progress, Stage, on_threads};

/// How to verify.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VerifyOptions {
    /// Threads; `None` for those of the current rayon pool.
    pub threads: Option<NonZeroUsize>,
    /// Which rows of each table are coded again, given a source.
    pub sample: Sample,
    /// The largest relative squared error that a table may have, beside what its rate allows; given a source.
    pub max_error: Option<f64>,
}

/// Which rows of a table are coded again and compared byte for byte. The encoder makes one record of one row, so a row that
/// was coded again is the source's or is found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// This many rows, spread over the table, and the first and last row of each segment; always the same ones. 0 for
    /// none.
    Rows(u64),
    /// Every row: takes as long as compressing.
    All,
}

impl Default for Sample {
    fn default() -> Sample {
        Sample::Rows(256)
    }
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerifyReport {
    /// The tables, in file order.
    pub tables: Vec<VerifyTable>,
}

impl VerifyReport {
    /// Whether nothing is wrong: nothing is damaged, and all rows are those of the source, if there was one.
    pub fn is_whole(&self) -> bool {
        self.tables.iter().all(|table| table.damage.is_empty())
    }

    /// Whether the file says of itself what it should, and only the source is another one.
    pub fn is_mismatch(&self) -> bool {
        let mut damage = self.tables.iter().flat_map(|table| &table.damage).peekable();
        damage.peek().is_some() && damage.all(|damage| damage.fault.is_mismatch())
    }
}

/// What was found about one table. The figures of quality are `None` without a source.
///
/// Sums are of fixed parts in fixed order: the same file and source give the same figures at every thread count. Rows
/// of the source with a value that is not finite are left out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerifyTable {
    /// Name.
    pub name: String,
    /// Rows.
    pub rows: u64,
    /// Values per row.
    pub dim: u32,
    /// Bits per value, the mean over rows when segments differ.
    pub rate: f64,
    /// Bytes per record; `None` when segments differ.
    pub record_bytes: Option<u64>,
    /// Bytes of the source rows, scales included.
    pub source_bytes: u64,
    /// Bytes of the records.
    pub table_bytes: u64,
    /// Sum of squared errors over the sum of squares of the source.
    pub relative_mse: Option<f64>,
    /// Mean over rows that are not zero in the source of the cosine between source and restored row; a row that was
    /// restored as zeros counts as 0.
    pub mean_cosine: Option<f64>,
    /// Mean over the same rows of the restored row's length by the source row's.
    pub norm_ratio: Option<f64>,
    /// The row with the largest squared error by its sum of squares, the first of equals.
    pub worst_row: Option<u64>,
    /// That row's figure.
    pub worst_relative_mse: Option<f64>,
    /// Rows that were coded again: the sample, and rows that were in doubt.
    pub recoded_rows: Option<u64>,
    /// Rows that are not those of the source.
    pub mismatched_rows: Option<u64>,
    /// Rows that are restored as zeros, for whatever reason.
    pub zero_rows: u64,
    /// Of these, rows whose scale was below the smallest.
    pub underflow_rows: u64,
    /// Of these, rows that could not be coded.
    pub non_finite_rows: u64,
    /// What is wrong: with the file, in row order, then with its rows beside the source's.
    pub damage: Vec<Damage>,
}

/// Checks every table of a file: structure has been checked when it was opened, so checksums, padding and counts of
/// zero rows; and, given the source, whether the rows are those of the source, and how far from them they are restored.
///
/// Every row is compared with its source row. One whose error is larger than nearly any that the encoder makes, or
/// whose length or direction is not what its scale rule gives, is coded again, as is a [`Sample`] of the others: where
/// the bytes differ, it is a mismatch. So a row that is hard to code raises no false alarm.
///
/// Damage and mismatches are in the report, not an error. A damaged table is compared with its source all the same.
///
/// # Errors
/// [`Error::OtherSource`] or [`Error::Checkpoint`] when the source is not what the file was made from by its names, types and
/// shapes, [`Error::File`] when the file or the source cannot be read, [`Error::MaxError`] for a limit that is not above 0,
/// [`Error::Cancelled`].
pub fn verify(
    file: &Tables,
    source: Option<&Checkpoint>,
    options: &VerifyOptions,
    codec: &dyn Codec,
    progress: &Progress<'_>,
) -> Result<VerifyReport, Error> {
    if let Some(got) = options.max_error.filter(|got| got.is_nan() || *got <= 0.0) {
        return Err(Error::MaxError { got });
    }
    on_threads(options.threads, || {
        // Before hours of work: are these the rows the file was made from?
        let mut sources = Vec::new();
        for table in file.tables() {
            sources.push(source.map(|source| open_source(source, table)).transpose()?);
        }
        let total = file.tables().iter().map(|table| table.rows).sum();
        let mut counter = Counter::new(Stage::Check, progress, 0, total);
        let checked = file.tables().iter().map(|table| check(file, table, &mut counter));
        let mut tables = checked.collect::<Result<Vec<_>, _>>()?;
        let mut counter = Counter::new(Stage::Compare, progress, 0, total);
        for ((info, table), source) in file.tables().iter().zip(&mut tables).zip(sources) {
            if let Some(source) = source {
                compare(file, info, source, options, codec, table, &mut counter)?;
            }
        }
        Ok(VerifyReport { tables })
    })
}

fn open_source(source: &Checkpoint, table: &TableInfo) -> Result<Box<dyn RowSource>, Error> {
    let info = source.recorded(&table.source)?;
    let other = |what, got: String, expected: String| {
        (got != expected).then(|| Error::OtherSource { table: table.name.clone(), what, got, expected })
    };
    let shape = |shape: [u64; 2]| format!("{shape:?}");
    let parts = |parts: &[SourcePart]| serde_json::to_string(parts).unwrap_or_default();
    let fault = other("type", info.dtype.name().into(), table.source.dtype.clone())
        .or_else(|| other("shape", shape([info.rows, info.dim]), shape(table.source.shape)))
        .or_else(|| other("tensors", parts(&info.parts), parts(&table.source.tensors())));
    match fault {
        Some(error) => Err(error),
        None => Ok(Box::new(source.rows(info)?)),
    }
}
