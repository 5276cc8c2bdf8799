//! Source tables to a table file.

mod encode;
mod files;
mod join;
mod measure;
mod plan;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};

use condprog_core::Rate;
use condprog_cpu::Level;

use self::encode::{Writer, encode};
use self::files::{Files, Finished};
pub use self::join::{JoinOptions, join};
use self::measure::measure;
use self::plan::{Plan, Whole, differ};
use crate::checksum;
use crate::error::Error;
use crate::format::TableInfo;
use crate::journal::{Entry, Head, JOURNAL_SUFFIX, Journal};
use crate::output::{refuse_same, with_suffix};
use crate::source::{Checkpoint, RowSource};
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

/// Segments of a table of `rows` rows: `rate`, and in some ranges of rows another, in any order.
///
/// # Errors
/// [`Error::RateRows`] when a range is empty, ends beyond the table or overlaps another.
pub fn rate_segments(
    table: &str,
    rows: u64,
    rate: Rate,
    ranges: &[(Range<u64>, Rate)],
) -> Result<Vec<SegmentPlan>, Error> {
    let mut sorted: Vec<_> = ranges.iter().collect();
    sorted.sort_by_key(|(range, _)| range.start);
    let mut segments = Vec::new();
    let mut next = 0;
    for (range, own) in sorted {
        if range.start < next || range.start >= range.end || range.end > rows {
            return Err(Error::RateRows { table: table.into(), range: range.clone(), rows });
        }
        segments.push(SegmentPlan { rows: range.start - next, rate });
        segments.push(SegmentPlan { rows: range.end - range.start, rate: *own });
        next = range.end;
    }
    segments.push(SegmentPlan { rows: rows - next, rate });
    segments.retain(|segment| segment.rows > 0);
    Ok(segments)
}

/// The rows that one machine codes of what many do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PartOf {
    /// These rows, of the only table.
    Rows(Range<u64>),
    /// The share `index` of `of` shares of the rows of all tables, as equal as whole blocks allow.
    Share {
        /// 0 to `of - 1`.
        index: u64,
        /// How many there are.
        of: u64,
    },
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
    /// Bytes of records and checksums that a file may have: `OUT.safetensors` is then cut into
    /// `OUT-00001-of-0000N.safetensors` and so on, with an index `OUT.safetensors.index.json`. `None` for one file.
    pub shard_bytes: Option<u64>,
    /// Code some of the rows only, into one file, which [`join`] puts together with the others.
    pub part: Option<PartOf>,
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
            shard_bytes: None,
            part: None,
            force: false,
        }
    }
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressReport {
    /// The tables, over all files.
    pub tables: Vec<TableInfo>,
    /// The files, in row order.
    pub files: Vec<PathBuf>,
    /// The index, of an output that is cut into files.
    pub index: Option<PathBuf>,
    /// Bytes of all files.
    pub file_bytes: u64,
    /// Rows that an earlier run had done.
    pub resumed_rows: u64,
}

/// Compresses tables of a checkpoint, selected by patterns as [`Checkpoint::select`] takes them.
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
    let checkpoint = Checkpoint::open(input)?;
    let mut sources: Vec<Box<dyn RowSource>> = Vec::new();
    for info in checkpoint.select(patterns)? {
        sources.push(Box::new(checkpoint.rows(info)?));
    }
    compress(&mut sources, output, options, progress)
}

/// Compresses tables into one file, or into several with an index.
///
/// A file is written as `FILE.condprog-partial`, with a journal `OUTPUT.condprog-journal` beside it, and gets its name
/// when all are whole and on the disk; the index comes last. A run that ended early, for whatever reason, leaves these;
/// the same call goes on where it was, and gives the same bytes as a run that was never stopped. With other parameters
/// it refuses, unless `force` is set: then it starts over. `threads` and `non_finite` may change between runs: blocks in
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
    on_threads(options.threads, || {
        let infos: Vec<_> = sources.iter().map(|source| source.info().clone()).collect();
        let identities = sources.iter().map(|source| source.identity().into()).collect();
        let plan = Plan::new(Whole::new(&infos, options)?, identities, output, options.part.as_ref())?;
        for input in sources.iter().flat_map(|source| source.files()) {
            plan.outputs().try_for_each(|output| refuse_same(input, output))?;
        }
        run(sources, output, options, plan, progress)
    })
}

