//! Files that are mapped.

#[cfg(not(miri))]
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

#[cfg(not(miri))]
use memmap2::{Advice, Mmap};

/// How a mapped file will be read; the system is told, and reads ahead or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Rows in any order: no reading ahead.
    Random,
    /// From front to back.
    Sequential,
}

/// The bytes of a file that is mapped, read-only.
///
/// The fastest way to have a table that is read now and then: nothing is copied, the system keeps the pages in use. But it
/// asks much of whoever uses it (see [`MappedFile::open`]); a table in a [`HugeBuffer`](crate::HugeBuffer) asks nothing.
#[derive(Debug)]
pub struct MappedFile {
    #[cfg(not(miri))]
    bytes: Mmap,
    #[cfg(miri)]
    bytes: Vec<u8>,
}

impl MappedFile {
    /// Maps a file. Huge pages are asked for; file systems that have none for files (most but tmpfs) ignore it.
    ///
    /// # Safety
    /// As long as the file is mapped, nobody may write to it or cut it short, in this process or another: bytes that are
    /// written change under a `&[u8]`. To replace it by renaming another file over it is fine, and is how condprog writes.
    ///
    /// Reading a page that is gone, because the file was cut short or the disk fails, ends the process with a signal
    /// (`SIGBUS`): no error can be returned.
    ///
    /// # Errors
    /// What the system says when the file cannot be opened or mapped.
    #[cfg(not(miri))]
    pub unsafe fn open(path: &Path, access: Access) -> io::Result<MappedFile> {
        let file = File::open(path)?;
        // SAFETY: the mapping is private and read-only. That nobody writes to the file or cuts it short while it is mapped
        // is what this function asks of its caller.
        let bytes = unsafe { Mmap::map(&file)? };
        let advice = match access {
            Access::Random => Advice::Random,
            Access::Sequential => Advice::Sequential,
        };
        // Advice only: a system that does not take it is slower, not wrong.
        #[cfg(unix)]
        let _ = bytes.advise(advice);
        #[cfg(target_os = "linux")]
        let _ = bytes.advise(Advice::HugePage);
        Ok(MappedFile { bytes })
    }

    /// Reads a file, where none can be mapped.
    ///
    /// # Safety
    /// Nothing is asked here, much where files are mapped.
    ///
    /// # Errors
    /// What the system says when the file cannot be read.
    #[cfg(miri)]
    pub unsafe fn open(path: &Path, _: Access) -> io::Result<MappedFile> {
        std::fs::read(path).map(|bytes| MappedFile { bytes })
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri keeps files from its programs")]
    fn mapped_files_hold_the_files_bytes() {
        let path = std::env::temp_dir().join(format!("condprog-map-{}", std::process::id()));
        for length in [0, 1, 4096, 100_001] {
            let bytes: Vec<u8> = (0..length).map(|i: u32| (i % 251) as u8).collect();
            std::fs::write(&path, &bytes).unwrap();
            for access in [Access::Random, Access::Sequential] {
                // SAFETY: the file is this test's own, and is written before it is mapped and after.
                assert_eq!(&*unsafe { MappedFile::open(&path, access) }.unwrap(), bytes);
            }
        }
        std::fs::remove_file(&path).unwrap();
        // SAFETY: there is no file.
        assert_eq!(unsafe { MappedFile::open(&path, Access::Random) }.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
