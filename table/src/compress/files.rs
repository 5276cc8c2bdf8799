//! The files of an output: unfinished until all are whole, then renamed one after another, the index last.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::CompressReport;
use super::plan::{Plan, PlannedFile};
use crate::checksum;
use crate::error::{Error, IoContext};
use crate::file::TableFile;
use crate::format::{self, KEY_PART, TableInfo, Zeroed};
use crate::index::Index;
use crate::journal::Head;
use crate::output::{Partial, partial_path, refuse_existing};

/// What is known of a segment when its rows are written.
#[derive(Clone, Debug, Default)]
pub(super) struct Finished {
    /// Of its blocks, in order.
    pub(super) checksums: Vec<u64>,
    pub(super) zeroed: Zeroed,
}

/// The unfinished files, in row order.
pub(super) struct Files(Vec<Partial>);

impl Files {
    /// Opens or creates the unfinished files. `journal` is that of an equal run, if there is one: files that it has
    /// renamed already when it was killed are taken back.
    pub(super) fn open(plan: &Plan, force: bool, journal: Option<&Path>) -> Result<Files, Error> {
        let may_be_own = |output: &Path| journal.filter(|_| !partial_path(output).exists());
        let own_index = plan.index.as_deref().and_then(|path| {
            let is_own = Index::read(path).is_ok_and(|found| found == index(plan));
            may_be_own(path).filter(|_| is_own).map(|journal| (path, journal))
        });
        let own_file = |file: usize| {
            let path = &plan.files[file].path;
            may_be_own(path).filter(|_| is_as_planned(path, &plan.head.files[file]))
        };
        let own: Vec<_> = (0..plan.files.len()).map(own_file).collect();
        // All of them are looked at before any is touched.
        let own_outputs = own.iter().map(Option::is_some).chain([own_index.is_some()]);
        for (output, _) in plan.outputs().zip(own_outputs).filter(|(_, is_own)| !is_own) {
            refuse_existing(output, force)?;
        }
        if let Some((path, journal)) = own_index {
            Partial::take_back(path, journal)?;
        }
        let open = |(file, own): (&PlannedFile, Option<&Path>)| match own {
            Some(journal) => Partial::take_back(&file.path, journal),
            None => Partial::open(&file.path, force),
        };
        plan.files.iter().zip(own).map(open).collect::<Result<_, _>>().map(Files)
    }

    /// The first of the unfinished files of another run, if anything has been written to them.
    pub(super) fn of_other_run(output: &Path, head: &Head) -> Option<PathBuf> {
        let paths = head.names.iter().map(|name| partial_path(&output.with_file_name(name)));
        let mut begun = paths.filter(|path| fs::metadata(path).is_ok_and(|about| about.len() > 0));
        begun.next()
    }

    /// Removes the unfinished files of another run.
    pub(super) fn discard_other_run(output: &Path, head: &Head) -> Result<(), Error> {
        for path in head.names.iter().map(|name| output.with_file_name(name)) {
            if partial_path(&path).try_exists().context("look for", &path)? {
                Partial::open(&path, true)?.discard();
            }
        }
        Ok(())
    }

    /// Whether anything has been written.
    pub(super) fn are_begun(&self) -> bool {
        self.0.iter().any(|file| file.length() > 0)
    }

    /// Whether all have the length they should.
    pub(super) fn have_length(&self, plan: &Plan) -> bool {
        self.0.iter().zip(&plan.files).all(|(file, planned)| file.length() == planned.file_bytes)
    }

    /// Drops what is there.
    pub(super) fn restart(&mut self, plan: &Plan) -> Result<(), Error> {
        self.0.iter_mut().zip(&plan.files).try_for_each(|(file, planned)| file.restart(planned.file_bytes))
    }

    pub(super) fn write_at(&mut self, file: usize, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.0[file].write_at(offset, bytes)
    }

    pub(super) fn read_at(&mut self, file: usize, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        self.0[file].read_at(offset, bytes)
    }

    /// Removes them: nobody can go on with them.
    pub(super) fn discard(self) {
        self.0.into_iter().for_each(Partial::discard);
    }

