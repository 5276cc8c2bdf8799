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

use condprog_core::{Batch, Decoder, Layout, Output, Segment, Segments, ShapeMismatch, TableShape};

use crate::error::{CpuError, check_program};
use crate::isa::Isa;
use plan::{Plan, Scratch};
use stream::Value;

/// Rows whose records are fetched together.
const BLOCK: usize = 16;
/// Rows of a request that one thread takes at a time; smaller requests stay on the calling thread.
#[cfg(feature = "rayon")]
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

/// A decoder over the segments of a table, owned or borrowed. Large requests are spread over the threads of the current
/// rayon pool.
#[derive(Clone, Debug)]
pub struct CpuDecoder<S> {
    segments: S,
    shape: TableShape,
    isa: Isa,
    /// First row of each segment.
    starts: Vec<u64>,
    places: Vec<Place>,
    plans: Vec<Plan>,
}

/// How the records of a segment lie and are decoded. What the segment was when it was checked: what it is when rows are
/// asked for may be something else, and then rows are wrong, but nothing is read that is not there.
#[derive(Clone, Copy, Debug)]
struct Place {
    record_bytes: usize,
    plan: usize,
}

/// The 16-bit output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Half {
    Bf16,
    F16,
}

impl<S: Segments> CpuDecoder<S> {
    /// A decoder with the instruction set that [`Isa::detect`] gives.
    ///
    /// # Errors
    /// [`CpuError::Isa`] when the environment asks for an instruction set this CPU does not have, [`CpuError::Table`] when
    /// the segments do not make a table, [`CpuError::Program`] when it is of another program.
    pub fn new(segments: S) -> Result<CpuDecoder<S>, CpuError> {
        CpuDecoder::with_isa(segments, Isa::detect()?)
    }

    /// A decoder with a given instruction set.
    ///
    /// # Errors
    /// As [`CpuDecoder::new`].
    pub fn with_isa(segments: S, isa: Isa) -> Result<CpuDecoder<S>, CpuError> {
        let isa = isa.supported()?;
        let shape = TableShape::of(&segments)?;
        let (mut starts, mut places, mut layouts) = (Vec::new(), Vec::new(), Vec::<Layout>::new());
        let mut start = 0u64;
        for index in 0..segments.count() {
            let Segment { rows, layout, .. } = segments.segment(index);
            check_program(layout.program())?;
            let plan = layouts.iter().position(|&other| other == layout).unwrap_or_else(|| {
                layouts.push(layout);
                layouts.len() - 1
            });
            starts.push(start);
            places.push(Place { record_bytes: layout.record_bytes(), plan });
            start = start.saturating_add(rows);
        }
        let plans = layouts.into_iter().map(Plan::new).collect();
        Ok(CpuDecoder { segments, shape, isa, starts, places, plans })
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// What the decoder reads from.
    pub fn segments(&self) -> &S {
        &self.segments
    }

    /// Plan and record of a row, or `None` where the id names none.
    #[inline]
    fn record(&self, id: i64) -> Option<(usize, &[u8])> {
        let row = u64::try_from(id).ok().filter(|&row| row < self.shape.rows)?;
        // The last segment that starts at or before the row; empty segments share their start with the next one.
        let index = if self.starts.len() == 1 { 0 } else { self.starts.partition_point(|&start| start <= row) - 1 };
        let Place { record_bytes, plan } = self.places[index];
        // In range of usize: the segment's slice of records holds it.
        let start = (row - self.starts[index]) as usize * record_bytes;
        Some((plan, &self.segments.segment(index).records[start..start + record_bytes]))
    }
}

impl<S: Segments + Sync> CpuDecoder<S> {
    /// Decodes a request into `out`, in chunks on several threads where it is large.
    fn run<T: Value>(&self, ids: &[i64], out: &mut [T], rows: impl Fn(&Plan, &[&[u8]], &mut [T], &mut Scratch) + Sync) {
        let dim = self.shape.dim as usize;
        let staged = if size_of_val::<[T]>(out) < STREAM_BYTES { 0 } else { BLOCK * dim };
        let worker = || Worker { staging: vec![T::default(); staged], ..Worker::default() };
        #[cfg(feature = "rayon")]
        if ids.len() > CHUNK && rayon::current_num_threads() > 1 {
            use rayon::prelude::*;
            let chunks = ids.par_chunks(CHUNK).zip(out.par_chunks_mut(CHUNK * dim));
            return chunks.for_each_init(worker, |worker, (ids, out)| self.chunk(ids, out, &rows, worker));
        }
        self.chunk(ids, out, &rows, &mut worker());
    }

    fn chunk<T: Value>(
        &self,
        ids: &[i64],
        out: &mut [T],
        rows: &impl Fn(&Plan, &[&[u8]], &mut [T], &mut Scratch),
        worker: &mut Worker<T>,
    ) {
        let dim = self.shape.dim as usize;
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
        match self.isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => self.run(ids, out, |plan, records, out, scratch| {
                // SAFETY: `with_isa` has checked that the CPU has the instruction set.
                unsafe { avx512::rows16(plan, records, half, out, scratch) }
            }),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => self.run(ids, out, |plan, records, out, scratch| {
                // SAFETY: as above.
                unsafe { avx2::rows16(plan, records, half, out, scratch) }
            }),
            _ => self.run(ids, out, |plan, records, out, scratch| portable::rows16(plan, records, half, out, scratch)),
        }
    }

    fn rows32(&self, ids: &[i64], out: &mut [f32]) {
        match self.isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `with_isa` has checked that the CPU has the instruction set.
            Isa::Avx512 => self.run(ids, out, |p, r, o, s| unsafe { avx512::rows32(p, r, o, s) }),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx2 => self.run(ids, out, |p, r, o, s| unsafe { avx2::rows32(p, r, o, s) }),
            _ => self.run(ids, out, portable::rows32),
        }
    }
}

impl<S: Segments + Sync> Decoder for CpuDecoder<S> {
    type Error = ShapeMismatch;

    fn shape(&self) -> TableShape {
        self.shape
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
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        const LINE: usize = 64;
        let lines = (record.as_ptr() as usize % LINE + record.len()).div_ceil(LINE);
        for line in 0..lines {
            // SAFETY: a prefetch is a hint and does not fault; the address is not dereferenced.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(record.as_ptr().wrapping_add(line * LINE).cast()) }
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = record;
}
