//! Errors of the CPU backend.

use std::fmt;
use std::io;

use condprog_core::encoder::{EncodeBatchError, EncodeFailure, LayoutMismatch};
use condprog_core::{BackendError, ErrorKind, Program, TableError};

use crate::isa::UnsupportedIsa;

/// Why a decoder or an encoder cannot be made, or rows cannot be encoded.
#[derive(Debug)]
#[non_exhaustive]
pub enum CpuError {
    /// The CPU does not have the instruction set that was asked for.
    Isa(UnsupportedIsa),
    /// The segments do not make a table.
    Table(TableError),
    /// The rows have a program that this backend does not have.
    Program(Program),
    /// A batch was made for rows of another layout.
    Layout(LayoutMismatch),
    /// The parts of a batch do not fit together.
    Batch(EncodeBatchError),
    /// There is no memory for what the search works in.
    Memory {
        /// Bytes that were asked for.
        bytes: usize,
        /// What the system says.
        source: io::Error,
    },
}

impl fmt::Display for CpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CpuError::Isa(error) => error.fmt(f),
            CpuError::Table(error) => error.fmt(f),
            CpuError::Program(program) => {
                write!(f, "rows have program \"{program}\", expected \"{}\", which this backend has", crate::PROGRAM)
            }
            CpuError::Layout(error) => error.fmt(f),
            CpuError::Batch(error) => error.fmt(f),
            CpuError::Memory { bytes, source } => {
                write!(f, "no memory for {bytes} bytes that the search works in: {source}")
            }
        }
    }
}

/// What an error holds is a part of its message, and so no source.
impl std::error::Error for CpuError {}

impl BackendError for CpuError {
    fn kind(&self) -> ErrorKind {
        match self {
            CpuError::Isa(error) => error.kind(),
            CpuError::Table(_) => ErrorKind::Other,
            CpuError::Program(_) => ErrorKind::Unsupported,
            CpuError::Layout(error) => error.kind(),
            CpuError::Batch(_) => ErrorKind::ShapeMismatch,
            CpuError::Memory { .. } => ErrorKind::OutOfMemory,
        }
    }
}

impl From<UnsupportedIsa> for CpuError {
    fn from(error: UnsupportedIsa) -> CpuError {
        CpuError::Isa(error)
    }
}

impl From<TableError> for CpuError {
    fn from(error: TableError) -> CpuError {
        CpuError::Table(error)
    }
}

impl From<LayoutMismatch> for CpuError {
    fn from(error: LayoutMismatch) -> CpuError {
        CpuError::Layout(error)
    }
}

/// For callers of [`Encoder::encode`](condprog_core::Encoder::encode) to whom its two kinds of failure are one.
impl From<EncodeFailure<CpuError>> for CpuError {
    fn from(failure: EncodeFailure<CpuError>) -> CpuError {
        match failure {
            EncodeFailure::Batch(error) => CpuError::Batch(error),
            EncodeFailure::Backend(error) => error,
        }
    }
}

/// Refuses rows of a program that the code here is not written for.
pub(crate) fn check_program(program: Program) -> Result<(), CpuError> {
    if program == crate::PROGRAM { Ok(()) } else { Err(CpuError::Program(program)) }
}
