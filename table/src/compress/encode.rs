//! Coding blocks of rows, between a thread that reads and one that writes.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use condprog_core::encoder::{Outcome, ScaleRule, Search};
use condprog_core::{Layout, Scale};
use condprog_cpu::Encoder;
use rayon::prelude::*;

use super::files::Files;
use super::plan::Plan;
use super::{CompressOptions, Done, NonFinite, ScaleMode};
use crate::checksum;
use crate::error::Error;
use crate::format::{SegmentInfo, Zeroed};
use crate::journal::{Entry, Journal};
use crate::source::{RawRows, RowSource};
use crate::stream::{Block, Counter, read_ahead};

/// A block on its way to the writer.
struct Coded {
    segment: usize,
    block: u64,
    records: Vec<u8>,
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
        for Coded { segment, block, records, counts } in blocks {
            let planned = &self.plan.segments[segment];
            let start = self.plan.block(segment, block).start * planned.layout.record_bytes() as u64;
            self.files.write_at(planned.file, planned.records + start, &records)?;
            let entry = Entry { segment, block, checksum: checksum::of(&records), counts };
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
        let coded = code_blocks(sources, plan, options, blocks, send, counter);
        // A writer that failed is why nothing more could be sent: its error comes first.
        writer.join().expect("the writer does not panic").and(coded)
    })
}

fn scale_rule(segment: &SegmentInfo, scale: ScaleMode) -> ScaleRule {
    match scale {
        ScaleMode::Norm => ScaleRule::Norm,
        ScaleMode::Projection => ScaleRule::Projection,
        ScaleMode::LeastSquares => ScaleRule::LeastSquares,
        ScaleMode::Global => {
            let bits = segment.global_scale.expect("measured before anything is coded");
            ScaleRule::Global(Scale::from_bits(bits))
        }
    }
}

/// Codes blocks as they are read, and sends them on.
fn code_blocks(
    sources: &mut [Box<dyn RowSource>],
    plan: &Plan,
    options: &CompressOptions,
    blocks: Vec<Block<(usize, u64)>>,
    send: SyncSender<Coded>,
    counter: &mut Counter<'_>,
) -> Result<(), Error> {
    let mut values = Vec::new();
    // An encoder keeps memory per thread: one at a time, and the same one for as long as it fits.
    let mut current: Option<(Layout, ScaleRule, Encoder)> = None;
    read_ahead(sources, blocks.into_iter(), |block, raw| {
        let (segment, index) = block.tag;
        let planned = &plan.segments[segment];
        let (layout, rule) = (planned.layout, scale_rule(plan.info(planned).1, options.scale));
        let fits = |(l, r, _): &(Layout, ScaleRule, Encoder)| (*l, *r) == (layout, rule);
        let (.., encoder) = match current.take().filter(fits) {
            Some(encoder) => current.insert(encoder),
            None => current.insert((layout, rule, Encoder::new(layout, rule, Search::effort(options.effort))?)),
        };
        let table = &plan.info(planned).0.name;
        let (dim, stride) = (raw.dim, encoder.layout().record_bytes());
        let mut records = vec![0; raw.rows() * stride];
        let mut counts = Zeroed::default();
        let mut told = 0;
        // Large enough for every thread to have several runs of rows, small enough to tell progress often.
        let chunk = encoder.block_rows() * rayon::current_num_threads() * 8;
        for start in (0..raw.rows()).step_by(chunk) {
            let end = raw.rows().min(start + chunk);
            values.resize((end - start) * dim, 0.0);
            to_f32(&raw, start, &mut values);
            let outcomes = encoder.encode(&values, &mut records[start * stride..end * stride]);
            for (row, outcome) in (start..).zip(outcomes) {
                match (outcome, options.non_finite) {
                    (Ok(Outcome::Coded), _) => {}
                    (Ok(Outcome::Zero), _) => counts.zero += 1,
                    (Ok(Outcome::Underflow), _) => counts.underflow += 1,
                    (Err(_), NonFinite::Zero) => counts.non_finite += 1,
                    (Err(source), NonFinite::Error) => {
                        let row = block.first + row as u64;
                        return Err(Error::Row { tensor: table.clone(), row, source });
                    }
                }
            }
            if end < raw.rows() {
                counter.add(table, (end - start) as u64)?;
                told = end;
            }
        }
        // The last rows of a block count when the block is on its way, so that who stops here loses none of it.
        let rest = (raw.rows() - told) as u64;
        // Nobody to send to means that the writer failed, and says why.
        send.send(Coded { segment, block: index, records, counts }).map_err(|_| Error::Cancelled)?;
        counter.add(table, rest)
    })
}

/// As [`RawRows::to_f32`], for all values that fit, on all threads.
fn to_f32(raw: &RawRows, start: usize, values: &mut [f32]) {
    const ROWS: usize = 64;
    values.par_chunks_mut(ROWS * raw.dim).enumerate().for_each(|(index, values)| {
        let first = start + index * ROWS;
        raw.to_f32(first..first + values.len() / raw.dim, values);
    });
}
