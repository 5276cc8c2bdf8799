//! Table files, opened for decoding: one, or all that an index names.

use std::collections::HashMap;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};

use condprog_core::Segment;
use condprog_cpu::{Access, MappedFile};

use crate::checksum;
use crate::error::{Error, IoContext};
use crate::format::{self, FormatError, KEY_RUN, SegmentInfo, TableInfo, TablesOf};
use crate::header::Header;
use crate::index::{self, Index, IndexError, Place};
use crate::verify::{Damage, Fault};

/// Table files whose metadata has been checked: one file, or the files of an index as one. The records have not: see [`TableFile::check_block`] and
/// [`crate::verify()`]. Any record is valid to decode, so damage shows as wrong values, never as an error.
///
/// ```no_run
/// use condprog_core::{Decoder, Missing, Output, Table};
/// use condprog_cpu::CpuDecoder;
///
/// let file = condprog_table::TableFile::open("table.safetensors")?;
/// let segments = file.segments("layers.1.engram.embed.weight")?;
/// let table = Table::new(&segments)?;
/// let mut rows = vec![0.0; 3 * table.shape().dim as usize];
/// CpuDecoder::new(table)?.decode(&[5, 7, -1], Missing::Zero, Output::F32(&mut rows))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TableFile {
    path: PathBuf,
    files: Vec<OneFile>,
    /// In which of the files a tensor is.
    places: HashMap<String, usize>,
    tables: Vec<TableInfo>,
}

#[derive(Debug)]
struct OneFile {
    path: PathBuf,
    bytes: Bytes,
    header: Header,
}

#[derive(Debug)]
enum Bytes {
    File(MappedFile),
    Memory(Vec<u8>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::File(file) => file,
            Bytes::Memory(bytes) => bytes,
        }
    }
}

impl TableFile {
    /// Maps a table file for decoding rows in any order, or all that an index names: `path` is a table file, an index,
    /// or a folder with one of them. Files of an index that hold no tables are left alone: a whole checkpoint may have
    /// some. The files must not be changed in place while they are open.
    ///
    /// Opening reads headers and checksums; no page of records is touched.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Header`], [`Error::Index`] or [`Error::Format`]: nothing is served from a file that
    /// contradicts itself or its index, nor from a table of which a file is missing.
    pub fn open(path: impl AsRef<Path>) -> Result<TableFile, Error> {
        TableFile::open_for(path, Access::Random)
    }

    /// Maps for reading in a given order; [`Access::Sequential`] is right for a scan.
    ///
    /// # Errors
    /// As [`TableFile::open`].
    pub fn open_for(path: impl AsRef<Path>, access: Access) -> Result<TableFile, Error> {
        TableFile::open_with(path.as_ref(), |path| MappedFile::open(path, access).context("open", path))
    }

    /// Reads into memory, on huge pages where the system has them: the fastest to decode from.
    ///
    /// # Errors
    /// As [`TableFile::open`].
    pub fn load(path: impl AsRef<Path>) -> Result<TableFile, Error> {
        TableFile::open_with(path.as_ref(), |path| MappedFile::load(path).context("read", path))
    }

    /// Takes a file that is in memory already; errors name it as `path`.
    ///
    /// # Errors
    /// As [`TableFile::open`], but for [`Error::Io`].
    pub fn from_bytes(path: impl AsRef<Path>, bytes: Vec<u8>) -> Result<TableFile, Error> {
        let path = path.as_ref();
        let file = OneFile::new(path, Bytes::Memory(bytes))?;
        let tables = file.tables()?;
        TableFile::new(path, vec![file], tables)
    }

    fn open_with(path: &Path, open: impl Fn(&Path) -> Result<MappedFile, Error>) -> Result<TableFile, Error> {
        match index::place(path)? {
            Place::File(path) => {
                let file = OneFile::new(&path, Bytes::File(open(&path)?))?;
                let tables = file.tables()?;
                TableFile::new(&path, vec![file], tables)
            }
            Place::Index(index) => TableFile::open_index(&index, open),
        }
    }

