//! The plan of an output: what will be written where, before any row is read.
//!
//! A table is cut into runs of rows where its source's tensors and its rates change, and runs into segments where a file
//! is full. All of it follows from the options and the shapes, so that every part of a table that is coded elsewhere
//! knows where its rows will lie.

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use condprog_core::encoder::{ScaleRule, Search};
use condprog_core::{Layout, LayoutError, Rate, Scale};
use condprog_table::SegmentPlan;
use condprog_table::aspect::{Aspect, difference};
use condprog_table::checksum;
use condprog_table::format::{self, ChecksumInfo, PROGRAM, SegmentInfo, SourceRecord, TableInfo, Zeroed};
use condprog_table::index::INDEX_SUFFIX;
use condprog_table::input::file_name;
use condprog_table::source::SourceInfo;
use condprog_table::tables::block_range;
use serde::{Deserialize, Serialize};

use super::{CompressOptions, PartOf};
use crate::error::Error;
use crate::journal::{Head, journal_path};
use crate::output::{NO_NAME, partial_path};
use crate::stream::default_block_rows;

/// Files of an output: their names count with five digits.
const MOST_FILES: usize = 99_999;

/// All tables of an output, however it is split among files and machines. Parts carry it, and join when it is equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Whole {
    /// The version of this crate: another one may find other codes.
    pub(super) writer: String,
    /// Bytes of records and checksums that a file may have; `None` for all tables in one file.
    pub(super) shard_bytes: Option<u64>,
    pub(super) tables: Vec<WholeTable>,
}

/// A logical table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WholeTable {
    pub(super) name: String,
    pub(super) source: SourceRecord,
    pub(super) scale_rule: String,
    pub(super) effort: u8,
    pub(super) block_rows: u64,
    /// Runs of rows of one tensor and one rate, in row order.
    pub(super) runs: Vec<Run>,
}

/// A run of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) rows: u64,
    pub(super) rate_quarters: u32,
}

/// A segment of the whole output, or what a part has of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cut {
    table: usize,
    /// Its number among the segments of the table, and how many there are.
    number: usize,
    of: usize,
    rows: Range<u64>,
    layout: Layout,
}

/// What is to be written where.
pub(super) struct Plan {
    /// As it was asked for: of an output that is cut into files, none has this name.
    pub(super) output: PathBuf,
    pub(super) head: Head,
    /// The tables' names and sources, in the order of sources.
    pub(super) whole: Whole,
    pub(super) files: Vec<PlannedFile>,
    pub(super) segments: Vec<PlannedSegment>,
    /// The index, of an output that is cut into files.
    pub(super) index: Option<PathBuf>,
}

pub(super) struct PlannedFile {
    pub(super) path: PathBuf,
    /// The text that makes it a part, if it is one.
    pub(super) part: Option<String>,
    pub(super) header_bytes: u64,
    pub(super) file_bytes: u64,
}

pub(super) struct PlannedSegment {
    /// Index of the file.
    pub(super) file: usize,
    /// Index of the table in the file.
    pub(super) table: usize,
    /// Index in the table.
    pub(super) index: usize,
    /// Index of the table in the whole, and of the source.
    pub(super) source: usize,
    /// Its rows, counted over the logical table.
    pub(super) rows: Range<u64>,
    pub(super) layout: Layout,
    /// Where the records start in the file.
    pub(super) records: u64,
    /// Where the checksums start.
    pub(super) checksums: u64,
}

impl Whole {
    pub(super) fn new(
        sources: &[SourceInfo],
        identities: &[String],
        options: &CompressOptions,
    ) -> Result<Whole, Error> {
        if options.effort > Search::MAX_EFFORT {
            let (got, expected) = (u64::from(options.effort), format!("0 to {}", Search::MAX_EFFORT));
            return Err(Error::Option { option: "effort", got, expected });
        }
        if let Some(tensor) = options.segments.keys().find(|name| !sources.iter().any(|info| info.name == **name)) {
            let got = options.segments[tensor].iter().map(|segment| u128::from(segment.rows)).sum();
            return Err(Error::SegmentRows { tensor: tensor.clone(), got, expected: 0 });
        }
        let tables = sources.iter().zip(identities);
        let tables =
            tables.map(|(info, identity)| WholeTable::new(info, identity, options)).collect::<Result<_, _>>()?;
        Ok(Whole { writer: env!("CARGO_PKG_VERSION").into(), shard_bytes: options.shard_bytes, tables })
    }

