//! Table files, opened: one, or all that an index names.

use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use condprog_core::{Layout, Segment};

use crate::checksum;
use crate::damage::{Damage, Fault};
use crate::error::{Error, IoContext};
use crate::format::{self, FormatError, KEY_RUN, SegmentInfo, TableInfo, TablesOf};
use crate::header::Header;
use crate::index::IndexError;
use crate::input::{self, Place};
use crate::read::ReadFile;

/// Table files whose metadata has been checked: one file, or the files of an index as one. The records have not: see
/// [`Tables::check_block`] and `condprog-convert`'s `verify`. Any record is valid to decode, so damage shows as wrong values,
/// never as an error.
///
/// Records are read when they are asked for, by position; nothing is mapped. For a decoder there are
///
/// * [`Tables::load`]: all records of a table in memory,
/// * [`Tables::pick`]: those of some rows, for callers that need no others,
/// * [`Tables::segments_in`]: those in bytes that the caller has, such as mapped files.
///
/// ```no_run
/// use condprog_core::{Decoder, Missing, Output, ReferenceDecoder, Table};
///
/// let file = condprog_table::Tables::open("table.safetensors")?;
/// let records = file.load("layers.1.engram.embed.weight")?;
/// let segments = records.segments();
/// let table = Table::new(&segments)?;
/// let mut rows = vec![0.0; 3 * table.shape().dim as usize];
/// let decoder = ReferenceDecoder::new(table); // or a faster one, which may own the records
/// decoder.decode(&[5, 7, -1], Missing::Zero, Output::F32(&mut rows))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Tables {
    path: PathBuf,
    files: Vec<OneFile>,
    /// Where each tensor is.
    places: HashMap<String, Placed>,
    tables: Vec<TableInfo>,
}

/// Where the bytes of a tensor are: in which of the files, and where in it.
#[derive(Clone, Debug)]
struct Placed {
    file: usize,
    bytes: Range<u64>,
}

#[derive(Debug)]
struct OneFile {
    path: PathBuf,
    bytes: Bytes,
    header: Header,
}

/// Where the bytes of a file are.
#[derive(Debug)]
enum Bytes {
    File(ReadFile),
    Memory(Vec<u8>),
}

impl Bytes {
    fn length(&self) -> u64 {
        match self {
            Bytes::File(file) => file.length(),
            Bytes::Memory(bytes) => bytes.len() as u64,
        }
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        match self {
            Bytes::File(file) => file.read_at(offset, out)?,
            // Tensors lie within the file: checked with its header.
            Bytes::Memory(bytes) => out.copy_from_slice(&bytes[offset as usize..offset as usize + out.len()]),
        }
        Ok(())
    }
}

/// Bytes that are read at a time where more are to be read than are kept: they fit a processor's own cache.
pub const PIECE: usize = 1 << 18;

impl Tables {
    /// Opens a table file, or all that an index names: `path` is a table file, an index, or a folder with one of them.
    /// Files of an index that hold no tables are left alone: a whole checkpoint may have some.
    ///
    /// Reads headers and checksums, no records. However many files there are, few of them are open at a time.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Header`], [`Error::Index`] or [`Error::Format`]: nothing is served from a file that
    /// contradicts itself or its index, nor from a table of which a file is missing.
    pub fn open(path: impl AsRef<Path>) -> Result<Tables, Error> {
        match input::place(path.as_ref())? {
            Place::File(path) => {
                let file = OneFile::open(&path)?;
                let tables = file.tables()?;
                Tables::new(&path, vec![file], tables)
            }
            Place::Index(index) => Tables::open_index(&index),
        }
    }

    /// Takes a file that is in memory already; errors name it as `path`.
    ///
    /// # Errors
    /// As [`Tables::open`], but for [`Error::Io`].
    pub fn from_bytes(path: impl AsRef<Path>, bytes: Vec<u8>) -> Result<Tables, Error> {
        let path = path.as_ref();
        let header = Header::from_bytes(&bytes).map_err(|source| Error::header(path, source))?;
        let file = OneFile { path: path.into(), bytes: Bytes::Memory(bytes), header };
        let tables = file.tables()?;
        Tables::new(path, vec![file], tables)
    }

