//! From parts of tables, coded on many machines, to the whole.

use std::ops::Range;
use std::path::{Path, PathBuf};

use condprog_core::encoder::ScaleRule;
use condprog_table::Tables;
use condprog_table::aspect::{Aspect, difference};
use condprog_table::checksum;
use condprog_table::format::SegmentInfo;
use condprog_table::names::KEY_PART;
use condprog_table::tables::block_range;

use super::CompressReport;
use super::files::{self, Files, Finished, Past, Restart};
use super::plan::{Plan, Whole, WholeTable};
use crate::error::Error;
use crate::journal::{self, Account, Journal};
use crate::stream::{Counter, Progress, Stage};

/// How to join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JoinOptions {
    /// Overwrite the output.
    pub force: bool,
}

/// Joins parts that [`compress()`](super::compress()) has coded with [`PartOf`](super::PartOf), in any order.
/// They must agree in all that the whole depends on and have every row once. The output is byte for byte what one run
/// would have written.
///
/// Every block of the parts is checked before it is copied. A run that fails leaves nothing; the parts stay.
///
/// # Errors
/// [`Error::NoPart`], [`Error::PartsDiffer`], [`Error::PartMissing`] or [`Error::PartTwice`] when the parts are not those
/// of one whole, before anything is written; [`Error::File`] when a block is; others as of
/// [`compress()`](super::compress()).
pub fn join(
    parts: &[PathBuf],
    output: impl AsRef<Path>,
    options: &JoinOptions,
    progress: &Progress<'_>,
) -> Result<CompressReport, Error> {
    let output = output.as_ref();
    let parts = parts.iter().map(|path| Part::open(path)).collect::<Result<Vec<_>, _>>()?;
    let Some(first) = parts.first() else { return Err(Error::NothingToDo) };
    parts[1..].iter().try_for_each(|part| agree(first, part))?;
    let whole = first.whole.clone();
    let pieces =
        (0..whole.tables.len()).map(|table| cover(&parts, &whole.tables[table])).collect::<Result<Vec<_>, _>>()?;
    let mut plan = Plan::new(whole, output, None)?;
    let inputs: Vec<_> = parts.iter().flat_map(|part| part.file.files()).collect();
    files::refuse_inputs(&plan, &inputs)?;
    // Locked to the end, so that no other process writes this output; it stays empty.
    let (journal, account) = Journal::open(output, plan.file_bytes())?;
    journal::refuse(&account, output, "join", options.force)?;
    // Joining starts over: what a killed run has left is of no use, except files that have their names already.
    let restarts = Some(if matches!(account, Account::None) { Restart::Clean } else { Restart::Killed });
    let past = Past { resumes: false, journal: "missing", restarts, force: options.force };
    let mut files = Files::open(&plan, past)?;
    let mut counter = Counter::new(Stage::Join, progress, 0, plan.rows());
    let joined = copy(&parts, &pieces, &mut plan, &mut files, &mut counter)
        .and_then(|finished| files.finish(plan, &finished, options.force));
    match joined {
        Ok(_) => journal.remove()?,
        // The next run resumes from the files that have their names already.
        Err(_) => {
            if files.are_being_renamed() {
                journal.keep();
            }
            files.discard();
        }
    }
    joined
}

/// A part, and the whole it is of.
struct Part {
    file: Tables,
    whole: Whole,
}

impl Part {
    fn open(path: &Path) -> Result<Part, Error> {
        let file = Tables::open(path)?;
        let text = file.metadata(KEY_PART).ok_or_else(|| Error::NoPart { path: path.into() })?;
        let bad = |what: String| Error::BadPart { path: path.into(), what };
        let whole: Whole = serde_json::from_str(text).map_err(|error| bad(error.to_string()))?;
        for table in &whole.tables {
            let rows = table.runs.iter().try_fold(0u64, |sum, run| sum.checked_add(run.rows));
            let expected = table.source.shape[0];
            if rows != Some(expected) || table.runs.iter().any(|run| run.rows == 0) || expected > i64::MAX as u64 {
                return Err(bad(format!("the runs of table {:?} do not have its {expected} rows", table.name)));
            }
            if table.block_rows == 0 || table.block_rows > 1 << 28 {
                return Err(bad(format!("blocks of table {:?} have {} rows", table.name, table.block_rows)));
            }
        }
        for table in file.tables() {
            let known = whole.tables.iter().find(|whole| whole.name == table.name);
            let fits = known.is_some_and(|whole| {
                let of_whole = (&whole.source, &whole.scale_rule, whole.effort);
                of_whole == (&table.source, &table.scale_rule, table.effort)
            });
            let is_global = table.scale_rule == ScaleRule::Global(()).name();
            let lacks = |segment: &SegmentInfo| segment.zeroed.is_none() || segment.global_scale.is_some() != is_global;
            if !fits || table.segments.iter().any(lacks) {
                return Err(bad(format!("table {:?} is not one of its whole", table.name)));
            }
        }
        Ok(Part { file, whole })
    }

