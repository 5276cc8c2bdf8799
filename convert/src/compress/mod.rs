//! From source tables to a table file.

mod encode;
pub(crate) mod files;
mod join;
mod measure;
mod plan;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};

use condprog_checkpoint::{Checkpoint, FileState, RowSource};
use condprog_core::encoder::{ScaleRule, Search};
use condprog_core::{Job, Rate};
use condprog_table::SegmentPlan;
use condprog_table::checksum;
use condprog_table::format::{TableInfo, Zeroed};

use self::encode::{Writer, encode};
use self::files::{Files, Finished, Past};
pub use self::join::{JoinOptions, join};
use self::measure::measure;
use self::plan::{Plan, Whole, differ};
use crate::codec::Codec;
use crate::error::Error;
use crate::journal::{self, Account, Entry, Head, Journal};
use crate::output::{folder_of, free_bytes, partial_path};
use crate::stream::{Counter, Progress, Stage, on_threads};

/// What to do with a row that has a NaN or an infinity, or whose scale is above the largest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NonFinite {
    /// Stop, naming tensor, row, column and value.
    #[default]
    Error,
    /// Make it a zero row, and count it.
    Zero,
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

/// The rows that one of many machines codes.
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
    pub scale: ScaleRule<()>,
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
            scale: ScaleRule::default(),
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
/// As [`compress`], and [`Error::File`] or [`Error::Checkpoint`] when the input does not hold what is asked for.
pub fn compress_file(
    input: impl AsRef<Path>,
    patterns: &[String],
    output: impl AsRef<Path>,
    options: &CompressOptions,
    codec: &dyn Codec,
    progress: &Progress<'_>,
) -> Result<CompressReport, Error> {
    let checkpoint = Checkpoint::open(input)?;
    let mut sources: Vec<Box<dyn RowSource>> = Vec::new();
    for info in checkpoint.select(patterns)? {
        sources.push(Box::new(checkpoint.rows(info)?));
    }
    compress(&mut sources, output, options, codec, progress)
}

/// Compresses tables into one file, or into several with an index.
///
/// A file is written as `FILE.condprog-partial`, with a journal `OUTPUT.condprog-journal` beside it, and gets its name
/// when all are complete and on disk; the index comes last. A run that ended early, for whatever reason, leaves these;
/// the same call resumes there, and gives the same bytes as a run that was never stopped. With other parameters or
/// another source it refuses, unless `force` is set: then it starts over. `threads` and `non_finite` may change
/// between runs: blocks in which an earlier run zeroed rows are done again under [`NonFinite::Error`].
///
/// The source is only read, and must not change meanwhile: when it has, the output does not get its name. Nothing but
/// files that this function has created is written to, renamed or removed; forced, so are files of an earlier output of
/// the same name.
///
/// Memory: a few blocks of rows and what an encoder takes per thread, whatever the size of the tables.
///
/// # Errors
/// [`Error`], each naming what it is about.
pub fn compress(
    sources: &mut [Box<dyn RowSource>],
    output: impl AsRef<Path>,
    options: &CompressOptions,
    codec: &dyn Codec,
    progress: &Progress<'_>,
) -> Result<CompressReport, Error> {
    let output = output.as_ref();
    on_threads(options.threads, || {
        let plan = plan(sources, output, options)?;
        // Said at once, not after hours of measuring.
        if let Some(segment) = plan.segments.first() {
            codec.encoder(Job::new(segment.layout, ScaleRule::Norm, Search::effort(options.effort)))?;
        }
        run(sources, options, codec, plan, progress)
    })
}

/// What [`compress()`] would write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// The files with their lengths, in row order.
    pub files: Vec<(PathBuf, u64)>,
    /// The index, of an output that is cut into files.
    pub index: Option<PathBuf>,
    /// Files that are there until the output is whole.
    pub working: Vec<PathBuf>,
    /// Bytes of all files.
    pub file_bytes: u64,
    /// Bytes that are free where they go; `None` where that is not known.
    pub free_bytes: Option<u64>,
    /// Whether an equal run was interrupted, so that this one would resume it.
    pub resumes: bool,
}

/// What [`compress()`] with these arguments would write, after every check that it makes before its work. Nothing is
/// written, no file is touched.
///
/// # Errors
/// As [`compress()`], before its work.
pub fn preview(
    sources: &mut [Box<dyn RowSource>],
    output: impl AsRef<Path>,
    options: &CompressOptions,
) -> Result<Preview, Error> {
    let plan = plan(sources, output.as_ref(), options)?;
    let (past, _) = past(journal::peek(&plan.output)?, &plan, options.force)?;
    files::check(&plan, past)?;
    Ok(Preview {
        file_bytes: plan.file_bytes(),
        free_bytes: free_bytes(folder_of(&plan.output)),
        working: plan.working_names(),
        resumes: past.resumes,
        files: plan.files.into_iter().map(|file| (file.path, file.file_bytes)).collect(),
        index: plan.index,
    })
}

