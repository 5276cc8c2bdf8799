//! Coding blocks of rows, between a thread that reads and one that writes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use condprog_checkpoint::{RawRows, RowSource};
use condprog_core::encoder::{EncodeError, Outcome, ScaleRule, Search};
use condprog_core::{Job, Scale};
use condprog_table::checksum;
use condprog_table::format::{SegmentInfo, Zeroed};
use rayon::Yield;

use super::files::Files;
use super::plan::Plan;
use super::{CompressOptions, Done, NonFinite};
use crate::codec::{BoxEncoder, Codec, CodecError};
use crate::error::Error;
use crate::journal::{Entry, Journal};
use crate::stream::{Block, Counter, read_ahead_with};

/// A block on its way to the writer.
struct Coded {
    segment: usize,
    block: u64,
    records: Vec<u8>,
    /// The digest of the rows that it was coded from.
    source: u64,
    counts: Zeroed,
}

/// What coded blocks are written to.
pub(super) struct Writer<'a> {
    pub(super) plan: &'a Plan,
    pub(super) files: &'a mut Files,
    pub(super) journal: &'a mut Journal,
    pub(super) done: &'a mut Done,
}

impl Writer<'_> {
    fn run(self, blocks: Receiver<Coded>) -> Result<(), Error> {
        for Coded { segment, block, records, source, counts } in blocks {
            let planned = &self.plan.segments[segment];
            let start = self.plan.block(segment, block).start * planned.layout.record_bytes() as u64;
            self.files.write_at(planned.file, planned.records + start, &records)?;
            let entry = Entry { segment, block, checksum: checksum::of(&records), source, counts };
            self.journal.add(&entry)?;
            self.done.insert((segment, block), entry);
        }
        Ok(())
    }
}

/// Codes every block that is not done. The calling thread codes on its pool, one thread reads, one writes.
pub(super) fn encode(
    sources: &mut [Box<dyn RowSource>],
    options: &CompressOptions,
    codec: &dyn Codec,
    writer: Writer<'_>,
    counter: &mut Counter<'_>,
) -> Result<(), Error> {
    let plan = writer.plan;
    let mut blocks = Vec::new();
    for (index, segment) in plan.segments.iter().enumerate() {
        let info = plan.info(segment).1;
        for block in (0..info.blocks()).filter(|&block| !writer.done.contains_key(&(index, block))) {
            let rows = plan.block(index, block);
            blocks.push(Block {
                source: segment.source,
                first: segment.rows.start + rows.start,
                rows: (rows.end - rows.start) as usize,
                tag: (index, block),
            });
        }
    }
    thread::scope(|scope| {
        let (send, receive) = sync_channel(1);
        let writer = thread::Builder::new().spawn_scoped(scope, move || writer.run(receive)).map_err(Error::Threads)?;
        let coded = code_blocks(sources, plan, options, codec, blocks, send, counter);
        // A writer that failed is why nothing more could be sent: its error comes first.
        writer.join().expect("the writer does not panic").and(coded)
    })
}

/// The rule with the global scale of a segment, which is measured before anything is coded.
fn scale_rule(segment: &SegmentInfo, rule: ScaleRule<()>) -> ScaleRule {
    let bits = match rule {
        ScaleRule::Global(()) => segment.global_scale.expect("measured before anything is coded"),
        _ => 0,
    };
    rule.with_global(Scale::from_bits(bits))
}

