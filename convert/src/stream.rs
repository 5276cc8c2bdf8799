//! Work in blocks of rows: reading ahead of the work, progress, and a pool of threads.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::mpsc::sync_channel;
use std::{io, thread};

use condprog_checkpoint::{RawRows, RowSource};
use rayon::ThreadPoolBuilder;

use crate::error::Error;

/// What a job is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Measuring the source for a global scale.
    Measure,
    /// Coding rows.
    Encode,
    /// Copying rows of parts.
    Join,
    /// Restoring rows.
    Restore,
    /// Checking checksums and padding.
    Check,
    /// Comparing restored rows with their source.
    Compare,
}

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update<'a> {
    /// What it is doing.
    pub stage: Stage,
    /// With which table.
    pub table: &'a str,
    /// Rows done in this stage, over all tables; those that an earlier run has done included.
    pub rows_done: u64,
    /// Rows to do in this stage, over all tables.
    pub rows_total: u64,
}

/// Called with every step, on the calling thread. [`ControlFlow::Break`] stops the job with
/// [`Error::Cancelled`].
pub type Progress<'a> = dyn Fn(&Update<'_>) -> ControlFlow<()> + Sync + 'a;

/// A [`Progress`] that ignores every step.
pub fn quiet(_: &Update<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Counts rows of one stage and reports them.
pub(crate) struct Counter<'a> {
    stage: Stage,
    progress: &'a Progress<'a>,
    done: u64,
    total: u64,
}

impl<'a> Counter<'a> {
    pub(crate) fn new(stage: Stage, progress: &'a Progress<'a>, done: u64, total: u64) -> Counter<'a> {
        Counter { stage, progress, done, total }
    }

    pub(crate) fn add(&mut self, table: &str, rows: u64) -> Result<(), Error> {
        self.done += rows;
        let update = Update { stage: self.stage, table, rows_done: self.done, rows_total: self.total };
        match (self.progress)(&update) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Cancelled),
        }
    }
}

/// A block of rows to read: of which source, from which row, how many, and what for.
pub(crate) struct Block<T> {
    pub(crate) source: usize,
    pub(crate) first: u64,
    pub(crate) rows: usize,
    pub(crate) tag: T,
}

/// Reads blocks in a thread of its own, one ahead of the work, and hands them over in order.
pub(crate) fn read_ahead<T: Send>(
    sources: &mut [Box<dyn RowSource>],
    blocks: impl Iterator<Item = Block<T>> + Send,
    mut work: impl FnMut(Block<T>, RawRows) -> Result<(), Error>,
) -> Result<(), Error> {
    read_ahead_with(sources, blocks, |_, _| (), |block, rows, ()| work(block, rows))
}

/// As [`read_ahead`], with something that the reading thread finds out about each block.
pub(crate) fn read_ahead_with<T: Send, F: Send>(
    sources: &mut [Box<dyn RowSource>],
    blocks: impl Iterator<Item = Block<T>> + Send,
    find: impl Fn(&Block<T>, &RawRows) -> F + Send,
    mut work: impl FnMut(Block<T>, RawRows, F) -> Result<(), Error>,
) -> Result<(), Error> {
    thread::scope(|scope| {
        let (send, receive) = sync_channel(1);
        thread::Builder::new()
            .spawn_scoped(scope, move || {
                for block in blocks {
                    let rows = sources[block.source].read(block.first, block.rows);
                    let rows = rows.map(|rows| (find(&block, &rows), rows));
                    let failed = rows.is_err();
                    // When the work has failed nothing receives any more: there is nothing left to do then, nor after
                    // an error.
                    if send.send((block, rows)).is_err() || failed {
                        return;
                    }
                }
            })
            .map_err(Error::Threads)?;
        for (block, rows) in receive {
            let (found, rows) = rows?;
            work(block, rows, found)?;
        }
        Ok(())
    })
}

/// Most threads that a job may be given: more are a mistake, and take forever to start.
pub const MAX_THREADS: usize = 1024;

/// Runs a job on a pool of this many threads, or on the current pool.
pub(crate) fn on_threads<R: Send>(
    threads: Option<NonZeroUsize>,
    job: impl FnOnce() -> Result<R, Error> + Send,
) -> Result<R, Error> {
    match threads {
        None => job(),
        Some(threads) if threads.get() > MAX_THREADS => {
            let (got, expected) = (threads.get() as u64, format!("1 to {MAX_THREADS}"));
            Err(Error::Option { option: "number of threads", got, expected })
        }
        Some(threads) => {
            let pool = ThreadPoolBuilder::new().num_threads(threads.get()).build();
            pool.map_err(|error| Error::Threads(io::Error::other(error)))?.install(job)
        }
    }
}

/// Rows of a block whose values are worth 16 MiB as binary32: large enough to keep threads and disks busy, small
/// enough that a few of them are no burden. A power of two, at least 64.
pub(crate) fn default_block_rows(dim: u64) -> u64 {
    let rows = ((1 << 22) / dim.max(1)).clamp(64, 1 << 16);
    1 << rows.ilog2()
}
