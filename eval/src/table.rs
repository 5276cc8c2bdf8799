//! Rows and traces from files.

use std::collections::HashMap;
use std::path::Path;

use condprog_checkpoint::{Checkpoint, RowSource, TableRows};

use crate::error::Error;
use crate::language_model::{integers, safetensors};
use crate::rows::Rows;

/// Ids that lie closer together than this many bytes are read in one piece.
const GAP: u64 = 1 << 20;
/// Bytes that one read takes at most, and one row at least.
const READ: u64 = 16 << 20;

/// A source table, to be read by row ids.
pub struct SourceTable {
    rows: TableRows,
}

impl SourceTable {
    /// Opens a table of a safetensors file.
    ///
    /// # Errors
    /// [`Error::Table`] when the file or the tensor cannot be read.
    pub fn open(path: &Path, tensor: &str) -> Result<SourceTable, Error> {
        Ok(Checkpoint::open(path)?.table(tensor)?.into())
    }

    /// Its name: that of its tensor, or what its tensors are called together.
    pub fn name(&self) -> &str {
        &self.rows.info().name
    }

    /// Tensors that it is joined from.
    pub fn tensors(&self) -> usize {
        self.rows.info().parts.len()
    }

    /// Rows of the table.
    pub fn len(&self) -> u64 {
        self.rows.info().rows
    }

    /// Whether the table has no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Values per row.
    pub fn dim(&self) -> usize {
        self.rows.info().dim as usize
    }

    /// Bytes per row, scales included.
    pub fn row_bytes(&self) -> u64 {
        self.rows.info().row_bytes()
    }

    /// Number format.
    pub fn dtype(&self) -> &'static str {
        self.rows.info().dtype.name()
    }

    /// Reads rows by ascending ids.
    ///
    /// # Errors
    /// [`Error::Table`] when they cannot be read.
    ///
    /// # Panics
    /// When ids do not ascend or name no row.
    pub fn read(&mut self, ids: &[u64]) -> Result<Rows, Error> {
        assert!(ids.is_sorted() && ids.last().is_none_or(|&last| last < self.len()), "ids ascend and name rows");
        let (dim, row_bytes) = (self.dim(), self.row_bytes());
        let mut values = vec![0.0; ids.len() * dim];
        let mut out = values.chunks_exact_mut(dim);
        let near = |a: &u64, b: &u64| (b - a) * row_bytes <= GAP;
        for run in ids.chunk_by(near) {
            let mut run = run;
            while let Some(&first) = run.first() {
                let fits = run.partition_point(|&id| (id - first) * row_bytes < READ);
                let (now, later) = run.split_at(fits);
                let block = self.rows.read(first, (now[fits - 1] - first + 1) as usize)?;
                for (&id, out) in now.iter().zip(&mut out) {
                    let row = (id - first) as usize;
                    block.to_f32(row..row + 1, out);
                }
                run = later;
            }
        }
        Ok(Rows::new(dim, values))
    }
}

impl From<TableRows> for SourceTable {
    /// A table of a checkpoint, in however many tensors and files.
    fn from(rows: TableRows) -> SourceTable {
        SourceTable { rows }
    }
}

/// The ids of a trace: the first tensor of a safetensors file in name order, of type I32 or I64 and any shape.
///
/// # Errors
/// [`Error`] when the file cannot be read or has no such tensor.
pub fn trace_ids(path: &Path) -> Result<Vec<i64>, Error> {
    let bytes = std::fs::read(path).map_err(|source| Error::io(path, source))?;
    let file = safetensors(path, &bytes)?;
    let mut names = file.names();
    names.sort_unstable();
    Ok(integers(path, &file, names.first().copied().unwrap_or("ids"))?.1)
}

/// How often a trace asks for each row of a table; rows that it never asks for are left out. Ids that name no row, as
/// serving stacks use them for "nothing", are not counted.
///
/// # Errors
/// [`Error::Trace`] when no id names a row.
pub fn trace_counts(ids: &[i64], rows: u64) -> Result<HashMap<u64, u32>, Error> {
    let mut counts = HashMap::new();
    for id in ids.iter().filter_map(|&id| u64::try_from(id).ok()).filter(|&id| id < rows) {
        *counts.entry(id).or_insert(0u32) += 1;
    }
    if counts.is_empty() { Err(Error::Trace { ids: ids.len(), rows }) } else { Ok(counts) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_of_ids_that_name_rows() {
        let counts = trace_counts(&[3, 0, 3, -1, 4, 3], 4).unwrap();
        assert_eq!(counts, HashMap::from([(0, 1), (3, 3)]));
        let error = trace_counts(&[4, -1], 4).unwrap_err();
        assert_eq!(error.to_string(), "none of the 2 ids of the trace names a row, expected ids from 0 to 3");
    }
}
