//! Bytes for decoders: memory on huge pages, and files that are mapped.

use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::path::Path;

use memmap2::{Advice, Mmap, MmapMut};

/// Zeroed memory, on huge pages where the system has them: decoding random rows of a table that is larger than the
/// caches is several times faster with 2 MiB pages than with 4 KiB ones. What a table is read into.
#[derive(Debug)]
pub struct HugeBuffer {
    bytes: MmapMut,
}

impl HugeBuffer {
    /// So many zero bytes.
    ///
    /// # Errors
    /// What the system says when it has no memory for them, or the process may not have so much.
    pub fn zeroed(length: usize) -> io::Result<HugeBuffer> {
        let bytes = MmapMut::map_anon(length)?;
        // Advice only: a system that does not take it is slower, not wrong.
        #[cfg(target_os = "linux")]
        let _ = bytes.advise(Advice::HugePage);
        Ok(HugeBuffer { bytes })
    }
}

impl Deref for HugeBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for HugeBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

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
/// asks much of whoever uses it (see [`MappedFile::open`]); a table in a [`HugeBuffer`] asks nothing.
#[derive(Debug)]
pub struct MappedFile {
    bytes: Mmap,
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
    pub unsafe fn open(path: &Path, access: Access) -> io::Result<MappedFile> {
        let file = File::open(path)?;
        // SAFETY: the mapping is private and read-only. That nobody writes to the file or cuts it short while it is mapped
        // is what this function asks of its caller.
        let bytes = unsafe { Mmap::map(&file)? };
        let advice = match access {
            Access::Random => Advice::Random,
            Access::Sequential => Advice::Sequential,
        };
        // Advice only, as above.
        #[cfg(unix)]
        let _ = bytes.advise(advice);
        #[cfg(target_os = "linux")]
        let _ = bytes.advise(Advice::HugePage);
        Ok(MappedFile { bytes })
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

    #[test]
    fn buffers_are_zero_and_as_long_as_asked_for() {
        for length in [0, 1, 4096, 5 << 20] {
            let mut buffer = HugeBuffer::zeroed(length).unwrap();
            assert!(buffer.len() == length && buffer.iter().all(|&byte| byte == 0));
            buffer.fill(7);
            assert!(buffer.iter().all(|&byte| byte == 7));
        }
        assert!(HugeBuffer::zeroed(usize::MAX / 2).is_err());
    }
}