    fn open_index(path: &Path, open: impl Fn(&Path) -> Result<MappedFile, Error>) -> Result<TableFile, Error> {
        let index = Index::read(path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut files = Vec::new();
        for name in index.files() {
            let file = folder.join(name);
            if !file.try_exists().context("look for", &file)? {
                return Err(Error::index(path, IndexError::MissingFile { file: name.into() }));
            }
            // Headers tell which files have tables; of the others, which may be large, no more is read.
            if Header::open(&file)?.metadata(format::KEY_FORMAT).is_none() {
                continue;
            }
            let file = OneFile::new(&file, Bytes::File(open(&file)?))?;
            let listed = index.weight_map.iter().filter(|(_, file)| *file == name);
            if let Some((tensor, file)) = listed.into_iter().find(|(tensor, _)| file.header.tensor(tensor).is_none()) {
                let (tensor, file) = (tensor.clone(), file.clone());
                return Err(Error::index(path, IndexError::MissingTensor { tensor, file }));
            }
            files.push(file);
        }
        if files.is_empty() {
            return Err(Error::index(path, IndexError::NoTables));
        }
        let lists = files.iter().map(OneFile::tables).collect::<Result<Vec<_>, _>>()?;
        let named: Vec<_> = files
            .iter()
            .zip(&lists)
            .map(|(file, tables)| TablesOf { path: &file.path, run: file.run(), tables })
            .collect();
        let wrong = |source| Error::format(path, source);
        // An index of one output names the run that all its files are of; that of a whole checkpoint may have several.
        if let Some(run) = index.metadata.get(KEY_RUN).and_then(|run| run.as_str())
            && let Some(file) = files.iter().find(|file| file.run() != Some(run))
        {
            let (other, got, expected) = (path.into(), format::run_text(file.run()), run.into());
            return Err(wrong(FormatError::OtherRun { file: file.path.clone(), got, other, expected }));
        }
        let tables = format::join_tables(&named).map_err(wrong)?;
        if let Some(table) = tables.iter().find(|table| table.rows != table.table_rows) {
            let (got, expected) = (table.rows, table.table_rows);
            return Err(wrong(FormatError::RowsMissing { table: table.name.clone(), got, expected }));
        }
        TableFile::new(path, files, tables)
    }

    fn new(path: &Path, files: Vec<OneFile>, tables: Vec<TableInfo>) -> Result<TableFile, Error> {
        let mut places = HashMap::new();
        for (place, file) in files.iter().enumerate() {
            for tensor in &file.header.tensors {
                if let Some(other) = places.insert(tensor.name.clone(), place) {
                    let files = Box::new([files[other].path.clone(), file.path.clone()]);
                    return Err(Error::index(path, IndexError::TwoFiles { tensor: tensor.name.clone(), files }));
                }
            }
        }
        let file = TableFile { path: path.into(), files, places, tables };
        for segment in file.tables.iter().flat_map(|table| &table.segments) {
            let got = checksum::hex(checksum::of(file.tensor(&segment.checksums.tensor)));
            let expected = &segment.checksums.xxh3_64;
            if got != *expected {
                let (tensor, expected) = (segment.checksums.tensor.clone(), expected.clone());
                let path = &file.holder(&tensor).path;
                return Err(Error::format(path, FormatError::Checksums { tensor, got, expected }));
            }
        }
        Ok(file)
    }

    /// What was opened: the file, or the index.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The table files, each with its path.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| file.path.as_path())
    }