/// Whether a run with this output was interrupted, and left something that the same call resumes.
pub fn is_begun(output: impl AsRef<Path>) -> bool {
    // A file that is not this program's journal is not a run's either.
    matches!(journal::peek(output.as_ref()), Ok(Account::Empty | Account::Damaged | Account::Run(..)))
}

/// What [`compress()`] with these arguments has written, if its files are there and whole, and none of the output is
/// unfinished.
///
/// # Errors
/// As [`compress()`], for options that do not fit; [`Error::OtherRun`] when rows have become zeros that are an error now.
pub fn finished(
    sources: &mut [Box<dyn RowSource>],
    output: impl AsRef<Path>,
    options: &CompressOptions,
) -> Result<Option<CompressReport>, Error> {
    files::finished(plan_of(sources, output.as_ref(), options)?, options.non_finite)
}

/// The plan, and that none of its names is that of a file that is read.
fn plan(sources: &mut [Box<dyn RowSource>], output: &Path, options: &CompressOptions) -> Result<Plan, Error> {
    let plan = plan_of(sources, output, options)?;
    let inputs: Vec<_> = sources.iter().flat_map(|source| source.files()).map(PathBuf::as_path).collect();
    files::refuse_inputs(&plan, &inputs)?;
    Ok(plan)
}

fn plan_of(sources: &mut [Box<dyn RowSource>], output: &Path, options: &CompressOptions) -> Result<Plan, Error> {
    if sources.is_empty() {
        return Err(Error::NothingToDo);
    }
    let infos: Vec<_> = sources.iter().map(|source| source.info().clone()).collect();
    // What is wrong with options is said before anything is read.
    Whole::new(&infos, &vec![String::new(); infos.len()], options)?;
    let identities = sources.iter_mut().map(|source| source.identity()).collect::<Result<Vec<_>, _>>()?;
    Plan::new(Whole::new(&infos, &identities, options)?, output, options.part.as_ref())
}

/// What an earlier run was, and its blocks.
type Earlier = Option<(Box<Head>, Vec<Entry>)>;

/// What the journal's account of an earlier run means for this one. Another run that has left unfinished files is
/// refused.
fn past(account: Account, plan: &Plan, force: bool) -> Result<(Past, Earlier), Error> {
    let past = |resumes, journal| Past { resumes, journal, restarts: None, force };
    match account {
        Account::None | Account::Empty => Ok((past(false, "missing"), None)),
        Account::Damaged => Ok((past(false, "damaged"), None)),
        Account::Run(head, entries) => {
            let Some((what, got, expected)) = differ(&head, &plan.head) else {
                return Ok((past(true, ""), Some((head, entries))));
            };
            match Files::of_other_run(&plan.output, &head)? {
                Some(path) if !force => Err(Error::OtherRun { path, what, got, expected }),
                _ => Ok((past(false, "that of another run"), Some((head, entries)))),
            }
        }
    }
}

/// Blocks that are done, by segment and block.
type Done = BTreeMap<(usize, u64), Entry>;

fn run(
    sources: &mut [Box<dyn RowSource>],
    options: &CompressOptions,
    codec: &dyn Codec,
    mut plan: Plan,
    progress: &Progress<'_>,
) -> Result<CompressReport, Error> {
    let (mut journal, account) = Journal::open(&plan.output, plan.file_bytes())?;
    let (past, earlier) = past(account, &plan, options.force)?;
    let earlier = match earlier {
        Some((head, _)) if !past.resumes => {
            Files::discard_other_run(&plan.output, &head)?;
            None
        }
        earlier => earlier,
    };
    let mut files = Files::open(&plan, past)?;
    plan.head.states = sources.iter().map(|source| source.state()).collect::<Result<_, _>>()?;
    let earlier = earlier.filter(|_| files.are_begun());
    let fresh = earlier.is_none();
    let begun = match earlier {
        Some((head, entries)) => resume(sources, &head, entries, &mut plan, &mut files, options, progress),
        None => begin(sources, &mut plan, options, progress),
    };
    let mut done = match begun {
        Ok(done) => done,
        Err(error) => {
            files.abandon();
            return Err(error);
        }
    };
    if fresh {
        // Before any file is more than its mark, so that none is ever begun without an account.
        if let Err(error) = journal.start(&plan.head).and_then(|()| files.restart(&plan)) {
            files.discard();
            journal.remove()?;
            return Err(error);
        }
    } else {
        journal.go_on()?;
    }
    let rows = |&(segment, block): &(usize, u64)| {
        let rows = plan.block(segment, block);
        rows.end - rows.start
    };
    let resumed_rows = done.keys().map(rows).sum();
    let mut counter = Counter::new(Stage::Encode, progress, resumed_rows, plan.rows());
    let writer = Writer { plan: &plan, files: &mut files, journal: &mut journal, done: &mut done };
    if let Err(error) = encode(sources, options, codec, writer, &mut counter) {
        // Nothing is lost by leaving nothing behind.
        if fresh && done.is_empty() {
            files.discard();
            journal.remove()?;
        }
        return Err(error);
    }
    for (source, states) in sources.iter().zip(&plan.head.states) {
        refuse_changed(source.as_ref(), states)?;
    }
    let mut finished = vec![Finished { source: Some(0), ..Finished::default() }; plan.segments.len()];
    for ((segment, _), entry) in done {
        let finished = &mut finished[segment];
        finished.checksums.push(entry.checksum);
        finished.source = finished.source.map(|sum| sum.wrapping_add(entry.source));
        finished.zeroed += entry.counts;
    }
    let report = files.finish(plan, &finished, options.force)?;
    // The output is locked as long as there is a journal.
    journal.remove()?;
    drop(files);
    Ok(CompressReport { resumed_rows, ..report })
}

