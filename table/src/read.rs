//! Files that any thread may read at any position, with few of them open at a time.
//!
//! They are read, not mapped: a file that is cut short under a running job, or a disk that fails, is then an error that
//! names the file and the place, not a signal that ends the process; and no address space is taken.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, IoContext};
use crate::input::regular_file;

/// Most files that the process keeps open for reading: a checkpoint may have more than a process may open.
const MOST_OPEN: usize = 16;

/// The open files, the one that was used last at the end, each with the number of its [`ReadFile`].
static OPEN: Mutex<Vec<(u64, Arc<File>)>> = Mutex::new(Vec::new());

/// A file to read. It may be closed and opened again at any time, but stays the same file.
#[derive(Debug)]
pub struct ReadFile {
    path: PathBuf,
    number: u64,
    state: State,
}

/// What tells a file from another that has taken its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    length: u64,
    /// Device and number, where files have them.
    place: (u64, u64),
}

impl State {
    fn of(about: &Metadata) -> State {
        #[cfg(unix)]
        let place = {
            use std::os::unix::fs::MetadataExt;
            (about.dev(), about.ino())
        };
        #[cfg(not(unix))]
        let place = (0, 0);
        State { length: about.len(), place }
    }
}

impl ReadFile {
    /// Opens a regular file; anything else, such as a pipe, could block the caller forever.
    pub fn open(path: &Path) -> Result<ReadFile, Error> {
        regular_file(path)?;
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let (file, about) = open(path).context("open", path)?;
        keep(number, file);
        Ok(ReadFile { path: path.into(), number, state: State::of(&about) })
    }

    #[cfg(test)]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes it had when it was opened.
    pub fn length(&self) -> u64 {
        self.state.length
    }

    /// What the system says of it now.
    pub fn about(&self) -> Result<Metadata, Error> {
        self.file().and_then(|file| file.metadata()).context("read", &self.path)
    }

    /// Fills `out` with the bytes from `offset`.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        if out.is_empty() {
            return Ok(());
        }
        self.file().and_then(|file| read_exact_at(&file, offset, out)).map_err(|source| {
            let last = offset.saturating_add(out.len() as u64 - 1);
            let what = match source.kind() {
                io::ErrorKind::UnexpectedEof => "the file ends before; it was cut short while it was read".into(),
                _ => source.to_string(),
            };
            let source = io::Error::new(source.kind(), format!("bytes {offset} to {last}: {what}"));
            Error::Io { action: "read", path: self.path.clone(), source }
        })
    }

    /// The bytes from the start of the file.
    pub fn front(&self) -> Front<'_> {
        Front { file: self, at: 0 }
    }

    fn file(&self) -> io::Result<Arc<File>> {
        {
            let mut all = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(place) = all.iter().position(|(number, _)| *number == self.number) {
                let used = all.remove(place);
                let file = Arc::clone(&used.1);
                all.push(used);
                return Ok(file);
            }
        }
        let (file, about) = open(&self.path)?;
        if State::of(&about) != self.state {
            return Err(io::Error::other("another file has its name now, or it has another length"));
        }
        Ok(keep(self.number, file))
    }
}

impl Drop for ReadFile {
    fn drop(&mut self) {
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).retain(|(number, _)| *number != self.number);
    }
}

/// Opens a file, after closing those that are kept here if the process may not open more.
fn open(path: &Path) -> io::Result<(File, Metadata)> {
    let file = File::open(path).or_else(|error| {
        let closed = std::mem::take(&mut *OPEN.lock().unwrap_or_else(PoisonError::into_inner));
        if closed.is_empty() {
            return Err(error);
        }
        drop(closed);
        File::open(path)
    })?;
    let about = file.metadata()?;
    Ok((file, about))
}

/// Keeps a file open, and closes the least recently used one if there are too many.
fn keep(number: u64, file: File) -> Arc<File> {
    let file = Arc::new(file);
    let mut all = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if all.len() >= MOST_OPEN {
        all.remove(0);
    }
    all.push((number, Arc::clone(&file)));
    file
}

#[cfg(unix)]
fn read_exact_at(file: &File, offset: u64, out: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, offset)
}

/// Where reading moves the place that the next read starts at, one thread reads at a time.
#[cfg(not(unix))]
fn read_exact_at(mut file: &File, offset: u64, out: &mut [u8]) -> io::Result<()> {
    use std::io::{Seek, SeekFrom};
    static SEEKING: Mutex<()> = Mutex::new(());
    let _alone = SEEKING.lock().unwrap_or_else(PoisonError::into_inner);
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(out)
}

/// Reads a file from its start.
pub struct Front<'a> {
    file: &'a ReadFile,
    at: u64,
}

impl Read for Front<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let length = (out.len() as u64).min(self.file.length().saturating_sub(self.at)) as usize;
        match self.file.read_at(self.at, &mut out[..length]) {
            Ok(()) => {
                self.at += length as u64;
                Ok(length)
            }
            Err(Error::Io { source, .. }) => Err(source),
            Err(other) => Err(io::Error::other(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn more_files_than_are_kept_open_are_read_and_one_that_was_replaced_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let files: Vec<_> = (0..3 * MOST_OPEN as u8)
            .map(|number| {
                let path = folder.path().join(number.to_string());
                fs::write(&path, [number; 10]).unwrap();
                ReadFile::open(&path).unwrap()
            })
            .collect();
        for _ in 0..2 {
            for (number, file) in (0..).zip(&files) {
                let mut bytes = [0xff; 3];
                file.read_at(7, &mut bytes).unwrap();
                assert_eq!(bytes, [number; 3]);
            }
        }
        // The first has been closed meanwhile: under its name there is another file now.
        fs::write(folder.path().join("new"), [9; 11]).unwrap();
        fs::rename(folder.path().join("new"), files[0].path()).unwrap();
        let error = files[0].read_at(0, &mut [0; 4]).unwrap_err().to_string();
        assert!(error.ends_with("0: bytes 0 to 3: another file has its name now, or it has another length"), "{error}");
        // One that is cut under its reader.
        let last = &files[3 * MOST_OPEN - 1];
        fs::OpenOptions::new().write(true).open(last.path()).unwrap().set_len(5).unwrap();
        last.read_at(0, &mut [0; 5]).unwrap();
        let error = last.read_at(2, &mut [0; 4]).unwrap_err().to_string();
        assert!(error.contains("bytes 2 to 5: the file ends before; it was cut short while it was read"), "{error}");
        drop(files);
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_is_no_file_to_read() {
        let folder = tempfile::tempdir().unwrap();
        let error = ReadFile::open(folder.path()).unwrap_err().to_string();
        assert!(error.ends_with("is a folder, expected a regular file"), "{error}");
    }
}
