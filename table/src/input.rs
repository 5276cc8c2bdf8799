//! What is opened for reading: regular files only. A FIFO would be waited for, a device may never end, and opening one
//! may already do something.

use std::fs::{self, File, FileType, Metadata};
use std::path::Path;

use crate::error::{Error, IoContext};

/// What a path that can be read as a file is about.
///
/// # Errors
/// [`Error::NotAFile`] when it is a folder, a FIFO, a socket or a device; [`Error::Io`] when there is nothing.
pub fn regular_file(path: impl AsRef<Path>) -> Result<Metadata, Error> {
    let path = path.as_ref();
    let about = fs::metadata(path).context("open", path)?;
    if about.is_file() { Ok(about) } else { Err(Error::NotAFile { path: path.into(), got: kind(about.file_type()) }) }
}

/// Opens a regular file. What was opened is looked at again: the name may mean something else by then.
pub(crate) fn open(path: &Path) -> Result<(File, Metadata), Error> {
    regular_file(path)?;
    let file = File::open(path).context("open", path)?;
    let about = file.metadata().context("read", path)?;
    if about.is_file() {
        Ok((file, about))
    } else {
        Err(Error::NotAFile { path: path.into(), got: kind(about.file_type()) })
    }
}

/// What something is that is no regular file.
pub(crate) fn kind(found: FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if found.is_fifo() {
            return "a FIFO";
        }
        if found.is_socket() {
            return "a socket";
        }
        if found.is_block_device() || found.is_char_device() {
            return "a device";
        }
    }
    match (found.is_dir(), found.is_symlink()) {
        (true, _) => "a folder",
        (_, true) => "a symbolic link",
        _ => "no regular file",
    }
}
