//! What can go wrong in an evaluation.

use std::io;
use std::path::{Path, PathBuf};

use condprog_core::LayoutError;
use condprog_core::encoder::EncodeError;

/// An error of an evaluation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The table could not be read.
    #[error(transparent)]
    Table(#[from] condprog_checkpoint::Error),
    /// The output is there already.
    #[error("{} already exists; use force to overwrite it", .path.display())]
    OutputExists {
        /// The output.
        path: PathBuf,
    },
    /// A width or rate that the format does not have.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The encoder cannot be had on this machine, or has no memory.
    #[error(transparent)]
    Cpu(#[from] condprog_cpu::CpuError),
    /// A row that cannot be coded.
    #[error("row {row}: {source}")]
    Row {
        /// Its id; from a [`Subject`](crate::Subject), which knows no ids, its place among the rows.
        row: u64,
        /// Why.
        source: EncodeError,
    },
    /// A tensor is missing or of another type or shape.
    #[error("{}: tensor {tensor:?} is {got}, expected {expected}", path.display())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// Name.
        tensor: String,
        /// Got.
        got: String,
        /// Expected.
        expected: String,
    },
    /// A safetensors file that is not well-formed.
    #[error("{}: not a safetensors file: {source}", path.display())]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// Why.
        source: safetensors::SafeTensorError,
    },
    /// A value of the table that is not a number.
    #[error("row {row}, column {column} is {value}, expected finite values")]
    NotFinite {
        /// Id of the row.
        row: u64,
        /// Column.
        column: usize,
        /// Got.
        value: f32,
    },
    /// The output is not what a report can be written to.
    #[error("{} is {got}, expected {expected}", path.display())]
    Output {
        /// Its path.
        path: PathBuf,
        /// Got.
        got: &'static str,
        /// Expected.
        expected: &'static str,
    },
    /// There is nothing to lose.
    #[error("all {rows} sampled rows are zero, expected some that are not")]
    AllZero {
        /// Rows of the sample.
        rows: usize,
    },
    /// A trace that has nothing to do with the table.
    #[error("none of the {ids} ids of the trace names a row, expected ids from 0 to {}", rows.saturating_sub(1))]
    Trace {
        /// Ids of the trace.
        ids: usize,
        /// Rows of the table.
        rows: u64,
    },
    /// More columns than the table has.
    #[error("columns is {got}, expected 1 to {dim}")]
    Columns {
        /// Got.
        got: usize,
        /// Values per row.
        dim: usize,
    },
    /// A method needs something that was not given.
    #[error("method {method} needs {need}")]
    Need {
        /// The method.
        method: String,
        /// What it needs.
        need: String,
    },
    /// No method has this name.
    #[error("no method matches {pattern:?}, expected a name such as {example}")]
    Method {
        /// Got.
        pattern: String,
        /// A valid name.
        example: String,
    },
    /// A pattern is malformed.
    #[error("pattern {pattern:?} is malformed: {reason}")]
    Pattern {
        /// Got.
        pattern: String,
        /// Why.
        reason: String,
    },
}

impl Error {
    /// A short name of the kind of error that stays, for machines to compare.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Io { .. } => "io",
            Error::Table(error) => error.code(),
            Error::OutputExists { .. } => "output-exists",
            Error::Layout(_) => "layout",
            Error::Cpu(condprog_cpu::CpuError::Isa(_)) => "level",
            Error::Cpu(_) => "backend",
            Error::Row { .. } => "row",
            Error::Tensor { .. } => "tensor",
            Error::Safetensors { .. } => "safetensors",
            Error::NotFinite { .. } => "not-finite",
            Error::AllZero { .. } => "all-zero",
            Error::Trace { .. } => "trace",
            Error::Columns { .. } => "columns",
            Error::Need { .. } => "need",
            Error::Output { .. } => "output",
            Error::Method { .. } => "method",
            Error::Pattern { .. } => "pattern",
        }
    }

    /// The error with the id of a row in the place of its place among rows.
    pub(crate) fn of_ids(self, ids: &[u64]) -> Error {
        match self {
            Error::Row { row, source } => Error::Row { row: ids[row as usize], source },
            other => other,
        }
    }

    pub(crate) fn io(path: &Path, source: impl Into<io::Error>) -> Error {
        Error::Io { path: path.into(), source: source.into() }
    }
}