    /// The text that parts carry.
    fn text(&self) -> String {
        serde_json::to_string(self).expect("strings and numbers are JSON")
    }

    /// The identity of the run: of all that its files follow from, so that files of equal runs can be told from others.
    pub(super) fn run(&self) -> String {
        checksum::hex(checksum::of(self.text().as_bytes()))
    }

    /// The segments of each file.
    fn cut(&self) -> Result<Vec<Vec<Cut>>, Error> {
        let mut files: Vec<Vec<Cut>> = vec![Vec::new()];
        let size = self.shard_bytes.unwrap_or(u64::MAX);
        let mut room = size;
        let mut counts = Vec::new();
        for (table, whole) in self.tables.iter().enumerate() {
            let mut number = 0;
            let mut first = 0;
            for run in &whole.runs {
                let layout = whole.layout(run.rate_quarters)?;
                let end = first + run.rows;
                while first < end {
                    let rows = whole.rows_within(room, end - first, layout);
                    let is_empty = files.last().is_none_or(Vec::is_empty);
                    if rows == 0 && is_empty {
                        let least = whole.bytes(whole.block_rows.min(end - first), layout);
                        let expected = format!("at least {least} bytes, one block of rows of table {:?}", whole.name);
                        return Err(Error::Option { option: "bytes per file", got: room, expected });
                    }
                    if rows == 0 {
                        if files.len() == MOST_FILES {
                            let expected = format!("enough for {MOST_FILES} files to hold all tables");
                            return Err(Error::Option { option: "bytes per file", got: size, expected });
                        }
                        files.push(Vec::new());
                        room = size;
                        continue;
                    }
                    room -= whole.bytes(rows, layout).min(room);
                    let cut = Cut { table, number, of: 0, rows: first..first + rows, layout };
                    files.last_mut().expect("there is a file").push(cut);
                    number += 1;
                    first += rows;
                }
            }
            counts.push(number);
        }
        files.iter_mut().flatten().for_each(|cut| cut.of = counts[cut.table]);
        Ok(files)
    }

    /// The rows of a part, of each table.
    fn rows_of(&self, part: &PartOf) -> Result<Vec<Range<u64>>, Error> {
        let rows = |table: &WholeTable| table.source.shape[0];
        match part {
            PartOf::Rows(range) => {
                let [table] = self.tables.as_slice() else {
                    let names = self.tables.iter().map(|table| table.name.clone()).collect();
                    return Err(Error::PartOfSeveral { tables: names });
                };
                if range.start >= range.end || range.end > rows(table) {
                    let (range, rows) = (range.clone(), rows(table));
                    return Err(Error::PartRows { table: table.name.clone(), range, rows });
                }
                Ok(vec![range.clone()])
            }
            &PartOf::Share { index, of } => {
                if index >= of {
                    let expected = format!("below the number of shares, {of}");
                    return Err(Error::Option { option: "share", got: index, expected });
                }
                let blocks = |table: &WholeTable| u128::from(rows(table).div_ceil(table.block_rows));
                let total: u128 = self.tables.iter().map(blocks).sum();
                if u128::from(of) > total {
                    let expected = format!("at most {total}, a block of rows each");
                    return Err(Error::Option { option: "number of shares", got: of, expected });
                }
                let edge = |index: u64| total * u128::from(index) / u128::from(of);
                let mut start = 0u128;
                let mut share = Vec::new();
                for table in &self.tables {
                    let within = |edge: u128| {
                        let block = edge.saturating_sub(start).min(blocks(table)) as u64;
                        block.saturating_mul(table.block_rows).min(rows(table))
                    };
                    share.push(within(edge(index))..within(edge(index + 1)));
                    start += blocks(table);
                }
                Ok(share)
            }
        }
    }
}

