//! The journal of an unfinished run: what it was asked for, and which blocks it has written.
//!
//! A text file beside the unfinished output, one JSON object a line: first [`Head`], then an [`Entry`] per block. A
//! last line that was cut short counts for nothing. Entries are not trusted: a resumed run reads every block they
//! name and does again what does not have its checksum, so nothing here needs to be durable before the output is.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, IoContext};
use crate::format::{TableInfo, Zeroed};
use crate::output::{partial_path, with_suffix, write_error};

/// What the name of a journal has at its end.
pub(crate) const JOURNAL_SUFFIX: &str = ".condprog-journal";

/// What a run was asked for. Two runs with equal heads write equal files, but for their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// The version of this crate: another one may find other codes.
    pub(crate) writer: String,
    /// One identity per table.
    pub(crate) sources: Vec<String>,
    /// Bytes that a file may have.
    pub(crate) shard_bytes: Option<u64>,
    /// Whether the output is a part, to be joined with others.
    pub(crate) is_part: bool,
    /// Names of the files.
    pub(crate) names: Vec<String>,
    /// The tables of each file as planned, counts and checksums not yet known.
    pub(crate) files: Vec<Vec<TableInfo>>,
}

/// A block that has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Index of the segment, counted over all tables and files.
    pub(crate) segment: usize,
    /// Index of the block in its segment.
    pub(crate) block: u64,
    /// Checksum of its records.
    pub(crate) checksum: u64,
    /// Rows that became zero.
    pub(crate) counts: Zeroed,
}

/// Refuses to write over the unfinished output of a compression: it is hours of somebody's work.
pub(crate) fn refuse(output: &Path, command: &str, force: bool) -> Result<(), Error> {
    let journal = with_suffix(output, JOURNAL_SUFFIX);
    if !force && journal.try_exists().context("look for", &journal)? {
        let (path, got, expected) = (partial_path(output), "compress".into(), command.into());
        return Err(Error::OtherRun { path, what: "the command", got, expected });
    }
    Ok(())
}

pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    /// Bytes of the output, for the message when there is no room.
    needed: u64,
}

impl Journal {
    /// What a journal says, or `None` when there is none or its first line is not whole.
    pub(crate) fn read(path: &Path) -> Result<Option<(Head, Vec<Entry>)>, Error> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).context("read", path),
        };
        let mut lines = bytes.split_inclusive(|&byte| byte == b'\n');
        let Some(head) = lines.next().and_then(|line| serde_json::from_slice(line).ok()) else {
            return Ok(None);
        };
        Ok(Some((head, lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())))
    }

    /// Starts a journal, in place of any other.
    pub(crate) fn start(path: PathBuf, head: &Head, needed: u64) -> Result<Journal, Error> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path).context("create", &path)?;
        let mut journal = Journal { path, file, needed };
        journal.line(head)?;
        Ok(journal)
    }

    /// Goes on with the journal that is there.
    pub(crate) fn go_on(path: PathBuf, needed: u64) -> Result<Journal, Error> {
        let file = OpenOptions::new().append(true).open(&path).context("open", &path)?;
        let mut journal = Journal { path, file, needed };
        // Ends a last line that was cut short.
        journal.write(b"\n")?;
        Ok(journal)
    }

    /// Adds a block.
    pub(crate) fn add(&mut self, entry: &Entry) -> Result<(), Error> {
        self.line(entry)
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), Error> {
        let mut line = serde_json::to_vec(value).expect("strings and numbers are JSON");
        line.push(b'\n');
        self.write(&line)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all(bytes).map_err(|error| write_error(error, &self.path, self.needed))
    }

    /// Removes the journal of a finished run.
    pub(crate) fn remove(self) -> Result<(), Error> {
        fs::remove_file(&self.path).context("remove", &self.path)
    }
}
