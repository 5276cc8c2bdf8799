//! Table files, opened for decoding.

use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};

use condprog_core::Segment;
use condprog_cpu::{Access, MappedFile};

use crate::checksum;
use crate::error::{Error, IoContext};
use crate::format::{self, FormatError, SegmentInfo, TableInfo};
use crate::header::Header;
use crate::verify::{Damage, Fault};

/// A table file whose metadata has been checked. The records have not: see [`TableFile::check_block`] and
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
    bytes: Bytes,
    header: Header,
    tables: Vec<TableInfo>,
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
    /// Maps a file for decoding rows in any order. The file must not be changed in place while it is open.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Header`] or [`Error::Format`]: nothing is served from a file that contradicts itself.
    pub fn open(path: impl AsRef<Path>) -> Result<TableFile, Error> {
        TableFile::open_for(path, Access::Random)
    }

    /// Maps a file for reading in a given order; [`Access::Sequential`] is right for a scan.
    ///
    /// # Errors
    /// As [`TableFile::open`].
    pub fn open_for(path: impl AsRef<Path>, access: Access) -> Result<TableFile, Error> {
        let path = path.as_ref();
        TableFile::new(path, Bytes::File(MappedFile::open(path, access).context("open", path)?))
    }

    /// Reads a whole file into memory, on huge pages where the system has them: the fastest to decode from.
    ///
    /// # Errors
    /// As [`TableFile::open`].
    pub fn load(path: impl AsRef<Path>) -> Result<TableFile, Error> {
        let path = path.as_ref();
        TableFile::new(path, Bytes::File(MappedFile::load(path).context("read", path)?))
    }

    /// Takes a file that is in memory already; errors name it as `path`.
    ///
    /// # Errors
    /// As [`TableFile::open`], but for [`Error::Io`].
    pub fn from_bytes(path: impl AsRef<Path>, bytes: Vec<u8>) -> Result<TableFile, Error> {
        TableFile::new(path.as_ref(), Bytes::Memory(bytes))
    }

    fn new(path: &Path, bytes: Bytes) -> Result<TableFile, Error> {
        let header = Header::from_bytes(&bytes).map_err(|source| Error::header(path, source))?;
        let tables = format::parse(&header).map_err(|source| Error::format(path, source))?;
        let file = TableFile { path: path.into(), bytes, header, tables };
        for segment in file.tables.iter().flat_map(|table| &table.segments) {
            let got = checksum::hex(checksum::of(file.tensor(&segment.checksums.tensor)));
            let expected = &segment.checksums.xxh3_64;
            if got != *expected {
                let (tensor, expected) = (segment.checksums.tensor.clone(), expected.clone());
                let source = FormatError::Checksums { tensor, got, expected };
                return Err(Error::format(path, source));
            }
        }
        Ok(file)
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the whole file.
    pub fn file_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The tables, in file order.
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

    /// The segments of a table, for [`condprog_core::Table::new`]. Ids count from this file's row 0, which is row
    /// [`TableInfo::first_row`] of the logical table.
    ///
    /// # Errors
    /// [`Error::NoTable`].
    pub fn segments(&self, name: &str) -> Result<Vec<Segment<'_>>, Error> {
        Ok(self.segments_of(self.table(name)?))
    }

    /// The segments of a table of this file.
    pub(crate) fn segments_of(&self, table: &TableInfo) -> Vec<Segment<'_>> {
        table.segments.iter().map(|segment| self.segment(table, segment)).collect()
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
            Some(damage) => Err(Error::Damaged { path: self.path.clone(), damage: Box::new(damage) }),
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

    /// The bytes of a tensor that the metadata named, so it is there.
    fn tensor(&self, name: &str) -> &[u8] {
        let tensor = self.header.tensor(name).expect("checked when the file was opened");
        let start = self.header.data_start;
        &self.bytes[(start + tensor.start) as usize..(start + tensor.end) as usize]
    }
}

/// The rows of a checksum block, counted from the start of the segment.
pub(crate) fn block_range(segment: &SegmentInfo, block: u64) -> Range<u64> {
    let size = segment.checksums.block_rows;
    let start = block * size;
    start..start.saturating_add(size).min(segment.rows)
}
