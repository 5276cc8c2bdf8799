//! A file that a command writes itself: under a temporary name until it is whole, and never over what it was made from.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::Path;

use condprog_table::Error as TableError;
use tempfile::NamedTempFile;

use crate::error::Error;

/// Refuses an output that is one of the inputs, or that is there and no regular file, forced or not; without force,
/// whatever is there.
pub(crate) fn check<'a>(output: &Path, inputs: impl IntoIterator<Item = &'a Path>, force: bool) -> Result<(), Error> {
    for input in inputs {
        if is_same(input, output) {
            return Err(TableError::SameFile { path: output.into() }.into());
        }
    }
    match fs::symlink_metadata(output) {
        Ok(about) if !about.is_file() => Err(Error::NoFile { path: output.into(), what: kind(about.file_type()) }),
        Ok(_) if !force => Err(TableError::OutputExists { path: output.into() }.into()),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(Error::Io { action: "look for", path: output.into(), source }),
    }
}

/// Writes a file that has been checked, and gives it its name when it is whole and on the disk.
pub(crate) fn save(
    output: &Path,
    force: bool,
    fill: impl FnOnce(&mut BufWriter<NamedTempFile>) -> Result<(), Error>,
) -> Result<(), Error> {
    let io = |source| Error::Io { action: "write", path: output.into(), source };
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Readable as any new file is, which a temporary file otherwise is not.
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = BufWriter::new(builder.tempfile_in(folder).map_err(io)?);
    fill(&mut file)?;
    let file = file.into_inner().map_err(|error| io(error.into_error()))?;
    file.as_file().sync_all().map_err(io)?;
    // Something may have come there since.
    check(output, [], force)?;
    let kept = if force { file.persist(output) } else { file.persist_noclobber(output) };
    match kept {
        Ok(_) => sync_folder(folder).map_err(io),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
            Err(TableError::OutputExists { path: output.into() }.into())
        }
        Err(error) => Err(io(error.error)),
    }
}

/// Whether two paths lead to one file, by whatever names and links. What is not there is no file.
fn is_same(one: &Path, other: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let identity = |path: &Path| fs::metadata(path).map(|about| (about.dev(), about.ino()));
        matches!((identity(one), identity(other)), (Ok(one), Ok(other)) if one == other)
    }
    #[cfg(not(unix))]
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

fn kind(file: fs::FileType) -> &'static str {
    if file.is_dir() {
        "a folder"
    } else if file.is_symlink() {
        "a symbolic link"
    } else {
        "a device, a pipe or a socket"
    }
}

/// Makes a name in a folder durable.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}