    fn open_index(path: &Path) -> Result<Tables, Error> {
        let index = input::index(path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut files = Vec::new();
        for name in index.files() {
            let file = folder.join(name);
            if !file.try_exists().context("look for", &file)? {
                return Err(Error::index(path, IndexError::MissingFile { file: name.into() }));
            }
            let file = OneFile::open(&file)?;
            // Headers tell which files have tables; of the others, which may be large, no more is read.
            if file.header.metadata(format::KEY_FORMAT).is_none() {
                continue;
            }
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
        Tables::new(path, files, tables)
    }

    fn new(path: &Path, files: Vec<OneFile>, tables: Vec<TableInfo>) -> Result<Tables, Error> {
        let mut places = HashMap::new();
        for (number, file) in files.iter().enumerate() {
            let start = file.header.data_start;
            for tensor in &file.header.tensors {
                let placed = Placed { file: number, bytes: start + tensor.start..start + tensor.end };
                if let Some(other) = places.insert(tensor.name.clone(), placed) {
                    let files = Box::new([files[other.file].path.clone(), file.path.clone()]);
                    return Err(Error::index(path, IndexError::TwoFiles { tensor: tensor.name.clone(), files }));
                }
            }
        }
        let file = Tables { path: path.into(), files, places, tables };
        for segment in file.tables.iter().flat_map(|table| &table.segments) {
            let tensor = &segment.checksums.tensor;
            let mut checksum = checksum::Pieces::default();
            file.read_pieces(tensor, 0..8 * segment.blocks(), 8, |bytes| checksum.add(bytes))?;
            let (got, expected) = (checksum::hex(checksum.checksum()), &segment.checksums.xxh3_64);
            if got != *expected {
                let (tensor, expected) = (tensor.clone(), expected.clone());
                let path = file.holder(&tensor)?;
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
        self.files.iter().map(|file| file.bytes.length()).sum()
    }

    /// A string of the metadata of the first file.
    pub fn metadata(&self, key: &str) -> Option<&str> {
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
        self.tables.iter().find(|table| table.name == name).ok_or_else(|| self.no_table(name))
    }

    fn no_table(&self, name: &str) -> Error {
        let have = self.tables.iter().map(|table| table.name.clone()).collect();
        Error::NoTable { path: self.path.clone(), table: name.into(), have }
    }

    /// The segments of a table in bytes that the caller has: those of all [`files`](Tables::files), whole and in that
    /// order. So tables can be decoded from files that are mapped, with what `condprog_memory::MappedFile::open` asks of
    /// who does so. As of [`TableRecords::segments`](crate::TableRecords::segments), runs of one layout that lie together
    /// are one segment.
    ///
    /// # Errors
    /// [`Error::NoTable`]; [`Error::FileBytes`] when the bytes are not as long as the files.
    pub fn segments_in<'a>(&self, name: &str, files: &[&'a [u8]]) -> Result<Vec<Segment<'a>>, Error> {
        let runs = self.runs(name)?;
        for (place, file) in self.files.iter().enumerate() {
            let (got, expected) = (files.get(place).map_or(0, |bytes| bytes.len() as u64), file.bytes.length());
            if got != expected {
                return Err(Error::FileBytes { path: file.path.clone(), got, expected });
            }
        }
        Ok(runs
            .into_iter()
            .map(|run| {
                let range = run.offset as usize..run.offset as usize + run.bytes() as usize;
                Segment { rows: run.rows, layout: run.layout, records: &files[run.file][range] }
            })
            .collect())
    }

    /// Where the records of a table lie, in row order: for those who read, map or transfer them themselves. Neighbours of one
    /// layout in one file are one run.
    ///
    /// # Errors
    /// [`Error::NoTable`].
    pub fn runs(&self, name: &str) -> Result<Vec<RecordRun>, Error> {
        let table = self.table(name)?;
        self.runs_of(table, 0..table.rows)
    }

    /// Where the records of some rows of a table of this file are. Neighbours of one layout in one file are one run,
    /// since a decoder has less to look up the fewer there are; Qwen's 128 tensors become as many as there are files.
    pub fn runs_of(&self, table: &TableInfo, rows: Range<u64>) -> Result<Vec<RecordRun>, Error> {
        let mut runs: Vec<RecordRun> = Vec::new();
        let from = table.segments.partition_point(|segment| segment.first_row + segment.rows <= rows.start);
        for info in table.segments[from..].iter().take_while(|segment| segment.first_row < rows.end) {
            let all = self.run(info)?;
            let first = rows.start.max(info.first_row) - info.first_row;
            let count = rows.end.min(info.first_row + info.rows) - info.first_row - first;
            let run = RecordRun { offset: all.offset + first * info.record_bytes(), rows: count, ..all };
            match runs.last_mut() {
                Some(last) if (last.file, last.layout, last.end()) == (run.file, run.layout, run.offset) => {
                    last.rows += count;
                }
                _ => runs.push(run),
            }
        }
        Ok(runs)
    }

    /// Where the records of a segment of a table of this file are.
    pub fn run(&self, segment: &SegmentInfo) -> Result<RecordRun, Error> {
        let Placed { file, bytes } = self.placed(&segment.tensor)?;
        Ok(RecordRun { file: *file, offset: bytes.start, rows: segment.rows, layout: segment.layout })
    }

    /// Reads records of a run, from its row `first` on, as many as `out` holds.
    pub fn read_run(&self, run: &RecordRun, first: u64, out: &mut [u8]) -> Result<(), Error> {
        self.files[run.file].bytes.read_at(run.offset + first * run.layout.record_bytes() as u64, out)
    }

    /// Reads records of a segment of a table into `out`, behind what is there.
    pub fn read_records(&self, segment: &SegmentInfo, rows: Range<u64>, out: &mut Vec<u8>) -> Result<(), Error> {
        let Placed { file, bytes } = self.placed(&segment.tensor)?;
        let end = out.len();
        out.resize(end + ((rows.end - rows.start) * segment.record_bytes()) as usize, 0);
        self.files[*file].bytes.read_at(bytes.start + rows.start * segment.record_bytes(), &mut out[end..])
    }

    /// Reads bytes of a tensor, counted from its first, and hands them over in pieces, each a multiple of `unit` bytes.
    pub fn read_pieces(
        &self,
        tensor: &str,
        bytes: Range<u64>,
        unit: u64,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), Error> {
        // New memory for every block would take as long as reading it.
        thread_local!(static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) });
        let mut buffer = BUFFER.take();
        let placed = self.placed(tensor)?;
        let step = (PIECE as u64 / unit).max(1) * unit;
        let mut start = bytes.start;
        while start < bytes.end {
            let end = bytes.end.min(start.saturating_add(step));
            buffer.resize((end - start) as usize, 0);
            self.files[placed.file].bytes.read_at(placed.bytes.start + start, &mut buffer)?;
            take(&buffer);
            start = end;
        }
        BUFFER.set(buffer);
        Ok(())
    }

    /// Checks one block of rows, `block < segment.blocks()`, of a segment of this file.
    ///
    /// # Errors
    /// [`Error::NoTable`] when there is no such table, [`Error::Io`] when the block cannot be read, [`Error::Damaged`]
    /// when the checksum is another one.
    ///
    /// # Panics
    /// When the table has no such segment or block.
    pub fn check_block(&self, table: &str, segment: usize, block: u64) -> Result<(), Error> {
        let table = self.table(table)?;
        match self.read_block(table, &table.segments[segment], block, |_| ())? {
            None => Ok(()),
            Some(damage) => {
                let path = self.holder(&damage.tensor)?.into();
                Err(Error::Damaged { path, damage: Box::new(damage) })
            }
        }
    }

    /// Reads a block of rows, hands over its records in pieces of whole ones, and says whether their checksum is wrong.
    pub fn read_block(
        &self,
        table: &TableInfo,
        segment: &SegmentInfo,
        block: u64,
        mut take: impl FnMut(&[u8]),
    ) -> Result<Option<Damage>, Error> {
        let rows = block_range(segment, block);
        let bytes = segment.record_bytes();
        let mut checksum = checksum::Pieces::default();
        self.read_pieces(&segment.tensor, rows.start * bytes..rows.end * bytes, bytes, |records| {
            checksum.add(records);
            take(records);
        })?;
        let mut stored = [0; 8];
        let checksums = self.placed(&segment.checksums.tensor)?;
        self.files[checksums.file].bytes.read_at(checksums.bytes.start + 8 * block, &mut stored)?;
        let (got, expected) = (checksum.checksum(), u64::from_le_bytes(stored));
        Ok((got != expected).then(|| Damage {
            table: table.name.clone(),
            tensor: segment.tensor.clone(),
            first_row: segment.first_row + rows.start,
            rows: rows.end - rows.start,
            fault: Fault::Checksum { got: checksum::hex(got), expected: checksum::hex(expected) },
        }))
    }

    /// The file that a tensor is in.
    fn holder(&self, tensor: &str) -> Result<&Path, Error> {
        Ok(&self.files[self.placed(tensor)?.file].path)
    }

    /// Where the bytes of a tensor are. Those of these tables were there when the files were opened.
    fn placed(&self, tensor: &str) -> Result<&Placed, Error> {
        self.places.get(tensor).ok_or_else(|| self.no_table(tensor))
    }
}

/// Records of one layout that lie together in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordRun {
    /// Which of the [`files`](Tables::files), counted from 0.
    pub file: usize,
    /// Where in it the first record starts, in bytes.
    pub offset: u64,
    /// Number of records.
    pub rows: u64,
    /// Width and rate of the rows.
    pub layout: Layout,
}

impl RecordRun {
    /// Bytes of all its records.
    pub fn bytes(&self) -> u64 {
        self.rows * self.layout.record_bytes() as u64
    }

    fn end(&self) -> u64 {
        self.offset + self.bytes()
    }
}

impl OneFile {
    fn open(path: &Path) -> Result<OneFile, Error> {
        let file = ReadFile::open(path)?;
        let header = Header::read(&mut file.front(), file.length())
            .context("read", path)?
            .map_err(|source| Error::header(path, source))?;
        Ok(OneFile { path: path.into(), bytes: Bytes::File(file), header })
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
pub fn block_range(segment: &SegmentInfo, block: u64) -> Range<u64> {
    let size = segment.checksums.block_rows;
    let start = block * size;
    start..start.saturating_add(size).min(segment.rows)
}
