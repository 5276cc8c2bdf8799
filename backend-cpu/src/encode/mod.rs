//! The CPU encoder: [`CpuEncoder`].

mod lanes;
mod portable;
mod search;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use std::sync::{Mutex, PoisonError};

use condprog_core::encoder::{EncodeBatch, EncodeError, LayoutMismatch, Outcome};
use condprog_core::hazmat::{self, Metric, Score, Target};
use condprog_core::{Encoder, Job};

use crate::error::{CpuError, check_program};
use crate::isa::Isa;
use lanes::Lanes;
use search::{Block, Pass};

/// A job made ready for the CPU. All instruction sets and thread counts give the same bytes, those of
/// [`condprog_core::encoder::ReferenceEncoder`].
///
/// Its memory is per thread that works at the same time, `dim` times 128 KiB and some (32 MiB at a width of 256), and
/// is kept from call to call.
pub struct CpuEncoder {
    job: Job,
    isa: Isa,
    blocks: Blocks,
}

/// Blocks that no thread works on just now.
enum Blocks {
    Portable(Pool<portable::Words>),
    #[cfg(target_arch = "x86_64")]
    Avx2(Pool<std::arch::x86_64::__m256i>),
    #[cfg(target_arch = "x86_64")]
    Avx512(Pool<std::arch::x86_64::__m512i>),
}

type Pool<V> = Mutex<Vec<Block<V>>>;

impl std::fmt::Debug for CpuEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let CpuEncoder { job, isa, blocks: _ } = self;
        f.debug_struct("CpuEncoder").field("job", job).field("isa", isa).finish_non_exhaustive()
    }
}

impl CpuEncoder {
    /// An encoder with the instruction set that [`Isa::detect`] gives.
    ///
    /// # Errors
    /// [`CpuError::Isa`] when the environment asks for an instruction set this CPU does not have, [`CpuError::Program`]
    /// when the job is of another program.
    pub fn new(job: Job) -> Result<CpuEncoder, CpuError> {
        CpuEncoder::with_isa(job, Isa::detect()?)
    }

