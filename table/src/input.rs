//! Opening files to read: regular files only. Opening a FIFO would block, a device may never end, and merely opening
//! one may have an effect.

use std::fs::{self, File, FileType, Metadata};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::error::{Error, IoContext};
use crate::header::Header;
use crate::index::{CHECKPOINT_INDEX, INDEX_SUFFIX, Index, IndexError, MAX_INDEX_BYTES};

/// The metadata of a path that can be read as a file.
///
/// # Errors
/// [`Error::NotAFile`] when it is a folder, a FIFO, a socket or a device; [`Error::Io`] when there is nothing.
pub fn regular_file(path: impl AsRef<Path>) -> Result<Metadata, Error> {
    let path = path.as_ref();
    let about = fs::metadata(path).context("open", path)?;
    if about.is_file() { Ok(about) } else { Err(Error::NotAFile { path: path.into(), got: kind(about.file_type()) }) }
}

/// Opens a regular file. The open file is checked again: the name may mean something else by then.
pub fn open(path: &Path) -> Result<(File, Metadata), Error> {
    regular_file(path)?;
    let file = File::open(path).context("open", path)?;
    let about = file.metadata().context("read", path)?;
    if about.is_file() {
        Ok((file, about))
    } else {
        Err(Error::NotAFile { path: path.into(), got: kind(about.file_type()) })
    }
}

/// What something is that is not a regular file.
pub fn kind(found: FileType) -> &'static str {
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

/// The file name of a path, for messages and indexes.
pub fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Reads the header of a safetensors file.
///
/// # Errors
/// [`Error::Header`] when it is no safetensors file, [`Error::NotAFile`] or [`Error::Io`] when it cannot be read.
pub fn header(path: &Path) -> Result<Header, Error> {
    let (mut file, about) = open(path)?;
    Header::read(&mut file, about.len()).context("read", path)?.map_err(|source| Error::header(path, source))
}

/// Reads an index.
///
/// # Errors
/// [`Error::Io`] when it cannot be read, [`Error::Index`] when it is not an index.
pub fn index(path: &Path) -> Result<Index, Error> {
    let (mut file, about) = open(path)?;
    let got = about.len();
    if got > MAX_INDEX_BYTES {
        return Err(Error::index(path, IndexError::TooLarge { got }));
    }
    let mut json = Vec::new();
    file.read_to_end(&mut json).context("read", path)?;
    Index::parse(&json).map_err(|source| Error::index(path, source))
}

/// What a path to a checkpoint or to tables names: one safetensors file, or an index.
pub enum Place {
    /// A safetensors file.
    File(PathBuf),
    /// An index.
    Index(PathBuf),
}

/// Whether a path to nothing has the form of a repository's name, `organisation/model`, and is no file of a folder that
/// is there.
fn is_hub_id(path: &Path) -> bool {
    let is_word = |text: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(is_plain)
    };
    let is_file = path.extension().is_some_and(|end| end == "safetensors" || end == "json");
    let words = path.to_str().and_then(|text| text.split_once('/'));
    words.is_some_and(|(first, second)| is_word(first) && is_word(second) && !Path::new(first).exists()) && !is_file
}

/// A file, an index, or a folder with an index or a single safetensors file.
pub fn place(path: &Path) -> Result<Place, Error> {
    let ends =
        |path: &Path, suffix: &str| path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(suffix));
    let about = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound && is_hub_id(path) => {
            return Err(Error::HubId { id: path.to_string_lossy().into() });
        }
        about => about.context("open", path)?,
    };
    if !about.is_dir() {
        regular_file(path)?;
        let is_index = ends(path, INDEX_SUFFIX);
        return Ok(if is_index { Place::Index(path.into()) } else { Place::File(path.into()) });
    }
    let index = path.join(CHECKPOINT_INDEX);
    if index.try_exists().context("look for", &index)? {
        return Ok(Place::Index(index));
    }
    let (mut indexes, mut files) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(path).context("read", path)? {
        let entry = entry.context("read", path)?.path();
        if ends(&entry, INDEX_SUFFIX) {
            indexes.push(entry);
        } else if ends(&entry, ".safetensors") {
            files.push(entry);
        }
    }
    indexes.sort();
    match (indexes.as_slice(), files.as_slice()) {
        ([index], _) => Ok(Place::Index(index.clone())),
        ([first, second, ..], _) => {
            Err(Error::index(path, IndexError::TwoIndexes { names: [file_name(first), file_name(second)] }))
        }
        ([], [file]) => regular_file(file).map(|_| Place::File(file.clone())),
        ([], files) => Err(Error::index(path, IndexError::NoIndex { got: files.len() })),
    }
}
