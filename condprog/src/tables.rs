//! Table files as owned handles: [`Tables`] and [`Table`].

use std::path::Path;
use std::sync::Arc;

use condprog_table::format::TableInfo;
use condprog_table::{PickedRows, TableRecords};

use crate::backend::{Backend, TableDecoder};
use crate::error::Error;
use crate::mapped::MappedRecords;

/// Table files, opened and checked: one file, or all that an index names. A handle; clones share what it stands for.
#[derive(Clone, Debug)]
pub struct Tables {
    tables: Arc<condprog_table::Tables>,
}

/// A table of [`Tables`]. A handle that keeps the files open.
#[derive(Clone, Debug)]
pub struct Table {
    tables: Arc<condprog_table::Tables>,
    info: TableInfo,
}

impl Tables {
    /// Opens `path`: a table file, an index, or a folder with one of them. Reads headers and checksums, no records.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be read, is no table file, or contradicts itself.
    pub fn open(path: impl AsRef<Path>) -> Result<Tables, Error> {
        Ok(Tables { tables: Arc::new(condprog_table::Tables::open(path)?) })
    }

    /// Takes a file that is in memory already; errors name it as `path`.
    ///
    /// # Errors
    /// As of [`Tables::open`].
    pub fn from_bytes(path: impl AsRef<Path>, bytes: Vec<u8>) -> Result<Tables, Error> {
        Ok(Tables { tables: Arc::new(condprog_table::Tables::from_bytes(path, bytes)?) })
    }

    /// The tables, in the order of the files.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Table> + '_ {
        self.tables.tables().iter().map(|info| Table { tables: Arc::clone(&self.tables), info: info.clone() })
    }

    /// Names of the tables, in the order of the files.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tables.tables().iter().map(|info| info.name.as_str())
    }

    /// A table by its name.
    ///
    /// # Errors
    /// [`Error::File`] when none has this name; the message lists those that there are.
    pub fn table(&self, name: &str) -> Result<Table, Error> {
        let info = self.tables.table(name)?.clone();
        Ok(Table { tables: Arc::clone(&self.tables), info })
    }

    /// The files below: what [`verify`](crate::verify) and [`decompress`](crate::decompress) take.
    pub fn files(&self) -> &condprog_table::Tables {
        &self.tables
    }
}

impl Table {
    /// Name, that of the tensor it was made from.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// Number of rows; ids go from 0 to one less.
    pub fn rows(&self) -> u64 {
        self.info.rows
    }

    /// Values per row.
    pub fn dim(&self) -> u32 {
        self.info.dim
    }

    /// Bytes of its records: what it takes in memory.
    pub fn record_bytes(&self) -> u64 {
        self.info.record_bytes()
    }

    /// All that its file says of it.
    pub fn info(&self) -> &TableInfo {
        &self.info
    }

    /// Reads all its records into memory and makes them ready for decoding on a backend.
    ///
    /// # Errors
    /// [`Error::File`] when they cannot be read or there is no memory for them, [`Error::Backend`] when the backend is not
    /// there or has no room.
    pub fn decoder(&self, backend: &Backend) -> Result<TableDecoder, Error> {
        TableDecoder::new(self.load()?, backend)
    }

    /// Reads all its records into memory, on huge pages where the system has them.
    ///
    /// # Errors
    /// [`Error::File`] when they cannot be read or there is no memory for them.
    pub fn load(&self) -> Result<TableRecords, Error> {
        Ok(self.tables.load(&self.info.name)?)
    }

    /// Reads the records of some rows only, each once: memory for these, not for the table.
    ///
    /// # Errors
    /// [`Error::File`] when they cannot be read.
    pub fn pick(&self, ids: &[i64]) -> Result<PickedRows, Error> {
        Ok(self.tables.pick(&self.info.name, ids)?)
    }

    /// Maps its files instead of reading them: nothing is copied, and the system keeps in memory what is used. Decoded
    /// through [`TableDecoder::on_cpu`].
    ///
    /// # Safety
    /// As long as the result is there, nobody may write to the files or cut them short, in this process or another (to
    /// replace one by renaming is fine). A page that cannot be read ends the process with a signal.
    ///
    /// # Errors
    /// [`Error::File`] when a file cannot be mapped, or is not as long as it was when it was opened.
    pub unsafe fn map(&self) -> Result<MappedRecords, Error> {
        // SAFETY: the caller's obligation is the same.
        unsafe { MappedRecords::new(&self.tables, &self.info.name) }
    }
}