    /// An encoder with a given instruction set.
    ///
    /// # Errors
    /// As [`CpuEncoder::new`].
    pub fn with_isa(job: Job, isa: Isa) -> Result<CpuEncoder, CpuError> {
        check_program(job.layout.program())?;
        let blocks = match isa.supported()? {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => Blocks::Avx512(Pool::default()),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => Blocks::Avx2(Pool::default()),
            _ => Blocks::Portable(Pool::default()),
        };
        Ok(CpuEncoder { job, isa, blocks })
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Rows that one thread codes together: a batch of fewer takes as long.
    pub fn block_rows(&self) -> usize {
        match self.blocks {
            Blocks::Portable(_) => portable::Words::ROWS,
            #[cfg(target_arch = "x86_64")]
            Blocks::Avx2(_) => std::arch::x86_64::__m256i::ROWS,
            #[cfg(target_arch = "x86_64")]
            Blocks::Avx512(_) => std::arch::x86_64::__m512i::ROWS,
        }
    }

    fn run<V: Lanes + Send>(
        &self,
        pool: &Pool<V>,
        batch: EncodeBatch<'_>,
        pass: impl Fn(&mut Block<V>, &Pass) + Sync,
    ) -> Result<(), CpuError> {
        let layout = self.job.layout;
        let (dim, stride) = (layout.dim() as usize, layout.record_bytes());
        let (rows, records, outcomes) = batch.into_parts();
        let encode = |((rows, records), outcomes): ((&[f32], &mut [u8]), &mut [_])| {
            let free = || pool.lock().unwrap_or_else(PoisonError::into_inner);
            let idle = free().pop();
            let mut block = match idle {
                Some(block) => block,
                None => Block::new(layout)?,
            };
            self.encode_block(&mut block, rows, records, outcomes, &pass);
            free().push(block);
            Ok(())
        };
        #[cfg(feature = "rayon")]
        {
            use rayon::prelude::*;
            let blocks = rows.par_chunks(dim * V::ROWS).zip(records.par_chunks_mut(stride * V::ROWS));
            blocks.zip(outcomes.par_chunks_mut(V::ROWS)).try_for_each(encode)
        }
        #[cfg(not(feature = "rayon"))]
        {
            let blocks = rows.chunks(dim * V::ROWS).zip(records.chunks_mut(stride * V::ROWS));
            blocks.zip(outcomes.chunks_mut(V::ROWS)).try_for_each(encode)
        }
    }

    /// Codes at most `V::ROWS` rows.
    fn encode_block<V: Lanes>(
        &self,
        block: &mut Block<V>,
        rows: &[f32],
        records: &mut [u8],
        outcomes: &mut [Result<Outcome, EncodeError>],
        pass: &impl Fn(&mut Block<V>, &Pass),
    ) {
        let Job { layout, rule, search, .. } = self.job;
        let (dim, stride) = (layout.dim() as usize, layout.record_bytes());
        let mut values = vec![0; V::ROWS * dim];
        let targets: Vec<_> = rows
            .chunks_exact(dim)
            .zip(values.chunks_exact_mut(dim))
            .map(|(row, values)| Target::new(layout, row, rule, values))
            .collect();
        // Padding, and rows nobody trained, come in long runs: nothing to search for.
        if targets.iter().all(|target| target.as_ref().map_or(true, |target| target.energy == 0.0)) {
            records.fill(0);
            for (outcome, target) in outcomes.iter_mut().zip(targets) {
                *outcome = target.map(|_| Outcome::Zero);
            }
            return;
        }
        let limit = Metric::TARGET_LIMIT;
        for (t, lanes) in search::lane_mut(&mut block.targets).chunks_exact_mut(V::ROWS).enumerate() {
            for (row, lane) in lanes.iter_mut().enumerate() {
                *lane = values[row * dim + t].clamp(-limit, limit) as i16 as u16;
            }
        }

        let scores = |block: &Block<V>| -> Vec<Score> {
            (0..targets.len())
                .map(|row| {
                    let range = row * dim..(row + 1) * dim;
                    Score::of(layout, &values[range.clone()], &block.paths[range], block.variants[row])
                })
                .collect()
        };
        // Takes over what a search found for the rows where it beats what they have.
        let mut best = vec![0; V::ROWS * dim];
        let mut found: Vec<(Score, u8)> = Vec::new();
        let keep = |block: &Block<V>, found: &mut Vec<(Score, u8)>, best: &mut [u16]| {
            let first = found.is_empty();
            for (row, score) in scores(block).into_iter().enumerate() {
                if first {
                    found.push((score, block.variants[row]));
                } else if score.beats(&found[row].0) {
                    found[row] = (score, block.variants[row]);
                } else {
                    continue;
                }
                let range = row * dim..(row + 1) * dim;
                best[range.clone()].copy_from_slice(&block.paths[range]);
            }
        };
        for variant in 0..search.variants() {
            block.variants.fill(variant);
            search::two_passes(block, search, pass);
            keep(block, &mut found, &mut best);
        }
        for index in 0..search.recuts() {
            block.variants.fill(0);
            for (variant, &(_, found)) in block.variants.iter_mut().zip(&found) {
                *variant = found;
            }
            block.paths.copy_from_slice(&best);
            search::cut(block, search.cut(index, layout.dim()), pass);
            keep(block, &mut found, &mut best);
        }

        let coded = rows.chunks_exact(dim).zip(best.chunks_exact(dim)).zip(targets).zip(found);
        let out = records.chunks_exact_mut(stride).zip(outcomes);
        for ((((row, path), target), (_, variant)), (record, outcome)) in coded.zip(out) {
            record.fill(0);
            *outcome = target.and_then(|target| {
                let (scale, outcome) = hazmat::finish(layout, row, &target, path, variant, rule)?;
                hazmat::write_record(layout, path, scale, record);
                Ok(outcome)
            });
        }
    }
}

impl Encoder for CpuEncoder {
    type Error = CpuError;

    fn job(&self) -> &Job {
        &self.job
    }

    /// A block for each thread of the current rayon pool.
    fn preferred_rows(&self) -> usize {
        self.block_rows()
    }

    fn encode_batch(&self, batch: EncodeBatch<'_>) -> Result<(), CpuError> {
        LayoutMismatch::check(&batch, self.job.layout)?;
        match &self.blocks {
            // SAFETY: the portable pass needs nothing of the CPU.
            Blocks::Portable(pool) => self.run(pool, batch, |b, p| unsafe { portable::pass(b, p) }),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `with_isa` makes this variant only when the CPU has the instruction set.
            Blocks::Avx2(pool) => self.run(pool, batch, |b, p| unsafe { avx2::pass(b, p) }),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Blocks::Avx512(pool) => self.run(pool, batch, |b, p| unsafe { avx512::pass(b, p) }),
        }
    }
}