    /// Writes checksums and headers, gives the files their names, and writes the index. All stay locked until `self` is
    /// dropped, so that nobody takes the first for what a killed run has left while the last is still to come.
    pub(super) fn finish(
        &mut self,
        mut plan: Plan,
        finished: &[Finished],
        force: bool,
    ) -> Result<CompressReport, Error> {
        for (index, done) in finished.iter().enumerate() {
            let segment = &plan.segments[index];
            let (file, start) = (segment.file, segment.checksums);
            let checksums: Vec<u8> = done.checksums.iter().flat_map(|checksum| checksum.to_le_bytes()).collect();
            self.write_at(file, start, &checksums)?;
            let segment = plan.segment_mut(index);
            segment.checksums.xxh3_64 = checksum::hex(checksum::of(&checksums));
            segment.zeroed = Some(done.zeroed);
        }
        for table in plan.head.files.iter_mut().flatten() {
            let mut zeroed = Zeroed::default();
            table.segments.iter().filter_map(|segment| segment.zeroed).for_each(|segment| zeroed += segment);
            (table.zero_rows, table.underflow_rows, table.non_finite_rows) =
                (zeroed.zero, zeroed.underflow, zeroed.non_finite);
        }
        for ((file, planned), tables) in self.0.iter_mut().zip(&plan.files).zip(&plan.head.files) {
            let header = format::header_bytes(tables, planned.part.as_deref(), planned.header_bytes)
                .map_err(|source| Error::header(file.path(), source))?;
            file.write_at(0, &header)?;
        }
        let file_bytes = self.0.iter().map(Partial::length).sum();
        self.0.iter().try_for_each(|file| file.finish(force))?;
        if let Some(path) = &plan.index {
            let mut file = Partial::open(path, force)?;
            let json = index(&plan).to_json();
            file.restart(json.len() as u64)?;
            file.write_at(0, json.as_bytes())?;
            file.finish(force)?;
        }
        report(plan, file_bytes)
    }
}

/// What a plan says of an output that is whole.
fn report(plan: Plan, file_bytes: u64) -> Result<CompressReport, Error> {
    let names = plan.files.iter().map(|file| file.path.as_path());
    let lists: Vec<_> = names.zip(plan.head.files.iter().map(Vec::as_slice)).collect();
    let tables = format::join_tables(&lists).map_err(|source| Error::format(&plan.files[0].path, source))?;
    let files = plan.files.into_iter().map(|file| file.path).collect();
    Ok(CompressReport { tables, files, index: plan.index, file_bytes, resumed_rows: 0 })
}

/// The report on an output that is there as planned, none of it unfinished.
pub(super) fn finished(mut plan: Plan) -> Option<CompressReport> {
    if plan.outputs().any(|output| partial_path(output).exists()) {
        return None;
    }
    for (file, tables) in plan.files.iter().zip(&mut plan.head.files) {
        let found = TableFile::open(&file.path).ok()?;
        let is_part = found.metadata(KEY_PART) == file.part.as_deref();
        if !is_part || as_planned(found.tables()) != as_planned(tables) {
            return None;
        }
        *tables = found.tables().to_vec();
    }
    let is_indexed = plan.index.as_ref().is_none_or(|path| Index::read(path).is_ok_and(|found| found == index(&plan)));
    let file_bytes = plan.file_bytes();
    if is_indexed { report(plan, file_bytes).ok() } else { None }
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
    index
}

/// Whether a file has these tables, whatever their counts and checksums.
fn is_as_planned(path: &Path, tables: &[TableInfo]) -> bool {
    TableFile::open(path).is_ok_and(|found| as_planned(found.tables()) == as_planned(tables))
}

/// Tables without what is known only when their rows are coded.
fn as_planned(tables: &[TableInfo]) -> Vec<TableInfo> {
    let mut tables = tables.to_vec();
    for table in &mut tables {
        (table.zero_rows, table.underflow_rows, table.non_finite_rows) = (0, 0, 0);
        for segment in &mut table.segments {
            (segment.zeroed, segment.global_scale) = (None, None);
            segment.checksums.xxh3_64.clear();
        }
    }
    tables
}
