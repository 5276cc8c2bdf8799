//! The CPU decoder: [`CpuDecoder`].
//!
//! Random rows of a large table cost what memory costs, so a request is worked through in blocks of [`BLOCK`] rows:
//! the next block's records are prefetched back to back, all their misses in flight at once, while this block is
//! decoded. (One row ahead, or sixteen ahead one at a time, was two to three times slower on random rows. Prefetching
//! into the second-level cache beats the first by a fifth: there are more misses than first-level buffers, and the
//! stores of finished rows need those too.) Requests whose rows do not fit the caches go to memory past them.

mod plan;
mod portable;
mod scaled;
mod stream;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use condprog_core::{Batch, Decoder, Layout, Output, Segment, ShapeMismatch, Table, TableShape};
use rayon::prelude::*;

use crate::level::{Level, UnsupportedLevel};
use plan::{Plan, Scratch};
use stream::Value;

/// Rows whose records are fetched together.
const BLOCK: usize = 16;
/// Rows of a request that one thread takes at a time; smaller requests stay on the calling thread.
const CHUNK: usize = 16 * BLOCK;

/// Outputs from this size on are stored past the caches: they would not be found there by whoever reads them, and
/// storing through the caches reads every line of them first.
const STREAM_BYTES: usize = 16 << 20;

/// What a thread keeps from block to block.
#[derive(Default)]
struct Worker<T> {
    scratch: Scratch,
    /// Rows of a block on their way to memory, or empty.
    staging: Vec<T>,
}

/// A decoder over a borrowed table. Large requests are spread over the threads of the current rayon pool.
#[derive(Clone, Debug)]
pub struct CpuDecoder<'a> {
    table: Table<'a>,
    level: Level,
    /// First row of each segment.
    starts: Vec<u64>,
    /// Index of each segment's plan.
    plan_of: Vec<usize>,
    plans: Vec<Plan>,
}

/// The 16-bit output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Half {
    Bf16,
    F16,
}

