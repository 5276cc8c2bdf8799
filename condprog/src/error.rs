//! What can go wrong between a file and its decoder.

use condprog_core::{BackendError, ErrorKind, TableError};

/// Why tables cannot be opened, or put on a backend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A table file cannot be read, is none, or has no such table.
    #[error(transparent)]
    File(#[from] condprog_table::Error),
    /// The rows of a file do not make a table that decoders take.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A backend is not there, has no room, or failed.
    #[error("backend {backend}: {source}")]
    Backend {
        /// Its name: `cpu`, `cuda`, `wgpu`.
        backend: &'static str,
        /// What generic code needs to know of it.
        kind: ErrorKind,
        /// The backend's own error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    pub(crate) fn backend(backend: &'static str, error: impl BackendError + Send + Sync + 'static) -> Error {
        Error::Backend { backend, kind: error.kind(), source: Box::new(error) }
    }

    /// A short name that stays, for machines to compare.
    pub fn code(&self) -> &'static str {
        match self {
            Error::File(error) => error.code(),
            Error::Table(_) => "table",
            Error::Backend { kind: ErrorKind::Unavailable, .. } => "unavailable",
            Error::Backend { .. } => "backend",
        }
    }
}
