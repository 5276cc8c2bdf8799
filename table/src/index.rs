//! The index of a checkpoint or a table that is cut into files, as Hugging Face checkpoints have it: a JSON object with
//! `weight_map`, which says in which file a tensor is, and `metadata`.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::header::Strings;
use crate::quote::{cut, quoted};

/// Suffix of an index's file name.
pub const INDEX_SUFFIX: &str = ".safetensors.index.json";
/// The index of a checkpoint.
pub const CHECKPOINT_INDEX: &str = "model.safetensors.index.json";
/// Largest index that is read: a hundred times what the largest checkpoints have.
pub const MAX_INDEX_BYTES: u64 = 1 << 30;

/// Which tensor is in which file.
#[derive(Clone, Debug, PartialEq)]
pub struct Index {
    /// About the whole; `total_size` are bytes of all tensors.
    pub metadata: Map<String, Value>,
    /// Names of files, by name of tensor.
    pub weight_map: BTreeMap<String, String>,
}

/// Why an index is malformed, or does not fit its files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// Not the JSON of an index.
    #[error("index is malformed: {}", cut(.0))]
    Json(#[source] serde_json::Error),
    /// Too long to be an index.
    #[error("index is {got} bytes, expected at most {MAX_INDEX_BYTES}")]
    TooLarge {
        /// Got.
        got: u64,
    },
    /// No tensor at all.
    #[error("index lists no tensor, expected at least one")]
    Empty,
    /// A file that is not in the folder of the index.
    #[error(
        "index has tensor {} in file {}, expected the name of a file in the index's folder or in one below it",
        quoted(.tensor),
        quoted(.file)
    )]
    FileName {
        /// Name of the tensor.
        tensor: String,
        /// Got.
        file: String,
    },
    /// A file does not have a tensor that the index has in it.
    #[error("index has tensor {} in file {}, which does not have it", quoted(.tensor), quoted(.file))]
    MissingTensor {
        /// Name of the tensor.
        tensor: String,
        /// The file.
        file: String,
    },
    /// A file is not there.
    #[error("index names file {}, which is not there: a shard is missing", quoted(.file))]
    MissingFile {
        /// The file.
        file: String,
    },
    /// Two files have a tensor of one name.
    #[error(
        "tensor {} is in {} and in {}, expected one of them",
        quoted(.tensor),
        .files[0].display(),
        .files[1].display()
    )]
    TwoFiles {
        /// Name of the tensor.
        tensor: String,
        /// The files.
        files: Box<[PathBuf; 2]>,
    },
    /// None of the files has tables.
    #[error("index names no table file: nothing here is compressed")]
    NoTables,
    /// A folder without an index and without the one file it could have.
    #[error("folder has {got} safetensors files and no index, expected {CHECKPOINT_INDEX:?} or a single file")]
    NoIndex {
        /// Safetensors files.
        got: usize,
    },
    /// A folder with two indexes.
    #[error("folder has indexes {:?} and {:?}, expected one, or {CHECKPOINT_INDEX:?}", .names[0], .names[1])]
    TwoIndexes {
        /// Their names.
        names: [String; 2],
    },
}

impl IndexError {
    /// A short, stable name, as of [`Error::code`](crate::Error::code).
    pub fn code(&self) -> &'static str {
        match self {
            IndexError::Json(_) => "index-json",
            IndexError::TooLarge { .. } => "index-too-large",
            IndexError::Empty => "index-empty",
            IndexError::FileName { .. } => "index-file-name",
            IndexError::MissingTensor { .. } => "index-missing-tensor",
            IndexError::MissingFile { .. } => "index-missing-file",
            IndexError::TwoFiles { .. } => "index-two-files",
            IndexError::NoTables => "index-no-tables",
            IndexError::NoIndex { .. } => "index-none",
            IndexError::TwoIndexes { .. } => "index-two",
        }
    }
}

#[derive(Deserialize)]
struct RawIndex {
    #[serde(default)]
    metadata: Map<String, Value>,
    weight_map: Strings,
}

#[derive(Serialize)]
struct WriteIndex<'a> {
    metadata: &'a Map<String, Value>,
    weight_map: &'a BTreeMap<String, String>,
}

impl Index {
    /// Reads an index from its text.
    ///
    /// # Errors
    /// [`IndexError`].
    pub fn parse(json: &[u8]) -> Result<Index, IndexError> {
        let raw: RawIndex = serde_json::from_slice(json).map_err(IndexError::Json)?;
        let weight_map: BTreeMap<_, _> = raw.weight_map.0.into_iter().collect();
        if weight_map.is_empty() {
            return Err(IndexError::Empty);
        }
        match weight_map.iter().find(|(_, file)| !stays_below(file)) {
            Some((tensor, file)) => Err(IndexError::FileName { tensor: tensor.clone(), file: file.clone() }),
            None => Ok(Index { metadata: raw.metadata, weight_map }),
        }
    }

    /// The text of the index, the same every time.
    pub fn to_json(&self) -> String {
        let index = WriteIndex { metadata: &self.metadata, weight_map: &self.weight_map };
        serde_json::to_string_pretty(&index).expect("strings and numbers are JSON") + "\n"
    }

    /// Names of the files, each once, sorted.
    pub fn files(&self) -> Vec<&str> {
        let mut files: Vec<_> = self.weight_map.values().map(String::as_str).collect();
        files.sort_unstable();
        files.dedup();
        files
    }
}

/// Whether the name of a file leads to one in the folder or below it, on every system, in the only spelling it has. One
/// that leads elsewhere is a mistake, or an attack.
fn stays_below(file: &str) -> bool {
    let is_name = |part: &str| !matches!(part, "" | "." | "..");
    let is_plain = !file.contains(|c: char| c == '\\' || c.is_control()) && file.split('/').all(is_name);
    is_plain && Path::new(file).components().all(|part| matches!(part, Component::Normal(_)))
}
