//! The metadata of a table file: its model, how it is written, and every check that needs no records (`FORMAT.md`).

use std::collections::HashSet;
use std::path::Path;

use condprog_core::{FORMAT_VERSION, Layout, LayoutError};
use serde::{Deserialize, Serialize};

use crate::aspect::{Aspect, difference};
use crate::checksum;
use crate::header::{Header, HeaderError, TensorEntry};
use crate::names::{KEY_LOADERS, KEY_PART};
use crate::seal::Seal;
use crate::source::{ScaleTensor, SourceInfo, SourcePart};

mod error;
mod raw;

pub use crate::names::{CHECKSUM, FORMAT, KEY_CHECKSUM, KEY_FORMAT, KEY_RUN, KEY_TABLES, KEY_VERSION, PROGRAM};
use raw::{RawSegment, RawTable};

pub use error::FormatError;

/// Data type of record tensors: every tensor of this type in a table file holds records.
pub const RECORD_DTYPE: &str = "U8";
/// Data type of checksum tensors; the bits are those of an unsigned number, but more loaders know the signed type.
pub const CHECKSUM_DTYPE: &str = "I64";

/// A table of a file, or the part of a logical table that the file holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawTable")]
pub struct TableInfo {
    /// Name, that of the source tensor.
    pub name: String,
    /// The program rows are decoded with.
    pub program: String,
    /// Values per row.
    pub dim: u32,
    /// Rows in this file.
    pub rows: u64,
    /// Row of the logical table that is this file's row 0.
    pub first_row: u64,
    /// Rows of the logical table over all files.
    pub table_rows: u64,
    /// What was compressed.
    pub source: SourceRecord,
    /// How scales were chosen: `norm`, `projection`, `least-squares` or `global`. A decoder need not know.
    pub scale_rule: String,
    /// Effort of the encoder, 0 to 4. A decoder need not know.
    pub effort: u8,
    /// Rows that were all zero in the source.
    pub zero_rows: u64,
    /// Rows that became zero because their scale was below the smallest.
    pub underflow_rows: u64,
    /// Rows that became zero because a value was not finite or their scale above the largest.
    pub non_finite_rows: u64,
    /// Runs of rows with one rate each, in row order, that cover all rows.
    pub segments: Vec<SegmentInfo>,
}

/// What a logical table was made from: the whole of it, in every file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceRecord {
    /// Name of the tensor, or of the table that several tensors are.
    pub name: String,
    /// Data type as its safetensors header spelled it.
    pub dtype: String,
    /// Rows and values per row.
    pub shape: [u64; 2],
    /// Bytes of the source rows, scales of rows included.
    pub bytes: u64,
    /// The scales, if the format had them, of a table of one tensor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<ScaleTensor>,
    /// The tensors in row order, of a table that was joined from several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<SourcePart>,
    /// What tells its content from that of other sources of these names and shapes: see
    /// `RowSource::identity` of `condprog-checkpoint`. Files of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
}

impl SourceRecord {
    /// What is recorded of a source.
    pub fn new(info: &SourceInfo, identity: Option<String>) -> SourceRecord {
        let (scale, parts) = match info.parts.as_slice() {
            [only] if only.name == info.name => (only.scale.clone(), Vec::new()),
            parts => (None, parts.to_vec()),
        };
        SourceRecord {
            name: info.name.clone(),
            dtype: info.dtype.name().into(),
            shape: [info.rows, info.dim],
            bytes: info.bytes(),
            scale,
            parts,
            identity,
        }
    }

    /// The tensors in row order: one, unless the table was joined.
    pub fn tensors(&self) -> Vec<SourcePart> {
        match self.parts.as_slice() {
            [] => vec![SourcePart { name: self.name.clone(), rows: self.shape[0], scale: self.scale.clone() }],
            parts => parts.to_vec(),
        }
    }
}

/// A run of consecutive rows with one rate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "RawSegment")]
pub struct SegmentInfo {
    /// The tensor of the records, `U8 [rows, record_bytes]`.
    pub tensor: String,
    /// First row, counted from this file's row 0.
    pub first_row: u64,
    /// Number of rows, at least 1.
    pub rows: u64,
    /// Width and rate of the rows.
    pub layout: Layout,
    /// The scale field that `global` scaling gave every row, variant bits zero.
    pub global_scale: Option<u16>,
    /// Rows that became zero, by reason: what [`TableInfo`] counts over all its segments.
    pub zeroed: Option<Zeroed>,
    /// The digest of the source rows that were coded, as they were read, 16 lower-case hexadecimal digits: see
    /// `RawRows::digest` of `condprog-checkpoint`. Files of earlier versions have none.
    pub source_xxh3_64: Option<String>,
    /// Checksums of the records.
    pub checksums: ChecksumInfo,
}