    fn path(&self) -> PathBuf {
        self.file.path().into()
    }
}

/// Whether two parts are of one whole.
fn agree(first: &Part, part: &Part) -> Result<(), Error> {
    let wholes: [Aspect<'_, Whole>; 3] = [
        ("the version of condprog", &|whole| whole.writer.clone()),
        ("the list of tables", &|whole| format!("{:?}", whole.tables.iter().map(|t| &t.name).collect::<Vec<_>>())),
        ("the size of files", &|whole| whole.shard_bytes.map_or("not limited".into(), |n| format!("{n} bytes"))),
    ];
    let tables: [Aspect<'_, WholeTable>; 5] = [
        ("source", &|table| serde_json::to_string(&table.source).unwrap_or_default()),
        ("scale rule", &|table| table.scale_rule.clone()),
        ("effort", &|table| table.effort.to_string()),
        ("rows per block", &|table| table.block_rows.to_string()),
        ("rates", &|table| serde_json::to_string(&table.runs).unwrap_or_default()),
    ];
    let (a, b) = (&first.whole, &part.whole);
    let found = difference(b, a, &wholes).map(|(what, got, expected)| (what.to_string(), got, expected));
    let found = found.or_else(|| {
        let differ = |(a, b): (&WholeTable, &WholeTable)| {
            let (what, got, expected) = difference(b, a, &tables)?;
            Some((format!("the {what} of table {:?}", a.name), got, expected))
        };
        a.tables.iter().zip(&b.tables).find_map(differ)
    });
    match found {
        None => Ok(()),
        Some((what, got, expected)) => {
            let paths = Box::new([first.path(), part.path()]);
            Err(Error::PartsDiffer { paths, what, got, expected })
        }
    }
}

/// Rows of a table that a part has in a segment.
struct Piece {
    /// Index of the part.
    part: usize,
    /// Index of the table in the part.
    table: usize,
    /// Index of the segment in the table.
    segment: usize,
    /// The rows, counted over the logical table.
    rows: Range<u64>,
}

/// The pieces of a table in row order: they have every row once.
fn cover(parts: &[Part], table: &WholeTable) -> Result<Vec<Piece>, Error> {
    let mut pieces = Vec::new();
    for (part, file) in parts.iter().enumerate() {
        for (index, info) in file.file.tables().iter().enumerate().filter(|(_, info)| info.name == table.name) {
            for (segment, about) in info.segments.iter().enumerate() {
                let start = info.first_row + about.first_row;
                pieces.push(Piece { part, table: index, segment, rows: start..start + about.rows });
            }
        }
    }
    pieces.sort_by_key(|piece| (piece.rows.start, piece.rows.end));
    let name = || table.name.clone();
    let mut next = 0;
    for (index, piece) in pieces.iter().enumerate() {
        if piece.rows.start > next {
            return Err(Error::PartMissing { table: name(), rows: next..piece.rows.start });
        }
        if piece.rows.start < next {
            let other = &pieces[index - 1];
            let rows = piece.rows.start..piece.rows.end.min(other.rows.end);
            let paths = Box::new([parts[other.part].path(), parts[piece.part].path()]);
            return Err(Error::PartTwice { table: name(), rows, paths });
        }
        next = piece.rows.end;
    }
    let rows = table.source.shape[0];
    if next != rows {
        return Err(Error::PartMissing { table: name(), rows: next..rows });
    }
    Ok(pieces)
}

