//! Source tables to a table file.

mod encode;
mod measure;
mod plan;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;

use condprog_core::Rate;
use condprog_cpu::Level;

use self::encode::{Writer, encode};
use self::measure::measure;
use self::plan::{Plan, difference};
use crate::checksum;
use crate::error::Error;
use crate::format::{self, TableInfo};
use crate::journal::{Counts, Entry, Head, JOURNAL_SUFFIX, Journal};
use crate::output::{Partial, refuse_same, with_suffix};
use crate::source::{RowSource, SourceFile};
use crate::stream::{Counter, Progress, Stage, on_threads};

/// How scales are chosen; see [`condprog_core::encoder::ScaleRule`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ScaleMode {
    /// The restored row has the length of the source row: the rule of the paper, and of figures of relative error.
    Norm,
    /// The restored row's projection on the source row is the source row. The default, since it changes the output of a
    /// language model least: 19 % less KL than `norm` at 2 bits, less at every rate from 1.5 to 3
    /// (`docs/results.md`).
    #[default]
    Projection,
    /// The smallest squared error.
    LeastSquares,
    /// One scale for a whole segment, from the root mean square of the table: one pass more over the source.
    Global,
}

impl ScaleMode {
    /// Every mode.
    pub const ALL: [ScaleMode; 4] =
        [ScaleMode::Norm, ScaleMode::Projection, ScaleMode::LeastSquares, ScaleMode::Global];

    /// As users and the metadata write it.
    pub const fn name(self) -> &'static str {
        match self {
            ScaleMode::Norm => "norm",
            ScaleMode::Projection => "projection",
            ScaleMode::LeastSquares => "least-squares",
            ScaleMode::Global => "global",
        }
    }
}

/// What to do with a row that has a NaN or an infinity, or whose scale is above the largest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NonFinite {
    /// Stop, naming tensor, row, column and value.
    #[default]
    Error,
    /// Make it a zero row, and count it.
    Zero,
}

/// A run of rows and its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentPlan {
    /// Number of rows.
    pub rows: u64,
    /// Bits per value.
    pub rate: Rate,
}

/// How to compress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressOptions {
    /// Bits per value.
    pub rate: Rate,
    /// Tables with other rates, by name: their segments in row order, which must cover the table.
    pub segments: BTreeMap<String, Vec<SegmentPlan>>,
    /// 0 to [`condprog_core::encoder::Search::MAX_EFFORT`].
    pub effort: u8,
    /// How scales are chosen.
    pub scale: ScaleMode,
    /// What to do with rows that cannot be coded.
    pub non_finite: NonFinite,
    /// Threads that code; `None` for those of the current rayon pool. One more reads, one more writes.
    pub threads: Option<NonZeroUsize>,
    /// Rows per block: what is checked, and resumed, as one. `None` for a number that follows from the width. Part of
    /// the file.
    pub block_rows: Option<u32>,
    /// Overwrite the output, and start over where an unfinished one does not fit.
    pub force: bool,
}