impl WholeTable {
    fn new(source: &SourceInfo, identity: &str, options: &CompressOptions) -> Result<WholeTable, Error> {
        let tensor = || source.name.clone();
        let dim = u32::try_from(source.dim)
            .map_err(|_| Error::Width { tensor: tensor(), source: LayoutError::Dim { dim: u32::MAX } })?;
        let whole = [SegmentPlan { rows: source.rows, rate: options.rate }];
        let plan = options.segments.get(&source.name).map_or(whole.as_slice(), Vec::as_slice);
        let got = plan.iter().map(|segment| u128::from(segment.rows)).sum();
        if got != u128::from(source.rows) || plan.iter().any(|segment| segment.rows == 0) {
            return Err(Error::SegmentRows { tensor: tensor(), got, expected: source.rows });
        }
        for segment in plan {
            Layout::new(dim, segment.rate).map_err(|source| Error::Width { tensor: tensor(), source })?;
        }
        let block_rows = options.block_rows.map_or_else(|| default_block_rows(source.dim), u64::from);
        let most = ((1 << 28) / source.dim).max(1);
        if block_rows == 0 || block_rows > most {
            let expected = format!("1 to {most} for rows of {dim} values");
            return Err(Error::Option { option: "rows per block", got: block_rows, expected });
        }
        Ok(WholeTable {
            name: tensor(),
            source: SourceRecord::new(source, Some(identity.into())),
            scale_rule: options.scale.name().into(),
            effort: options.effort,
            block_rows,
            runs: runs(source.parts.iter().map(|part| part.rows), plan),
        })
    }

    fn layout(&self, rate_quarters: u32) -> Result<Layout, Error> {
        let dim = u32::try_from(self.source.shape[1]).map_err(|_| LayoutError::Dim { dim: u32::MAX });
        let layout = dim.and_then(|dim| Layout::new(dim, Rate::from_quarters(rate_quarters)?));
        layout.map_err(|source| Error::Width { tensor: self.name.clone(), source })
    }

    /// Bytes of records and checksums.
    fn bytes(&self, rows: u64, layout: Layout) -> u64 {
        let records = rows.saturating_mul(layout.record_bytes() as u64);
        records.saturating_add(8 * rows.div_ceil(self.block_rows))
    }

    /// How many of these rows have room: all, or whole blocks of them.
    fn rows_within(&self, room: u64, rows: u64, layout: Layout) -> u64 {
        match self.bytes(rows, layout) <= room {
            true => rows,
            false => room / self.bytes(self.block_rows, layout) * self.block_rows,
        }
    }
}

/// Runs of rows of one tensor and one rate. Neighbours of one rate are one run, so that equal tables have equal runs.
fn runs(tensors: impl Iterator<Item = u64>, plan: &[SegmentPlan]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut segments = plan.iter().map(|segment| (segment.rows, segment.rate.quarters()));
    let mut segment = segments.next();
    for rows in tensors {
        let mut left = rows;
        let mut starts = true;
        while left > 0 {
            // The plan has as many rows as the tensors.
            let Some((rows, rate_quarters)) = segment else { break };
            let taken = rows.min(left);
            match runs.last_mut() {
                Some(last) if !starts && last.rate_quarters == rate_quarters => last.rows += taken,
                _ => runs.push(Run { rows: taken, rate_quarters }),
            }
            starts = false;
            left -= taken;
            segment = if taken == rows { segments.next() } else { Some((rows - taken, rate_quarters)) };
        }
    }
    runs
}

impl Plan {
    /// The plan of all tables, or of a part of them.
    pub(super) fn new(whole: Whole, output: &Path, part: Option<&PartOf>) -> Result<Plan, Error> {
        if output.file_name().is_none() {
            return Err(Error::OutputNotAFile { path: output.into(), kind: NO_NAME });
        }
        let mut cuts = whole.cut()?;
        let text = match part {
            None => None,
            Some(part) => {
                let rows = whole.rows_of(part)?;
                let within = |cut: Cut| {
                    let own = &rows[cut.table];
                    let rows = cut.rows.start.max(own.start)..cut.rows.end.min(own.end);
                    (!rows.is_empty()).then_some(Cut { rows, ..cut })
                };
                cuts = vec![cuts.into_iter().flatten().filter_map(within).collect()];
                Some(whole.text())
            }
        };
        let shard_bytes = whole.shard_bytes.filter(|_| part.is_none());
        let paths = match shard_bytes {
            None => vec![output.to_path_buf()],
            // The index has the names of the files in it.
            Some(_) if output.to_str().is_none() => return Err(Error::Name { path: output.into() }),
            Some(_) => (1..=cuts.len()).map(|number| shard_path(output, number, cuts.len())).collect(),
        };
        let head = Head {
            writer: whole.writer.clone(),
            run: whole.run(),
            sources: whole.tables.iter().filter_map(|table| table.source.identity.clone()).collect(),
            states: Vec::new(),
            shard_bytes: whole.shard_bytes,
            is_part: part.is_some(),
            names: paths.iter().map(|path| file_name(path)).collect(),
            files: Vec::new(),
        };
        let index = shard_bytes.map(|_| index_path(output));
        let output = output.to_path_buf();
        let mut plan = Plan { output, head, whole, files: Vec::new(), segments: Vec::new(), index };
        for (path, cuts) in paths.into_iter().zip(cuts) {
            plan.add_file(path, cuts, text.clone())?;
        }
        Ok(plan)
    }

