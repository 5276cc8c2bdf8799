//! What can go wrong with checkpoints: [`Error`], and why a tensor is not a table, [`SourceError`].

use std::path::{Path, PathBuf};

use condprog_table::quote::{cut, listed, quoted, sizes, word};
use condprog_table::source::FORMATS;

use crate::family::FamilyError;
use crate::fp8;

/// Why a checkpoint cannot be read, or has no such table.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file of it cannot be read.
    #[error(transparent)]
    File(#[from] condprog_table::Error),
    /// Tensors are not the tables of a model family.
    #[error(transparent)]
    Family(#[from] FamilyError),
    /// A tensor cannot be compressed, or is not there.
    #[error("{}: {source}", .path.display())]
    Source {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: Box<SourceError>,
    },
}

impl Error {
    /// A short, stable name: reject files are tied to it, and programs may compare it.
    pub fn code(&self) -> &'static str {
        match self {
            Error::File(source) => source.code(),
            Error::Family(source) => source.code(),
            Error::Source { source, .. } => source.code(),
        }
    }

    pub(crate) fn source(path: &Path, source: SourceError) -> Error {
        Error::Source { path: path.into(), source: Box::new(source) }
    }
}

/// Why a tensor is not a table that can be compressed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// No tensor has this name.
    #[error("tensor {} is not in the checkpoint{}", quoted(.tensor), or_near(.near))]
    Missing {
        /// Name.
        tensor: String,
        /// Names that may have been meant.
        near: Vec<String>,
    },
    /// The index lists the tensor in a file that is not there.
    #[error("tensor {} is listed in {}, which is not there: a shard is missing", quoted(.tensor), .file.display())]
    MissingFile {
        /// Name.
        tensor: String,
        /// The file.
        file: PathBuf,
    },
    /// A tensor is in two files.
    #[error(
        "tensor {} is in {} and in {}, expected one of them",
        quoted(.tensor),
        .files[0].display(),
        .files[1].display()
    )]
    TwoFiles {
        /// Name.
        tensor: String,
        /// The files.
        files: [PathBuf; 2],
    },
    /// The tensor is not a matrix.
    #[error(
        "tensor {} has shape {}, expected two dimensions: rows and values per row",
        quoted(.tensor),
        sizes(.shape)
    )]
    Rank {
        /// Name.
        tensor: String,
        /// Got.
        shape: Vec<u64>,
    },
    /// A format that is not read.
    #[error("tensor {} has type {}, expected {FORMATS}", quoted(.tensor), word(.got))]
    Dtype {
        /// Name.
        tensor: String,
        /// Got.
        got: String,
    },
    /// The table is empty.
    #[error(
        "tensor {} has shape {}, expected at least one row of at least one value",
        quoted(.tensor),
        sizes(.shape)
    )]
    Empty {
        /// Name.
        tensor: String,
        /// Got.
        shape: Vec<u64>,
    },
    /// An FP8 table's rows cannot be cut into groups.
    #[error(
        "tensor {} of type F8_E4M3 has scales for groups and rows of {dim} values, expected a multiple of {}",
        quoted(.tensor),
        fp8::GROUP
    )]
    Group {
        /// Name.
        tensor: String,
        /// Got.
        dim: u64,
    },
    /// A table that needs scales has none.
    #[error(
        "tensor {} of type {dtype} has no scales: expected a tensor {} of type and shape {expected}",
        quoted(.tensor),
        or(.names)
    )]
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
    #[error(
        "scales {} of tensor {} have type {} and shape {}, expected {expected}",
        quoted(.scale),
        quoted(.tensor),
        word(.dtype),
        sizes(.shape)
    )]
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
    #[error(
        "tensor {} has scales {} and {}, expected one of them, or one beside a placeholder of 1",
        quoted(.tensor),
        quoted(&.scales[0]),
        quoted(&.scales[1])
    )]
    TwoScales {
        /// Name.
        tensor: String,
        /// Names of the scales.
        scales: [String; 2],
    },
    /// The one scale of a table is no scale.
    #[error("scale {} of tensor {} is {value}, expected a positive number", quoted(.scale), quoted(.tensor))]
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
        "scales {} of tensor {} have shape {}, expected one scale for 32 columns of a row: they look like placeholders",
        quoted(.scale),
        quoted(.tensor),
        sizes(.shape)
    )]
    ScaleKind {
        /// Name.
        tensor: String,
        /// Name of the scales.
        scale: String,
        /// Got.
        shape: Vec<u64>,
    },
    /// The scales that are named for a table of several tensors are not those of all its rows.
    #[error(
        "scales {} have shape {}, expected those of all {rows} rows that table {} has in {parts} tensors, one number for \
         all, or a pattern that matches the scales of each tensor",
        quoted(.scale),
        sizes(.shape),
        quoted(.table)
    )]
    JoinedScale {
        /// The table.
        table: String,
        /// Its tensors.
        parts: usize,
        /// Its rows.
        rows: u64,
        /// Name of the scales.
        scale: String,
        /// Got.
        shape: Vec<u64>,
    },
    /// A pattern does not match as many scales as the table has tensors.
    #[error(
        "pattern {} matches {got} tensors, expected the scales of each of the {expected} tensors of table {}",
        quoted(.pattern),
        quoted(.table)
    )]
    ScaleCount {
        /// The table.
        table: String,
        /// The pattern.
        pattern: String,
        /// Got.
        got: usize,
        /// Expected.
        expected: usize,
    },
    /// Scales that a pattern matches have other numbers than the tensors.
    #[error(
        "scales {} would be those of tensor {}, which has another number: expected one run of numbers for both",
        quoted(.scale),
        quoted(.tensor)
    )]
    ScaleNumber {
        /// Name of the tensor.
        tensor: String,
        /// Name of the scales.
        scale: String,
    },
    /// The scales of the rows of one tensor would be used for another as well.
    #[error(
        "scales {} would be those of the rows of tensor {} and of tensor {}, expected one number, or scales of each",
        quoted(.scale),
        quoted(&.tensors[0]),
        quoted(&.tensors[1])
    )]
    SharedScale {
        /// Name of the scales.
        scale: String,
        /// The tensors.
        tensors: [String; 2],
    },
    /// A tensor is quantised in a form that is not read.
    #[error(
        "tensor {} of type {} is packed or quantised in a form that is not read{}: compress the checkpoint that it was \
         quantised from",
        quoted(.tensor),
        word(.dtype),
        and_with(.with)
    )]
    Packed {
        /// Name.
        tensor: String,
        /// Its type.
        dtype: String,
        /// Names of what it has beside it.
        with: Vec<String>,
    },
    /// The values of a tensor are more than elements times scales.
    #[error(
        "tensor {} has {what} {}, of which element {index} is {value}, expected {expected} only: nothing but scales is \
         applied, so compress the checkpoint that it was quantised from",
        quoted(.tensor),
        quoted(.companion)
    )]
    NotNeutral {
        /// Name.
        tensor: String,
        /// Name of what is not applied.
        companion: String,
        /// What it is.
        what: &'static str,
        /// The first element that would change something.
        index: u64,
        /// What it is.
        value: f64,
        /// What would change nothing.
        expected: &'static str,
    },
    /// The zero points or factors of a tensor cannot be read.
    #[error("tensor {} has type {}, which is not one that zero points and factors are read from", quoted(.tensor), word(.got))]
    CompanionDtype {
        /// Name of the zero points.
        tensor: String,
        /// Got.
        got: String,
    },
    /// A tensor belongs to another.
    #[error("tensor {} holds {what}{}, expected a table", quoted(.tensor), of(.owner))]
    Companion {
        /// Name.
        tensor: String,
        /// What it holds.
        what: &'static str,
        /// The tensor that it belongs to, if that is there.
        owner: Option<String>,
    },
    /// The checkpoint is a table file, or has one where a tensor should be.
    #[error("{} is a table file of condprog, compressed already; expected the checkpoint that it was made from", .file.display())]
    IsTableFile {
        /// The file.
        file: PathBuf,
    },
    /// One of several paths is no single file.
    #[error("expected a safetensors file: of several paths each is one, and a folder or an index goes alone")]
    NotOneFile,
    /// A file is given twice.
    #[error("it is the same file as {}, expected each once", .other.display())]
    FileTwice {
        /// How it was called before.
        other: PathBuf,
    },
    /// A configuration that is needed cannot be read.
    #[error("{what}")]
    Config {
        /// What is wrong.
        what: String,
    },
    /// A number of parts is not known, and not all names can be known either.
    #[error(
        "it is one file of several by its name, and nothing says how many tensors table {} has: expected the folder or \
         the index of the checkpoint, or its config.json beside it",
        quoted(.table)
    )]
    OneOfSeveral {
        /// The table.
        table: String,
    },
    /// A table of several tensors lists one twice.
    #[error("table {} has tensor {} twice, expected once", quoted(.table), quoted(.tensor))]
    PartTwice {
        /// The table.
        table: String,
        /// Name of the tensor.
        tensor: String,
    },
    /// A tensor of a row of tensors is missing.
    #[error(
        "table {} goes from tensor {} to {}: those between are missing",
        quoted(.table),
        quoted(.before),
        quoted(.after)
    )]
    PartGap {
        /// The table.
        table: String,
        /// Name of the last tensor before the gap.
        before: String,
        /// Name of the first one after it.
        after: String,
    },
    /// Two tensors of a table have the same number.
    #[error(
        "table {} has tensors {} and {} with the same number, expected one of them",
        quoted(.table),
        quoted(&.tensors[0]),
        quoted(&.tensors[1])
    )]
    PartSame {
        /// The table.
        table: String,
        /// The tensors.
        tensors: [String; 2],
    },
    /// The first tensor of a table does not have number 0.
    #[error(
        "table {} starts at tensor {}, expected number 0: without it every id names another row; where this is the \
         first, a pattern that lists the numbers says so: {}",
        quoted(.table),
        quoted(.first),
        quoted(.pattern)
    )]
    PartFirst {
        /// The table.
        table: String,
        /// Name of its first tensor.
        first: String,
        /// The pattern.
        pattern: String,
    },
    /// The tensors of a table do not agree.
    #[error(
        "table {}: tensor {} has {what} {got}, expected {expected} as tensor {}",
        quoted(.table),
        quoted(&.tensors[1]),
        quoted(&.tensors[0])
    )]
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
    #[error("table {} has 2^63 rows or more, expected fewer", quoted(.table))]
    TooManyRows {
        /// The table.
        table: String,
    },
    /// A pattern is malformed.
    #[error("pattern {} is malformed: {}", quoted(.pattern), cut(.source))]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        source: glob::PatternError,
    },
    /// A pattern selects nothing.
    #[error("pattern {} matches no tensor in the checkpoint{}", quoted(.pattern), or_near(.near))]
    NoMatch {
        /// The pattern.
        pattern: String,
        /// Names that may have been meant.
        near: Vec<String>,
    },
    /// The checkpoint has no table.
    #[error("checkpoint has no two-dimensional tensor of type {FORMATS}{}", or_have(.have, .count))]
    NoTables {
        /// Some of its tensors, with type and shape, the largest first.
        have: Vec<String>,
        /// How many there are.
        count: usize,
    },
}