/// Codes blocks as they are read, and sends them on.
///
/// Threads take runs of rows, not blocks: while the last runs of a block are coded, the next blocks' first ones are too,
/// so that no thread waits for another as long as there are rows.
fn code_blocks(
    sources: &mut [Box<dyn RowSource>],
    plan: &Plan,
    options: &CompressOptions,
    codec: &dyn Codec,
    blocks: Vec<Block<(usize, u64)>>,
    send: SyncSender<Coded>,
    counter: &mut Counter<'_>,
) -> Result<(), Error> {
    // Enough that a thread finds the next run when it has one done.
    let most = 3 * rayon::current_num_threads();
    let (reply, runs) = channel();
    // The oldest run first, for the calling thread too where it is one of the pool: else a block could wait to the end.
    rayon::in_place_scope_fifo(|scope| {
        let non_finite = options.non_finite;
        let mut assembly = Assembly { plan, non_finite, send, counter, runs, pending: 0, open: BTreeMap::new() };
        let mut current: Option<Arc<BoxEncoder>> = None;
        let digest = |block: &Block<_>, raw: &RawRows| raw.digest(0..block.rows, block.first);
        let read = read_ahead_with(sources, blocks.into_iter(), digest, |block, raw, source| {
            let planned = &plan.segments[block.tag.0];
            let rule = scale_rule(plan.info(planned).1, options.scale);
            let job = Job::new(planned.layout, rule, Search::effort(options.effort));
            let record_bytes = job.layout.record_bytes();
            let encoder = match current.take().filter(|encoder| *encoder.job() == job) {
                Some(encoder) => current.insert(encoder),
                None => {
                    // An encoder keeps memory per thread: one at a time.
                    assembly.take_all()?;
                    current.insert(Arc::new(codec.encoder(job)?))
                }
            };
            assembly.open(&block, source, raw.rows() * record_bytes);
            let (rows, step, raw) = (raw.rows(), encoder.preferred_rows().max(1), Arc::new(raw));
            // Threads wait for a slow one when they are two blocks ahead: their finished blocks are kept until then.
            let open = most.div_ceil(rows.div_ceil(step)) + 2;
            for start in (0..rows).step_by(step) {
                while assembly.pending >= most || assembly.open.len() > open {
                    assembly.take()?;
                }
                assembly.pending += 1;
                let reply = Reply { reply: reply.clone(), run: None };
                let (tag, rows) = (block.tag, start..rows.min(start + step));
                let (encoder, raw) = (Arc::clone(encoder), Arc::clone(&raw));
                scope.spawn_fifo(move |_| reply.of(|| Run::code(&encoder, &raw, tag, rows)));
            }
            Ok(())
        });
        match read {
            // A caller that stops is not made to wait.
            Err(Error::Cancelled) => Err(Error::Cancelled),
            // Blocks before the error are kept.
            read => assembly.take_all().and(read),
        }
    })
}

/// Rows that one thread has coded.
struct Run {
    tag: (usize, u64),
    /// Within the block.
    rows: Range<usize>,
    records: Vec<u8>,
    outcomes: Vec<Result<Outcome, EncodeError>>,
}

impl Run {
    fn code(encoder: &BoxEncoder, raw: &RawRows, tag: (usize, u64), rows: Range<usize>) -> Coding {
        let mut values = vec![0.0; rows.len() * raw.dim];
        raw.to_f32(rows.clone(), &mut values);
        let mut records = vec![0; rows.len() * encoder.job().layout.record_bytes()];
        let mut outcomes = vec![Ok(Outcome::Zero); rows.len()];
        encoder.encode(&values, &mut records, &mut outcomes)?;
        Ok(Run { tag, rows, records, outcomes })
    }
}

/// What became of a run.
type Coding = Result<Run, CodecError>;

/// Sends what a thread has coded, or that there is nothing when it panicked, so that nothing waits for it.
struct Reply {
    reply: Sender<Option<Coding>>,
    run: Option<Coding>,
}

impl Reply {
    fn of(mut self, code: impl FnOnce() -> Coding) {
        self.run = Some(code());
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        // Nothing receives any more when something else has failed.
        let _ = self.reply.send(self.run.take());
    }
}

/// Puts blocks together from the runs that threads have coded, in whatever order they come, and sends them on in row
/// order: what a failed run leaves does not depend on threads.
struct Assembly<'a, 'b> {
    plan: &'a Plan,
    non_finite: NonFinite,
    send: SyncSender<Coded>,
    counter: &'a mut Counter<'b>,
    runs: Receiver<Option<Coding>>,
    /// Runs that threads have or will take.
    pending: usize,
    open: BTreeMap<(usize, u64), Open>,
}