impl Default for CompressOptions {
    fn default() -> CompressOptions {
        CompressOptions {
            rate: Rate::TWO,
            segments: BTreeMap::new(),
            effort: 2,
            scale: ScaleMode::default(),
            non_finite: NonFinite::default(),
            threads: None,
            block_rows: None,
            force: false,
        }
    }
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressReport {
    /// The tables, as their file has them.
    pub tables: Vec<TableInfo>,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Rows that an earlier run had done.
    pub resumed_rows: u64,
}

/// Compresses tables of a safetensors file, selected by patterns as [`SourceFile::select`] takes them.
///
/// # Errors
/// As [`compress`], and [`Error::Header`] or [`Error::Source`] when the input does not hold what is asked for.
pub fn compress_file(
    input: impl AsRef<Path>,
    patterns: &[String],
    output: impl AsRef<Path>,
    options: &CompressOptions,
    progress: &Progress<'_>,
) -> Result<CompressReport, Error> {
    let file = SourceFile::open(input)?;
    let mut sources: Vec<Box<dyn RowSource>> = Vec::new();
    for info in file.select(patterns)? {
        sources.push(Box::new(file.table(&info.name)?));
    }
    compress(&mut sources, output, options, progress)
}

/// Compresses tables into one file.
///
/// The output is written as `OUTPUT.condprog-partial`, with a journal `OUTPUT.condprog-journal` beside it, and gets
/// its name when it is whole and on the disk. A run that ended early, for whatever reason, leaves these two; the same
/// call goes on where it was, and gives the same bytes as a run that was never stopped. With other parameters it
/// refuses, unless `force` is set: then it starts over. `threads` and `non_finite` may change between runs: blocks in
/// which an earlier run zeroed rows are done again under [`NonFinite::Error`].
///
/// Memory: a few blocks of rows and what an [`Encoder`](condprog_cpu::Encoder) takes per thread, whatever the size of
/// the tables.
///
/// # Errors
/// [`Error`], each naming what it is about.
pub fn compress(
    sources: &mut [Box<dyn RowSource>],
    output: impl AsRef<Path>,
    options: &CompressOptions,
    progress: &Progress<'_>,
) -> Result<CompressReport, Error> {
    let output = output.as_ref();
    // Said at once, not after hours of measuring.
    Level::detect()?;
    if sources.is_empty() {
        return Err(Error::NothingToDo);
    }
    sources.iter().flat_map(|source| source.files()).try_for_each(|input| refuse_same(input, output))?;
    on_threads(options.threads, || {
        let plan = Plan::new(sources, output, options)?;
        run(sources, output, options, plan, progress)
    })
}

/// Blocks that are done, by segment and block.
type Done = BTreeMap<(usize, u64), Entry>;

fn run(
    sources: &mut [Box<dyn RowSource>],
    output: &Path,
    options: &CompressOptions,
    mut plan: Plan,
    progress: &Progress<'_>,
) -> Result<CompressReport, Error> {
    let mut partial = Partial::open(output, options.force)?;
    let journal_path = with_suffix(output, JOURNAL_SUFFIX);
    let earlier = Journal::read(&journal_path)?.filter(|_| partial.length() > 0);
    let (fresh, mut journal, mut done) = match resume(earlier, &mut plan, &mut partial, options)? {
        Some(done) => (false, Journal::go_on(journal_path, plan.file_bytes)?, done),
        None => {
            let global = options.scale == ScaleMode::Global;
            let measured = if global { measure(sources, &mut plan.head.tables, options, progress) } else { Ok(()) };
            if let Err(error) = measured.and_then(|()| partial.restart(plan.file_bytes)) {
                partial.discard();
                return Err(error);
            }
            (true, Journal::start(journal_path, &plan.head, plan.file_bytes)?, Done::new())
        }
    };
    let rows = |&(segment, block): &(usize, u64)| {
        let rows = plan.block(segment, block);
        rows.end - rows.start
    };
    let resumed_rows = done.keys().map(rows).sum();
    let total = plan.head.tables.iter().map(|table| table.rows).sum();
    let mut counter = Counter::new(Stage::Encode, progress, resumed_rows, total);
    let writer = Writer { plan: &plan, partial: &mut partial, journal: &mut journal, done: &mut done };
    if let Err(error) = encode(sources, options, writer, &mut counter) {
        // Nothing is lost by leaving nothing behind.
        if fresh && done.is_empty() {
            partial.discard();
            journal.remove()?;
        }
        return Err(error);
    }
    let tables = finish(plan, &done, &mut partial)?;
    let file_bytes = partial.length();
    partial.finish(options.force)?;
    journal.remove()?;
    Ok(CompressReport { tables, file_bytes, resumed_rows })
}

/// What an earlier run has done, if there was one. Its global scales are taken over: they follow from the same source.
fn resume(
    earlier: Option<(Head, Vec<Entry>)>,
    plan: &mut Plan,
    partial: &mut Partial,
    options: &CompressOptions,
) -> Result<Option<Done>, Error> {
    let Some((head, entries)) = earlier else { return Ok(None) };
    if let Some((what, got, expected)) = difference(&head, &plan.head) {
        if options.force {
            return Ok(None);
        }
        return Err(Error::OtherRun { path: partial.path().into(), what, got, expected });
    }
    if partial.length() != plan.file_bytes {
        return Ok(None);
    }
    let measured = head.tables.iter().flat_map(|table| &table.segments);
    for (segment, measured) in plan.head.tables.iter_mut().flat_map(|table| &mut table.segments).zip(measured) {
        segment.global_scale = measured.global_scale;
    }
    let mut done = Done::new();
    for entry in entries {
        let Some(segment) = plan.segments.get(entry.segment) else { continue };
        let info = plan.info(segment).1;
        let zeroed_under_other_policy = entry.counts.non_finite > 0 && options.non_finite == NonFinite::Error;
        if entry.block >= info.blocks() || zeroed_under_other_policy {
            continue;
        }
        let rows = plan.block(entry.segment, entry.block);
        let mut records = vec![0; ((rows.end - rows.start) * info.record_bytes) as usize];
        partial.read_at(segment.records + rows.start * info.record_bytes, &mut records)?;
        if checksum::of(&records) == entry.checksum {
            done.insert((entry.segment, entry.block), entry);
        }
    }
    Ok(Some(done))
}

/// Writes checksums and header; gives the tables as they are now known.
fn finish(plan: Plan, done: &Done, partial: &mut Partial) -> Result<Vec<TableInfo>, Error> {
    let mut tables = plan.head.tables;
    let mut counts = vec![Counts::default(); tables.len()];
    for (index, segment) in plan.segments.iter().enumerate() {
        let mut checksums = Vec::new();
        for (_, entry) in done.range((index, 0)..(index + 1, 0)) {
            checksums.extend(entry.checksum.to_le_bytes());
            counts[segment.table] += entry.counts;
        }
        partial.write_at(segment.checksums, &checksums)?;
        tables[segment.table].segments[segment.index].checksums.xxh3_64 = checksum::hex(checksum::of(&checksums));
    }
    for (table, counts) in tables.iter_mut().zip(counts) {
        (table.zero_rows, table.underflow_rows, table.non_finite_rows) =
            (counts.zero, counts.underflow, counts.non_finite);
    }
    let header =
        format::header_bytes(&tables, plan.header_bytes).map_err(|source| Error::header(partial.path(), source))?;
    partial.write_at(0, &header)?;
    Ok(tables)
}
