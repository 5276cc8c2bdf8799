//! The files of an output: unfinished until all are whole, then renamed one after another, the index last.

use std::fs;
use std::path::{Path, PathBuf};

use condprog_table::Tables;
use condprog_table::checksum;
use condprog_table::format::{self, FORMAT, KEY_FORMAT, KEY_RUN, TableInfo, TablesOf, Zeroed};
use condprog_table::index::Index;
use condprog_table::input;
use condprog_table::input::file_name;
use condprog_table::names::KEY_PART;
use serde_json::{Map, Value};

use super::plan::{Plan, PlannedFile, index_path, stem};
use super::{CompressReport, NonFinite};
use crate::error::{Error, IoContext};
use crate::journal::{Head, journal_path};
use crate::output::{
    Earlier, Partial, Temporary, There, folder_of, look, partial_path, peek_partial, refuse_existing, refuse_full,
    refuse_same, sweep, sync_folder,
};

/// What is known of a segment when its rows are written.
#[derive(Clone, Debug, Default)]
pub(super) struct Finished {
    /// Of its blocks, in order.
    pub(super) checksums: Vec<u64>,
    /// The digest of its source rows; `None` where a part has none.
    pub(super) source: Option<u64>,
    pub(super) zeroed: Zeroed,
}

/// What is known of an earlier run before any file is touched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    /// A journal says that an equal run was interrupted.
    pub(super) resumes: bool,
    /// What a begun file lacks if `resumes` is not set: its journal is missing, damaged, or that of another run.
    pub(super) journal: &'static str,
    /// What a command that starts over found: to it, a begun file of an equal run is not worth keeping.
    pub(super) restarts: Option<Restart>,
    pub(super) force: bool,
}

/// What an earlier run of a command that starts over has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restart {
    /// Nothing that says so: files under their names are somebody's.
    Clean,
    /// Its lock: it was killed, and files of an equal run under their names are what it had finished.
    Killed,
}

/// A file of the output.
enum Work {
    Partial(Partial),
    /// One that an equal run has renamed before it was killed.
    Whole {
        path: PathBuf,
        tables: Vec<TableInfo>,
        bytes: u64,
    },
}

/// The files of an output, in row order.
pub(super) struct Files {
    works: Vec<Work>,
    /// Those that had not been there, or only their mark.
    fresh: Vec<bool>,
    has_index: bool,
    stale: Vec<PathBuf>,
    /// Some may have their names already.
    renaming: bool,
}

impl Files {
    /// Opens or creates the unfinished files. Files that an equal run has renamed already when it was killed stay as they
    /// are. Before any is touched, all that is in the way has been looked at.
    pub(super) fn open(plan: &Plan, past: Past) -> Result<Files, Error> {
        let FoundFiles { whole, has_index, stale } = look_at(plan, past)?;
        let mut files = Files { works: Vec::new(), fresh: Vec::new(), has_index, stale, renaming: false };
        for (planned, whole) in plan.files.iter().zip(whole) {
            match files.open_one(plan, planned, whole, past) {
                Ok((work, fresh)) => {
                    files.works.push(work);
                    files.fresh.push(fresh);
                }
                Err(error) => {
                    files.abandon();
                    return Err(error);
                }
            }
        }
        let left = plan.files.iter().zip(&files.works).filter(|(_, work)| matches!(work, Work::Partial(_)));
        let needed = left.map(|(planned, _)| planned.file_bytes).sum();
        let begun: Vec<_> = files.partials().map(|partial| partial.path().to_path_buf()).collect();
        if let Err(error) = refuse_full(&plan.output, needed, begun.iter().map(PathBuf::as_path)) {
            files.abandon();
            return Err(error);
        }
        Ok(files)
    }

