//! Why a file is not a table file: [`FormatError`].

use std::path::PathBuf;

use condprog_core::{FORMAT_VERSION, LayoutError};

use crate::names::{CHECKSUM, FORMAT, KEY_CHECKSUM, KEY_FORMAT, KEY_RUN, KEY_TABLES, KEY_VERSION, PROGRAM};

/// Why metadata is not that of a table file, or contradicts itself or the tensors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The file does not say that it is a table file.
    #[error("metadata key {KEY_FORMAT:?} is {}, expected {FORMAT:?}: not a table file", or_absent(.got))]
    Magic {
        /// Got, `None` when the key is absent.
        got: Option<String>,
    },
    /// A version this crate does not read.
    #[error("metadata key {KEY_VERSION:?} is {}, expected \"{FORMAT_VERSION}\"", or_absent(.got))]
    Version {
        /// Got, `None` when the key is absent.
        got: Option<String>,
    },
    /// The header is damaged, wherever that is.
    #[error("header has checksum {got}, expected {expected}: it is damaged")]
    HeaderChecksum {
        /// Got.
        got: String,
        /// Expected.
        expected: String,
    },
    /// The identity of the run is malformed.
    #[error("metadata key {KEY_RUN:?} is {got:?}, expected 16 lower-case hexadecimal digits")]
    Run {
        /// Got.
        got: String,
    },
    /// A file is of another run than the index, or than the other files.
    #[error("{} is of run {got}, expected {expected} as {}: it belongs to another output", .file.display(), .other.display())]
    OtherRun {
        /// The file.
        file: PathBuf,
        /// The run that it is of.
        got: String,
        /// The index or file that it is compared with.
        other: PathBuf,
        /// The run of that.
        expected: String,
    },
    /// A checksum this version does not know.
    #[error("metadata key {KEY_CHECKSUM:?} is {}, expected {CHECKSUM:?}", or_absent(.got))]
    Checksum {
        /// Got, `None` when the key is absent.
        got: Option<String>,
    },
    /// The list of tables is absent.
    #[error("metadata key {KEY_TABLES:?} is absent, expected a JSON list of tables")]
    NoTableList,
    /// The list of tables is malformed.
    #[error("metadata key {KEY_TABLES:?} is malformed: {0}")]
    TableList(#[source] serde_json::Error),
    /// The list of tables is empty.
    #[error("file has 0 tables, expected at least 1")]
    NoTables,
    /// Two tables have the same name.
    #[error("table {table:?} is listed twice, expected once")]
    DuplicateTable {
        /// Name.
        table: String,
    },
    /// A program this crate does not have.
    #[error("table {table:?} has program {got:?}, expected {PROGRAM:?}")]
    Program {
        /// Name.
        table: String,
        /// Got.
        got: String,
    },
    /// Rows beyond what an id can name, or a row range beyond its table.
    #[error(
        "table {table:?} has {rows} rows from row {first_row} of {table_rows}, expected at least 1 row, a range within the table, and at most 2^63 - 1"
    )]
    RowRange {
        /// Name.
        table: String,
        /// Rows in this file.
        rows: u64,
        /// First of them.
        first_row: u64,
        /// Rows of the logical table.
        table_rows: u64,
    },
    /// A rate this format version does not have.
    #[error("table {table:?}, segment {segment}: {source}")]
    Rate {
        /// Name.
        table: String,
        /// Index of the segment.
        segment: usize,
        /// What is wrong.
        source: LayoutError,
    },
    /// A width this format version does not have at the rate.
    #[error("table {table:?}, segment {segment}: {source}")]
    Width {
        /// Name.
        table: String,
        /// Index of the segment.
        segment: usize,
        /// What is wrong.
        source: LayoutError,
    },
    /// A segment starts before the one before it ends.
    #[error("table {table:?}, segment {segment} starts at row {got}, expected {expected}: segments overlap")]
    SegmentOverlap {
        /// Name.
        table: String,
        /// Index of the segment.
        segment: usize,
        /// Got.
        got: u64,
        /// Expected.
        expected: u64,
    },
    /// Rows between two segments are in none.
    #[error("table {table:?}, segment {segment} starts at row {got}, expected {expected}: rows are missing")]
    SegmentGap {
        /// Name.
        table: String,
        /// Index of the segment.
        segment: usize,
        /// Got.
        got: u64,
        /// Expected.
        expected: u64,
    },
    /// The segments do not have as many rows as the table, or a segment has none.
    #[error("table {table:?} has {got} rows in its segments, expected {expected}, and at least 1 in each")]
    SegmentRows {
        /// Name.
        table: String,
        /// Got.
        got: u64,
        /// Expected.
        expected: u64,
    },
    /// The record length does not follow from width and rate.
    #[error("table {table:?}, segment {segment} has records of {got} bytes, expected {expected}")]
    RecordBytes {
        /// Name.
        table: String,
        /// Index of the segment.
        segment: usize,
        /// Got.
        got: u64,
        /// Expected.
        expected: u64,
    },
    /// Blocks of no rows.
    #[error("table {table:?}, segment {segment} has checksum blocks of 0 rows, expected at least 1")]
    BlockRows {
        /// Name.
        table: String,
        /// Index of the segment.
        segment: usize,
    },
    /// More rows were made zero than there are.
    #[error("table {table:?} counts {got} zero, underflown and non-finite rows, expected at most its {rows} rows")]
    Counts {
        /// Name.
        table: String,
        /// Got.
        got: u128,
        /// Rows.
        rows: u64,
    },
    /// The segments count other rows that became zero than the table does.
    #[error("table {table:?} counts {expected} zero, underflown and non-finite rows, its segments {got}")]
    SegmentCounts {
        /// Name.
        table: String,
        /// Got, over all segments.
        got: u128,
        /// Expected.
        expected: u128,
    },
    /// The tensors of the source have other rows than the table.
    #[error("table {table:?} was made from tensors of {got} rows, expected {expected}")]
    SourceParts {
        /// Name.
        table: String,
        /// Got.
        got: u128,
        /// Expected.
        expected: u64,
    },
    /// The source had another shape than the table.
    #[error("table {table:?} was made from shape {got:?}, expected {expected:?}")]
    SourceShape {
        /// Name.
        table: String,
        /// Got.
        got: [u64; 2],
        /// Expected.
        expected: [u64; 2],
    },
    /// A tensor is not in the file.
    #[error("table {table:?} needs tensor {tensor:?}, which is not in the file")]
    MissingTensor {
        /// Name of the table.
        table: String,
        /// Name of the tensor.
        tensor: String,
    },
    /// A tensor has another type or shape than the metadata says.
    #[error("tensor {tensor:?} has type {dtype} and shape {shape:?}, expected {expected_dtype} and {expected_shape:?}")]
    Tensor {
        /// Name.
        tensor: String,
        /// Got.
        dtype: String,
        /// Got.
        shape: Vec<u64>,
        /// Expected.
        expected_dtype: &'static str,
        /// Expected.
        expected_shape: Vec<u64>,
    },
    /// Two segments use one tensor.
    #[error("tensor {tensor:?} is used twice, expected once")]
    SharedTensor {
        /// Name.
        tensor: String,
    },
    /// A record tensor belongs to no table.
    #[error("tensor {tensor:?} of type U8 belongs to no table")]
    StrayTensor {
        /// Name.
        tensor: String,
    },
    /// Two files say different things about one table.
    #[error("table {table:?} has {what} {got} in {}, expected {expected} as in {}", .files[1].display(), .files[0].display())]
    FilesDiffer {
        /// Name of the table.
        table: String,
        /// In what.
        what: &'static str,
        /// Got.
        got: String,
        /// Expected.
        expected: String,
        /// The files: the one that sets what is expected, the other one.
        files: Box<[PathBuf; 2]>,
    },
    /// The files of a table leave rows out, or have rows twice.
    #[error("table {table:?} starts at row {got} in {}, expected {expected}: a file is missing or there twice", .file.display())]
    FileRows {
        /// Name of the table.
        table: String,
        /// The file.
        file: PathBuf,
        /// Got.
        got: u64,
        /// Expected.
        expected: u64,
    },
    /// The files of a table do not have all its rows.
    #[error("table {table:?} has {got} rows in all files, expected {expected}: a file is missing")]
    RowsMissing {
        /// Name of the table.
        table: String,
        /// Got.
        got: u64,
        /// Expected.
        expected: u64,
    },
    /// The checksums themselves are damaged.
    #[error("checksums {tensor:?} have checksum {got}, expected {expected}: they are damaged")]
    Checksums {
        /// Name.
        tensor: String,
        /// Got.
        got: String,
        /// Expected.
        expected: String,
    },
}

