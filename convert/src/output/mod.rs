//! Writing: under working names until the output is complete, then renamed.
//!
//! | file | what it holds |
//! |---|---|
//! | `partial.rs` | unfinished table files, which resume |
//! | `temporary.rs` | files for everything else, which does not |
//! | `new_file.rs` | temporaries for those who use this crate |
//! | `space.rs` | whether the disk has room |
//!
//! Three rules protect what belongs to others: a file is created only where nothing is; nothing is written to that this
//! program has not created, whatever links lead to it; and whatever is in the way is named before any work.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use condprog_table::input::kind;

use crate::error::{Error, IoContext};

mod new_file;
mod partial;
mod space;
mod temporary;

pub use new_file::NewFile;
pub(crate) use partial::{Earlier, Partial, create, is_at, lock, open_own, partial_path, peek_partial};
pub(crate) use space::{free_bytes, refuse_full};
pub(crate) use temporary::{Temporary, remove_equals, sweep};

/// What a path is that ends in no name.
pub(crate) const NO_NAME: &str = "no name of a file";

/// What is at a name; links are not followed.
pub(crate) enum There {
    Nothing,
    File(Metadata),
    /// A folder, a link, a device: what it is, for messages.
    Other(&'static str),
}

/// Looks at a name.
pub(crate) fn look(path: &Path) -> Result<There, Error> {
    match fs::symlink_metadata(path) {
        Ok(about) if about.is_file() => Ok(There::File(about)),
        Ok(about) => Ok(There::Other(kind(about.file_type()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(There::Nothing),
        Err(error) => Err(error).context("look for", path),
    }
}

/// Refuses to overwrite unless asked to, and, forced or not, anything but a regular file.
pub(crate) fn refuse_existing(output: &Path, force: bool) -> Result<(), Error> {
    if output.file_name().is_none() {
        return Err(Error::OutputNotAFile { path: output.into(), kind: NO_NAME });
    }
    match look(output)? {
        There::Other(kind) => Err(Error::OutputNotAFile { path: output.into(), kind }),
        There::File(_) if !force => Err(Error::OutputExists { path: output.into() }),
        _ => Ok(()),
    }
}

/// Refuses to write to an input, whatever name leads to it, forced or not.
pub(crate) fn refuse_same(input: &Path, output: &Path) -> Result<(), Error> {
    // What is not there cannot be the same, and is reported where it is opened.
    let (Ok(read), Ok(written)) = (fs::metadata(input), fs::metadata(output)) else { return Ok(()) };
    let same_path = || input.canonicalize().ok().is_some_and(|input| output.canonicalize().ok() == Some(input));
    if is_same_file(&read, &written).unwrap_or_else(same_path) {
        return Err(Error::SameFile { path: output.into() });
    }
    Ok(())
}

/// Whether two names are of one file; `None` where the system does not tell.
#[cfg(unix)]
pub(crate) fn is_same_file(a: &Metadata, b: &Metadata) -> Option<bool> {
    use std::os::unix::fs::MetadataExt as _;
    Some((a.dev(), a.ino()) == (b.dev(), b.ino()))
}

#[cfg(not(unix))]
pub(crate) fn is_same_file(_: &Metadata, _: &Metadata) -> Option<bool> {
    None
}

/// How many names a file has.
#[cfg(unix)]
pub(crate) fn names_of(about: &Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    about.nlink()
}

#[cfg(not(unix))]
pub(crate) fn names_of(_: &Metadata) -> u64 {
    1
}

/// The error of a failed write to an output of `needed` bytes. `resumes` says whether the same call would resume from
/// what is written.
pub(crate) fn write_error(source: io::Error, path: &Path, needed: u64, resumes: bool) -> Error {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::DiskFull { path: path.into(), needed, resumes }
        }
        _ => condprog_table::Error::Io { action: "write", path: path.into(), source }.into(),
    }
}

/// The folder that a path is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A path with something appended to its file name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
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