    fn open_one(
        &self,
        plan: &Plan,
        planned: &PlannedFile,
        whole: Option<Vec<TableInfo>>,
        past: Past,
    ) -> Result<(Work, bool), Error> {
        if let Some(tables) = whole {
            return Ok((Work::Whole { path: planned.path.clone(), tables, bytes: planned.file_bytes }, false));
        }
        let (mut partial, earlier) = Partial::open(&planned.path, &plan.head.run)?;
        let fresh = match &earlier {
            Earlier::Begun(run) if past.resumes && *run == plan.head.run => false,
            Earlier::Begun(run) => {
                refuse_lost(plan, &planned.path, run, past)?;
                partial.restart(0)?;
                true
            }
            _ => true,
        };
        Ok((Work::Partial(partial), fresh))
    }

    fn partials(&self) -> impl Iterator<Item = &Partial> {
        self.works.iter().filter_map(|work| match work {
            Work::Partial(partial) => Some(partial),
            Work::Whole { .. } => None,
        })
    }

    /// The first of the unfinished files of another run, if anything has been written to them.
    pub(super) fn of_other_run(output: &Path, head: &Head) -> Result<Option<PathBuf>, Error> {
        for name in &head.names {
            let output = output.with_file_name(name);
            if matches!(peek_partial(&output)?, Some(Earlier::Begun(run)) if run == head.run) {
                return Ok(Some(partial_path(&output)));
            }
        }
        Ok(None)
    }

    /// Removes the unfinished files of another run.
    pub(super) fn discard_other_run(output: &Path, head: &Head) -> Result<(), Error> {
        for name in &head.names {
            let output = output.with_file_name(name);
            if matches!(peek_partial(&output)?, Some(Earlier::Begun(run)) if run == head.run) {
                Partial::open(&output, &head.run)?.0.discard();
            }
        }
        Ok(())
    }

    /// Whether an equal run has written anything.
    pub(super) fn are_begun(&self) -> bool {
        self.fresh.iter().any(|fresh| !fresh)
    }

    /// Whether some may have their names already.
    pub(super) fn are_being_renamed(&self) -> bool {
        self.renaming
    }

    /// The tables of a file that is whole already.
    pub(super) fn whole(&self, file: usize) -> Option<&[TableInfo]> {
        match &self.works[file] {
            Work::Whole { tables, .. } => Some(tables),
            Work::Partial(_) => None,
        }
    }

    /// Gives every file that has another length the one it should have, and drops what was in it.
    pub(super) fn make_whole_length(&mut self, plan: &Plan) -> Result<(), Error> {
        for (work, planned) in self.works.iter_mut().zip(&plan.files) {
            if let Work::Partial(partial) = work
                && partial.length() != planned.file_bytes
            {
                partial.restart(planned.file_bytes)?;
            }
        }
        Ok(())
    }

    /// Drops what is there.
    pub(super) fn restart(&mut self, plan: &Plan) -> Result<(), Error> {
        for (work, planned) in self.works.iter_mut().zip(&plan.files) {
            if let Work::Partial(partial) = work {
                partial.restart(planned.file_bytes)?;
            }
        }
        Ok(())
    }

    /// Writes some bytes of a file that is not whole yet.
    pub(super) fn write_at(&mut self, file: usize, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        match &mut self.works[file] {
            Work::Partial(partial) => partial.write_at(offset, bytes),
            Work::Whole { path, .. } => Err(Error::OutputExists { path: path.clone() }),
        }
    }

    /// Reads some bytes of a file that is not whole yet.
    pub(super) fn read_at(&mut self, file: usize, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        match &mut self.works[file] {
            Work::Partial(partial) => partial.read_at(offset, bytes),
            Work::Whole { path, .. } => Err(Error::OutputExists { path: path.clone() }),
        }
    }

    /// Removes those that were not there before.
    pub(super) fn abandon(self) {
        for (work, fresh) in self.works.into_iter().zip(self.fresh) {
            match work {
                Work::Partial(partial) if fresh => partial.discard(),
                _ => {}
            }
        }
    }

    /// Removes the unfinished files, which cannot be resumed.
    pub(super) fn discard(self) {
        for work in self.works {
            if let Work::Partial(partial) = work {
                partial.discard();
            }
        }
    }

