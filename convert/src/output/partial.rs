//! Files on their way to a name.
//!
//! A table file is written as `OUTPUT.condprog-partial`. It starts with eight zero bytes where a safetensors file has
//! the length of its header, so that no reader takes it for a finished one; then with the very bytes that its header
//! will start with, the identity of its run among them. So it carries its mark from its first moment to its last,
//! whether or not the header has been written: a file that does not start like that is somebody else's. It resumes.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use condprog_table::format::KEY_RUN;
use condprog_table::names::PARTIAL_SUFFIX;
use condprog_table::names::{LENGTH_BYTES, METADATA_KEY};

use super::{There, folder_of, is_same_file, look, names_of, refuse_existing, sync_folder, with_suffix, write_error};
use crate::error::{Error, IoContext};

/// Digits of a run's identity.
const RUN_DIGITS: usize = 16;
/// What has the name of an unfinished table file.
const NO_PARTIAL: &str = "no unfinished table file of this program";
/// How often to reopen a file that has lost its name meanwhile.
const TRIES: usize = 100;

/// What an earlier run has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Earlier {
    /// Nothing, or a mark that was cut short.
    Nothing,
    /// The mark of this run, and nothing after it.
    Marked(String),
    /// The work of this run.
    Begun(String),
}

/// A file that is being written. It gets the output's name when it is whole.
#[derive(Debug)]
pub(crate) struct Partial {
    output: PathBuf,
    path: PathBuf,
    file: File,
    /// Bytes of the whole output.
    length: u64,
    /// The identity of the run.
    run: String,
}

impl Partial {
    /// Opens or creates the unfinished table file of a run, locked against other processes. What an earlier run has left
    /// is not touched before [`Partial::restart`].
    ///
    /// # Errors
    /// [`Error::Foreign`] when the name is taken by what this program has not made, [`Error::Busy`].
    pub(crate) fn open(output: &Path, run: &str) -> Result<(Partial, Earlier), Error> {
        let path = partial_path(output);
        for _ in 0..TRIES {
            let partial =
                |file, length| Partial { output: output.into(), path: path.clone(), file, length, run: run.into() };
            if let Some(file) = create(&path)? {
                if !hold(&file, &path, output)? {
                    continue;
                }
                let mut partial = partial(file, 0);
                partial.write_mark()?;
                return Ok((partial, Earlier::Nothing));
            }
            let Some(mut file) = open_own(&path)? else { continue };
            if !hold(&file, &path, output)? {
                continue;
            }
            let earlier = earlier(&mut file).context("read", &path)?;
            let earlier = earlier.ok_or_else(|| foreign(&path, NO_PARTIAL))?;
            let length = file.metadata().context("read", &path)?.len();
            let mut partial = partial(file, length);
            match &earlier {
                Earlier::Nothing => partial.write_mark()?,
                // It may have been whole, but for its name.
                Earlier::Begun(run) if *run == partial.run => {
                    partial.write_at(0, &[0; LENGTH_BYTES as usize])?;
                }
                _ => {}
            }
            return Ok((partial, earlier));
        }
        Err(Error::Busy { path: output.into() })
    }

    /// Where it is until then.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes it has or will have.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Drops what is there and makes it `length` bytes, zeros but for the mark.
    ///
    /// The file loses its name rather than its content: should it, against all checks, belong to somebody else who has
    /// another name for it, nothing is lost.
    pub(crate) fn restart(&mut self, length: u64) -> Result<(), Error> {
        let mark = mark(&self.run).len() as u64;
        if self.file.metadata().context("read", &self.path)?.len() > mark || self.length > mark {
            fs::remove_file(&self.path).context("remove", &self.path)?;
            self.file = create(&self.path)?.ok_or_else(|| Error::Busy { path: self.output.clone() })?;
            lock(&self.file, &self.path, &self.output)?;
        }
        self.write_mark()?;
        self.length = length;
        self.file.set_len(length.max(mark)).map_err(|error| self.write_error(error))
    }

    fn write_mark(&mut self) -> Result<(), Error> {
        self.write_at(0, &mark(&self.run))
    }

    /// Writes some bytes.
    pub(crate) fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let written = self.file.seek(SeekFrom::Start(offset)).and_then(|_| self.file.write_all(bytes));
        written.map_err(|error| self.write_error(error))
    }

    /// Reads some bytes.
    pub(crate) fn read_at(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let read = self.file.seek(SeekFrom::Start(offset)).and_then(|_| self.file.read_exact(bytes));
        read.context("read", &self.path)
    }

    /// Writes the header, of which the mark is the start: its length comes last.
    pub(crate) fn write_header(&mut self, header: &[u8]) -> Result<(), Error> {
        let (length, rest) = header.split_at(LENGTH_BYTES as usize);
        self.write_at(LENGTH_BYTES, rest)?;
        self.write_at(0, length)
    }

    /// Makes the output durable and gives it its name. It stays locked until `self` is dropped.
    pub(crate) fn finish(&self, force: bool) -> Result<(), Error> {
        self.file.sync_all().map_err(|error| self.write_error(error))?;
        rename(&self.file, &self.path, &self.output, force)
    }

    /// Removes the unfinished output, which cannot be resumed.
    pub(crate) fn discard(self) {
        // The error that led here is the one to report.
        if is_at(&self.file, &self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }

    fn write_error(&self, error: io::Error) -> Error {
        write_error(error, &self.path, self.length, true)
    }
}

/// Renames a file, unless something has come to stand under its new name since that was looked at.
#[cfg(target_os = "linux")]
fn rename_to_nothing(path: &Path, output: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    match renameat_with(CWD, path, CWD, output, RenameFlags::NOREPLACE) {
        // Not every file system can.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => fs::rename(path, output),
        renamed => renamed.map_err(io::Error::from),
    }
}