/// Copies all rows, and gives checksums and counts of the segments of the whole.
fn copy(
    parts: &[Part],
    pieces: &[Vec<Piece>],
    plan: &mut Plan,
    files: &mut Files,
    counter: &mut Counter<'_>,
) -> Result<Vec<Finished>, Error> {
    files.restart(plan)?;
    let mut finished = Vec::new();
    // Of each piece, the blocks that are known to be whole.
    let mut checked: Vec<Vec<u64>> = pieces.iter().map(|pieces| vec![0; pieces.len()]).collect();
    for index in 0..plan.segments.len() {
        let (source, whole) = (plan.segments[index].source, plan.segments[index].rows.clone());
        let pieces = &pieces[source];
        let within = pieces.partition_point(|piece| piece.rows.end <= whole.start)
            ..pieces.partition_point(|piece| piece.rows.start < whole.end);
        let (mut scale, mut done) = (None, Finished { source: Some(0), ..Finished::default() });
        for piece in &pieces[within.clone()] {
            let part = &parts[piece.part];
            let info = &part.file.tables()[piece.table].segments[piece.segment];
            // Parts are cut wherever the whole is.
            let fits = piece.rows.start >= whole.start && piece.rows.end <= whole.end;
            if !fits || info.layout.rate() != plan.segments[index].layout.rate() {
                let what = format!("segment {:?} is not one of its whole", info.tensor);
                return Err(Error::BadPart { path: part.path(), what });
            }
            if *scale.get_or_insert(info.global_scale) != info.global_scale {
                let text = |scale: Option<u16>| scale.map_or("none".into(), |bits| format!("{bits:#06x}"));
                return Err(Error::PartsDiffer {
                    paths: Box::new([parts[pieces[within.start].part].path(), part.path()]),
                    what: format!("the global scale of table {:?}", plan.whole.tables[source].name),
                    got: text(info.global_scale),
                    expected: text(scale.flatten()),
                });
            }
            done.zeroed += info.zeroed.unwrap_or_default();
            let own = info.source_xxh3_64.as_ref().and_then(|digits| u64::from_str_radix(digits, 16).ok());
            done.source = done.source.zip(own).map(|(sum, own)| sum.wrapping_add(own));
        }
        plan.segment_mut(index).global_scale = scale.flatten();
        let bytes = plan.segments[index].layout.record_bytes() as u64;
        let blocks = plan.info(&plan.segments[index]).1.blocks();
        if files.whole(plan.segments[index].file).is_some() {
            counter.add(&plan.whole.tables[source].name, whole.end - whole.start)?;
            finished.push(done);
            continue;
        }
        for block in 0..blocks {
            let own = plan.block(index, block);
            let rows = whole.start + own.start..whole.start + own.end;
            let mut records = Vec::with_capacity(((rows.end - rows.start) * bytes) as usize);
            let from = within.start + pieces[within.clone()].partition_point(|piece| piece.rows.end <= rows.start);
            for (place, piece) in pieces.iter().enumerate().skip(from).take_while(|(_, p)| p.rows.start < rows.end) {
                let part = rows.start.max(piece.rows.start) - piece.rows.start
                    ..rows.end.min(piece.rows.end) - piece.rows.start;
                let file = &parts[piece.part].file;
                check(file, piece, part.end, &mut checked[source][place])?;
                file.read_records(&file.tables()[piece.table].segments[piece.segment], part, &mut records)?;
            }
            done.checksums.push(checksum::of(&records));
            let segment = &plan.segments[index];
            files.write_at(segment.file, segment.records + own.start * bytes, &records)?;
            counter.add(&plan.whole.tables[source].name, rows.end - rows.start)?;
        }
        finished.push(done);
    }
    Ok(finished)
}

/// Checks the blocks of a piece up to a row, once each.
fn check(file: &Tables, piece: &Piece, end: u64, checked: &mut u64) -> Result<(), Error> {
    let table = &file.tables()[piece.table];
    let segment = &table.segments[piece.segment];
    while *checked < segment.blocks() && block_range(segment, *checked).start < end {
        file.check_block(&table.name, piece.segment, *checked)?;
        *checked += 1;
    }
    Ok(())
}