fn or_near(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; near it are {}", listed(near, "and")) }
}

fn or_have(have: &[String], count: &usize) -> String {
    match have.len() {
        0 => String::new(),
        shown if shown == *count => format!("; it has {}", have.join(", ")),
        _ => format!("; the largest of its {count} are {}", have.join(", ")),
    }
}

fn and_with(with: &[String]) -> String {
    if with.is_empty() { String::new() } else { format!(" (with {})", listed(with, "and")) }
}

fn of(owner: &Option<String>) -> String {
    owner.as_ref().map_or_else(String::new, |owner| format!(" of {}", quoted(owner)))
}

fn or(names: &[String]) -> String {
    names.iter().map(|name| quoted(name).to_string()).collect::<Vec<_>>().join(" or ")
}

impl SourceError {
    /// A short, stable name: reject files are tied to it, and programs may compare it.
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
            SourceError::JoinedScale { .. } => "source-joined-scale",
            SourceError::ScaleCount { .. } => "source-scale-count",
            SourceError::ScaleNumber { .. } => "source-scale-number",
            SourceError::SharedScale { .. } => "source-shared-scale",
            SourceError::Packed { .. } => "source-packed",
            SourceError::NotNeutral { .. } => "source-zero-point",
            SourceError::CompanionDtype { .. } => "source-companion-dtype",
            SourceError::Companion { .. } => "source-companion",
            SourceError::IsTableFile { .. } => "source-table-file",
            SourceError::NotOneFile => "source-not-one-file",
            SourceError::FileTwice { .. } => "source-file-twice",
            SourceError::Config { .. } => "source-config",
            SourceError::OneOfSeveral { .. } => "source-one-of-several",
            SourceError::PartTwice { .. } => "source-part-twice",
            SourceError::PartSame { .. } => "source-part-same",
            SourceError::PartFirst { .. } => "source-part-first",
            SourceError::PartGap { .. } => "source-part-gap",
            SourceError::PartDiffers { .. } => "source-part-differs",
            SourceError::TooManyRows { .. } => "source-too-many-rows",
            SourceError::Pattern { .. } => "source-pattern",
            SourceError::NoMatch { .. } => "source-no-match",
            SourceError::NoTables { .. } => "source-no-tables",
        }
    }
}
