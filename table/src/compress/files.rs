//! The files of an output: unfinished until all are whole, then renamed one after another, the index last.

use std::path::Path;

use serde_json::{Map, Value};

use super::CompressReport;
use super::plan::Plan;
use crate::checksum;
use crate::error::Error;
use crate::file::TableFile;
use crate::format::{self, KEY_PART, TableInfo, Zeroed};
use crate::index::Index;
use crate::output::{Partial, refuse_existing};

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
    /// Opens or creates the unfinished files. Those that a killed run has renamed already, with its journal still there,
    /// are taken back.
    pub(super) fn open(plan: &Plan, force: bool, is_same_run: bool) -> Result<Files, Error> {
        if is_same_run {
            for (file, tables) in plan.files.iter().zip(&plan.head.files) {
                Partial::take_back(&file.path, |path| {
                    TableFile::open(path).is_ok_and(|found| as_planned(found.tables()) == as_planned(tables))
                })?;
            }
        }
        // All of them before any is created.
        plan.outputs().try_for_each(|output| refuse_existing(output, force))?;
        plan.files.iter().map(|file| Partial::open(&file.path, force)).collect::<Result<_, _>>().map(Files)
    }

    /// One of the files, for messages about all.
    pub(super) fn path(&self) -> &Path {
        self.0[0].path()
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

    /// Writes checksums and headers, gives the files their names, and writes the index.
    pub(super) fn finish(
        mut self,
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
        self.0.into_iter().try_for_each(|file| file.finish(force))?;
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

/// The report on an output that is there as planned.
pub(super) fn finished(mut plan: Plan) -> Option<CompressReport> {
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
    for (file, tables) in plan.files.iter().zip(&plan.head.files) {
        let name = file.path.file_name().unwrap_or_default().to_string_lossy();
        for tensor in format::layout_tensors(tables) {
            total += tensor.bytes();
            index.weight_map.insert(tensor.name, name.clone().into_owned());
        }
    }
    index.metadata.insert("total_size".into(), Value::from(total));
    index
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
