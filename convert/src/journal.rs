//! The journal of an unfinished run: what it was asked for, and which blocks it has written.
//!
//! A text file beside the unfinished output, which the run keeps locked from its first step to its last. Its first line
//! says what it is and has the [`Head`]; each line after it an [`Entry`], a block. Every line ends with a checksum: one
//! that was cut short or damaged is ignored. Nor are entries trusted: a resumed run reads every block they name, and
//! codes again those whose checksum differs.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use condprog_checkpoint::FileState;
use condprog_table::checksum;
use condprog_table::format::{TableInfo, Zeroed};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, IoContext};
use crate::output::{create, is_at, lock, open_own, partial_path, with_suffix, write_error};

/// Suffix of a journal's file name.
pub(crate) const JOURNAL_SUFFIX: &str = ".condprog-journal";
/// What a journal starts with: a file that does not is somebody else's.
const MARK: &[u8] = b"condprog-journal 1\t";

/// What a run was asked for. Two runs with equal heads write equal files, but for their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// The version of this crate: another one may find other codes.
    pub(crate) writer: String,
    /// The identity of the run, as its files have it.
    pub(crate) run: String,
    /// One identity per table: what its rows are.
    pub(crate) sources: Vec<String>,
    /// Of each table, the states of its files. They may change where the rows do not, as in a copy.
    pub(crate) states: Vec<Vec<FileState>>,
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
    /// Digest of the source rows that it was coded from.
    pub(crate) source: u64,
    /// Rows that became zero.
    pub(crate) counts: Zeroed,
}

/// What a journal says of an earlier run.
pub(crate) enum Account {
    /// Nothing: there is no journal.
    None,
    /// A run that has written nothing but the start of a journal, or that keeps none.
    Empty,
    /// It is this program's, but damaged: what was asked for is not known.
    Damaged,
    /// A run, and its blocks.
    Run(Box<Head>, Vec<Entry>),
}

/// Where the journal of an output is.
pub(crate) fn journal_path(output: &Path) -> PathBuf {
    with_suffix(output, JOURNAL_SUFFIX)
}

/// Refuses to write over the unfinished output of a compression: it is hours of somebody's work.
pub(crate) fn refuse(account: &Account, output: &Path, command: &str, force: bool) -> Result<(), Error> {
    match account {
        Account::Run(..) | Account::Damaged if !force => {
            let (path, got, expected) = (partial_path(output), "compress".into(), command.into());
            Err(Error::OtherRun { path, what: "the command", got, expected })
        }
        _ => Ok(()),
    }
}

/// What the journal of an output says, without locking it.
pub(crate) fn peek(output: &Path) -> Result<Account, Error> {
    let path = journal_path(output);
    match open_own(&path)? {
        Some(mut file) => read(&mut file, &path),
        None => Ok(Account::None),
    }
}

pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    /// Bytes of the output, for the message when there is no room.
    needed: u64,
    is_empty: bool,
}

impl Journal {
    /// Opens or creates the journal of an output, locked against other processes that write it, and reads it.
    ///
    /// # Errors
    /// [`Error::Busy`]; [`Error::Foreign`] when the name is taken by something other than a journal.
    pub(crate) fn open(output: &Path, needed: u64) -> Result<(Journal, Account), Error> {
        let path = journal_path(output);
        for _ in 0..100 {
            let (mut file, is_new) = match create(&path)? {
                Some(file) => (file, true),
                None => match open_own(&path)? {
                    Some(file) => (file, false),
                    None => continue,
                },
            };
            lock(&file, &path, output)?;
            // Whoever held it may have finished meanwhile.
            if !is_at(&file, &path) {
                continue;
            }
            let account = if is_new { Account::None } else { read(&mut file, &path)? };
            let is_empty = file.metadata().context("read", &path)?.len() == 0;
            return Ok((Journal { path, file, needed, is_empty }, account));
        }
        Err(Error::Busy { path: output.into() })
    }

    /// Starts the account of a run, in place of any other.
    pub(crate) fn start(&mut self, head: &Head) -> Result<(), Error> {
        self.file.set_len(0).context("write", &self.path)?;
        let line = [MARK, &line(head)].concat();
        self.write(&line)?;
        self.file.sync_all().context("write", &self.path)
    }

    /// Continues the account that is there.
    pub(crate) fn go_on(&mut self) -> Result<(), Error> {
        // Ends a last line that was cut short.
        self.write(b"\n")
    }

    /// Adds a block.
    pub(crate) fn add(&mut self, entry: &Entry) -> Result<(), Error> {
        self.write(&line(entry))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.is_empty = false;
        let written = self.file.seek(SeekFrom::End(0)).and_then(|_| self.file.write_all(bytes));
        written.map_err(|error| write_error(error, &self.path, self.needed, true))
    }

    /// Keeps the journal though it is empty: it says that the output beside it is not finished.
    pub(crate) fn keep(mut self) {
        self.is_empty = false;
    }

    /// Removes the journal of a finished run.
    pub(crate) fn remove(self) -> Result<(), Error> {
        fs::remove_file(&self.path).context("remove", &self.path)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // A run that was refused leaves nothing.
        if self.is_empty && is_at(&self.file, &self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A line: JSON, which has no tabs, and its checksum.
fn line(value: &impl Serialize) -> Vec<u8> {
    let json = serde_json::to_string(value).expect("strings and numbers are JSON");
    let checksum = checksum::hex(checksum::of(json.as_bytes()));
    format!("{json}\t{checksum}\n").into_bytes()
}

/// What a line says; `None` when it is not what was written.
fn parse<T: DeserializeOwned>(line: &[u8]) -> Option<T> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let (json, checksum) = line.split_once('\t')?;
    if checksum::hex(checksum::of(json.as_bytes())) != checksum {
        return None;
    }
    serde_json::from_str(json).ok()
}

fn read(file: &mut File, path: &Path) -> Result<Account, Error> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes)).context("read", path)?;
    let Some(rest) = bytes.strip_prefix(MARK) else {
        // A kill may have cut the very first line short.
        return if MARK.starts_with(&bytes) {
            Ok(Account::Empty)
        } else {
            Err(Error::Foreign { path: path.into(), kind: "no journal of this program" })
        };
    };
    let mut lines = rest.split_inclusive(|&byte| byte == b'\n');
    let first = lines.next().unwrap_or_default();
    match parse(first) {
        Some(head) => Ok(Account::Run(Box::new(head), lines.filter_map(parse).collect())),
        None if !first.ends_with(b"\n") => Ok(Account::Empty),
        None => Ok(Account::Damaged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_flip_of_a_bit_in_a_line_is_missed() {
        let counts = Zeroed { zero: 1, underflow: 2, non_finite: 3 };
        let entry = Entry { segment: 4, block: 5, checksum: 6, source: 7, counts };
        let line = line(&entry);
        assert_eq!(parse::<Entry>(&line), Some(entry));
        for bit in 0..8 * line.len() {
            let mut flipped = line.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse::<Entry>(&flipped), None, "bit {bit}");
        }
        for length in 0..line.len() {
            assert_eq!(parse::<Entry>(&line[..length]), None);
        }
    }
}