/// Finds what must be known before the first row is coded.
fn begin(
    sources: &mut [Box<dyn RowSource>],
    plan: &mut Plan,
    options: &CompressOptions,
    progress: &Progress<'_>,
) -> Result<Done, Error> {
    if options.scale == ScaleRule::Global(()) {
        measure(sources, plan, options, progress)?;
    }
    Ok(Done::new())
}

/// What an earlier run has done. Its global scales are taken over: they follow from the same source.
fn resume(
    sources: &mut [Box<dyn RowSource>],
    head: &Head,
    entries: Vec<Entry>,
    plan: &mut Plan,
    files: &mut Files,
    options: &CompressOptions,
    progress: &Progress<'_>,
) -> Result<Done, Error> {
    let is_same_state = head.states == plan.head.states;
    if !is_same_state && options.scale == ScaleRule::Global(()) {
        measure(sources, plan, options, progress)?;
    }
    let measured = head.files.iter().flatten().flat_map(|table| &table.segments);
    let segments = plan.head.files.iter_mut().flatten().flat_map(|table| &mut table.segments);
    for (segment, measured) in segments.zip(measured) {
        let earlier = std::mem::replace(&mut segment.global_scale, measured.global_scale);
        if !is_same_state && earlier != measured.global_scale {
            return Err(other_source(&plan.output, "its global scale", "another one"));
        }
    }
    files.make_whole_length(plan)?;
    let mut done = Done::new();
    for file in 0..plan.files.len() {
        let Some(tables) = files.whole(file) else { continue };
        files::refuse_zeroed(&plan.files[file].path, tables, options.non_finite)?;
        // What is whole is not done again.
        for (index, segment) in plan.segments.iter().enumerate().filter(|(_, segment)| segment.file == file) {
            let zeros = Zeroed::default();
            let blocks = 0..plan.info(segment).1.blocks();
            let entry = |block| Entry { segment: index, block, checksum: 0, source: 0, counts: zeros };
            done.extend(blocks.map(|block| ((index, block), entry(block))));
        }
    }
    for entry in entries {
        let Some(segment) = plan.segments.get(entry.segment) else { continue };
        let info = plan.info(segment).1;
        let zeroed_under_other_policy = entry.counts.non_finite > 0 && options.non_finite == NonFinite::Error;
        if files.whole(segment.file).is_some() || entry.block >= info.blocks() || zeroed_under_other_policy {
            continue;
        }
        let rows = plan.block(entry.segment, entry.block);
        let mut records = vec![0; ((rows.end - rows.start) * info.record_bytes()) as usize];
        files.read_at(segment.file, segment.records + rows.start * info.record_bytes(), &mut records)?;
        if checksum::of(&records) != entry.checksum {
            continue;
        }
        if !is_same_state {
            // It may be a copy with another time, or something else: what was coded must be what is there.
            let first = segment.rows.start + rows.start;
            let count = (rows.end - rows.start) as usize;
            let source = sources[segment.source].read(first, count)?;
            if source.digest(0..count, first) != entry.source {
                let rows = format!("rows {first} to {}", first + (rows.end - rows.start) - 1);
                let name = &plan.info(segment).0.name;
                return Err(other_source(&plan.output, &format!("{rows} of {name:?} as they were coded"), "others"));
            }
        }
        done.insert((entry.segment, entry.block), entry);
    }
    Ok(done)
}

fn other_source(output: &Path, got: &str, expected: &str) -> Error {
    let (got, expected) = (got.into(), expected.into());
    Error::OtherRun { path: partial_path(output), what: "the source", got, expected }
}

/// Refuses a source of which a file is not as it was.
fn refuse_changed(source: &dyn RowSource, before: &[FileState]) -> Result<(), Error> {
    for ((path, before), now) in source.files().iter().zip(before).zip(source.state()?) {
        if *before != now {
            let what = match before.bytes == now.bytes {
                true => "its time of change is another".into(),
                false => format!("it was {} bytes, and is {}", before.bytes, now.bytes),
            };
            return Err(Error::SourceChanged { path: path.clone(), what });
        }
    }
    Ok(())
}