/// Rows that became zero, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zeroed {
    /// They were zero in the source.
    pub zero: u64,
    /// Their scale was below the smallest.
    pub underflow: u64,
    /// A value was not finite, or their scale above the largest.
    pub non_finite: u64,
}

impl std::ops::AddAssign for Zeroed {
    fn add_assign(&mut self, other: Zeroed) {
        self.zero += other.zero;
        self.underflow += other.underflow;
        self.non_finite += other.non_finite;
    }
}

/// Where a segment's checksums are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChecksumInfo {
    /// The tensor, `I64 [blocks]`: the XXH3-64 of each block of records.
    pub tensor: String,
    /// Rows per block; the last one may have fewer.
    pub block_rows: u64,
    /// XXH3-64 of that tensor's bytes, 16 lower-case hexadecimal digits.
    pub xxh3_64: String,
}

impl SegmentInfo {
    /// Blocks of rows with a checksum each.
    pub fn blocks(&self) -> u64 {
        self.rows.div_ceil(self.checksums.block_rows)
    }

    /// Bytes per record.
    pub fn record_bytes(&self) -> u64 {
        self.layout.record_bytes() as u64
    }
}

impl TableInfo {
    /// Bytes of all records.
    pub fn record_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.rows * segment.record_bytes()).sum()
    }

    /// Bytes of the source rows that are here, scales of rows included.
    pub fn source_bytes(&self) -> u64 {
        let bytes = u128::from(self.source.bytes) * u128::from(self.rows) / u128::from(self.table_rows.max(1));
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Bits per value, over all rows.
    pub fn mean_rate(&self) -> f64 {
        let quarters: f64 = self.segments.iter().map(|s| s.rows as f64 * f64::from(s.layout.rate().quarters())).sum();
        quarters / (4.0 * self.rows as f64)
    }
}

/// Reads the tables from a header and checks them against each other and against the tensors.
pub fn parse(header: &Header) -> Result<Vec<TableInfo>, FormatError> {
    let get = |key| header.metadata(key);
    let other = |key, expected: &str| get(key).is_none_or(|got| got != expected).then(|| get(key).map(String::from));
    if let Some(got) = other(KEY_FORMAT, FORMAT) {
        return Err(FormatError::Magic { got });
    }
    if let Some(got) = other(KEY_VERSION, &FORMAT_VERSION.to_string()) {
        return Err(FormatError::Version { got });
    }
    match (get(KEY_CHECKSUM), &header.seal) {
        // Written before headers had checksums of themselves.
        (Some(CHECKSUM), None) => {}
        (Some(_), Some(Seal { got, expected })) if got == expected => {}
        (Some(_), Some(Seal { got, expected })) => {
            let (got, expected) = (checksum::hex(*got), checksum::hex(*expected));
            return Err(FormatError::HeaderChecksum { got, expected });
        }
        (got, None) => return Err(FormatError::Checksum { got: got.map(String::from) }),
        (None, Some(_)) => return Err(FormatError::Checksum { got: None }),
    }
    if let Some(got) = get(KEY_RUN).filter(|got| !is_hex(got)) {
        return Err(FormatError::Run { got: got.into() });
    }
    let json = get(KEY_TABLES).ok_or(FormatError::NoTableList)?;
    let tables: Vec<RawTable> = serde_json::from_str(json).map_err(FormatError::TableList)?;
    if tables.is_empty() {
        return Err(FormatError::NoTables);
    }
    let (mut names, mut used, mut layouts) = (HashSet::new(), HashSet::new(), Vec::new());
    for table in &tables {
        if !names.insert(table.name.as_str()) {
            return Err(FormatError::DuplicateTable { table: table.name.clone() });
        }
        layouts.push(check_table(table)?);
        for segment in &table.segments {
            let records = (&segment.tensor, RECORD_DTYPE, vec![segment.rows, segment.record_bytes]);
            let checksums =
                (&segment.checksums.tensor, CHECKSUM_DTYPE, vec![segment.rows.div_ceil(segment.checksums.block_rows)]);
            for (tensor, dtype, shape) in [records, checksums] {
                check_tensor(header, &table.name, tensor, dtype, shape)?;
                if !used.insert(tensor.as_str()) {
                    return Err(FormatError::SharedTensor { tensor: tensor.clone() });
                }
            }
        }
    }
    let stray = header.tensors.iter().find(|t| t.dtype == RECORD_DTYPE && !used.contains(t.name.as_str()));
    match stray {
        Some(tensor) => Err(FormatError::StrayTensor { tensor: tensor.name.clone() }),
        None => Ok(tables.into_iter().zip(layouts).map(|(table, layouts)| table.with(layouts)).collect()),
    }
}