impl FormatError {
    /// A short, stable name: reject files are tied to it, and programs may compare it.
    pub fn code(&self) -> &'static str {
        match self {
            FormatError::Magic { .. } => "format-magic",
            FormatError::Version { .. } => "format-version",
            FormatError::HeaderChecksum { .. } => "format-header-checksum",
            FormatError::Run { .. } => "format-run",
            FormatError::OtherRun { .. } => "format-other-run",
            FormatError::Checksum { .. } => "format-checksum",
            FormatError::NoTableList => "format-no-table-list",
            FormatError::TableList(_) => "format-table-list",
            FormatError::NoTables => "format-no-tables",
            FormatError::DuplicateTable { .. } => "format-duplicate-table",
            FormatError::Program { .. } => "format-program",
            FormatError::RowRange { .. } => "format-row-range",
            FormatError::Rate { .. } => "format-rate",
            FormatError::Width { .. } => "format-width",
            FormatError::SegmentOverlap { .. } => "format-segment-overlap",
            FormatError::SegmentGap { .. } => "format-segment-gap",
            FormatError::SegmentRows { .. } => "format-segment-rows",
            FormatError::RecordBytes { .. } => "format-record-bytes",
            FormatError::BlockRows { .. } => "format-block-rows",
            FormatError::Counts { .. } => "format-counts",
            FormatError::SegmentCounts { .. } => "format-segment-counts",
            FormatError::SourceParts { .. } => "format-source-parts",
            FormatError::SourceShape { .. } => "format-source-shape",
            FormatError::MissingTensor { .. } => "format-missing-tensor",
            FormatError::Tensor { .. } => "format-tensor",
            FormatError::SharedTensor { .. } => "format-shared-tensor",
            FormatError::StrayTensor { .. } => "format-stray-tensor",
            FormatError::FilesDiffer { .. } => "format-files-differ",
            FormatError::FileRows { .. } => "format-file-rows",
            FormatError::RowsMissing { .. } => "format-rows-missing",
            FormatError::Checksums { .. } => "format-checksums",
        }
    }
}

fn or_absent(value: &Option<String>) -> String {
    value.as_ref().map_or_else(|| "absent".into(), |value| format!("{value:?}"))
}