    /// Writes checksums and headers, gives the files their names, and writes the index. All stay locked until `self` is
    /// dropped, so that no other process takes the first for what a killed run has left while the last is still to
    /// come.
    pub(super) fn finish(
        &mut self,
        mut plan: Plan,
        finished: &[Finished],
        force: bool,
    ) -> Result<CompressReport, Error> {
        for (index, done) in finished.iter().enumerate() {
            let segment = &plan.segments[index];
            let (file, start) = (segment.file, segment.checksums);
            if self.whole(file).is_some() {
                continue;
            }
            let checksums: Vec<u8> = done.checksums.iter().flat_map(|checksum| checksum.to_le_bytes()).collect();
            self.write_at(file, start, &checksums)?;
            let segment = plan.segment_mut(index);
            segment.checksums.xxh3_64 = checksum::hex(checksum::of(&checksums));
            segment.source_xxh3_64 = done.source.map(checksum::hex);
            segment.zeroed = Some(done.zeroed);
        }
        for ((work, planned), tables) in self.works.iter_mut().zip(&plan.files).zip(&mut plan.head.files) {
            match work {
                Work::Whole { tables: whole, .. } => *tables = whole.clone(),
                Work::Partial(partial) => {
                    tables.iter_mut().for_each(count_zeroed);
                    let header =
                        format::header_bytes(tables, &plan.head.run, planned.part.as_deref(), planned.header_bytes)
                            .map_err(|source| condprog_table::Error::header(partial.path(), source))?;
                    partial.write_header(&header)?;
                }
            }
        }
        let folder = folder_of(&plan.output);
        if !self.has_index {
            // From here to the end no index may tell of files that are partly old and partly new.
            let stale = self.stale.iter().filter(|path| **path == index_path(&plan.output));
            stale.chain(&plan.index).try_for_each(|path| remove(path, force))?;
        }
        self.renaming = true;
        self.partials().try_for_each(|partial| partial.finish(force))?;
        if let Some(path) = plan.index.as_ref().filter(|_| !self.has_index) {
            write_text(path, &index(&plan).to_json(), force)?;
        }
        if !self.stale.is_empty() {
            self.stale.iter().try_for_each(|path| remove(path, force))?;
            sync_folder(folder).context("finish", folder)?;
        }
        let file_bytes = self.works.iter().map(Work::bytes).sum();
        report(plan, file_bytes)
    }
}

impl Work {
    fn bytes(&self) -> u64 {
        match self {
            Work::Partial(partial) => partial.length(),
            Work::Whole { bytes, .. } => *bytes,
        }
    }
}

/// What is there before anything is touched.
struct FoundFiles {
    /// Of each file, its tables if an equal run has renamed it.
    whole: Vec<Option<Vec<TableInfo>>>,
    has_index: bool,
    stale: Vec<PathBuf>,
}

/// Looks at all that is in the way of an output.
fn look_at(plan: &Plan, past: Past) -> Result<FoundFiles, Error> {
    let may_have_finished = past.resumes || past.restarts == Some(Restart::Killed);
    let mut whole = Vec::new();
    for (planned, tables) in plan.files.iter().zip(&plan.head.files) {
        let has_partial = !matches!(look(&partial_path(&planned.path))?, There::Nothing);
        let own = match may_have_finished && !has_partial {
            true => as_planned_on_disk(planned, tables, &plan.head.run),
            false => None,
        };
        if own.is_none() {
            refuse_existing(&planned.path, past.force)?;
        }
        whole.push(own);
    }
    let is_own_index = |path: &PathBuf| may_have_finished && input::index(path).is_ok_and(|found| found == index(plan));
    let has_index = plan.index.as_ref().is_some_and(is_own_index);
    if let Some(path) = plan.index.as_ref().filter(|_| !has_index) {
        refuse_existing(path, past.force)?;
    }
    Ok(FoundFiles { whole, has_index, stale: stale(plan, past.force)? })
}