/// Whether a text is 16 lower-case hexadecimal digits.
fn is_hex(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Checks a table by itself, and gives the layouts of its segments.
fn check_table(info: &RawTable) -> Result<Vec<Layout>, FormatError> {
    let table = || info.name.clone();
    if info.program != PROGRAM {
        return Err(FormatError::Program { table: table(), got: info.program.clone() });
    }
    let RawTable { rows, first_row, table_rows, .. } = *info;
    let in_range = first_row.checked_add(rows).is_some_and(|end| end <= table_rows);
    if rows == 0 || !in_range || table_rows > i64::MAX as u64 {
        return Err(FormatError::RowRange { table: table(), rows, first_row, table_rows });
    }
    let (mut next, mut layouts) = (0u64, Vec::with_capacity(info.segments.len()));
    for (index, segment) in info.segments.iter().enumerate() {
        let layout = segment.layout(info.dim).map_err(|source| match source {
            LayoutError::Rate { .. } => FormatError::Rate { table: table(), segment: index, source },
            source => FormatError::Width { table: table(), segment: index, source },
        })?;
        let (got, expected) = (segment.record_bytes, layout.record_bytes() as u64);
        if got != expected {
            return Err(FormatError::RecordBytes { table: table(), segment: index, got, expected });
        }
        let (got, expected) = (segment.first_row, next);
        if got < expected {
            return Err(FormatError::SegmentOverlap { table: table(), segment: index, got, expected });
        }
        if got > expected {
            return Err(FormatError::SegmentGap { table: table(), segment: index, got, expected });
        }
        if segment.checksums.block_rows == 0 {
            return Err(FormatError::BlockRows { table: table(), segment: index });
        }
        layouts.push(layout);
        next = match next.checked_add(segment.rows) {
            Some(end) if segment.rows > 0 && end <= rows => end,
            end => {
                return Err(FormatError::SegmentRows { table: table(), got: end.unwrap_or(u64::MAX), expected: rows });
            }
        };
    }
    if next != rows {
        return Err(FormatError::SegmentRows { table: table(), got: next, expected: rows });
    }
    let sum = |counts: [u64; 3]| counts.into_iter().map(u128::from).sum();
    let got: u128 = sum([info.zero_rows, info.underflow_rows, info.non_finite_rows]);
    if got > u128::from(rows) {
        return Err(FormatError::Counts { table: table(), got, rows });
    }
    let counted = info.segments.iter().map(|segment| segment.zeroed.map(|z| sum([z.zero, z.underflow, z.non_finite])));
    // A file need not have them.
    if let Some(segments) = counted.sum::<Option<u128>>()
        && segments != got
    {
        return Err(FormatError::SegmentCounts { table: table(), got: segments, expected: got });
    }
    let parts = info.source.parts.iter().map(|part| u128::from(part.rows)).sum();
    if !info.source.parts.is_empty() && parts != u128::from(table_rows) {
        return Err(FormatError::SourceParts { table: table(), got: parts, expected: table_rows });
    }
    let expected = [table_rows, u64::from(info.dim)];
    if info.source.shape != expected {
        return Err(FormatError::SourceShape { table: table(), got: info.source.shape, expected });
    }
    Ok(layouts)
}

fn check_tensor(
    header: &Header,
    table: &str,
    name: &str,
    expected_dtype: &'static str,
    expected_shape: Vec<u64>,
) -> Result<(), FormatError> {
    let tensor =
        header.tensor(name).ok_or_else(|| FormatError::MissingTensor { table: table.into(), tensor: name.into() })?;
    if tensor.dtype == expected_dtype && tensor.shape == expected_shape {
        return Ok(());
    }
    let (tensor, dtype, shape) = (tensor.name.clone(), tensor.dtype.clone(), tensor.shape.clone());
    Err(FormatError::Tensor { tensor, dtype, shape, expected_dtype, expected_shape })
}

/// The tables of one file of several.
#[derive(Clone, Copy)]
pub struct TablesOf<'a> {
    /// The file.
    pub path: &'a Path,
    /// The identity of its run; files of earlier versions have none.
    pub run: Option<&'a str>,
    /// Its tables.
    pub tables: &'a [TableInfo],
}

