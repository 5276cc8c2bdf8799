//! The files of a checkpoint that stay as they are: found in its folder, linked or copied into the output.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use twox_hash::XxHash3_64;

use crate::error::RewriteError;
use crate::error::{Error, IoContext};
use crate::output::{Temporary, There, is_same_file, look, remove_equals};

/// What is not part of a checkpoint though it lies in its folder: the state of version control and of downloads.
const NOT_COPIED: [&str; 2] = [".git", ".cache"];
/// What names of files of weights end in: large, and not edited in place.
const WEIGHTS: [&str; 4] = ["safetensors", "gguf", "pt", "pth"];
/// What other files of weights start with, and end in.
const PYTORCH: (&str, &str) = ("pytorch_model", ".bin");

/// A file that becomes a file of the output.
#[derive(Debug)]
pub(super) struct Link {
    /// Below the folder.
    pub(super) name: PathBuf,
    /// The file itself, no symbolic link to it.
    pub(super) source: PathBuf,
    pub(super) bytes: u64,
}

/// How a file came into the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    Link,
    Copy,
}

/// What is in the folder of a checkpoint.
#[derive(Default)]
pub(super) struct Found {
    pub(super) folders: Vec<PathBuf>,
    pub(super) files: Vec<Link>,
    /// Name, length and time of each file.
    states: String,
    /// Where its files may lie: its own folder and, where that is in a download cache, the files of that.
    roots: Vec<PathBuf>,
}

impl Found {
    /// All that is in the folder of a checkpoint.
    pub(super) fn in_folder(folder: &Path) -> Result<Found, Error> {
        let real = folder.canonicalize().context("open", folder)?;
        let mut found = Found::default();
        // REPOSITORY/snapshots/REVISION, whose files are links into REPOSITORY/blobs.
        if let Some(snapshots) = real.parent().filter(|parent| parent.ends_with("snapshots"))
            && let Some(repository) = snapshots.parent()
        {
            found.roots.push(repository.join("blobs"));
        }
        found.roots.push(real);
        found.walk(folder, Path::new(""), &mut Vec::new())?;
        Ok(found)
    }

    /// Adds a folder, `name` below the checkpoint's. Symbolic links are followed; `above` are the folders it lies in.
    fn walk(&mut self, folder: &Path, name: &Path, above: &mut Vec<PathBuf>) -> Result<(), Error> {
        let real = self.real(folder)?;
        if above.contains(&real) {
            return Err(RewriteError::Loop.at(folder));
        }
        above.push(real);
        let entries = fs::read_dir(folder).context("read", folder)?;
        let mut entries = entries.collect::<io::Result<Vec<_>>>().context("read", folder)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (path, file_name) = (entry.path(), entry.file_name());
            if above.len() == 1 && NOT_COPIED.iter().any(|not| file_name == *not) {
                continue;
            }
            let (name, about) = (name.join(&file_name), fs::metadata(&path).context("open", &path)?);
            if about.is_dir() {
                self.folders.push(name.clone());
                self.walk(&path, &name, above)?;
            } else if about.is_file() {
                let time = about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
                self.states += &format!("{name:?} {} {}\n", about.len(), time.unwrap_or_default().as_nanos());
                let source = self.real(&path)?;
                self.files.push(Link { name, source, bytes: about.len() });
            } else {
                return Err(RewriteError::Special.at(&path));
            }
        }
        above.pop();
        Ok(())
    }

    /// Where a path leads, unless that is out of the checkpoint: a link to a private file is no wish to publish it.
    fn real(&self, path: &Path) -> Result<PathBuf, Error> {
        let target = path.canonicalize().context("open", path)?;
        match self.roots.iter().any(|root| target.starts_with(root)) {
            true => Ok(target),
            false => Err(RewriteError::Outside { target }.at(path)),
        }
    }

    /// Takes out a file of the checkpoint's own folder.
    pub(super) fn take(&mut self, name: &str) -> Option<Link> {
        let place = self.files.iter().position(|link| link.name == Path::new(name))?;
        Some(self.files.remove(place))
    }

    /// Tells apart one run from another.
    pub(super) fn identity(&self, replaced: &BTreeSet<String>) -> String {
        format!("{:016x}", XxHash3_64::oneshot(format!("{}{replaced:?}", self.states).as_bytes()))
    }
}

impl Link {
    /// Whether it is linked rather than copied, where nobody asks for copies of everything.
    pub(super) fn is_weights(&self) -> bool {
        let has_ending = |ending: &&str| self.name.extension().is_some_and(|extension| extension == *ending);
        let name = self.name.file_name().unwrap_or_default().to_string_lossy();
        WEIGHTS.iter().any(has_ending) || name.starts_with(PYTORCH.0) && name.ends_with(PYTORCH.1)
    }

    /// Puts the file into the output, under its name at once or not at all. One that a run before this has put there
    /// stays.
    pub(super) fn make(&self, output: &Path, copy: bool, resumed: bool) -> Result<Made, Error> {
        let links = self.is_weights() && !copy;
        if let There::File(there) = look(output)? {
            let source = fs::metadata(&self.source).context("open", &self.source)?;
            match is_same_file(&source, &there).unwrap_or(false) {
                true if resumed && links => return Ok(Made::Link),
                // A link from a run that was not asked for copies: the name goes, the file stays.
                true if resumed => fs::remove_file(output).context("remove", output)?,
                // Files get their names when they are whole.
                false if resumed && there.len() == self.bytes => {
                    remove_equals(output);
                    return Ok(Made::Copy);
                }
                _ => return Err(Error::OutputExists { path: output.into() }),
            }
        }
        if links {
            match fs::hard_link(&self.source, output) {
                Ok(()) => return Ok(Made::Link),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    return Err(Error::OutputExists { path: output.into() });
                }
                // Another file system, one without links, a file of another user: whatever it is, a copy may still be
                // possible.
                Err(_) => {}
            }
        }
        let mut copy = Temporary::create(output, false)?;
        match copy.copy_from(&self.source, self.bytes) {
            Ok(()) => copy.finish(false).map(|()| Made::Copy),
            Err(error) => {
                copy.discard();
                Err(error)
            }
        }
    }
}
