//! Why a checkpoint cannot be rebuilt around its tables.

use std::path::{Path, PathBuf};

use super::Error;

/// Why a checkpoint cannot be rebuilt.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RewriteError {
    /// The checkpoint is not a folder.
    #[error("checkpoint is not a folder, expected one: a single file has nothing around its tables")]
    NotAFolder,
    /// The output lies in the checkpoint.
    #[error("output folder is the checkpoint's or lies in it, expected another: {}", .checkpoint.display())]
    Inside {
        /// The checkpoint.
        checkpoint: PathBuf,
    },
    /// A device or the like.
    #[error("is neither a file nor a folder, expected a checkpoint of these")]
    Special,
    /// A link leads out of the checkpoint.
    #[error(
        "is a link to {}, outside the checkpoint and the download cache it lies in: put a copy in its place, or remove it",
        .target.display()
    )]
    Outside {
        /// Where it leads.
        target: PathBuf,
    },
    /// A link leads to a folder above.
    #[error("is a link to a folder that contains it")]
    Loop,
    /// The checkpoint does not have a tensor that is to be replaced.
    #[error("tensor {tensor:?} is not in the checkpoint, so it cannot be replaced")]
    NoTensor {
        /// Name.
        tensor: String,
    },
    /// A JSON file is not what it should be.
    #[error("{name} is malformed: {source}")]
    Json {
        /// Of what kind.
        name: &'static str,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// The config has tables of another format.
    #[error("config.json has tables of condprog's format version {got}, expected {}", condprog_core::FORMAT_VERSION)]
    Version {
        /// Got.
        got: String,
    },
    /// A table file is not in the output folder.
    #[error("table file is not in the output folder, expected all of them there")]
    Elsewhere,
    /// A table file has the name of another file of the output.
    #[error("table file has the name of another file of the checkpoint, expected another name")]
    FileTaken,
    /// A tensor of a table file has the name of another tensor.
    #[error("tensor {tensor:?} is in a table file and in {other:?}, expected one of them")]
    TensorTaken {
        /// Name.
        tensor: String,
        /// The other file.
        other: String,
    },
}

impl RewriteError {
    /// A short, stable name, as of [`Error::code`].
    pub fn code(&self) -> &'static str {
        match self {
            RewriteError::NotAFolder => "rewrite-not-a-folder",
            RewriteError::Inside { .. } => "rewrite-inside",
            RewriteError::Special => "rewrite-special",
            RewriteError::Outside { .. } => "rewrite-outside",
            RewriteError::Loop => "rewrite-loop",
            RewriteError::NoTensor { .. } => "rewrite-no-tensor",
            RewriteError::Json { .. } => "rewrite-json",
            RewriteError::Version { .. } => "rewrite-version",
            RewriteError::Elsewhere => "rewrite-elsewhere",
            RewriteError::FileTaken => "rewrite-file-taken",
            RewriteError::TensorTaken { .. } => "rewrite-tensor-taken",
        }
    }

    pub(crate) fn at(self, path: &Path) -> Error {
        Error::Rewrite { path: path.into(), source: Box::new(self) }
    }
}
