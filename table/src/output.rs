//! Outputs under a temporary name, renamed when whole.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, IoContext};

/// What the name of an unfinished output has at its end.
pub(crate) const PARTIAL_SUFFIX: &str = ".condprog-partial";

/// An output that is being written. Until [`Partial::finish`] it has a name of its own, and starts with zeros where
/// the header goes, so that nothing takes it for a finished file.
#[derive(Debug)]
pub(crate) struct Partial {
    output: PathBuf,
    path: PathBuf,
    file: File,
    /// Bytes of the whole output.
    length: u64,
}

impl Partial {
    /// Opens or creates the unfinished output, locked against other processes.
    pub(crate) fn open(output: &Path, force: bool) -> Result<Partial, Error> {
        refuse_existing(output, force)?;
        let path = partial_path(output);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .context("create", &path)?;
        lock(&file, &path, output)?;
        // Whoever held the lock may have finished meanwhile.
        refuse_existing(output, force)?;
        let length = file.metadata().context("read", &path)?.len();
        Ok(Partial { output: output.into(), path, file, length })
    }

    /// Makes a finished output unfinished again: a run that was killed while it renamed its files goes on with it. Its
    /// journal must be there still, once the file is locked: else another process has finished meanwhile.
    pub(crate) fn take_back(output: &Path, journal: &Path) -> Result<Partial, Error> {
        let path = partial_path(output);
        let mut file = OpenOptions::new().read(true).write(true).open(output).context("open", output)?;
        lock(&file, output, output)?;
        if !journal.try_exists().context("look for", journal)? {
            return Err(Error::OutputExists { path: output.into() });
        }
        fs::rename(output, &path).context("take back", output)?;
        // An unfinished file starts with zeros.
        file.write_all(&[0; 8]).context("write", &path)?;
        let length = file.metadata().context("read", &path)?.len();
        Ok(Partial { output: output.into(), path, file, length })
    }

    /// Where the unfinished output is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes it has or will have.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Drops what is there, and makes it `length` zero bytes.
    pub(crate) fn restart(&mut self, length: u64) -> Result<(), Error> {
        self.length = length;
        self.file.set_len(0).and_then(|()| self.file.set_len(length)).map_err(|error| self.write_error(error))
    }

    pub(crate) fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let written = self.file.seek(SeekFrom::Start(offset)).and_then(|_| self.file.write_all(bytes));
        written.map_err(|error| self.write_error(error))
    }

    pub(crate) fn read_at(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let read = self.file.seek(SeekFrom::Start(offset)).and_then(|_| self.file.read_exact(bytes));
        read.context("read", &self.path)
    }

    /// Makes the output durable and gives it its name. It stays locked until `self` is dropped.
    pub(crate) fn finish(&self, force: bool) -> Result<(), Error> {
        self.file.sync_all().map_err(|error| self.write_error(error))?;
        refuse_existing(&self.output, force)?;
        fs::rename(&self.path, &self.output).context("finish", &self.output)?;
        let folder = self.output.parent().filter(|folder| !folder.as_os_str().is_empty());
        sync_folder(folder.unwrap_or(Path::new("."))).context("finish", &self.output)
    }

    /// Removes the unfinished output, which nobody can go on with.
    pub(crate) fn discard(self) {
        // The error that led here is the one to report.
        let _ = fs::remove_file(&self.path);
    }

    fn write_error(&self, error: io::Error) -> Error {
        write_error(error, &self.path, self.length)
    }
}

/// The name of an output that is not finished.
pub(crate) fn partial_path(output: &Path) -> PathBuf {
    with_suffix(output, PARTIAL_SUFFIX)
}

/// Locks a file against other processes that write the same output.
fn lock(file: &File, path: &Path, output: &Path) -> Result<(), Error> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(Error::Busy { path: output.into() }),
        // Some network file systems have no locks.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
        Err(TryLockError::Error(error)) => Err(error).context("lock", path),
    }
}

/// The error of a failed write to an output of `needed` bytes.
pub(crate) fn write_error(source: io::Error, path: &Path, needed: u64) -> Error {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::DiskFull { path: path.into(), needed },
        _ => Error::Io { action: "write", path: path.into(), source },
    }
}

/// The file name of a path, for messages and indexes.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A path with something appended to its file name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Refuses to replace a file by what is made from it, forced or not.
pub(crate) fn refuse_same(input: &Path, output: &Path) -> Result<(), Error> {
    match (input.canonicalize(), output.canonicalize()) {
        (Ok(input), Ok(output)) if input == output => Err(Error::SameFile { path: output }),
        // What is not there cannot be the same, and is reported where it is opened.
        _ => Ok(()),
    }
}

/// Refuses to overwrite what nobody asked to.
pub(crate) fn refuse_existing(output: &Path, force: bool) -> Result<(), Error> {
    if !force && output.try_exists().context("look for", output)? {
        return Err(Error::OutputExists { path: output.into() });
    }
    Ok(())
}

/// Makes the names in a folder durable.
#[cfg(unix)]
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
pub(crate) fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}
