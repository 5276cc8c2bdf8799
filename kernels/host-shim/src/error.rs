//! What can go wrong in running the kernels on the CPU.

use std::{fmt, io};

use condprog_core::{BackendError, ErrorKind, ShapeMismatch};

/// An error of this crate.
#[derive(Debug)]
#[non_exhaustive]
pub enum HostError {
    /// There is no C++ compiler.
    NoCompiler {
        /// The command tried.
        command: String,
        /// Why it did not start.
        error: io::Error,
    },
    /// The compiler refused the kernel.
    Compile(String),
    /// The process that runs the kernel ended or sent something else than rows: a crash, or a check that failed.
    Process(String),
    /// The batch was made for a table of another shape.
    Shape(ShapeMismatch),
    /// A file could not be written.
    Io(io::Error),
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostError::NoCompiler { command, error } => {
                write!(f, "no C++ compiler: \"{command}\" does not start ({error}); install one or set CXX")
            }
            HostError::Compile(output) => write!(f, "the C++ compiler refused the kernel:\n{output}"),
            HostError::Process(output) => write!(f, "the kernel did not finish on the CPU: {output}"),
            HostError::Shape(error) => error.fmt(f),
            HostError::Io(error) => error.fmt(f),
        }
    }
}

// What caused an error is in its text, and so is not given as its source.
impl std::error::Error for HostError {}

impl BackendError for HostError {
    fn kind(&self) -> ErrorKind {
        match self {
            HostError::NoCompiler { .. } => ErrorKind::Unavailable,
            HostError::Shape(_) => ErrorKind::ShapeMismatch,
            HostError::Compile(_) | HostError::Process(_) | HostError::Io(_) => ErrorKind::Other,
        }
    }
}

impl From<io::Error> for HostError {
    fn from(error: io::Error) -> HostError {
        HostError::Io(error)
    }
}
