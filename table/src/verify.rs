//! Checks of a table file: checksums, padding and counts, and how far restored rows are from their source.

use std::fmt;
use std::num::NonZeroUsize;

use condprog_core::{Decoder, Missing, Output, Record, Table};
use condprog_cpu::CpuDecoder;
use rayon::prelude::*;
use serde::Serialize;

use crate::error::Error;
use crate::file::{TableFile, block_range};
use crate::format::{SegmentInfo, TableInfo};
use crate::source::{Checkpoint, RawRows, RowSource, SourcePart};
use crate::stream::{Block, Counter, Progress, Stage, default_block_rows, on_threads, read_ahead};

/// How to verify.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyOptions {
    /// Threads; `None` for those of the current rayon pool.
    pub threads: Option<NonZeroUsize>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerifyReport {
    /// The tables, in file order.
    pub tables: Vec<VerifyTable>,
}

impl VerifyReport {
    /// Whether nothing is damaged.
    pub fn is_whole(&self) -> bool {
        self.tables.iter().all(|table| table.damage.is_empty())
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
    /// Rows that are restored as zeros, for whatever reason.
    pub zero_rows: u64,
    /// Of these, rows whose scale was below the smallest.
    pub underflow_rows: u64,
    /// Of these, rows that could not be coded.
    pub non_finite_rows: u64,
    /// What is wrong, in row order.
    pub damage: Vec<Damage>,
}

/// Rows that are not what was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// Name of the table.
    pub table: String,
    /// The tensor the rows are in.
    pub tensor: String,
    /// First row, counted from the file's row 0 of the table.
    pub first_row: u64,
    /// Number of rows.
    pub rows: u64,
    /// What is wrong with them.
    pub fault: Fault,
}

/// What is wrong with some rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Fault {
    /// The records have another checksum.
    Checksum {
        /// Got, hexadecimal.
        got: String,
        /// Expected, hexadecimal.
        expected: String,
    },
    /// Records have padding bits that are not zero: decoders ignore them, but no writer leaves them so.
    Padding {
        /// The first such row.
        row: u64,
        /// How many there are.
        count: u64,
    },
    /// The metadata counts another number of zero rows.
    ZeroRows {
        /// Got.
        got: u64,
        /// Expected: the sum of the three counts.
        expected: u64,
    },
}

impl Fault {
    /// A short name that stays, as of [`Error::code`].
    pub fn code(&self) -> &'static str {
        match self {
            Fault::Checksum { .. } => "damage-checksum",
            Fault::Padding { .. } => "damage-padding",
            Fault::ZeroRows { .. } => "damage-zero-rows",
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.first_row + self.rows - 1;
        write!(f, "tensor {:?}, rows {} to {last}: ", self.tensor, self.first_row)?;
        match &self.fault {
            Fault::Checksum { got, expected } => write!(f, "checksum is {got}, expected {expected}: damaged"),
            Fault::Padding { row, count } => {
                write!(f, "padding bits of {count} records are set, expected zeros; the first is row {row}")
            }
            Fault::ZeroRows { got, expected } => write!(f, "{got} rows are zero, expected {expected} as counted"),
        }
    }
}

/// Checks every table of a file: structure has been checked when it was opened, so checksums, padding and counts of
/// zero rows; and, given the source, how far the restored rows are from it.
///
/// Damage is in the report, not an error. A damaged table is compared with its source all the same.
///
/// # Errors
/// [`Error::OtherSource`] or [`Error::Source`] when the source is not what the file was made from, [`Error::Io`] when
/// it cannot be read, [`Error::Cancelled`].
pub fn verify(
    file: &TableFile,
    source: Option<&Checkpoint>,
    options: &VerifyOptions,
    progress: &Progress<'_>,
) -> Result<VerifyReport, Error> {
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
                compare(file, info, source, &mut counter)?.write(table);
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

fn check(file: &TableFile, table: &TableInfo, counter: &mut Counter<'_>) -> Result<VerifyTable, Error> {
    let (mut damage, mut zero_rows) = (Vec::new(), 0);
    for segment in &table.segments {
        let records = file.segment(table, segment);
        let step = 4 * rayon::current_num_threads() as u64;
        for first in (0..segment.blocks()).step_by(step as usize) {
            let blocks = first..segment.blocks().min(first + step);
            let found: Vec<_> = blocks
                .clone()
                .into_par_iter()
                .map(|block| (file.block_damage(table, segment, block), scan(table, segment, records, block)))
                .collect();
            for (checksum, (zeros, padding)) in found {
                damage.extend(checksum);
                damage.extend(padding);
                zero_rows += zeros;
            }
            let rows = block_range(segment, blocks.end - 1).end - block_range(segment, first).start;
            counter.add(&table.name, rows)?;
        }
    }
    let expected = table.zero_rows + table.underflow_rows + table.non_finite_rows;
    // Of damaged records, the count says nothing new.
    if damage.is_empty() && zero_rows != expected {
        damage.push(Damage {
            table: table.name.clone(),
            tensor: table.segments[0].tensor.clone(),
            first_row: 0,
            rows: table.rows,
            fault: Fault::ZeroRows { got: zero_rows, expected },
        });
    }
    let bytes = table.segments[0].record_bytes;
    Ok(VerifyTable {
        name: table.name.clone(),
        rows: table.rows,
        dim: table.dim,
        rate: table.mean_rate(),
        record_bytes: table.segments.iter().all(|segment| segment.record_bytes == bytes).then_some(bytes),
        source_bytes: table.source_bytes(),
        table_bytes: table.record_bytes(),
        relative_mse: None,
        mean_cosine: None,
        norm_ratio: None,
        worst_row: None,
        worst_relative_mse: None,
        zero_rows,
        underflow_rows: table.underflow_rows,
        non_finite_rows: table.non_finite_rows,
        damage,
    })
}

/// Zero rows of a block, and its padding.
fn scan(
    table: &TableInfo,
    segment: &SegmentInfo,
    records: condprog_core::Segment<'_>,
    block: u64,
) -> (u64, Option<Damage>) {
    let rows = block_range(segment, block);
    let (mut zeros, mut first, mut count) = (0, None, 0);
    for row in rows.clone() {
        let record = Record::new(records.layout, records.record(row));
        zeros += u64::from(record.scale.is_zero());
        if !record.padding_is_zero(records.layout) {
            first.get_or_insert(segment.first_row + row);
            count += 1;
        }
    }
    let damage = first.map(|row| Damage {
        table: table.name.clone(),
        tensor: segment.tensor.clone(),
        first_row: segment.first_row + rows.start,
        rows: rows.end - rows.start,
        fault: Fault::Padding { row, count },
    });
    (zeros, damage)
}

/// Sums over rows, and the worst of them.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    error: f64,
    energy: f64,
    cosines: f64,
    ratios: f64,
    /// Rows that are not zero in the source.
    directed: u64,
    worst: Option<(u64, f64)>,
}

