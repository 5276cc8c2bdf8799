//! What a command fails with, and what the user can do about it.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use condprog_checkpoint::family::FamilyError;
use condprog_core::{BatchError, LayoutError, TableError};
use condprog_cpu::UnsupportedIsa;

use crate::stop;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Of a table file or its source.
    #[error(transparent)]
    Table(#[from] condprog_convert::Error),
    /// The command line asks for something impossible.
    #[error("{0}")]
    Usage(String),
    /// The system refused.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    /// A backend that must be exact here is not, or is not of this build.
    #[error("{0}")]
    Required(String),
    /// Printing failed.
    #[error("cannot write to stdout: {0}")]
    Stdout(#[source] io::Error),
    /// A file of ids is malformed.
    #[error("{}: {message}", .path.display())]
    Ids { path: PathBuf, message: String },
    /// The segments of a file do not make a table.
    #[error(transparent)]
    Segments(#[from] TableError),
    /// The request does not fit the table.
    #[error(transparent)]
    Request(#[from] BatchError),
    /// A width that the rate does not allow.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// This processor does not have the instruction set.
    #[error(transparent)]
    Isa(#[from] UnsupportedIsa),
    /// A backend is not available here.
    #[error("backend {backend}: {message}")]
    Unavailable { backend: String, message: String },
    /// A backend failed.
    #[error("backend {backend}: {message}")]
    Backend { backend: String, message: String },
    /// The user stopped the job.
    #[error("stopped before the end")]
    Stopped(Again),
    /// Nothing of what was asked for could be compressed; what and why has been said.
    #[error("none of {0} tensors can be compressed")]
    NothingLeft(usize),
    /// The evaluation failed.
    #[cfg(feature = "eval")]
    #[error(transparent)]
    Eval(condprog_eval::Error),
    /// No threads.
    #[error("cannot start threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}

/// What the same command does when it is run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// It resumes where the stopped one was.
    Resumes,
    /// It starts over.
    Restarts,
}

impl Error {
    /// A short, stable name for programs to compare.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Error::Table(error) => error.code(),
            Error::Usage(_) => "usage",
            Error::Required(_) => "required",
            Error::Io { .. } => "io",
            Error::Stdout(_) => "stdout",
            Error::Ids { .. } => "ids",
            Error::Segments(_) => "segments",
            Error::Request(BatchError::MissingRow { .. }) => "missing-row",
            Error::Request(_) => "request",
            Error::Layout(_) => "layout",
            Error::Isa(_) => "level",
            Error::Unavailable { .. } => "unavailable",
            Error::Backend { .. } => "backend",
            Error::Stopped(_) => "cancelled",
            Error::NothingLeft(_) => "nothing-left",
            #[cfg(feature = "eval")]
            Error::Eval(error) => error.code(),
            Error::Threads(_) => "threads",
        }
    }

    /// What helps, in terms of the command line, where the message itself does not say so.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        use condprog_checkpoint::Error as Checkpoint;
        use condprog_convert::Error as Table;
        match self {
            Error::Table(Table::OutputExists { .. } | Table::OtherRun { .. } | Table::JournalLost { .. }) => {
                Some("pass --force")
            }
            Error::Table(Table::Row { .. }) => {
                Some("--non-finite zero makes such rows zero rows and counts them; what is done is kept")
            }
            Error::Table(Table::DiskFull { resumes: true, .. }) => {
                Some("make room, then run the same command again: it resumes")
            }
            Error::Table(Table::DiskFull { resumes: false, .. }) => {
                Some("make room, then run the same command again: it starts over")
            }
            Error::Table(Table::SourceChanged { .. }) => {
                Some("once the source is restored, the same command resumes if no row differs; else pass --force")
            }
            Error::Table(Table::Width { .. }) | Error::Layout(_) => {
                Some("width times --rate must be a whole number of bits, at least 16; rates go from 1 to 4 by 0.25")
            }
            Error::Table(Table::Checkpoint(Checkpoint::Family(FamilyError::Heads { .. }))) => {
                Some("compress --rate-rows gives ranges of rows a rate of their own, without knowing orders")
            }
            Error::Stopped(Again::Resumes) => Some("the same command resumes: what is done is kept"),
            Error::Stopped(Again::Restarts) => Some("the same command starts over: nothing is kept"),
            Error::Request(BatchError::MissingRow { .. }) => Some("--missing zero gives a row of zeros for such ids"),
            _ => None,
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Error::Usage(_) => ExitCode::from(2),
            Error::Stopped(_) => ExitCode::from(stop::STATUS),
            // The reader closed the pipe.
            Error::Stdout(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        }
    }
}

impl From<condprog_checkpoint::Error> for Error {
    fn from(error: condprog_checkpoint::Error) -> Error {
        Error::Table(error.into())
    }
}

impl From<condprog_table::Error> for Error {
    fn from(error: condprog_table::Error) -> Error {
        Error::Table(error.into())
    }
}

impl From<FamilyError> for Error {
    fn from(error: FamilyError) -> Error {
        condprog_checkpoint::Error::from(error).into()
    }
}

#[cfg(feature = "eval")]
impl From<condprog_eval::Error> for Error {
    fn from(error: condprog_eval::Error) -> Error {
        match error {
            condprog_eval::Error::Table(error) => error.into(),
            condprog_eval::Error::OutputExists { path } => condprog_convert::Error::OutputExists { path }.into(),
            other => Error::Eval(other),
        }
    }
}
