//! The CPU encoder: [`Encoder`].

mod lanes;
mod portable;
mod search;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use std::sync::{Mutex, PoisonError};

use condprog_core::Layout;
use condprog_core::encoder::{EncodeError, Outcome, ScaleRule, Search};
use condprog_core::hazmat::{self, Metric, Score, Target};
use rayon::prelude::*;

use crate::level::{Level, UnsupportedLevel};
use lanes::Lanes;
use search::{Block, Pass};

/// An encoder for rows of one layout. All levels and thread counts give the same bytes, those of
/// [`condprog_core::encoder::ReferenceEncoder`].
///
/// Its memory is per thread that works at the same time, `dim` times 128 KiB and some (32 MiB at a width of 256), and
/// is kept from call to call.
pub struct Encoder {
    layout: Layout,
    rule: ScaleRule,
    search: Search,
    level: Level,
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

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Encoder { layout, rule, search, level, blocks: _ } = self;
        let mut debug = f.debug_struct("Encoder");
        debug.field("layout", layout).field("rule", rule).field("search", search).field("level", level);
        debug.finish_non_exhaustive()
    }
}

impl Encoder {
    /// An encoder at the level [`Level::detect`] gives.
    ///
    /// # Errors
    /// [`UnsupportedLevel`] when the environment asks for a level this CPU does not have.
    pub fn new(layout: Layout, rule: ScaleRule, search: Search) -> Result<Encoder, UnsupportedLevel> {
        Encoder::with_level(layout, rule, search, Level::detect()?)
    }

    /// An encoder at a given level.
    ///
    /// # Errors
    /// [`UnsupportedLevel`] when this CPU does not have it.
    pub fn with_level(
        layout: Layout,
        rule: ScaleRule,
        search: Search,
        level: Level,
    ) -> Result<Encoder, UnsupportedLevel> {
        let blocks = match level.supported()? {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => Blocks::Avx512(Pool::default()),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => Blocks::Avx2(Pool::default()),
            _ => Blocks::Portable(Pool::default()),
        };
        Ok(Encoder { layout, rule, search, level, blocks })
    }

    /// The level in use.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The layout of the rows.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Rows that are coded together by one thread; a call with a multiple of `block_rows() * threads` rows wastes
    /// nothing.
    pub fn block_rows(&self) -> usize {
        match self.blocks {
            Blocks::Portable(_) => portable::Words::ROWS,
            #[cfg(target_arch = "x86_64")]
            Blocks::Avx2(_) => std::arch::x86_64::__m256i::ROWS,
            #[cfg(target_arch = "x86_64")]
            Blocks::Avx512(_) => std::arch::x86_64::__m512i::ROWS,
        }
    }

    /// Codes rows (`n * dim` values, row-major) into records (`n * record_bytes` bytes), on the threads of the current
    /// rayon pool. Returns what became of each row; the record of a row that failed is all zero.
    ///
    /// # Panics
    /// When `rows` is not a whole number of rows or `records` not the same number of records.
    pub fn encode(&self, rows: &[f32], records: &mut [u8]) -> Vec<Result<Outcome, EncodeError>> {
        let (dim, stride) = (self.layout.dim() as usize, self.layout.record_bytes());
        assert!(rows.len().is_multiple_of(dim), "{} values are no whole number of rows of {dim}", rows.len());
        assert_eq!(records.len(), rows.len() / dim * stride, "record bytes");
        match &self.blocks {
            // SAFETY: the portable pass needs nothing of the CPU.
            Blocks::Portable(pool) => self.run(pool, rows, records, |b, p| unsafe { portable::pass(b, p) }),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `with_level` makes this variant only when the CPU has the level.
            Blocks::Avx2(pool) => self.run(pool, rows, records, |b, p| unsafe { avx2::pass(b, p) }),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Blocks::Avx512(pool) => self.run(pool, rows, records, |b, p| unsafe { avx512::pass(b, p) }),
        }
    }

    fn run<V: Lanes + Send>(
        &self,
        pool: &Pool<V>,
        rows: &[f32],
        records: &mut [u8],
        pass: impl Fn(&mut Block<V>, &Pass) + Sync,
    ) -> Vec<Result<Outcome, EncodeError>> {
        let (dim, stride) = (self.layout.dim() as usize, self.layout.record_bytes());
        rows.par_chunks(dim * V::ROWS)
            .zip(records.par_chunks_mut(stride * V::ROWS))
            .flat_map_iter(|(rows, records)| {
                let free = || pool.lock().unwrap_or_else(PoisonError::into_inner);
                let idle = free().pop();
                let mut block = idle.unwrap_or_else(|| Block::new(self.layout));
                let outcomes = self.encode_block(&mut block, rows, records, &pass);
                free().push(block);
                outcomes
            })
            .collect()
    }

    /// Codes at most `V::ROWS` rows.
    fn encode_block<V: Lanes>(
        &self,
        block: &mut Block<V>,
        rows: &[f32],
        records: &mut [u8],
        pass: &impl Fn(&mut Block<V>, &Pass),
    ) -> Vec<Result<Outcome, EncodeError>> {
        let (dim, stride) = (self.layout.dim() as usize, self.layout.record_bytes());
        let mut values = vec![0; V::ROWS * dim];
        let targets: Vec<_> = rows
            .chunks_exact(dim)
            .zip(values.chunks_exact_mut(dim))
            .map(|(row, values)| Target::new(self.layout, row, self.rule, values))
            .collect();
        // Padding, and rows nobody trained, come in long runs: nothing to search for.
        if targets.iter().all(|target| target.as_ref().map_or(true, |target| target.energy == 0.0)) {
            records.fill(0);
            return targets.into_iter().map(|target| target.map(|_| Outcome::Zero)).collect();
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
                    Score::of(self.layout, &values[range.clone()], &block.paths[range], block.variants[row])
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
        for variant in 0..self.search.variants() {
            block.variants.fill(variant);
            search::two_passes(block, self.search, pass);
            keep(block, &mut found, &mut best);
        }
        for index in 0..self.search.recuts() {
            block.variants.fill(0);
            for (variant, &(_, found)) in block.variants.iter_mut().zip(&found) {
                *variant = found;
            }
            block.paths.copy_from_slice(&best);
            search::cut(block, self.search.cut(index, self.layout.dim()), pass);
            keep(block, &mut found, &mut best);
        }

        let rows = rows.chunks_exact(dim).zip(best.chunks_exact(dim)).zip(records.chunks_exact_mut(stride));
        rows.zip(targets.into_iter().zip(found))
            .map(|(((row, path), record), (target, (_, variant)))| {
                record.fill(0);
                let (scale, outcome) = hazmat::finish(self.layout, row, &target?, path, variant, self.rule)?;
                hazmat::write_record(self.layout, path, scale, record);
                Ok(outcome)
            })
            .collect()
    }
}
