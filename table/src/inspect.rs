//! What is in a table file, in figures.

use condprog_core::Scale;
use condprog_core::program::VARIANTS;
use rayon::prelude::*;
use serde::Serialize;

use crate::error::Error;
use crate::format::{SegmentInfo, SourceRecord, TableInfo};
use crate::tables::{PIECE, Tables};

/// What is known about one table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TableSummary {
    /// Name.
    pub name: String,
    /// Rows in this file.
    pub rows: u64,
    /// Row of the logical table that is this file's row 0.
    pub first_row: u64,
    /// Rows of the logical table over all files.
    pub table_rows: u64,
    /// Values per row.
    pub dim: u32,
    /// What was compressed.
    pub source: SourceRecord,
    /// How scales were chosen.
    pub scale_rule: String,
    /// Effort of the encoder.
    pub effort: u8,
    /// Bytes of the source rows.
    pub source_bytes: u64,
    /// Bytes of the records.
    pub table_bytes: u64,
    /// Bytes per row, the mean when segments differ.
    pub bytes_per_row: f64,
    /// Source bytes by table bytes.
    pub ratio: f64,
    /// Rows that were zero in the source.
    pub zero_rows: u64,
    /// Rows that became zero because their scale was below the smallest.
    pub underflow_rows: u64,
    /// Rows that became zero because they could not be coded.
    pub non_finite_rows: u64,
    /// The segments.
    pub segments: Vec<SegmentSummary>,
}

/// What is known about one segment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SegmentSummary {
    /// The tensor of the records.
    pub tensor: String,
    /// First row, counted from this file's row 0.
    pub first_row: u64,
    /// Number of rows.
    pub rows: u64,
    /// Bits per value.
    pub rate: f64,
    /// Bytes per record.
    pub record_bytes: u64,
    /// Smallest and largest scale, `None` when all rows are zero.
    pub scales: Option<ScaleRange>,
    /// Zero records.
    pub zero_records: u64,
    /// Rows per variant, zero records left out.
    pub variants: [u64; VARIANTS as usize],
}

/// Smallest and largest scale of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ScaleRange {
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
}

/// Summarises every table of a file; reads the scale field of every record.
///
/// # Errors
/// [`Error::Io`] when the records cannot be read.
pub fn inspect(file: &Tables) -> Result<Vec<TableSummary>, Error> {
    file.tables().iter().map(|table| summarize(file, table)).collect()
}

fn summarize(file: &Tables, table: &TableInfo) -> Result<TableSummary, Error> {
    let table_bytes = table.record_bytes();
    let segments = table.segments.iter().map(|segment| summarize_segment(file, segment));
    Ok(TableSummary {
        name: table.name.clone(),
        rows: table.rows,
        first_row: table.first_row,
        table_rows: table.table_rows,
        dim: table.dim,
        source: table.source.clone(),
        scale_rule: table.scale_rule.clone(),
        effort: table.effort,
        source_bytes: table.source_bytes(),
        table_bytes,
        bytes_per_row: table_bytes as f64 / table.rows as f64,
        ratio: table.source_bytes() as f64 / table_bytes as f64,
        zero_rows: table.zero_rows,
        underflow_rows: table.underflow_rows,
        non_finite_rows: table.non_finite_rows,
        segments: segments.collect::<Result<_, _>>()?,
    })
}

/// Keeps the least and greatest scale and the variants, not how often each of the 2^16 scale fields occurs.
#[derive(Clone, Copy, Default)]
struct Fields {
    /// Bits 11..0 of the smallest scale; they ascend with the scale.
    least: Option<u16>,
    greatest: Option<u16>,
    zeros: u64,
    variants: [u64; VARIANTS as usize],
}

impl Fields {
    fn record(mut self, record: &[u8]) -> Fields {
        let scale = match record {
            [.., low, high] => Scale::from_bits(u16::from_le_bytes([*low, *high])),
            _ => unreachable!("a record has a scale field"),
        };
        if scale.is_zero() {
            self.zeros += 1;
            return self;
        }
        let alpha = Some(scale.with_variant(0).to_bits());
        self.least = self.least.min(alpha).or(alpha);
        self.greatest = self.greatest.max(alpha);
        self.variants[usize::from(scale.variant())] += 1;
        self
    }

    fn merge(mut self, other: Fields) -> Fields {
        self.least = [self.least, other.least].into_iter().flatten().min();
        self.greatest = self.greatest.max(other.greatest);
        self.zeros += other.zeros;
        for (ours, theirs) in self.variants.iter_mut().zip(other.variants) {
            *ours += theirs;
        }
        self
    }
}

fn summarize_segment(file: &Tables, info: &SegmentInfo) -> Result<SegmentSummary, Error> {
    let step = (PIECE as u64 / info.record_bytes()).max(1);
    let part = |records: &mut Vec<u8>, part: u64| -> Result<_, Error> {
        records.clear();
        file.read_records(info, part * step..info.rows.min((part + 1) * step), records)?;
        Ok(records.chunks_exact(info.record_bytes() as usize).fold(Fields::default(), Fields::record))
    };
    let parts = (0..info.rows.div_ceil(step)).into_par_iter().map_init(Vec::new, part);
    let fields = parts.try_reduce(Fields::default, |ours, theirs| Ok(ours.merge(theirs)))?;
    let alpha = |bits: Option<u16>| bits.map(|bits| Scale::from_bits(bits).alpha());
    Ok(SegmentSummary {
        tensor: info.tensor.clone(),
        first_row: info.first_row,
        rows: info.rows,
        rate: f64::from(info.layout.rate().quarters()) / 4.0,
        record_bytes: info.record_bytes(),
        scales: alpha(fields.least).zip(alpha(fields.greatest)).map(|(min, max)| ScaleRange { min, max }),
        zero_records: fields.zeros,
        variants: fields.variants,
    })
}