/// What [`compress()`] with these arguments has written, if its files are there and whole, and none of the output is
/// unfinished. Of the source only names, types and shapes are compared: whether its values are still the same is for the
/// caller to know.
///
/// # Errors
/// As [`compress()`], for options that do not fit.
pub fn finished(
    sources: &[Box<dyn RowSource>],
    output: impl AsRef<Path>,
    options: &CompressOptions,
) -> Result<Option<CompressReport>, Error> {
    let infos: Vec<_> = sources.iter().map(|source| source.info().clone()).collect();
    let plan = Plan::new(Whole::new(&infos, options)?, Vec::new(), output.as_ref(), options.part.as_ref())?;
    Ok(files::finished(plan))
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
    let journal_path = with_suffix(output, JOURNAL_SUFFIX);
    let earlier = same_run(Journal::read(&journal_path)?, &plan, output, options.force)?;
    let mut files = Files::open(&plan, options.force, earlier.as_ref().map(|_| journal_path.as_path()))?;
    let earlier = earlier.filter(|_| files.are_begun());
    let (fresh, mut journal, mut done) = match resume(earlier, &mut plan, &mut files, options)? {
        Some(done) => (false, Journal::go_on(journal_path, plan.file_bytes())?, done),
        None => {
            let global = options.scale == ScaleMode::Global;
            let measured = if global { measure(sources, &mut plan, options, progress) } else { Ok(()) };
            if let Err(error) = measured.and_then(|()| files.restart(&plan)) {
                files.discard();
                return Err(error);
            }
            (true, Journal::start(journal_path, &plan.head, plan.file_bytes())?, Done::new())
        }
    };
    let rows = |&(segment, block): &(usize, u64)| {
        let rows = plan.block(segment, block);
        rows.end - rows.start
    };
    let resumed_rows = done.keys().map(rows).sum();
    let mut counter = Counter::new(Stage::Encode, progress, resumed_rows, plan.rows());
    let writer = Writer { plan: &plan, files: &mut files, journal: &mut journal, done: &mut done };
    if let Err(error) = encode(sources, options, writer, &mut counter) {
        // Nothing is lost by leaving nothing behind.
        if fresh && done.is_empty() {
            files.discard();
            journal.remove()?;
        }
        return Err(error);
    }
    let mut finished = vec![Finished::default(); plan.segments.len()];
    for ((segment, _), entry) in done {
        finished[segment].checksums.push(entry.checksum);
        finished[segment].zeroed += entry.counts;
    }
    let report = files.finish(plan, &finished, options.force)?;
    // The files are locked as long as there is a journal.
    journal.remove()?;
    drop(files);
    Ok(CompressReport { resumed_rows, ..report })
}

/// The journal of an earlier run, if that was asked for the same. Another one that has left unfinished files is refused,
/// or makes room.
fn same_run(
    earlier: Option<(Head, Vec<Entry>)>,
    plan: &Plan,
    output: &Path,
    force: bool,
) -> Result<Option<(Head, Vec<Entry>)>, Error> {
    let Some((head, entries)) = earlier else { return Ok(None) };
    let Some((what, got, expected)) = differ(&head, &plan.head) else { return Ok(Some((head, entries))) };
    match Files::of_other_run(output, &head) {
        Some(path) if !force => return Err(Error::OtherRun { path, what, got, expected }),
        Some(_) => Files::discard_other_run(output, &head)?,
        None => {}
    }
    Ok(None)
}

/// What an earlier run has done, if there was one. Its global scales are taken over: they follow from the same source.
fn resume(
    earlier: Option<(Head, Vec<Entry>)>,
    plan: &mut Plan,
    files: &mut Files,
    options: &CompressOptions,
) -> Result<Option<Done>, Error> {
    let Some((head, entries)) = earlier else { return Ok(None) };
    if !files.have_length(plan) {
        return Ok(None);
    }
    let measured = head.files.iter().flatten().flat_map(|table| &table.segments);
    let segments = plan.head.files.iter_mut().flatten().flat_map(|table| &mut table.segments);
    for (segment, measured) in segments.zip(measured) {
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
        files.read_at(segment.file, segment.records + rows.start * info.record_bytes, &mut records)?;
        if checksum::of(&records) == entry.checksum {
            done.insert((entry.segment, entry.block), entry);
        }
    }
    Ok(Some(done))
}