/// A row that cannot be coded: its block, its place in the block, and why.
type Failed = (((usize, u64), usize), EncodeError);

/// A block that is not whole yet.
struct Open {
    /// Its first row, counted over the table.
    first: u64,
    rows_left: usize,
    /// Rows of the last run.
    uncounted: usize,
    records: Vec<u8>,
    source: u64,
    counts: Zeroed,
}

impl Assembly<'_, '_> {
    fn open(&mut self, block: &Block<(usize, u64)>, source: u64, record_bytes: usize) {
        let (records, counts) = (vec![0; record_bytes], Zeroed::default());
        let open = Open { first: block.first, rows_left: block.rows, uncounted: 0, records, source, counts };
        self.open.insert(block.tag, open);
    }

    /// Takes all runs that are pending.
    fn take_all(&mut self) -> Result<(), Error> {
        while self.pending > 0 {
            self.take()?;
        }
        Ok(())
    }

    /// Takes one run. When a row of it cannot be coded, takes all others too: whatever the order in which threads were
    /// done, the error is that of the first such row, and blocks before it are kept.
    fn take(&mut self) -> Result<(), Error> {
        let Err(mut failed) = self.add()? else { return Ok(()) };
        while self.pending > 0 {
            if let Err(other) = self.add()?
                && other.0 < failed.0
            {
                failed = other;
            }
        }
        let ((tag, row), source) = failed;
        let planned = &self.plan.segments[tag.0];
        let (tensor, row) = (self.plan.info(planned).0.name.clone(), self.open[&tag].first + row as u64);
        Err(Error::Row { tensor, row, source })
    }

    /// Adds one run to its block, and sends the block on when it is whole. Gives the first row that cannot be coded.
    fn add(&mut self) -> Result<Result<(), Failed>, Error> {
        // A thread that panicked does so again when all are done.
        let Run { tag, rows, records, outcomes } = self.wait().ok_or(Error::Cancelled)??;
        let block = self.open.get_mut(&tag).expect("a block is open until it has all its rows");
        for (row, outcome) in rows.clone().zip(outcomes) {
            match (outcome, self.non_finite) {
                (Ok(Outcome::Coded), _) => {}
                (Ok(Outcome::Zero), _) => block.counts.zero += 1,
                (Ok(Outcome::Underflow), _) => block.counts.underflow += 1,
                (Err(_), NonFinite::Zero) => block.counts.non_finite += 1,
                (Err(source), NonFinite::Error) => return Ok(Err(((tag, row), source))),
            }
        }
        let stride = records.len() / rows.len();
        block.records[rows.start * stride..rows.end * stride].copy_from_slice(&records);
        block.rows_left -= rows.len();
        // The last rows of a block count when the block is on its way, so that a caller that stops here loses none of
        // it.
        if block.rows_left > 0 {
            self.count(tag, rows.len())?;
        } else {
            block.uncounted = rows.len();
        }
        while let Some(first) = self.open.first_entry().filter(|first| first.get().rows_left == 0) {
            let ((segment, block), Open { records, source, counts, uncounted, .. }) = first.remove_entry();
            // A writer that does not receive has failed, and says why.
            self.send.send(Coded { segment, block, records, source, counts }).map_err(|_| Error::Cancelled)?;
            self.count((segment, block), uncounted)?;
        }
        Ok(Ok(()))
    }

    fn count(&mut self, (segment, _): (usize, u64), rows: usize) -> Result<(), Error> {
        self.counter.add(&self.plan.info(&self.plan.segments[segment]).0.name, rows as u64)
    }

    /// The next run that is done. A thread of the pool that waits would be missed: it takes runs itself.
    fn wait(&mut self) -> Option<Coding> {
        self.pending -= 1;
        while rayon::current_thread_index().is_some() {
            if let Ok(run) = self.runs.try_recv() {
                return run;
            }
            if rayon::yield_now() != Some(Yield::Executed)
                && let Ok(run) = self.runs.recv_timeout(Duration::from_millis(1))
            {
                return run;
            }
        }
        self.runs.recv().expect("a sender is kept")
    }
}
