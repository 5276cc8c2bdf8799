//! Files as slices of bytes: mapped, or read into memory on huge pages.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Deref;
use std::path::Path;

use memmap2::{Advice, Mmap, MmapMut};

/// How a mapped file will be read; the system is told, and reads ahead or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Rows in any order: no reading ahead.
    Random,
    /// From front to back.
    Sequential,
}

/// The bytes of a file, read-only.
///
/// A mapped file must not be changed while it is mapped: bytes written to it would change under a `&[u8]`, and reading
/// beyond the end of a file that was cut short ends the process. Replacing a file by renaming another over it is fine,
/// and is how condprog writes. [`MappedFile::load`] has no such duty.
#[derive(Debug)]
pub struct MappedFile {
    bytes: Mmap,
}

impl MappedFile {
    /// Maps a file. Huge pages are asked for; file systems that have none for files (most but tmpfs) ignore it.
    ///
    /// # Errors
    /// What the system says when the file cannot be opened or mapped.
    pub fn open(path: &Path, access: Access) -> io::Result<MappedFile> {
        let file = File::open(path)?;
        // SAFETY: the mapping is private and read-only. That the file is not written or cut short by anyone while it
        // is mapped is the caller's duty, stated on the type; this project never writes to a finished file in place.
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

    /// Reads a whole file into memory of its own, on huge pages where the system has them: decoding random rows of a
    /// table that is larger than the caches is several times faster with 2 MiB pages than with 4 KiB ones.
    ///
    /// # Errors
    /// What the system says when the file cannot be read or there is no memory for it.
    pub fn load(path: &Path) -> io::Result<MappedFile> {
        let mut file = File::open(path)?;
        let length = usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut bytes = MmapMut::map_anon(length)?;
        #[cfg(target_os = "linux")]
        let _ = bytes.advise(Advice::HugePage);
        file.read_exact(&mut bytes)?;
        Ok(MappedFile { bytes: bytes.make_read_only()? })
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_and_loaded_files_hold_the_files_bytes() {
        let path = std::env::temp_dir().join(format!("condprog-map-{}", std::process::id()));
        for length in [0, 1, 4096, 100_001] {
            let bytes: Vec<u8> = (0..length).map(|i: u32| (i % 251) as u8).collect();
            std::fs::write(&path, &bytes).unwrap();
            for access in [Access::Random, Access::Sequential] {
                assert_eq!(&*MappedFile::open(&path, access).unwrap(), bytes);
            }
            assert_eq!(&*MappedFile::load(&path).unwrap(), bytes);
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(MappedFile::load(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