    fn add_file(&mut self, path: PathBuf, cuts: Vec<Cut>, part: Option<String>) -> Result<(), Error> {
        let file = self.files.len();
        let mut tables: Vec<TableInfo> = Vec::new();
        let mut planned = Vec::new();
        for cut in &cuts {
            let whole = &self.whole.tables[cut.table];
            if tables.last().is_none_or(|table| table.name != whole.name) {
                tables.push(whole.table(cut.rows.start));
            }
            let table = tables.last_mut().expect("there is a table");
            add(table, cut, whole);
            planned.push((tables.len() - 1, tables[tables.len() - 1].segments.len() - 1, cut));
        }
        tables.iter_mut().for_each(|table| {
            // Counts stand in with their longest spelling: the header is written last but lies first.
            (table.zero_rows, table.underflow_rows, table.non_finite_rows) = (table.rows, table.rows, table.rows);
        });
        let entries = format::layout_tensors(&tables);
        let mut names = HashSet::new();
        if let Some(tensor) = entries.iter().find(|tensor| !names.insert(&tensor.name)) {
            return Err(Error::NameTaken { tensor: tensor.name.clone() });
        }
        let header = format::header_bytes(&tables, &self.head.run, part.as_deref(), 0)
            .map_err(|source| condprog_table::Error::header(&path, source))?;
        let header_bytes = header.len() as u64;
        let start = |name: &str| {
            let entry = entries.iter().find(|entry| entry.name == name).expect("every segment has its tensors");
            header_bytes + entry.start
        };
        for (table, index, cut) in planned {
            let segment = &tables[table].segments[index];
            self.segments.push(PlannedSegment {
                file,
                table,
                index,
                source: cut.table,
                rows: cut.rows.clone(),
                layout: cut.layout,
                records: start(&segment.tensor),
                checksums: start(&segment.checksums.tensor),
            });
        }
        let file_bytes = header_bytes + entries.last().map_or(0, |entry| entry.end);
        self.files.push(PlannedFile { path, part, header_bytes, file_bytes });
        self.head.files.push(tables);
        Ok(())
    }

    /// Rows of a block of a segment.
    pub(super) fn block(&self, segment: usize, block: u64) -> Range<u64> {
        block_range(self.info(&self.segments[segment]).1, block)
    }

    /// A segment's table, and the segment.
    pub(super) fn info(&self, segment: &PlannedSegment) -> (&TableInfo, &SegmentInfo) {
        let table = &self.head.files[segment.file][segment.table];
        (table, &table.segments[segment.index])
    }

    pub(super) fn segment_mut(&mut self, segment: usize) -> &mut SegmentInfo {
        let PlannedSegment { file, table, index, .. } = self.segments[segment];
        &mut self.head.files[file][table].segments[index]
    }

    /// Rows to code.
    pub(super) fn rows(&self) -> u64 {
        self.head.files.iter().flatten().map(|table| table.rows).sum()
    }

    /// All that will be written, the index last.
    pub(super) fn outputs(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| &file.path).chain(&self.index).map(PathBuf::as_path)
    }

    /// All names that a run writes to, or removes, until it is done.
    pub(super) fn working_names(&self) -> Vec<PathBuf> {
        let partials = self.files.iter().map(|file| partial_path(&file.path));
        partials.chain([journal_path(&self.output)]).collect()
    }

    /// Bytes of all files.
    pub(super) fn file_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.file_bytes).sum()
    }
}