impl Sums {
    fn row(&mut self, row: u64, source: &[f32], restored: &[f32]) {
        let (mut error, mut energy, mut dot, mut length) = (0.0, 0.0, 0.0, 0.0);
        for (&e, &r) in source.iter().zip(restored) {
            let (e, r) = (f64::from(e), f64::from(r));
            error += (e - r) * (e - r);
            energy += e * e;
            dot += e * r;
            length += r * r;
        }
        if !energy.is_finite() {
            return;
        }
        self.error += error;
        self.energy += energy;
        if energy > 0.0 {
            self.directed += 1;
            self.ratios += (length / energy).sqrt();
            self.cosines += if length > 0.0 { dot / (energy * length).sqrt() } else { 0.0 };
        }
        self.worse(row, relative(error, energy));
    }

    fn worse(&mut self, row: u64, relative: f64) {
        if self.worst.is_none_or(|(_, worst)| relative > worst) {
            self.worst = Some((row, relative));
        }
    }

    fn add(&mut self, other: &Sums) {
        self.error += other.error;
        self.energy += other.energy;
        self.cosines += other.cosines;
        self.ratios += other.ratios;
        self.directed += other.directed;
        if let Some((row, relative)) = other.worst {
            self.worse(row, relative);
        }
    }

    fn write(&self, table: &mut VerifyTable) {
        let mean = |sum: f64| if self.directed > 0 { sum / self.directed as f64 } else { 1.0 };
        table.relative_mse = Some(relative(self.error, self.energy));
        table.mean_cosine = Some(mean(self.cosines));
        table.norm_ratio = Some(mean(self.ratios));
        table.worst_row = self.worst.map(|(row, _)| row);
        table.worst_relative_mse = self.worst.map(|(_, relative)| relative);
    }
}

/// Zeros restored as zeros have no error.
fn relative(error: f64, energy: f64) -> f64 {
    if error == 0.0 { 0.0 } else { error / energy }
}

/// Rows that one task compares.
const PART_ROWS: usize = 256;

fn compare(
    file: &TableFile,
    info: &TableInfo,
    source: Box<dyn RowSource>,
    counter: &mut Counter<'_>,
) -> Result<Sums, Error> {
    let segments = file.segments_of(info);
    let table = Table::new(&segments).expect("checked when the file was opened");
    let decoder = CpuDecoder::new(table)?;
    let size = default_block_rows(u64::from(info.dim));
    let blocks = (0..info.rows.div_ceil(size)).map(|block| {
        let first = block * size;
        Block { source: 0, first: info.first_row + first, rows: size.min(info.rows - first) as usize, tag: first }
    });
    let mut sums = Sums::default();
    read_ahead(&mut [source], blocks, |block, raw| {
        let parts: Vec<_> = (0..block.rows.div_ceil(PART_ROWS))
            .into_par_iter()
            .map(|part| compare_part(&decoder, &raw, block.tag, part * PART_ROWS))
            .collect();
        parts.iter().for_each(|part| sums.add(part));
        counter.add(&info.name, block.rows as u64)
    })?;
    Ok(sums)
}

fn compare_part(decoder: &CpuDecoder<'_>, raw: &RawRows, first: u64, start: usize) -> Sums {
    let end = raw.rows().min(start + PART_ROWS);
    let (mut source, mut restored) = (vec![0.0; (end - start) * raw.dim], vec![0.0; (end - start) * raw.dim]);
    raw.to_f32(start..end, &mut source);
    let ids: Vec<i64> = (start..end).map(|row| (first + row as u64) as i64).collect();
    decoder.decode(&ids, Missing::Error, Output::F32(&mut restored)).expect("ids and output are those of the table");
    let mut sums = Sums::default();
    for ((&id, source), restored) in ids.iter().zip(source.chunks(raw.dim)).zip(restored.chunks(raw.dim)) {
        sums.row(id as u64, source, restored);
    }
    sums
}
