//! What can go wrong with table files, as one type.

use std::io;
use std::path::{Path, PathBuf};

use crate::damage::Damage;
use crate::format::FormatError;
use crate::header::HeaderError;
use crate::index::IndexError;
use crate::quote::{listed, quoted};

/// Why a table file, or a file of the same kind, cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// What is to be read is not a regular file.
    #[error("{} is {got}, expected a regular file", .path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What it is.
        got: &'static str,
    },
    /// Nothing has this name, which looks like that of a repository on the Hugging Face hub.
    #[error(
        "{id} is no file or folder here; a repository of that name on the Hugging Face hub is downloaded with \
         `hf download {id} --local-dir {}`, whose folder can be given then",
        .id.rsplit('/').next().unwrap_or_default()
    )]
    HubId {
        /// The name.
        id: String,
    },
    /// Not a safetensors file, or an incomplete one.
    #[error("{}: {source}", .path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: Box<HeaderError>,
    },
    /// An index is malformed, or does not fit its files.
    #[error("{}: {source}", .path.display())]
    Index {
        /// The index, or the folder that should have one.
        path: PathBuf,
        /// What is wrong.
        source: Box<IndexError>,
    },
    /// Not a table file, or one that contradicts itself.
    #[error("{}: {source}", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: Box<FormatError>,
    },
    /// A block of records has the wrong checksum.
    #[error("{}: {damage}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which block.
        damage: Box<Damage>,
    },
    /// There is not enough memory for the records of a table, or the process may not use it.
    #[error("no memory for the {bytes} bytes of records of table {table:?}: {source}")]
    NoMemory {
        /// The table.
        table: String,
        /// Bytes of the records.
        bytes: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The bytes that a caller gave for those of a file have the wrong length.
    #[error("{}: got {got} bytes for those of the file, expected {expected}: all files, whole and in their order", .path.display())]
    FileBytes {
        /// The file.
        path: PathBuf,
        /// Got; 0 when there were none.
        got: u64,
        /// Expected.
        expected: u64,
    },
    /// No table has this name.
    #[error("{}: table {} is not in the file, expected one of {}", .path.display(), quoted(.table), listed(.have, "and"))]
    NoTable {
        /// The file.
        path: PathBuf,
        /// Got.
        table: String,
        /// What there is.
        have: Vec<String>,
    },
}

impl Error {
    /// A short, stable name: reject files are tied to it, and programs may compare it.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Io { .. } => "io",
            Error::NotAFile { .. } => "not-a-file",
            Error::HubId { .. } => "hub-id",
            Error::Header { source, .. } => source.code(),
            Error::Index { source, .. } => source.code(),
            Error::Format { source, .. } => source.code(),
            Error::Damaged { damage, .. } => damage.fault.code(),
            Error::NoMemory { .. } => "no-memory",
            Error::FileBytes { .. } => "file-bytes",
            Error::NoTable { .. } => "no-table",
        }
    }

    #[doc(hidden)]
    pub fn header(path: &Path, source: HeaderError) -> Error {
        Error::Header { path: path.into(), source: Box::new(source.at(path)) }
    }

    #[doc(hidden)]
    pub fn index(path: &Path, source: IndexError) -> Error {
        Error::Index { path: path.into(), source: Box::new(source) }
    }

    #[doc(hidden)]
    pub fn format(path: &Path, source: FormatError) -> Error {
        Error::Format { path: path.into(), source: Box::new(source) }
    }
}

/// Adds what was tried, and on which file.
pub trait IoContext<T> {
    /// `action` is a verb: "cannot open PATH: ...".
    ///
    /// # Errors
    /// [`Error::Io`] in place of what the system said.
    fn context(self, action: &'static str, path: &Path) -> Result<T, Error>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, Error> {
        self.map_err(|source| Error::Io { action, path: path.into(), source })
    }
}
