//! What stands in an output folder until it is whole: a small file that says which run is at work there, and is locked
//! while it is.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, IoContext};
use crate::output::{create, is_at, lock, open_own};

/// Its name.
const NAME: &str = "condprog-rewrite";
/// What it starts with: what does not is somebody else's file.
const MARK: &str = "condprog-rewrite 1\t";

#[derive(Debug)]
pub(super) struct Marker {
    path: PathBuf,
    file: File,
}

impl Marker {
    /// Opens or creates the marker of an output folder, locked, and says whether it is that of an equal run.
    pub(super) fn open(output: &Path, identity: &str, force: bool) -> Result<(Marker, bool), Error> {
        let path = output.join(NAME);
        for _ in 0..100 {
            let mut file = match create(&path)? {
                Some(file) => file,
                None => match open_own(&path)? {
                    Some(file) => file,
                    None => continue,
                },
            };
            lock(&file, &path, output)?;
            // Whoever held it may have finished meanwhile.
            if !is_at(&file, &path) {
                continue;
            }
            let resumed = resumes(&path, &text(&mut file, &path)?, identity, force)?;
            return Ok((Marker { path, file }, resumed));
        }
        Err(Error::Busy { path: output.into() })
    }

    /// Whether the marker of an equal run stands there, without taking hold of it.
    pub(super) fn peek(output: &Path, identity: &str, force: bool) -> Result<bool, Error> {
        let path = output.join(NAME);
        match open_own(&path)? {
            Some(mut file) => resumes(&path, &text(&mut file, &path)?, identity, force),
            None => Ok(false),
        }
    }

    /// Says which run is at work.
    pub(super) fn write(&mut self, identity: &str) -> Result<(), Error> {
        let line = format!("{MARK}{identity}\n");
        let written = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        let written = written.and_then(|_| self.file.write_all(line.as_bytes())).and_then(|()| self.file.sync_all());
        written.context("write", &self.path)
    }

    /// Removes it: the output is whole.
    pub(super) fn remove(self) -> Result<(), Error> {
        fs::remove_file(&self.path).context("remove", &self.path)
    }
}

fn text(file: &mut File, path: &Path) -> Result<Vec<u8>, Error> {
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut text)).context("read", path)?;
    Ok(text)
}

fn resumes(path: &Path, text: &[u8], identity: &str, force: bool) -> Result<bool, Error> {
    // One that was cut short stands where nothing else was made yet.
    if MARK.as_bytes().starts_with(text) {
        return Ok(false);
    }
    let Some(got) = text.strip_prefix(MARK.as_bytes()) else {
        return Err(Error::Foreign { path: path.into(), kind: "no file of this program" });
    };
    let Some(got) = got.strip_suffix(b"\n") else { return Ok(false) };
    match (got == identity.as_bytes(), force) {
        (true, _) => Ok(true),
        (false, true) => Ok(false),
        (false, false) => Err(Error::OtherRun {
            path: path.into(),
            what: "the checkpoint",
            got: String::from_utf8_lossy(got).into_owned(),
            expected: identity.into(),
        }),
    }
}
