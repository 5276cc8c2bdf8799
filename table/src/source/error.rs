//! Why a tensor is no table that can be compressed.

use std::path::PathBuf;

use super::FORMATS;
use crate::fp8;

/// Why a tensor is no table that can be compressed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// No tensor has this name.
    #[error("tensor {tensor:?} is not in the checkpoint")]
    Missing {
        /// Name.
        tensor: String,
    },
    /// The index lists the tensor in a file that is not there.
    #[error("tensor {tensor:?} is listed in {}, which is not there: a shard is missing", .file.display())]
    MissingFile {
        /// Name.
        tensor: String,
        /// The file.
        file: PathBuf,
    },
    /// A tensor is in two files.
    #[error("tensor {tensor:?} is in {} and in {}, expected one of them", .files[0].display(), .files[1].display())]
    TwoFiles {
        /// Name.
        tensor: String,
        /// The files.
        files: [PathBuf; 2],
    },
    /// The tensor is not a matrix.
    #[error("tensor {tensor:?} has shape {shape:?}, expected two dimensions: rows and values per row")]
    Rank {
        /// Name.
        tensor: String,
        /// Got.
        shape: Vec<u64>,
    },
    /// A format that is not read.
    #[error("tensor {tensor:?} has type {got}, expected {FORMATS}")]
    Dtype {
        /// Name.
        tensor: String,
        /// Got.
        got: String,
    },
    /// The table is empty.
    #[error("tensor {tensor:?} has shape {shape:?}, expected at least one row of at least one value")]
    Empty {
        /// Name.
        tensor: String,
        /// Got.
        shape: Vec<u64>,
    },
    /// An FP8 table's rows cannot be cut into groups.
    #[error(
        "tensor {tensor:?} of type F8_E4M3 has scales for groups and rows of {dim} values, expected a multiple of {}",
        fp8::GROUP
    )]
    Group {
        /// Name.
        tensor: String,
        /// Got.
        dim: u64,
    },
    /// A table that needs scales has none.
    #[error("tensor {tensor:?} of type {dtype} has no scales: expected a tensor {} of type and shape {expected}", or(.names))]
    MissingScale {
        /// Name.
        tensor: String,
        /// Its type.
        dtype: &'static str,
        /// Names that were looked for.
        names: Vec<String>,
        /// Types and shapes that would do.
        expected: String,
    },
    /// A table's scales have another type or shape than any that are known.
    #[error("scales {scale:?} of tensor {tensor:?} have type {dtype} and shape {shape:?}, expected {expected}")]
    Scale {
        /// Name.
        tensor: String,
        /// Name of the scales.
        scale: String,
        /// Got.
        dtype: String,
        /// Got.
        shape: Vec<u64>,
        /// Types and shapes that would do.
        expected: String,
    },
    /// A table has two tensors of scales.
    #[error("tensor {tensor:?} has scales {:?} and {:?}, expected one of them", .scales[0], .scales[1])]
    TwoScales {
        /// Name.
        tensor: String,
        /// Names of the scales.
        scales: [String; 2],
    },
    /// The one scale of a table is no scale.
    #[error("scale {scale:?} of tensor {tensor:?} is {value}, expected a positive number")]
    ScaleValue {
        /// Name.
        tensor: String,
        /// Name of the scale.
        scale: String,
        /// Got.
        value: f32,
    },
    /// A model's table has scales of another kind than that model's.
    #[error(
        "scales {scale:?} of tensor {tensor:?} have shape {shape:?}, expected one scale for 32 columns of a row: they look like placeholders"
    )]
    ScaleKind {
        /// Name.
        tensor: String,
        /// Name of the scales.
        scale: String,
        /// Got.
        shape: Vec<u64>,
    },
    /// A table of several tensors lists one twice.
    #[error("table {table:?} has tensor {tensor:?} twice, expected once")]
    PartTwice {
        /// The table.
        table: String,
        /// Name of the tensor.
        tensor: String,
    },
    /// A tensor of a row of tensors is missing.
    #[error("table {table:?} goes from tensor {before:?} to {after:?}: those between are missing")]
    PartGap {
        /// The table.
        table: String,
        /// Name of the last tensor before the gap.
        before: String,
        /// Name of the first one after it.
        after: String,
    },
    /// The tensors of a table do not agree.
    #[error("table {table:?}: tensor {:?} has {what} {got}, expected {expected} as tensor {:?}", .tensors[1], .tensors[0])]
    PartDiffers {
        /// The table.
        table: String,
        /// Names of its first tensor and of the one that differs.
        tensors: Box<[String; 2]>,
        /// In what.
        what: &'static str,
        /// Got.
        got: String,
        /// Expected.
        expected: String,
    },
    /// More rows than an id can name.
    #[error("table {table:?} has 2^63 rows or more, expected fewer")]
    TooManyRows {
        /// The table.
        table: String,
    },
    /// A pattern is malformed.
    #[error("pattern {pattern:?} is malformed: {source}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        source: glob::PatternError,
    },
    /// A pattern selects nothing.
    #[error("pattern {pattern:?} matches no tensor in the checkpoint")]
    NoMatch {
        /// The pattern.
        pattern: String,
    },
    /// The checkpoint has no table.
    #[error("checkpoint has no two-dimensional tensor of type {FORMATS}")]
    NoTables,
}

fn or(names: &[String]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" or ")
}

impl SourceError {
    /// A short name that stays: what a reject file is tied to, and what machines may compare.
    pub fn code(&self) -> &'static str {
        match self {
            SourceError::Missing { .. } => "source-missing",
            SourceError::MissingFile { .. } => "source-missing-file",
            SourceError::TwoFiles { .. } => "source-two-files",
            SourceError::Rank { .. } => "source-rank",
            SourceError::Dtype { .. } => "source-dtype",
            SourceError::Empty { .. } => "source-empty",
            SourceError::Group { .. } => "source-group",
            SourceError::MissingScale { .. } => "source-missing-scale",
            SourceError::Scale { .. } => "source-scale",
            SourceError::TwoScales { .. } => "source-two-scales",
            SourceError::ScaleValue { .. } => "source-scale-value",
            SourceError::ScaleKind { .. } => "source-scale-kind",
            SourceError::PartTwice { .. } => "source-part-twice",
            SourceError::PartGap { .. } => "source-part-gap",
            SourceError::PartDiffers { .. } => "source-part-differs",
            SourceError::TooManyRows { .. } => "source-too-many-rows",
            SourceError::Pattern { .. } => "source-pattern",
            SourceError::NoMatch { .. } => "source-no-match",
            SourceError::NoTables => "source-no-tables",
        }
    }
}
