//! Files for what cannot resume: written under names made up for them.
//!
//! Until it is whole, a temporary starts with a text that says what it is, in place of its first bytes, which are held back.
//! So the next run knows what a killed one has left, and removes it: by its name, which has a checksum in it, and by that
//! text. One that was killed when the text was gone but the name not yet given is as whole as the output that the next run
//! writes: it goes when it is the same, byte for byte.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use condprog_table::checksum;

use super::partial::{create_as, open_own, rename};
use super::{folder_of, is_at, lock, refuse_existing, write_error};
use crate::error::{Error, IoContext};

/// What the name of a temporary starts with.
const PREFIX: &str = ".condprog-temporary-";
/// What it starts with itself.
const MARK: &[u8; 64] = b"condprog temporary: not finished, and of no use to anybody else\n";
/// How many temporaries one output may have, one in use and others left behind.
const MOST: u32 = 32;
/// Bytes compared at a time.
const CHUNK: usize = 1 << 20;

/// A file that is being written. It gets the output's name when it is whole.
#[derive(Debug)]
pub(crate) struct Temporary {
    output: PathBuf,
    path: PathBuf,
    file: File,
    /// Bytes of the whole output, as far as is known.
    length: u64,
    /// Its first bytes, which the mark stands for.
    start: Vec<u8>,
}

impl Temporary {
    /// Creates a temporary for an output, locked against other processes that tidy up.
    ///
    /// # Errors
    /// [`Error::OutputExists`], [`Error::OutputNotAFile`], [`Error::File`].
    pub(crate) fn create(output: &Path, force: bool) -> Result<Temporary, Error> {
        refuse_existing(output, force)?;
        for path in paths(output) {
            let Some(mut file) = create_as(&path, output)? else { continue };
            lock(&file, output, output)?;
            // A process that tidied up between these two calls has taken it for an old one.
            if is_at(&file, &path) {
                file.write_all(MARK).map_err(|error| write_error(error, output, 0, false))?;
                return Ok(Temporary { output: output.into(), path, file, length: 0, start: Vec::new() });
            }
        }
        Err(Error::Busy { path: output.into() })
    }

    /// Makes it `length` bytes, all zeros.
    pub(crate) fn set_length(&mut self, length: u64) -> Result<(), Error> {
        self.length = length;
        self.start = vec![0; length.min(MARK.len() as u64) as usize];
        self.file.set_len(length.max(MARK.len() as u64)).map_err(|error| self.write_error(error))
    }

    /// Writes some bytes.
    pub(crate) fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let held = MARK.len().saturating_sub(usize::try_from(offset).unwrap_or(usize::MAX)).min(bytes.len());
        let (start, rest) = bytes.split_at(held);
        if held > 0 {
            let (from, to) = (offset as usize, offset as usize + held);
            self.start.resize(self.start.len().max(to), 0);
            self.start[from..to].copy_from_slice(start);
        }
        self.length = self.length.max(offset + bytes.len() as u64);
        if rest.is_empty() {
            return Ok(());
        }
        let written = self.file.seek(SeekFrom::Start(offset + held as u64)).and_then(|_| self.file.write_all(rest));
        written.map_err(|error| self.write_error(error))
    }

    /// Appends some bytes.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.write_at(self.length, bytes)
    }

    /// Makes it a copy of a file of `bytes` bytes, with the same permissions.
    pub(crate) fn copy_from(&mut self, source: &Path, bytes: u64) -> Result<(), Error> {
        let mut from = File::open(source).context("open", source)?;
        let permissions = from.metadata().context("open", source)?.permissions();
        let mut start = Vec::new();
        Read::by_ref(&mut from).take(MARK.len() as u64).read_to_end(&mut start).context("read", source)?;
        self.start = start;
        // As the file system copies: it may share the blocks.
        let rest = self.file.seek(SeekFrom::Start(MARK.len() as u64)).and_then(|_| io::copy(&mut from, &mut self.file));
        self.length = bytes;
        let copied = self.start.len() as u64 + rest.map_err(|error| self.write_error(error))?;
        if copied != bytes {
            let what = format!("it was {bytes} bytes, and {copied} were read");
            return Err(Error::SourceChanged { path: source.into(), what });
        }
        self.file.set_permissions(permissions).map_err(|error| self.write_error(error))
    }

    /// Makes the output durable and gives it its name.
    pub(crate) fn finish(mut self, force: bool) -> Result<(), Error> {
        let finished = self.complete().and_then(|()| rename(&self.file, &self.path, &self.output, force));
        match finished {
            Ok(()) => remove_equals(&self.output),
            Err(_) => self.discard(),
        }
        finished
    }

    fn complete(&mut self) -> Result<(), Error> {
        let written = self.file.seek(SeekFrom::Start(0)).and_then(|_| self.file.write_all(&self.start));
        let written = written.and_then(|()| self.file.set_len(self.length)).and_then(|()| self.file.sync_all());
        written.map_err(|error| self.write_error(error))
    }

    /// Removes it.
    pub(crate) fn discard(self) {
        // The error that led here is the one to report.
        if is_at(&self.file, &self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Errors name the output: the name of a temporary means nothing to a user.
    fn write_error(&self, error: io::Error) -> Error {
        write_error(error, &self.output, self.length, false)
    }
}

/// Names for the temporaries of an output.
fn paths(output: &Path) -> impl Iterator<Item = PathBuf> {
    let first = checksum::of(output.file_name().unwrap_or_default().as_encoded_bytes()) as u32;
    (0..MOST).map(move |number| folder_of(output).join(name(first.wrapping_add(number))))
}

/// The name of a temporary: a number, and a checksum of it by which its kind is known again.
fn name(number: u32) -> String {
    let check = checksum::of(&[b"condprog temporary ", number.to_le_bytes().as_slice()].concat()) as u32;
    format!("{PREFIX}{number:08x}{check:08x}")
}

fn is_name(text: &OsStr) -> bool {
    let text = text.to_str().unwrap_or_default();
    let digits = text.strip_prefix(PREFIX).and_then(|digits| digits.get(..8));
    digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()).is_some_and(|number| name(number) == text)
}

