//! Source tables to a table file.

use std::collections::{BTreeMap, HashSet};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use condprog_core::encoder::{EncodeError, Metric, Outcome, ScaleRule, Search};
use condprog_core::scale::Nearest;
use condprog_core::{Layout, LayoutError, Rate, Scale};
use condprog_cpu::{Encoder, Level};
use rayon::prelude::*;

use crate::checksum;
use crate::error::Error;
use crate::file::block_range;
use crate::format::{self, ChecksumInfo, PROGRAM, SegmentInfo, SourceRecord, TableInfo};
use crate::journal::{Counts, Entry, Head, JOURNAL_SUFFIX, Journal};
use crate::output::{Partial, refuse_same, with_suffix};
use crate::source::{RawRows, RowSource, SourceFile, SourceInfo};
use crate::stream::{Block, Counter, Progress, Stage, default_block_rows, on_threads, read_ahead};

/// How scales are chosen; see [`ScaleRule`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ScaleMode {
    /// The restored row has the length of the source row.
    #[default]
    Norm,
    /// The restored row's projection on the source row is the source row.
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
    /// 0 to [`Search::MAX_EFFORT`].
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
/// Memory: a few blocks of rows, whatever the size of the tables.
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

/// What is to be written where, before any row is read.
struct Plan {
    head: Head,
    segments: Vec<PlannedSegment>,
    header_bytes: u64,
    file_bytes: u64,
}

struct PlannedSegment {
    /// Index of the table, and of the source.
    table: usize,
    /// Index in the table.
    index: usize,
    layout: Layout,
    /// Where the records start in the file.
    records: u64,
    /// Where the checksums start.
    checksums: u64,
}

impl Plan {
    fn new(sources: &[Box<dyn RowSource>], output: &Path, options: &CompressOptions) -> Result<Plan, Error> {
        if options.effort > Search::MAX_EFFORT {
            let (got, expected) = (u64::from(options.effort), format!("0 to {}", Search::MAX_EFFORT));
            return Err(Error::Option { option: "effort", got, expected });
        }
        if let Some(tensor) = options.segments.keys().find(|name| !sources.iter().any(|s| s.info().name == **name)) {
            let got = options.segments[tensor].iter().map(|segment| u128::from(segment.rows)).sum();
            return Err(Error::SegmentRows { tensor: tensor.clone(), got, expected: 0 });
        }
        let tables = sources.iter().map(|source| plan_table(source.info(), options)).collect::<Result<Vec<_>, _>>()?;
        let entries = format::layout_tensors(&tables);
        let mut names = HashSet::new();
        if let Some(tensor) = entries.iter().find(|tensor| !names.insert(&tensor.name)) {
            return Err(Error::NameTaken { tensor: tensor.name.clone() });
        }
        // The header is written last but lies first: its room is that of the largest counts there can be.
        let header = format::header_bytes(&tables, 0).map_err(|source| Error::header(output, source))?;
        let header_bytes = header.len() as u64;
        let start = |name: &str| {
            let entry = entries.iter().find(|entry| entry.name == name).expect("every segment has its tensors");
            header_bytes + entry.start
        };
        let mut segments = Vec::new();
        for (table, info) in tables.iter().enumerate() {
            for (index, segment) in info.segments.iter().enumerate() {
                let layout = segment.layout(info.dim).expect("planned from a layout");
                let (records, checksums) = (start(&segment.tensor), start(&segment.checksums.tensor));
                segments.push(PlannedSegment { table, index, layout, records, checksums });
            }
        }
        let file_bytes = header_bytes + entries.last().map_or(0, |entry| entry.end);
        let sources = sources.iter().map(|source| source.identity().into()).collect();
        let head = Head { writer: env!("CARGO_PKG_VERSION").into(), sources, tables };
        Ok(Plan { head, segments, header_bytes, file_bytes })
    }