/// The run of a file, or what stands for none, for messages.
pub fn run_text(run: Option<&str>) -> String {
    run.unwrap_or("an earlier version").into()
}

/// The tables of several files, each put together from all files that have rows of it. Rows then count from the first
/// row that there is.
pub fn join_tables(files: &[TablesOf<'_>]) -> Result<Vec<TableInfo>, FormatError> {
    let mut all: Vec<Vec<(TablesOf<'_>, &TableInfo)>> = Vec::new();
    for &file in files {
        for table in file.tables {
            match all.iter_mut().find(|pieces| pieces[0].1.name == table.name) {
                Some(pieces) => pieces.push((file, table)),
                None => all.push(vec![(file, table)]),
            }
        }
    }
    all.into_iter().map(join_pieces).collect()
}

fn join_pieces(mut pieces: Vec<(TablesOf<'_>, &TableInfo)>) -> Result<TableInfo, FormatError> {
    pieces.sort_by_key(|(_, table)| table.first_row);
    let (first_file, first) = pieces[0];
    let mut joined = first.clone();
    for &(file, table) in &pieces[1..] {
        let (name, path) = (|| table.name.clone(), file.path);
        let aspects: [Aspect<'_, TableInfo>; 6] = [
            ("program", &|table| table.program.clone()),
            ("values per row", &|table| table.dim.to_string()),
            ("rows in all", &|table| table.table_rows.to_string()),
            ("source", &|table| serde_json::to_string(&table.source).unwrap_or_default()),
            ("scale rule", &|table| table.scale_rule.clone()),
            ("effort", &|table| table.effort.to_string()),
        ];
        if let Some((what, got, expected)) = difference(table, first, &aspects) {
            let files = Box::new([first_file.path.into(), path.into()]);
            return Err(FormatError::FilesDiffer { table: name(), what, got, expected, files });
        }
        if file.run != first_file.run {
            let (got, expected) = (run_text(file.run), run_text(first_file.run));
            return Err(FormatError::OtherRun { file: path.into(), got, other: first_file.path.into(), expected });
        }
        let (got, expected) = (table.first_row, joined.first_row + joined.rows);
        if got != expected {
            return Err(FormatError::FileRows { table: name(), file: path.into(), got, expected });
        }
        joined.segments.extend(table.segments.iter().map(|segment| {
            let first_row = joined.rows + segment.first_row;
            SegmentInfo { first_row, ..segment.clone() }
        }));
        joined.rows += table.rows;
        joined.zero_rows += table.zero_rows;
        joined.underflow_rows += table.underflow_rows;
        joined.non_finite_rows += table.non_finite_rows;
    }
    Ok(joined)
}

/// Where everything in a table file lies: checksums of all segments first, records after them, both in row order.
pub fn layout_tensors(tables: &[TableInfo]) -> Vec<TensorEntry> {
    let segments = || tables.iter().flat_map(|table| &table.segments);
    let checksums = segments().map(|s| (&s.checksums.tensor, CHECKSUM_DTYPE, vec![s.blocks()], 8 * s.blocks()));
    let records =
        segments().map(|s| (&s.tensor, RECORD_DTYPE, vec![s.rows, s.record_bytes()], s.rows * s.record_bytes()));
    let mut start = 0;
    let place = |(name, dtype, shape, bytes): (&String, &str, Vec<u64>, u64)| {
        let entry = TensorEntry { name: name.clone(), dtype: dtype.into(), shape, start, end: start + bytes };
        start = entry.end;
        entry
    };
    checksums.chain(records).map(place).collect()
}

/// Length field and header of a table file, at least `least` bytes. `run` is the identity of the run, `part` the text of
/// [`KEY_PART`], if it has one.
///
/// The identity of the run comes first: an unfinished file is known by it.
pub fn header_bytes(tables: &[TableInfo], run: &str, part: Option<&str>, least: u64) -> Result<Vec<u8>, HeaderError> {
    let json = serde_json::to_string(tables).map_err(HeaderError::Json)?;
    let version = FORMAT_VERSION.to_string();
    let seal = Seal::blank();
    let mut metadata = vec![
        (KEY_RUN, run),
        (KEY_LOADERS, "pt"),
        (KEY_FORMAT, FORMAT),
        (KEY_VERSION, &version),
        (KEY_CHECKSUM, &seal),
        (KEY_TABLES, &json),
    ];
    metadata.extend(part.map(|part| (KEY_PART, part)));
    let metadata: Vec<_> = metadata.into_iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    let mut bytes = Header::to_bytes(&metadata, &layout_tensors(tables), least)?;
    Seal::set(&mut bytes);
    Ok(bytes)
}