impl<'a> CpuDecoder<'a> {
    /// A decoder at the level [`Level::detect`] gives.
    ///
    /// # Errors
    /// [`UnsupportedLevel`] when the environment asks for a level this CPU does not have.
    pub fn new(table: Table<'a>) -> Result<CpuDecoder<'a>, UnsupportedLevel> {
        CpuDecoder::with_level(table, Level::detect()?)
    }

    /// A decoder at a given level.
    ///
    /// # Errors
    /// [`UnsupportedLevel`] when this CPU does not have it.
    pub fn with_level(table: Table<'a>, level: Level) -> Result<CpuDecoder<'a>, UnsupportedLevel> {
        let level = level.supported()?;
        let mut decoder = CpuDecoder { table, level, starts: Vec::new(), plan_of: Vec::new(), plans: Vec::new() };
        let mut layouts: Vec<Layout> = Vec::new();
        let mut start = 0;
        for segment in table.segments() {
            let plan = layouts.iter().position(|&layout| layout == segment.layout).unwrap_or_else(|| {
                layouts.push(segment.layout);
                layouts.len() - 1
            });
            decoder.starts.push(start);
            decoder.plan_of.push(plan);
            start += segment.rows;
        }
        decoder.plans = layouts.into_iter().map(Plan::new).collect();
        Ok(decoder)
    }

    /// The level in use.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Plan and record of a row, or `None` where the id names none.
    #[inline]
    fn record(&self, id: i64) -> Option<(usize, &'a [u8])> {
        let row = u64::try_from(id).ok().filter(|&row| row < self.table.shape().rows)?;
        // The last segment that starts at or before the row; empty segments share their start with the next one.
        let index = if self.starts.len() == 1 { 0 } else { self.starts.partition_point(|&start| start <= row) - 1 };
        let segment: &Segment<'a> = &self.table.segments()[index];
        Some((self.plan_of[index], segment.record(row - self.starts[index])))
    }

    /// Decodes a request into `out`, in chunks on several threads where it is large.
    fn run<T: Value>(&self, ids: &[i64], out: &mut [T], rows: impl Fn(&Plan, &[&[u8]], &mut [T], &mut Scratch) + Sync) {
        let dim = self.table.shape().dim as usize;
        let staged = if size_of_val::<[T]>(out) < STREAM_BYTES { 0 } else { BLOCK * dim };
        let worker = || Worker { staging: vec![T::default(); staged], ..Worker::default() };
        if ids.len() <= CHUNK || rayon::current_num_threads() == 1 {
            return self.chunk(ids, out, &rows, &mut worker());
        }
        ids.par_chunks(CHUNK).zip(out.par_chunks_mut(CHUNK * dim)).for_each_init(worker, |worker, (ids, out)| {
            self.chunk(ids, out, &rows, worker);
        });
    }

    fn chunk<T: Value>(
        &self,
        ids: &[i64],
        out: &mut [T],
        rows: &impl Fn(&Plan, &[&[u8]], &mut [T], &mut Scratch),
        worker: &mut Worker<T>,
    ) {
        let dim = self.table.shape().dim as usize;
        let mut blocks = ids.chunks(BLOCK).map(|ids| {
            let mut block = [None; BLOCK];
            for (slot, &id) in block.iter_mut().zip(ids) {
                *slot = self.record(id);
                if let Some((_, record)) = slot {
                    prefetch(record);
                }
            }
            block
        });
        let mut next = blocks.next();
        for out in out.chunks_mut(BLOCK * dim) {
            let Some(block) = next else { break };
            next = blocks.next();
            let block = &block[..out.len() / dim];
            // Runs of rows that share a plan, usually the whole block.
            let mut done = 0;
            while done < block.len() {
                let plan = block[done].map(|(plan, _)| plan);
                let run = block[done..].iter().take_while(|slot| slot.map(|(plan, _)| plan) == plan).count();
                let out = &mut out[done * dim..][..run * dim];
                match plan {
                    None => out.fill(T::default()),
                    Some(plan) => {
                        let mut records: [&[u8]; BLOCK] = [&[]; BLOCK];
                        for (record, slot) in records.iter_mut().zip(&block[done..done + run]) {
                            *record = slot.map_or(&[], |(_, record)| record);
                        }
                        let (plan, records) = (&self.plans[plan], &records[..run]);
                        if worker.staging.is_empty() {
                            rows(plan, records, out, &mut worker.scratch);
                        } else {
                            let staging = &mut worker.staging[..out.len()];
                            rows(plan, records, staging, &mut worker.scratch);
                            stream::copy(staging, out);
                        }
                    }
                }
                done += run;
            }
        }
        if !worker.staging.is_empty() {
            stream::finish();
        }
    }

    fn rows16(&self, ids: &[i64], half: Half, out: &mut [u16]) {
        match self.level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => self.run(ids, out, |plan, records, out, scratch| {
                // SAFETY: `with_level` has checked that the CPU has the level.
                unsafe { avx512::rows16(plan, records, half, out, scratch) }
            }),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => self.run(ids, out, |plan, records, out, scratch| {
                // SAFETY: as above.
                unsafe { avx2::rows16(plan, records, half, out, scratch) }
            }),
            _ => self.run(ids, out, |plan, records, out, scratch| portable::rows16(plan, records, half, out, scratch)),
        }
    }

    fn rows32(&self, ids: &[i64], out: &mut [f32]) {
        match self.level {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `with_level` has checked that the CPU has the level.
            Level::Avx512 => self.run(ids, out, |p, r, o, s| unsafe { avx512::rows32(p, r, o, s) }),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Level::Avx2 => self.run(ids, out, |p, r, o, s| unsafe { avx2::rows32(p, r, o, s) }),
            _ => self.run(ids, out, portable::rows32),
        }
    }
}

impl Decoder for CpuDecoder<'_> {
    type Error = ShapeMismatch;

    fn shape(&self) -> TableShape {
        self.table.shape()
    }

    fn decode_batch(&self, batch: Batch<'_>) -> Result<(), ShapeMismatch> {
        ShapeMismatch::check(&batch, self.shape())?;
        let (ids, output) = batch.into_parts();
        match output {
            Output::Bf16(out) => self.rows16(ids, Half::Bf16, out),
            Output::F16(out) => self.rows16(ids, Half::F16, out),
            Output::F32(out) => self.rows32(ids, out),
        }
        Ok(())
    }
}

/// Asks for the cache lines of a record.
#[inline]
fn prefetch(record: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        const LINE: usize = 64;
        let lines = (record.as_ptr() as usize % LINE + record.len()).div_ceil(LINE);
        for line in 0..lines {
            // SAFETY: a prefetch is a hint and does not fault; the address is not dereferenced.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(record.as_ptr().wrapping_add(line * LINE).cast()) }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = record;
}