/// Refuses a plan that would write to an input, or remove it, whatever name leads to it.
pub(super) fn refuse_inputs(plan: &Plan, inputs: &[&Path]) -> Result<(), Error> {
    let stale = stale(plan, true).unwrap_or_default();
    let names = plan.outputs().map(PathBuf::from).chain(plan.working_names()).chain(stale);
    for name in names.filter(|name| name.exists()) {
        inputs.iter().try_for_each(|input| refuse_same(input, &name))?;
    }
    Ok(())
}

/// Refuses what [`Files::open`] would refuse, and touches nothing.
pub(super) fn check(plan: &Plan, past: Past) -> Result<(), Error> {
    look_at(plan, past)?;
    for planned in &plan.files {
        match peek_partial(&planned.path)? {
            Some(Earlier::Begun(run)) if !past.resumes || run != plan.head.run => {
                refuse_lost(plan, &planned.path, &run, past)?;
            }
            _ => {}
        }
    }
    let partials: Vec<_> = plan.files.iter().map(|file| partial_path(&file.path)).collect();
    refuse_full(&plan.output, plan.file_bytes(), partials.iter().map(PathBuf::as_path))
}

/// Refuses to drop a begun file whose account is lost.
fn refuse_lost(plan: &Plan, output: &Path, run: &str, past: Past) -> Result<(), Error> {
    if past.force || past.restarts.is_some() && run == plan.head.run {
        return Ok(());
    }
    let what = if past.resumes { "that of another run" } else { past.journal };
    Err(Error::JournalLost { path: partial_path(output), journal: journal_path(&plan.output), what })
}

/// Files of an earlier output of the same name that this one would not replace, cut in another way: a loader could take
/// them for parts of it. Forced, they are removed at the end, if they are table files or their index.
fn stale(plan: &Plan, force: bool) -> Result<Vec<PathBuf>, Error> {
    let output = &plan.output;
    let folder = folder_of(output);
    let stem = stem(output);
    let is_shard = |name: &str| {
        let digits = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
        let numbers = name.strip_prefix(&stem).and_then(|rest| rest.strip_prefix('-')?.strip_suffix(".safetensors"));
        numbers.and_then(|numbers| numbers.split_once("-of-")).is_some_and(|(a, b)| digits(a) && digits(b))
    };
    let index = index_path(output);
    let mut found = Vec::new();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        // Where there is no folder, the first file that cannot be created says so.
        Err(_) => return Ok(found),
    };
    for entry in entries {
        let name = entry.context("read", folder)?.file_name();
        let path = output.with_file_name(&name);
        let is_ours = name.to_str().is_some_and(is_shard) || path == index || path == *output;
        if is_ours && !plan.outputs().any(|planned| planned == path) {
            found.push(path);
        }
    }
    found.sort();
    for path in &found {
        refuse_existing(path, force)?;
        let is_table = || input::header(path).is_ok_and(|header| header.metadata(KEY_FORMAT) == Some(FORMAT));
        let names: Vec<_> = found.iter().map(PathBuf::as_path).chain(plan.outputs()).map(file_name).collect();
        let is_index =
            || input::index(path).is_ok_and(|index| index.files().iter().all(|file| names.iter().any(|n| n == file)));
        if !(if *path == index { is_index() } else { is_table() }) {
            return Err(Error::Beside { path: path.clone(), output: output.clone() });
        }
    }
    Ok(found)
}

/// Removes a file of an earlier output, if it is there; only where that was asked for.
fn remove(path: &Path, force: bool) -> Result<(), Error> {
    match look(path)? {
        There::File(_) if force => fs::remove_file(path).context("remove", path),
        _ => refuse_existing(path, force),
    }
}

/// Writes a text file.
pub(crate) fn write_text(path: &Path, text: &str, force: bool) -> Result<(), Error> {
    sweep(folder_of(path));
    let mut file = Temporary::create(path, force)?;
    match file.write_at(0, text.as_bytes()) {
        Ok(()) => file.finish(force),
        Err(error) => {
            file.discard();
            Err(error)
        }
    }
}

/// Counts the rows of a table that became zero, over its segments.
fn count_zeroed(table: &mut TableInfo) {
    let mut zeroed = Zeroed::default();
    table.segments.iter().filter_map(|segment| segment.zeroed).for_each(|segment| zeroed += segment);
    (table.zero_rows, table.underflow_rows, table.non_finite_rows) = (zeroed.zero, zeroed.underflow, zeroed.non_finite);
}

