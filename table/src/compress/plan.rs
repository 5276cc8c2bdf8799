//! What is to be written where.

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;

use condprog_core::encoder::Search;
use condprog_core::{Layout, LayoutError, Scale};

use super::{CompressOptions, ScaleMode, SegmentPlan};
use crate::checksum;
use crate::error::Error;
use crate::file::block_range;
use crate::format::{self, ChecksumInfo, PROGRAM, SegmentInfo, SourceRecord, TableInfo};
use crate::journal::Head;
use crate::source::{RowSource, SourceInfo};
use crate::stream::default_block_rows;

/// What is to be written where, before any row is read.
pub(super) struct Plan {
    pub(super) head: Head,
    pub(super) segments: Vec<PlannedSegment>,
    pub(super) header_bytes: u64,
    pub(super) file_bytes: u64,
}

pub(super) struct PlannedSegment {
    /// Index of the table, and of the source.
    pub(super) table: usize,
    /// Index in the table.
    pub(super) index: usize,
    pub(super) layout: Layout,
    /// Where the records start in the file.
    pub(super) records: u64,
    /// Where the checksums start.
    pub(super) checksums: u64,
}

impl Plan {
    pub(super) fn new(sources: &[Box<dyn RowSource>], output: &Path, options: &CompressOptions) -> Result<Plan, Error> {
        if options.effort > Search::MAX_EFFORT {
            let (got, expected) = (u64::from(options.effort), format!("0 to {}", Search::MAX_EFFORT));
            return Err(Error::Option { option: "effort", got, expected });
        }
        if let Some(tensor) = options.segments.keys().find(|name| !sources.iter().any(|s| s.info().name == **name)) {
            let got = options.segments[tensor].iter().map(|segment| u128::from(segment.rows)).sum();
            return Err(Error::SegmentRows { tensor: tensor.clone(), got, expected: 0 });
        }
        let tables = sources.iter().map(|source| plan_table(source.info(), options)).collect::<Result<Vec<_>, _>>()?;
        let entries = format::layout_tensors(&tables);
        let mut names = HashSet::new();
        if let Some(tensor) = entries.iter().find(|tensor| !names.insert(&tensor.name)) {
            return Err(Error::NameTaken { tensor: tensor.name.clone() });
        }
        // The header is written last but lies first: its room is that of the largest counts there can be.
        let header = format::header_bytes(&tables, 0).map_err(|source| Error::header(output, source))?;
        let header_bytes = header.len() as u64;
        let start = |name: &str| {
            let entry = entries.iter().find(|entry| entry.name == name).expect("every segment has its tensors");
            header_bytes + entry.start
        };
        let mut segments = Vec::new();
        for (table, info) in tables.iter().enumerate() {
            for (index, segment) in info.segments.iter().enumerate() {
                let layout = segment.layout(info.dim).expect("planned from a layout");
                let (records, checksums) = (start(&segment.tensor), start(&segment.checksums.tensor));
                segments.push(PlannedSegment { table, index, layout, records, checksums });
            }
        }
        let file_bytes = header_bytes + entries.last().map_or(0, |entry| entry.end);
        let sources = sources.iter().map(|source| source.identity().into()).collect();
        let head = Head { writer: env!("CARGO_PKG_VERSION").into(), sources, tables };
        Ok(Plan { head, segments, header_bytes, file_bytes })
    }

    /// Rows of a block of a segment.
    pub(super) fn block(&self, segment: usize, block: u64) -> Range<u64> {
        block_range(self.info(&self.segments[segment]).1, block)
    }

    /// A segment's table, and the segment.
    pub(super) fn info(&self, segment: &PlannedSegment) -> (&TableInfo, &SegmentInfo) {
        let table = &self.head.tables[segment.table];
        (table, &table.segments[segment.index])
    }
}