    /// Bytes of all table files.
    pub fn file_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes.len() as u64).sum()
    }

    /// A string of the metadata of the first file.
    pub(crate) fn metadata(&self, key: &str) -> Option<&str> {
        self.files[0].header.metadata(key)
    }

    /// The tables, in file order, each over all files.
    pub fn tables(&self) -> &[TableInfo] {
        &self.tables
    }

    /// A table by its name.
    ///
    /// # Errors
    /// [`Error::NoTable`].
    pub fn table(&self, name: &str) -> Result<&TableInfo, Error> {
        self.tables.iter().find(|table| table.name == name).ok_or_else(|| Error::NoTable {
            path: self.path.clone(),
            table: name.into(),
            have: self.tables.iter().map(|table| table.name.clone()).collect(),
        })
    }

    /// The segments of a table, for [`condprog_core::Table::new`]: runs of records of one layout that lie together. Ids
    /// count from [`TableInfo::first_row`] of the logical table, which is 0 unless this is one file of several.
    ///
    /// # Errors
    /// [`Error::NoTable`].
    pub fn segments(&self, name: &str) -> Result<Vec<Segment<'_>>, Error> {
        Ok(self.segments_of(self.table(name)?))
    }

    /// The segments of a table of this file. Neighbours of one layout in one file are one segment, since a decoder has
    /// less to look up the fewer there are; Qwen's 128 tensors become as many as there are files.
    pub(crate) fn segments_of(&self, table: &TableInfo) -> Vec<Segment<'_>> {
        let mut merged: Vec<(usize, Range<usize>, Segment<'_>)> = Vec::new();
        for info in &table.segments {
            let (segment, (place, range)) = (self.segment(table, info), self.range(&info.tensor));
            match merged.last_mut() {
                Some((last, bytes, all)) if (*last, bytes.end, all.layout) == (place, range.start, segment.layout) => {
                    bytes.end = range.end;
                    all.rows += segment.rows;
                    all.records = &self.files[place].bytes[bytes.clone()];
                }
                _ => merged.push((place, range, segment)),
            }
        }
        merged.into_iter().map(|(.., segment)| segment).collect()
    }

    /// A segment of a table of this file.
    pub(crate) fn segment(&self, table: &TableInfo, segment: &SegmentInfo) -> Segment<'_> {
        let layout = segment.layout(table.dim).expect("checked when the file was opened");
        Segment { rows: segment.rows, layout, records: self.tensor(&segment.tensor) }
    }

    /// Checks one block of rows, `block < segment.blocks()`, of a segment of this file.
    ///
    /// # Errors
    /// [`Error::NoTable`] when there is no such table, [`Error::Damaged`] when the checksum is another one.
    ///
    /// # Panics
    /// When the table has no such segment or block.
    pub fn check_block(&self, table: &str, segment: usize, block: u64) -> Result<(), Error> {
        let table = self.table(table)?;
        match self.block_damage(table, &table.segments[segment], block) {
            None => Ok(()),
            Some(damage) => {
                let path = self.holder(&damage.tensor).path.clone();
                Err(Error::Damaged { path, damage: Box::new(damage) })
            }
        }
    }

    pub(crate) fn block_damage(&self, table: &TableInfo, segment: &SegmentInfo, block: u64) -> Option<Damage> {
        let rows = block_range(segment, block);
        let bytes = segment.record_bytes;
        let records = &self.tensor(&segment.tensor)[(rows.start * bytes) as usize..(rows.end * bytes) as usize];
        let stored = self.tensor(&segment.checksums.tensor).as_chunks::<8>().0[block as usize];
        let (got, expected) = (checksum::of(records), u64::from_le_bytes(stored));
        (got != expected).then(|| Damage {
            table: table.name.clone(),
            tensor: segment.tensor.clone(),
            first_row: segment.first_row + rows.start,
            rows: rows.end - rows.start,
            fault: Fault::Checksum { got: checksum::hex(got), expected: checksum::hex(expected) },
        })
    }

    /// The records of a segment of a table.
    pub(crate) fn records(&self, table: usize, segment: usize) -> &[u8] {
        self.tensor(&self.tables[table].segments[segment].tensor)
    }

    /// The file that a tensor is in.
    fn holder(&self, tensor: &str) -> &OneFile {
        &self.files[self.places[tensor]]
    }

    /// The bytes of a tensor that the metadata named, so it is there.
    fn tensor(&self, name: &str) -> &[u8] {
        let (place, range) = self.range(name);
        &self.files[place].bytes[range]
    }

    /// Where they are: the file, and the place in it.
    fn range(&self, name: &str) -> (usize, Range<usize>) {
        let place = self.places[name];
        let header = &self.files[place].header;
        let tensor = header.tensor(name).expect("checked when the file was opened");
        (place, (header.data_start + tensor.start) as usize..(header.data_start + tensor.end) as usize)
    }
}

impl OneFile {
    fn new(path: &Path, bytes: Bytes) -> Result<OneFile, Error> {
        let header = Header::from_bytes(&bytes).map_err(|source| Error::header(path, source))?;
        Ok(OneFile { path: path.into(), bytes, header })
    }

    /// The identity of the run that wrote it; files of earlier versions have none.
    fn run(&self) -> Option<&str> {
        self.header.metadata(KEY_RUN)
    }

    fn tables(&self) -> Result<Vec<TableInfo>, Error> {
        format::parse(&self.header).map_err(|source| Error::format(&self.path, source))
    }
}

/// The rows of a checksum block, counted from the start of the segment.
pub(crate) fn block_range(segment: &SegmentInfo, block: u64) -> Range<u64> {
    let size = segment.checksums.block_rows;
    let start = block * size;
    start..start.saturating_add(size).min(segment.rows)
}