/// What a plan says of an output that is whole.
fn report(plan: Plan, file_bytes: u64) -> Result<CompressReport, Error> {
    let run = Some(plan.head.run.as_str());
    let pairs = plan.files.iter().zip(&plan.head.files);
    let lists: Vec<_> = pairs.map(|(file, tables)| TablesOf { path: &file.path, run, tables }).collect();
    let tables =
        format::join_tables(&lists).map_err(|source| condprog_table::Error::format(&plan.files[0].path, source))?;
    let files = plan.files.into_iter().map(|file| file.path).collect();
    Ok(CompressReport { tables, files, index: plan.index, file_bytes, resumed_rows: 0 })
}

/// The report on an output that is there as planned, none of it unfinished.
pub(super) fn finished(mut plan: Plan, non_finite: NonFinite) -> Result<Option<CompressReport>, Error> {
    for name in plan.working_names() {
        if !matches!(look(&name)?, There::Nothing) {
            return Ok(None);
        }
    }
    for (planned, tables) in plan.files.iter().zip(&mut plan.head.files) {
        match as_planned_on_disk(planned, tables, &plan.head.run) {
            Some(found) => *tables = found,
            None => return Ok(None),
        }
        refuse_zeroed(&planned.path, tables, non_finite)?;
    }
    let is_own_index = |path: &PathBuf| input::index(path).is_ok_and(|found| found == index(&plan));
    match plan.index.as_ref().is_none_or(is_own_index) {
        true => {
            let file_bytes = plan.file_bytes();
            report(plan, file_bytes).map(Some)
        }
        false => Ok(None),
    }
}

/// Refuses a finished file in which rows that cannot be coded became zeros, where that is an error now.
pub(super) fn refuse_zeroed(path: &Path, tables: &[TableInfo], non_finite: NonFinite) -> Result<(), Error> {
    if non_finite == NonFinite::Error && tables.iter().any(|table| table.non_finite_rows > 0) {
        let what = "what becomes of rows that cannot be coded";
        return Err(Error::OtherRun { path: path.into(), what, got: "zeros".into(), expected: "an error".into() });
    }
    Ok(())
}

/// The index of all files.
fn index(plan: &Plan) -> Index {
    let mut index = Index { metadata: Map::new(), weight_map: Default::default() };
    let mut total = 0;
    for (name, tables) in plan.head.names.iter().zip(&plan.head.files) {
        for tensor in format::layout_tensors(tables) {
            total += tensor.bytes();
            index.weight_map.insert(tensor.name, name.clone());
        }
    }
    index.metadata.insert("total_size".into(), Value::from(total));
    index.metadata.insert(KEY_RUN.into(), Value::from(plan.head.run.as_str()));
    index
}

/// The tables of a file of the output, if it is there as planned, whatever its counts and checksums.
fn as_planned_on_disk(planned: &PlannedFile, tables: &[TableInfo], run: &str) -> Option<Vec<TableInfo>> {
    if !matches!(look(&planned.path), Ok(There::File(_))) {
        return None;
    }
    let found = Tables::open(&planned.path).ok()?;
    let is_own = found.metadata(KEY_RUN) == Some(run) && found.metadata(KEY_PART) == planned.part.as_deref();
    (is_own && as_planned(found.tables()) == as_planned(tables)).then(|| found.tables().to_vec())
}

/// Tables without what is known only when their rows are coded.
fn as_planned(tables: &[TableInfo]) -> Vec<TableInfo> {
    let mut tables = tables.to_vec();
    for table in &mut tables {
        (table.zero_rows, table.underflow_rows, table.non_finite_rows) = (0, 0, 0);
        for segment in &mut table.segments {
            (segment.zeroed, segment.global_scale, segment.source_xxh3_64) = (None, None, None);
            segment.checksums.xxh3_64.clear();
        }
    }
    tables
}