    fn info(&self, segment: &PlannedSegment) -> (&TableInfo, &SegmentInfo) {
        let table = &self.head.tables[segment.table];
        (table, &table.segments[segment.index])
    }
}

/// A table as it will be, counts and checksums standing in with their longest spelling.
fn plan_table(source: &SourceInfo, options: &CompressOptions) -> Result<TableInfo, Error> {
    let tensor = || source.name.clone();
    let dim = u32::try_from(source.dim)
        .map_err(|_| Error::Width { tensor: tensor(), source: LayoutError::Dim { dim: u32::MAX } })?;
    let whole = [SegmentPlan { rows: source.rows, rate: options.rate }];
    let plan = options.segments.get(&source.name).map_or(whole.as_slice(), Vec::as_slice);
    let got = plan.iter().map(|segment| u128::from(segment.rows)).sum();
    if got != u128::from(source.rows) || plan.iter().any(|segment| segment.rows == 0) {
        return Err(Error::SegmentRows { tensor: tensor(), got, expected: source.rows });
    }
    let block_rows = options.block_rows.map_or_else(|| default_block_rows(source.dim), u64::from);
    let most = ((1 << 28) / source.dim).max(1);
    if block_rows == 0 || block_rows > most {
        let expected = format!("1 to {most} for rows of {dim} values");
        return Err(Error::Option { option: "rows per block", got: block_rows, expected });
    }
    let mut segments = Vec::new();
    let mut first_row = 0;
    for (index, &SegmentPlan { rows, rate }) in plan.iter().enumerate() {
        let layout = Layout::new(dim, rate).map_err(|source| Error::Width { tensor: tensor(), source })?;
        let name = if plan.len() == 1 { tensor() } else { format!("{}#{index}", source.name) };
        segments.push(SegmentInfo {
            first_row,
            rows,
            rate_quarters: rate.quarters(),
            record_bytes: layout.record_bytes() as u64,
            global_scale: (options.scale == ScaleMode::Global).then(|| Scale::MAX.to_bits()),
            checksums: ChecksumInfo { tensor: format!("{name}#checksums"), block_rows, xxh3_64: checksum::hex(0) },
            tensor: name,
        });
        first_row += rows;
    }
    Ok(TableInfo {
        name: tensor(),
        program: PROGRAM.into(),
        dim,
        rows: source.rows,
        first_row: 0,
        table_rows: source.rows,
        source: SourceRecord {
            name: tensor(),
            dtype: source.dtype.name().into(),
            shape: [source.rows, source.dim],
            bytes: source.bytes(),
            scale: source.scale.clone(),
        },
        scale_rule: options.scale.name().into(),
        effort: options.effort,
        zero_rows: source.rows,
        underflow_rows: source.rows,
        non_finite_rows: source.rows,
        segments,
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
    let block_rows = |&(segment, block): &(usize, u64)| {
        let range = block_range(plan.info(&plan.segments[segment]).1, block);
        range.end - range.start
    };
    let resumed_rows = done.keys().map(block_rows).sum();
    if let Err(error) = encode(sources, &plan, options, &mut partial, &mut journal, &mut done, resumed_rows, progress) {
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
    plan.head.tables = head.tables;
    let mut done = Done::new();
    for entry in entries {
        let Some(segment) = plan.segments.get(entry.segment) else { continue };
        let info = plan.info(segment).1;
        let zeroed_under_other_policy = entry.counts.non_finite > 0 && options.non_finite == NonFinite::Error;
        if entry.block >= info.blocks() || zeroed_under_other_policy {
            continue;
        }
        let range = block_range(info, entry.block);
        let mut records = vec![0; ((range.end - range.start) * info.record_bytes) as usize];
        partial.read_at(segment.records + range.start * info.record_bytes, &mut records)?;
        if checksum::of(&records) == entry.checksum {
            done.insert((entry.segment, entry.block), entry);
        }
    }
    Ok(Some(done))
}

/// The first thing in which two runs differ: what it is, and how each has it.
fn difference(old: &Head, new: &Head) -> Option<(&'static str, String, String)> {
    let segments = |table: &TableInfo| {
        let list = table.segments.iter().map(|s| {
            let rate = f64::from(s.rate_quarters) / 4.0;
            format!("{} rows at {rate} bits in blocks of {}", s.rows, s.checksums.block_rows)
        });
        list.collect::<Vec<_>>().join(", ")
    };
    let each = |head: &Head, text: &dyn Fn(&TableInfo) -> String| {
        let list = head.tables.iter().map(|table| format!("{:?}: {}", table.name, text(table)));
        list.collect::<Vec<_>>().join("; ")
    };
    type Aspect<'a> = (&'static str, &'a dyn Fn(&Head) -> String);
    let aspects: [Aspect<'_>; 6] = [
        ("the version of condprog", &|head| head.writer.clone()),
        ("the list of tables", &|head| head.tables.iter().map(|t| t.name.as_str()).collect::<Vec<_>>().join(", ")),
        ("the source", &|head| head.sources.join("; ")),
        ("the effort", &|head| each(head, &|table| table.effort.to_string())),
        ("the scale rule", &|head| each(head, &|table| table.scale_rule.clone())),
        ("the rate", &|head| each(head, &segments)),
    ];
    aspects.into_iter().map(|(what, of)| (what, of(old), of(new))).find(|(_, old, new)| old != new)
}

/// Sets the global scales of all segments: the root mean square of a table, so that its values have the deviation that
/// the search expects. Sums are of fixed parts in fixed order, so that the scale does not depend on threads.
fn measure(
    sources: &mut [Box<dyn RowSource>],
    tables: &mut [TableInfo],
    options: &CompressOptions,
    progress: &Progress<'_>,
) -> Result<(), Error> {
    let mut counter = Counter::new(Stage::Measure, progress, 0, tables.iter().map(|table| table.rows).sum());
    let mut sums = vec![(0.0, 0u64); tables.len()];
    let blocks: Vec<_> = (0..tables.len()).flat_map(|source| source_blocks(source, &tables[source])).collect();
    read_ahead(sources, blocks.into_iter(), |block, raw| {
        let table = &tables[block.source];
        for part in parts(&raw) {
            let (energy, rows) =
                part.map_err(|(row, source)| (block.first + row, source)).or_else(|(row, source)| {
                    match options.non_finite {
                        NonFinite::Error => Err(Error::Row { tensor: table.name.clone(), row, source }),
                        NonFinite::Zero => Ok((0.0, 0)),
                    }
                })?;
            sums[block.source].0 += energy;
            sums[block.source].1 += rows;
        }
        counter.add(&table.name, block.rows as u64)
    })?;
    for (table, (energy, rows)) in tables.iter_mut().zip(sums) {
        let values = (rows * u64::from(table.dim)) as f64;
        let rms = if rows == 0 { 0.0 } else { (energy / values).sqrt() };
        for segment in &mut table.segments {
            let rate = Rate::from_quarters(segment.rate_quarters).expect("planned from a rate");
            segment.global_scale = Some(global_scale(&table.name, rms, rate)?.to_bits());
        }
    }
    Ok(())
}

/// Energy of each row and how many of the row there are (one), or its first value that is not finite.
fn parts(raw: &RawRows) -> Vec<Result<(f64, u64), (u64, EncodeError)>> {
    (0..raw.rows())
        .into_par_iter()
        .with_min_len(64)
        .map_init(
            || vec![0.0; raw.dim],
            |values, row| {
                raw.to_f32(row..row + 1, values);
                match values.iter().position(|value| !value.is_finite()) {
                    Some(column) => Err((row as u64, EncodeError::NonFinite { column, value: values[column] })),
                    None => Ok((values.iter().map(|&value| f64::from(value) * f64::from(value)).sum(), 1)),
                }
            },
        )
        .collect()
}

/// Blocks of a table as the source is read when no records are written.
fn source_blocks(source: usize, table: &TableInfo) -> impl Iterator<Item = Block<()>> + use<> {
    let (rows, size) = (table.rows, default_block_rows(u64::from(table.dim)));
    (0..rows.div_ceil(size)).map(move |block| {
        let first = block * size;
        Block { source, first, rows: size.min(rows - first) as usize, tag: () }
    })
}

/// The scale with which values of this root mean square have the deviation the search expects of them: it counts in
/// quarter levels, four of which are worth one scale.
fn global_scale(tensor: &str, rms: f64, rate: Rate) -> Result<Scale, Error> {
    let scale = 4.0 * rms / Metric::new(rate).deviation();
    let edge = |twice: u32, exponent: u32| f64::from(twice) * 2f64.powi(exponent as i32 - 55);
    match Scale::nearest(|twice, exponent| scale >= edge(twice, exponent)) {
        Nearest::Below => Ok(Scale::ZERO),
        Nearest::Scale(scale) => Ok(scale),
        Nearest::Above => Err(Error::GlobalScale { tensor: tensor.into(), scale }),
    }
}

/// A block on its way to the writer.
struct Coded {
    segment: usize,
    block: u64,
    records: Vec<u8>,
    counts: Counts,
}

/// Codes every block that is not done. The calling thread codes on its pool, one thread reads, one writes.
#[expect(clippy::too_many_arguments, reason = "one caller, and the parts of a run that stages share")]
fn encode(
    sources: &mut [Box<dyn RowSource>],
    plan: &Plan,
    options: &CompressOptions,
    partial: &mut Partial,
    journal: &mut Journal,
    done: &mut Done,
    resumed_rows: u64,
    progress: &Progress<'_>,
) -> Result<(), Error> {
    let total = plan.head.tables.iter().map(|table| table.rows).sum();
    let mut counter = Counter::new(Stage::Encode, progress, resumed_rows, total);
    let mut blocks = Vec::new();
    for (index, segment) in plan.segments.iter().enumerate() {
        let info = plan.info(segment).1;
        for block in (0..info.blocks()).filter(|&block| !done.contains_key(&(index, block))) {
            let range = block_range(info, block);
            blocks.push(Block {
                source: segment.table,
                first: info.first_row + range.start,
                rows: (range.end - range.start) as usize,
                tag: (index, block),
            });
        }
    }
    thread::scope(|scope| {
        let (send, receive) = sync_channel(1);
        let writer = thread::Builder::new()
            .spawn_scoped(scope, move || write(plan, receive, partial, journal, done))
            .map_err(Error::Threads)?;
        let coded = code_blocks(sources, plan, options, blocks, send, &mut counter);
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
        let mut counts = Counts::default();
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
                continue;
            }
            // The last rows of a block count when the block is on its way, so that who stops here loses none of it.
            if send.send(Coded { segment, block: index, records, counts }).is_err() {
                return Err(Error::Cancelled);
            }
            return counter.add(table, (end - start) as u64);
        }
        Ok(())
    })
}

fn to_f32(raw: &RawRows, start: usize, values: &mut [f32]) {
    const ROWS: usize = 64;
    values.par_chunks_mut(ROWS * raw.dim).enumerate().for_each(|(index, values)| {
        let first = start + index * ROWS;
        raw.to_f32(first..first + values.len() / raw.dim, values);
    });
}

fn write(
    plan: &Plan,
    receive: Receiver<Coded>,
    partial: &mut Partial,
    journal: &mut Journal,
    done: &mut Done,
) -> Result<(), Error> {
    for Coded { segment, block, records, counts } in receive {
        let planned = &plan.segments[segment];
        let info = plan.info(planned).1;
        partial.write_at(planned.records + block_range(info, block).start * info.record_bytes, &records)?;
        let entry = Entry { segment, block, checksum: checksum::of(&records), counts };
        journal.add(&entry)?;
        done.insert((segment, block), entry);
    }
    Ok(())
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
