//! The small language model with a hashed n-gram memory, exact, to see what a changed table does to its output.

mod divergence;
mod forward;
mod rows;

pub use divergence::{Divergence, Evaluation, WindowDivergence};
pub use forward::LanguageModel;
pub use rows::{HEADS_PER_TOKEN, row_ids};

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::{Dtype, SafeTensors};

use crate::error::Error;

/// Inputs per window.
pub const WINDOW: usize = 128;

/// Held-out text: windows of 129 tokens per domain, the inputs and, one further, what follows them.
#[derive(Clone, Debug)]
pub struct Tokens {
    /// Domain and its windows.
    pub domains: BTreeMap<String, Vec<Vec<u32>>>,
}

impl Tokens {
    /// Reads a file with an I32 tensor `[windows, 129]` per domain; at most `windows` of each are kept.
    ///
    /// # Errors
    /// [`Error`] when the file cannot be read or a tensor is of another type or shape.
    pub fn read(path: &Path, windows: usize) -> Result<Tokens, Error> {
        let bytes = std::fs::read(path).map_err(|source| Error::io(path, source))?;
        let file = safetensors(path, &bytes)?;
        let mut domains = BTreeMap::new();
        for name in file.names() {
            let (shape, ids) = integers(path, &file, name)?;
            if shape.len() != 2 || shape[1] != WINDOW + 1 {
                return Err(tensor(path, name, format!("of shape {shape:?}"), "[windows, 129]"));
            }
            let ids: Option<Vec<u32>> = ids.into_iter().map(|id| u32::try_from(id).ok()).collect();
            let ids = ids.ok_or_else(|| tensor(path, name, "with negative numbers".into(), "token ids"))?;
            domains.insert(name.to_string(), ids.chunks_exact(WINDOW + 1).take(windows).map(<[u32]>::to_vec).collect());
        }
        Ok(Tokens { domains })
    }

    /// The ids of all rows that the windows ask for, ascending, each once.
    pub fn rows(&self) -> Vec<u64> {
        let windows = self.domains.values().flatten();
        let ids: std::collections::BTreeSet<u64> = windows.flat_map(|window| row_ids(&window[..WINDOW])).collect();
        ids.into_iter().collect()
    }
}

pub(crate) fn safetensors<'a>(path: &Path, bytes: &'a [u8]) -> Result<SafeTensors<'a>, Error> {
    SafeTensors::deserialize(bytes).map_err(|source| Error::Safetensors { path: path.into(), source })
}

pub(crate) fn tensor(path: &Path, tensor: &str, got: String, expected: &str) -> Error {
    Error::Tensor { path: path.into(), tensor: tensor.into(), got, expected: expected.into() }
}

/// A tensor of I32 or I64 numbers.
pub(crate) fn integers(path: &Path, file: &SafeTensors<'_>, name: &str) -> Result<(Vec<usize>, Vec<i64>), Error> {
    let expected = "of type I32 or I64";
    let view = file.tensor(name).map_err(|_| tensor(path, name, "missing".into(), expected))?;
    let ids = match view.dtype() {
        Dtype::I32 => view.data().as_chunks().0.iter().map(|b| i64::from(i32::from_le_bytes(*b))).collect(),
        Dtype::I64 => view.data().as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect(),
        other => return Err(tensor(path, name, format!("of type {other:?}"), expected)),
    };
    Ok((view.shape().to_vec(), ids))
}