#[cfg(not(target_os = "linux"))]
fn rename_to_nothing(path: &Path, output: &Path) -> io::Result<()> {
    fs::rename(path, output)
}

/// What an earlier run has left of a table file; `None` where there is nothing. Nothing is touched.
///
/// # Errors
/// As [`Partial::open`].
pub(crate) fn peek_partial(output: &Path) -> Result<Option<Earlier>, Error> {
    let path = partial_path(output);
    let Some(mut file) = open_own(&path)? else { return Ok(None) };
    let earlier = earlier(&mut file).context("read", &path)?;
    earlier.map(Some).ok_or_else(|| foreign(&path, NO_PARTIAL))
}

/// Gives a file that is complete and on disk the name of its output.
pub(super) fn rename(file: &File, path: &Path, output: &Path, force: bool) -> Result<(), Error> {
    // No process that respects the lock takes the name away; one that does not may have put something else there.
    if !is_at(file, path) {
        return Err(foreign(path, "no longer the file that was being written"));
    }
    refuse_existing(output, force)?;
    let renamed = if force { fs::rename(path, output) } else { rename_to_nothing(path, output) };
    match renamed {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(Error::OutputExists { path: output.into() });
        }
        renamed => renamed.context("finish", output)?,
    }
    sync_folder(folder_of(output)).context("finish", output)
}

/// The name of a table file that is not finished.
pub(crate) fn partial_path(output: &Path) -> PathBuf {
    with_suffix(output, PARTIAL_SUFFIX)
}

/// What a header starts with that has the identity of a run in it, up to that identity.
fn mark_prefix() -> String {
    format!("{{\"{METADATA_KEY}\":{{\"{KEY_RUN}\":\"")
}

/// What an unfinished table file starts with.
fn mark(run: &str) -> Vec<u8> {
    [&[0; LENGTH_BYTES as usize], mark_prefix().as_bytes(), run.as_bytes(), b"\""].concat()
}

/// What an earlier run has left in a file; `None` when it is no table file of this program. The first eight bytes do not
/// matter: they are zero until the header is whole.
fn earlier(file: &mut File) -> io::Result<Option<Earlier>> {
    let prefix = mark_prefix();
    let whole = mark(&"0".repeat(RUN_DIGITS)).len();
    let mut start = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(whole as u64 + 1).read_to_end(&mut start)?;
    let text = start.get(LENGTH_BYTES as usize..).unwrap_or_default();
    let (fixed, run) = text.split_at(prefix.len().min(text.len()));
    let (run, rest) = run.split_at(RUN_DIGITS.min(run.len()));
    let is_run = |run: &[u8]| run.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_mark = prefix.as_bytes().starts_with(fixed) && is_run(run);
    if start.len() < whole {
        let is_blank = start.iter().take(LENGTH_BYTES as usize).all(|byte| *byte == 0);
        return Ok((is_blank && is_mark).then_some(Earlier::Nothing));
    }
    if !is_mark || rest[0] != b'"' {
        return Ok(None);
    }
    let run = String::from_utf8_lossy(run).into_owned();
    Ok(Some(if start.len() == whole { Earlier::Marked(run) } else { Earlier::Begun(run) }))
}

/// How files of this program's own are opened: no link is followed, and nothing is waited for.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        options.custom_flags(flags.bits() as i32);
    }
    options
}

/// Creates a file where nothing is; `None` where something is.
pub(crate) fn create(path: &Path) -> Result<Option<File>, Error> {
    create_as(path, path)
}

/// As [`create`]; errors are about `name`.
pub(super) fn create_as(path: &Path, name: &Path) -> Result<Option<File>, Error> {
    match options().create_new(true).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(write_error(error, name, 0, false)).map_err(|error| match error {
            Error::File(condprog_table::Error::Io { path, source, .. }) => {
                condprog_table::Error::Io { action: "create", path, source }.into()
            }
            other => other,
        }),
    }
}

/// Opens a regular file with one name, as this program's own are; `None` when it has gone meanwhile.
///
/// # Errors
/// [`Error::Foreign`] for everything else: it is not this program's.
pub(crate) fn open_own(path: &Path) -> Result<Option<File>, Error> {
    match look(path)? {
        There::Nothing => return Ok(None),
        There::Other(kind) => return Err(foreign(path, kind)),
        There::File(_) => {}
    }
    let file = match options().open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).context("open", path),
    };
    let about = file.metadata().context("read", path)?;
    match (about.is_file(), names_of(&about)) {
        (true, 1) => Ok(Some(file)),
        // Removed, but open still.
        (true, 0) => Ok(None),
        (true, _) => Err(foreign(path, "a file that has another name too")),
        (false, _) => Err(foreign(path, "not a file")),
    }
}

fn foreign(path: &Path, kind: &'static str) -> Error {
    Error::Foreign { path: path.into(), kind }
}

/// Locks a file, and says whether it still has its name: whoever held the lock before may have renamed or removed it.
fn hold(file: &File, path: &Path, output: &Path) -> Result<bool, Error> {
    lock(file, path, output)?;
    Ok(is_at(file, path))
}

/// Locks a file against other processes that write the same output.
pub(crate) fn lock(file: &File, path: &Path, output: &Path) -> Result<(), Error> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(Error::Busy { path: output.into() }),
        // Some network file systems have no locks.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
        Err(TryLockError::Error(error)) => Err(error).context("lock", path),
    }
}

/// Whether a path is still the name of an open file.
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(open), Ok(named)) => is_same_file(&open, &named).unwrap_or(true),
        _ => false,
    }
}