/// A table as it will be, counts and checksums standing in with their longest spelling.
fn plan_table(source: &SourceInfo, options: &CompressOptions) -> Result<TableInfo, Error> {
    let tensor = || source.name.clone();
    let dim = u32::try_from(source.dim)
        .map_err(|_| Error::Width { tensor: tensor(), source: LayoutError::Dim { dim: u32::MAX } })?;
    let whole = [SegmentPlan { rows: source.rows, rate: options.rate }];
    let plan = options.segments.get(&source.name).map_or(whole.as_slice(), Vec::as_slice);
    let got = plan.iter().map(|segment| u128::from(segment.rows)).sum();
    if got != u128::from(source.rows) || plan.iter().any(|segment| segment.rows == 0) {
        return Err(Error::SegmentRows { tensor: tensor(), got, expected: source.rows });
    }
    let block_rows = options.block_rows.map_or_else(|| default_block_rows(source.dim), u64::from);
    let most = ((1 << 28) / source.dim).max(1);
    if block_rows == 0 || block_rows > most {
        let expected = format!("1 to {most} for rows of {dim} values");
        return Err(Error::Option { option: "rows per block", got: block_rows, expected });
    }
    let mut segments = Vec::new();
    let mut first_row = 0;
    for (index, &SegmentPlan { rows, rate }) in plan.iter().enumerate() {
        let layout = Layout::new(dim, rate).map_err(|source| Error::Width { tensor: tensor(), source })?;
        let name = if plan.len() == 1 { tensor() } else { format!("{}#{index}", source.name) };
        segments.push(SegmentInfo {
            first_row,
            rows,
            rate_quarters: rate.quarters(),
            record_bytes: layout.record_bytes() as u64,
            global_scale: (options.scale == ScaleMode::Global).then(|| Scale::MAX.to_bits()),
            checksums: ChecksumInfo { tensor: format!("{name}#checksums"), block_rows, xxh3_64: checksum::hex(0) },
            tensor: name,
        });
        first_row += rows;
    }
    Ok(TableInfo {
        name: tensor(),
        program: PROGRAM.into(),
        dim,
        rows: source.rows,
        first_row: 0,
        table_rows: source.rows,
        source: SourceRecord {
            name: tensor(),
            dtype: source.dtype.name().into(),
            shape: [source.rows, source.dim],
            bytes: source.bytes(),
            scale: source.scale.clone(),
        },
        scale_rule: options.scale.name().into(),
        effort: options.effort,
        zero_rows: source.rows,
        underflow_rows: source.rows,
        non_finite_rows: source.rows,
        segments,
    })
}

/// The first thing in which two runs differ: what it is, and how each has it.
pub(super) fn difference(old: &Head, new: &Head) -> Option<(&'static str, String, String)> {
    let segments = |table: &TableInfo| {
        let list = table.segments.iter().map(|s| {
            let rate = f64::from(s.rate_quarters) / 4.0;
            format!("{} rows at {rate} bits in blocks of {}", s.rows, s.checksums.block_rows)
        });
        list.collect::<Vec<_>>().join(", ")
    };
    let each = |head: &Head, text: &dyn Fn(&TableInfo) -> String| {
        let list = head.tables.iter().map(|table| format!("{:?}: {}", table.name, text(table)));
        list.collect::<Vec<_>>().join("; ")
    };
    type Aspect<'a> = (&'static str, &'a dyn Fn(&Head) -> String);
    let aspects: [Aspect<'_>; 6] = [
        ("the version of condprog", &|head| head.writer.clone()),
        ("the list of tables", &|head| head.tables.iter().map(|t| t.name.as_str()).collect::<Vec<_>>().join(", ")),
        ("the source", &|head| head.sources.join("; ")),
        ("the effort", &|head| each(head, &|table| table.effort.to_string())),
        ("the scale rule", &|head| each(head, &|table| table.scale_rule.clone())),
        ("the rate", &|head| each(head, &segments)),
    ];
    aspects.into_iter().map(|(what, of)| (what, of(old), of(new))).find(|(_, old, new)| old != new)
}