impl WholeTable {
    /// The table without rows yet.
    fn table(&self, first_row: u64) -> TableInfo {
        TableInfo {
            name: self.name.clone(),
            program: PROGRAM.into(),
            dim: self.source.shape[1] as u32,
            rows: 0,
            first_row,
            table_rows: self.source.shape[0],
            source: self.source.clone(),
            scale_rule: self.scale_rule.clone(),
            effort: self.effort,
            zero_rows: 0,
            underflow_rows: 0,
            non_finite_rows: 0,
            segments: Vec::new(),
        }
    }
}

/// Adds a segment to a table, counts and checksums not yet known.
fn add(table: &mut TableInfo, cut: &Cut, whole: &WholeTable) {
    let name = if cut.of == 1 { whole.name.clone() } else { format!("{}#{}", whole.name, cut.number) };
    let rows = cut.rows.end - cut.rows.start;
    let is_global = whole.scale_rule == ScaleRule::Global(()).name();
    table.segments.push(SegmentInfo {
        first_row: table.rows,
        rows,
        layout: cut.layout,
        global_scale: is_global.then(|| Scale::MAX.to_bits()),
        zeroed: Some(Zeroed { zero: rows, underflow: rows, non_finite: rows }),
        source_xxh3_64: Some(checksum::hex(0)),
        checksums: ChecksumInfo {
            tensor: format!("{name}#checksums"),
            block_rows: whole.block_rows,
            xxh3_64: checksum::hex(0),
        },
        tensor: name,
    });
    table.rows += rows;
}

/// A name without `.safetensors`.
pub(super) fn stem(output: &Path) -> String {
    let name = file_name(output);
    name.strip_suffix(".safetensors").unwrap_or(&name).to_string()
}

pub(super) fn shard_path(output: &Path, number: usize, of: usize) -> PathBuf {
    output.with_file_name(format!("{}-{number:05}-of-{of:05}.safetensors", stem(output)))
}

pub(super) fn index_path(output: &Path) -> PathBuf {
    output.with_file_name(format!("{}{INDEX_SUFFIX}", stem(output)))
}

/// The first difference between two runs: what it is, and its value in each.
pub(super) fn differ(old: &Head, new: &Head) -> Option<(&'static str, String, String)> {
    fn tables(head: &Head) -> impl Iterator<Item = &TableInfo> {
        head.files.iter().flatten()
    }
    let rates = |table: &TableInfo| {
        let list = table.segments.iter().map(|s| {
            let rate = f64::from(s.layout.rate().quarters()) / 4.0;
            format!("{} rows at {rate} bits in blocks of {}", s.rows, s.checksums.block_rows)
        });
        list.collect::<Vec<_>>().join(", ")
    };
    let each = |head: &Head, text: &dyn Fn(&TableInfo) -> String| {
        tables(head).map(|table| format!("{:?}: {}", table.name, text(table))).collect::<Vec<_>>().join("; ")
    };
    let aspects: [Aspect<'_, Head>; 10] = [
        ("the version of condprog", &|head| head.writer.clone()),
        ("the list of tables", &|head| {
            let mut names: Vec<_> = tables(head).map(|table| table.name.as_str()).collect();
            names.dedup();
            names.join(", ")
        }),
        ("the source", &|head| head.sources.join("; ")),
        ("the output", &|head| if head.is_part { "a part" } else { "whole tables" }.into()),
        ("the size of files", &|head| head.shard_bytes.map_or("not limited".into(), |bytes| format!("{bytes} bytes"))),
        ("the tensors", &|head| {
            let names = |table: &TableInfo| {
                table.source.tensors().iter().map(|part| part.name.clone()).collect::<Vec<_>>().join(", ")
            };
            each(head, &names)
        }),
        ("the effort", &|head| each(head, &|table| table.effort.to_string())),
        ("the scale rule", &|head| each(head, &|table| table.scale_rule.clone())),
        ("the part", &|head| {
            let rows = |table: &TableInfo| table.first_row..table.first_row.saturating_add(table.rows);
            each(head, &|table| format!("rows {:?}", rows(table)))
        }),
        ("the rate", &|head| each(head, &rates)),
    ];
    difference(old, new, &aspects)
}