/// Removes the temporaries that killed runs have left in a folder. Those that somebody is writing are locked; where there
/// are no locks, all stay.
pub(crate) fn sweep(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|entry| is_name(&entry.file_name())) {
        remove_if(&entry.path(), |file| {
            let mut start = Vec::new();
            file.take(MARK.len() as u64).read_to_end(&mut start)?;
            // It may have been killed before its mark was whole.
            Ok(MARK.starts_with(&start))
        });
    }
}

/// Removes what killed runs have left of an output that is whole now, and is the same: where its first bytes are not the
/// output's they are still the mark's.
pub(crate) fn remove_equals(output: &Path) {
    for path in paths(output) {
        remove_if(&path, |file| {
            let mut output = File::open(output)?;
            let (length, expected) = (file.metadata()?.len(), output.metadata()?.len());
            if length != expected && length != expected.max(MARK.len() as u64) {
                return Ok(false);
            }
            let (mut left, mut start) = (Vec::new(), Vec::new());
            Read::by_ref(file).take(MARK.len() as u64).read_to_end(&mut left)?;
            Read::by_ref(&mut output).take(MARK.len() as u64).read_to_end(&mut start)?;
            let is_known = |place: usize| start.get(place) == Some(&left[place]) || MARK[place] == left[place];
            Ok((0..left.len()).all(is_known) && are_equal(file, &mut output)?)
        });
    }
}

/// Whether the rest of one file is that of another.
fn are_equal(one: &mut File, other: &mut File) -> io::Result<bool> {
    let (mut left, mut right) = (vec![0; CHUNK], vec![0; CHUNK]);
    loop {
        let read = one.read(&mut left)?;
        if read == 0 {
            return Ok(other.read(&mut right)? == 0);
        }
        if other.read_exact(&mut right[..read]).is_err() || left[..read] != right[..read] {
            return Ok(false);
        }
    }
}

/// Removes a file of this program's own that nobody is writing, if a condition holds for it. Failing to tidy up is no
/// reason to fail.
fn remove_if(path: &Path, holds: impl FnOnce(&mut File) -> io::Result<bool>) {
    if let Ok(Some(mut file)) = open_own(path)
        && file.try_lock().is_ok()
        && is_at(&file, path)
        && holds(&mut file).unwrap_or(false)
    {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_what_was_written_however_long() {
        let folder = tempfile::tempdir().unwrap();
        for length in [0, 1, 63, 64, 65, 200] {
            let path = folder.path().join(format!("{length}"));
            let bytes: Vec<u8> = (0..length).collect();
            let mut whole = Temporary::create(&path, false).unwrap();
            for part in bytes.chunks(50) {
                whole.append(part).unwrap();
                assert!(fs::read(&whole.path).unwrap().starts_with(MARK));
            }
            whole.finish(false).unwrap();
            assert_eq!(fs::read(&path).unwrap(), bytes);
            let mut backwards = Temporary::create(&path, true).unwrap();
            backwards.set_length(length.into()).unwrap();
            for (number, part) in bytes.chunks(50).enumerate().rev() {
                backwards.write_at(50 * number as u64, part).unwrap();
            }
            backwards.finish(true).unwrap();
            assert_eq!(fs::read(&path).unwrap(), bytes);
            let copy = folder.path().join(format!("{length} copy"));
            let mut temporary = Temporary::create(&copy, false).unwrap();
            temporary.copy_from(&path, length.into()).unwrap();
            temporary.finish(false).unwrap();
            assert_eq!(fs::read(&copy).unwrap(), bytes);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 12);
    }

    #[test]
    fn only_what_was_left_behind_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("out");
        let names: Vec<_> = paths(&output).take(7).collect();
        fs::write(&names[0], "a file of somebody's").unwrap();
        fs::write(&names[1], [&MARK[..], b"rows"].concat()).unwrap();
        fs::write(&names[2], &MARK[..9]).unwrap();
        // As they are when all is written but the length, and when the start is written in part.
        fs::write(&names[3], [b"the same", &MARK[8..]].concat()).unwrap();
        fs::write(&names[5], [b"the ", &MARK[4..]].concat()).unwrap();
        let live = Temporary::create(&output, false).unwrap();
        assert_eq!(live.path, names[4]);
        sweep(folder.path());
        let left = |name: &PathBuf| name.exists();
        assert_eq!(names.iter().map(left).collect::<Vec<_>>(), [true, false, false, true, true, true, false]);
        let mut next = Temporary::create(&output, false).unwrap();
        next.append(b"the same").unwrap();
        next.finish(false).unwrap();
        assert_eq!(names.iter().map(left).collect::<Vec<_>>(), [true, false, false, false, true, false, false]);
    }
}
