//! Records in files that are mapped.

use std::fmt;
use std::ops::Range;

use condprog_core::{Layout, Segment, Segments};
use condprog_memory::{Access, MappedFile};

use crate::error::Error;

/// The records of a table in its files, which are mapped; see [`Table::map`](crate::Table::map).
pub struct MappedRecords {
    files: Vec<MappedFile>,
    /// Runs of records of one layout: which file, and where in it.
    runs: Vec<(Layout, usize, Range<usize>)>,
}

impl MappedRecords {
    /// Maps the files of a table.
    ///
    /// # Safety
    /// That of [`MappedFile::open`]: nobody writes to the files or cuts them short while they are mapped.
    pub(crate) unsafe fn new(tables: &condprog_table::Tables, name: &str) -> Result<MappedRecords, Error> {
        let mut files = Vec::new();
        for path in tables.files() {
            // SAFETY: the caller's obligation is the same.
            let file = unsafe { MappedFile::open(path, Access::Random) };
            let fail = |source| condprog_table::Error::Io { action: "map", path: path.into(), source };
            files.push(file.map_err(fail)?);
        }
        let mut runs = Vec::new();
        for run in tables.runs(name)? {
            let (start, end) = (run.offset, run.offset + run.bytes());
            let range = usize::try_from(start).ok().zip(usize::try_from(end).ok()).map(|(start, end)| start..end);
            let got = files.get(run.file).map_or(0, |file| file.len() as u64);
            match range.filter(|_| end <= got) {
                Some(range) => runs.push((run.layout, run.file, range)),
                // Cut short since it was opened.
                None => {
                    let path = tables.files().nth(run.file).unwrap_or(tables.path()).into();
                    return Err(condprog_table::Error::FileBytes { path, got, expected: end }.into());
                }
            }
        }
        Ok(MappedRecords { files, runs })
    }
}

impl fmt::Debug for MappedRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedRecords").field("files", &self.files.len()).field("runs", &self.runs).finish()
    }
}

impl Segments for MappedRecords {
    fn count(&self) -> usize {
        self.runs.len()
    }

    fn segment(&self, index: usize) -> Segment<'_> {
        let (layout, file, range) = &self.runs[index];
        let records = &self.files[*file][range.clone()];
        Segment { rows: (records.len() / layout.record_bytes()) as u64, layout: *layout, records }
    }
}
