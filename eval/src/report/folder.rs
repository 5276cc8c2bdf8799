//! Where a report goes: a folder of its own, in which nothing is lost.

use std::fs::{self, FileType, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::plot;
use crate::error::Error;

/// Name of the page in a report's folder.
pub const PAGE: &str = "index.html";

/// What else there may be, beside plots.
const TABLES: [&str; 5] = ["methods.csv", "comparisons.csv", "worst-rows.csv", "kl.csv", "kl-comparisons.csv"];

/// A folder that a report may be written to.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    overwrite: bool,
}

impl Folder {
    /// Looks at what is there, before any work: nothing yet, or a folder. Without `overwrite` it must have no file with a
    /// name that a report may write, whether this one will or not; with it such files are replaced, and those of an
    /// earlier report that this one does not have are removed. None of `inputs` may be among them.
    ///
    /// # Errors
    /// [`Error::OutputExists`] for a file that is there, [`Error::Output`] for
    /// what is no folder or no ordinary file, or is read, and [`Error::Io`] when that cannot be told.
    pub fn claim(path: impl AsRef<Path>, overwrite: bool, inputs: &[&Path]) -> Result<Folder, Error> {
        // Without the slash that would have a link looked through.
        let folder = Folder { path: path.as_ref().components().collect(), overwrite };
        folder.check()?;
        let inputs: Vec<_> = inputs.iter().filter_map(|input| input.canonicalize().ok()).collect();
        for path in folder.paths() {
            if path.canonicalize().is_ok_and(|path| inputs.contains(&path)) {
                return Err(Error::Output {
                    path,
                    got: "read for the report",
                    expected: "another folder for the output",
                });
            }
        }
        Ok(folder)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every file that a report may write.
    fn paths(&self) -> impl Iterator<Item = PathBuf> {
        let plots = plot::NAMES.into_iter().flat_map(|name| ["svg", "png"].map(|kind| format!("{name}.{kind}")));
        let names = [PAGE].into_iter().chain(TABLES).map(String::from).chain(plots);
        names.map(|name| self.path.join(name))
    }

    fn check(&self) -> Result<(), Error> {
        match kind(&self.path)? {
            None => return Ok(()),
            Some(kind) if kind.is_dir() => {}
            Some(kind) => {
                let expected = match kind.is_symlink() {
                    true => "the folder itself that it leads to",
                    false => "a folder, or nothing yet",
                };
                return Err(Error::Output { path: self.path.clone(), got: describe(kind), expected });
            }
        }
        for path in self.paths() {
            match kind(&path)? {
                None => {}
                Some(_) if !self.overwrite => return Err(Error::OutputExists { path }),
                Some(kind) if kind.is_file() => {}
                Some(kind) => {
                    return Err(Error::Output { path, got: describe(kind), expected: "an ordinary file to overwrite" });
                }
            }
        }
        Ok(())
    }

    /// Writes files, by name; gives their paths.
    pub(super) fn write(&self, files: &[(String, Vec<u8>)]) -> Result<Vec<PathBuf>, Error> {
        fs::create_dir_all(&self.path).map_err(|source| Error::io(&self.path, source))?;
        // Something may have come during the work.
        self.check()?;
        let mut written = Vec::with_capacity(files.len());
        for (name, bytes) in files {
            let path = self.path.join(name);
            replace(&path, bytes)?;
            written.push(path);
        }
        for path in self.paths().filter(|path| !written.contains(path)) {
            match fs::remove_file(&path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(Error::io(&path, source)),
                _ => {}
            }
        }
        Ok(written)
    }
}

/// Writes a file under another name and gives it its own when it is whole.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let partial = path.with_file_name(format!(".{name}.{}.partial", std::process::id()));
    // Never through a link, and never over what is there.
    let mut file =
        OpenOptions::new().write(true).create_new(true).open(&partial).map_err(|e| Error::io(&partial, e))?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&partial, path));
    written.map_err(|source| {
        // The first error is the one to tell.
        let _ = fs::remove_file(&partial);
        Error::io(path, source)
    })
}

/// What is at a path, without following a link; `None` for nothing.
fn kind(path: &Path) -> Result<Option<FileType>, Error> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(Some(found.file_type())),
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::io(path, source)),
    }
}

fn describe(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_symlink() => "a symbolic link",
        kind if kind.is_dir() => "a folder",
        kind if kind.is_file() => "a file",
        _ => "a device, socket or pipe",
    }
}
