//! How far reading may be ahead of what is written.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{Cpu, Folder, f32_table, options, rows};
use condprog_checkpoint::{Checkpoint, FileState, RawRows, RowSource, TableRows};
use condprog_convert::{CompressOptions, compress};
use condprog_table::source::SourceInfo;

const ROWS: usize = 400;
const BLOCK: u32 = 4;

/// A table that says how far it has been read.
struct Watched {
    table: TableRows,
    read: Arc<AtomicU64>,
}

impl RowSource for Watched {
    fn info(&self) -> &SourceInfo {
        self.table.info()
    }

    fn identity(&mut self) -> Result<String, condprog_checkpoint::Error> {
        self.table.identity()
    }

    fn state(&self) -> Result<Vec<FileState>, condprog_checkpoint::Error> {
        self.table.state()
    }

    fn files(&self) -> &[PathBuf] {
        self.table.files()
    }

    fn read(&mut self, first: u64, rows: usize) -> Result<RawRows, condprog_checkpoint::Error> {
        self.read.fetch_max(first + rows as u64, Ordering::Relaxed);
        self.table.read(first, rows)
    }
}

#[test]
fn rows_that_are_read_are_soon_written_on_any_number_of_threads() {
    let folder = Folder::new();
    f32_table(&folder.path("in"), "t", 16, &rows(ROWS, 16, 1));
    for threads in [1, 2, 5] {
        let read = Arc::new(AtomicU64::new(0));
        let table = Checkpoint::open(folder.path("in")).unwrap().table("t").unwrap();
        let watched = Watched { table, read: Arc::clone(&read) };
        let options = CompressOptions { threads: NonZeroUsize::new(threads), force: true, ..options(BLOCK) };
        let most = AtomicU64::new(0);
        compress(&mut [Box::new(watched)], folder.path("out"), &options, &Cpu, &|update| {
            most.fetch_max(read.load(Ordering::Relaxed) - update.rows_done, Ordering::Relaxed);
            ControlFlow::Continue(())
        })
        .unwrap();
        // Three runs a thread, blocks that wait for an earlier one, and those that are read ahead.
        let (most, allowed) = (most.into_inner(), u64::from(BLOCK) * (3 * threads as u64 + 6));
        assert!(most <= allowed, "{threads} threads: {most} rows ahead, {allowed} allowed");
    }
}
