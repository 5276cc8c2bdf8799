//! Bytes for tables: zeroed memory on huge pages, and files that are mapped.
//!
//! Decoding random rows of a table that is larger than the caches is several times faster from 2 MiB pages than from
//! 4 KiB ones, and a search over megabytes at large strides is bound by the same misses of the TLB. [`HugeBuffer`] asks the
//! system for such pages and works without them too:
//!
//! ```
//! use condprog_memory::HugeBuffer;
//!
//! let mut records = HugeBuffer::<u8>::zeroed(66 * 100_000)?;
//! assert!(records.iter().all(|&byte| byte == 0));
//! records[..66].fill(0xa5);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! [`MappedFile`] copies nothing: the system keeps in memory the pages that are used, and shares them between
//! processes. In return, nobody may write to the file or cut it short while it is mapped. No check can promise that, so
//! to make one is unsafe:
//!
//! ```no_run
//! use condprog_memory::{Access, MappedFile};
//!
//! // SAFETY: nobody else can write to this file, and this program replaces table files by renaming.
//! let file = unsafe { MappedFile::open("table.safetensors".as_ref(), Access::Random)? };
//! println!("{} bytes", file.len());
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! | to have a table in memory | use |
//! |---|---|
//! | all of it, random rows at full speed, errors instead of signals | [`HugeBuffer::zeroed`], read into |
//! | the same, on pages that are huge for certain and never swapped out | [`HugeBuffer::from_reserve`] |
//! | more than fits, rarely asked for, in a file that nobody else can touch | [`MappedFile::open`] |
//!
//! Under Miri, which knows neither huge pages nor mapped files, both keep their bytes in a vector.

mod file;
#[cfg_attr(miri, path = "heap.rs")]
mod pages;

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};

use bytemuck::Pod;

pub use file::{Access, MappedFile};

/// Size and alignment of a huge page.
pub const HUGE_PAGE: usize = 2 << 20;

/// Items of zero bytes in a fixed number, on huge pages where the system has them.
pub struct HugeBuffer<T>(pages::Pages<T>);

impl<T: Pod> HugeBuffer<T> {
    /// So many items of zero bytes.
    ///
    /// From a quarter of a [`HUGE_PAGE`] on, the buffer starts at a huge page and takes whole ones, so that all of it can lie
    /// on them; a smaller one is not worth it.
    ///
    /// # Errors
    /// What the system says when it has no memory for them, or the process may not have so much.
    pub fn zeroed(len: usize) -> io::Result<HugeBuffer<T>> {
        pages::Pages::zeroed(len).map(HugeBuffer)
    }

    /// As [`HugeBuffer::zeroed`], from the huge pages that the system's administrator has set aside, where there are as
    /// many: these are huge for certain, and cannot be swapped out. For what lives as long as the process.
    ///
    /// # Errors
    /// As [`HugeBuffer::zeroed`].
    pub fn from_reserve(len: usize) -> io::Result<HugeBuffer<T>> {
        pages::Pages::from_reserve(len).map(HugeBuffer)
    }
}

/// Bytes of `len` items.
fn bytes_of<T>(len: usize) -> io::Result<usize> {
    const { assert!(size_of::<T>() > 0 && align_of::<T>() <= 4096, "items that any page is aligned for") }
    // The slice's length has to fit isize, and the pages around it usize.
    let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| bytes <= isize::MAX as usize - 2 * HUGE_PAGE);
    bytes.ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

impl<T: Pod> Deref for HugeBuffer<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        self.0.items()
    }
}

impl<T: Pod> DerefMut for HugeBuffer<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        self.0.items_mut()
    }
}

/// Without the items: there are gigabytes of them.
impl<T: Pod> fmt::Debug for HugeBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HugeBuffer").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Pod + PartialEq>(make: fn(usize) -> io::Result<HugeBuffer<T>>, other: T) {
        let lengths: &[usize] = if cfg!(miri) { &[0, 1, 4096] } else { &[0, 1, 4096, HUGE_PAGE / 4, HUGE_PAGE + 1] };
        for &length in lengths {
            let mut buffer = make(length).unwrap();
            assert!(buffer.len() == length && buffer.iter().all(|item| *item == T::zeroed()));
            buffer.fill(other);
            assert!(buffer.iter().all(|item| *item == other));
        }
        assert_eq!(make(usize::MAX / 2).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        assert!(make(usize::MAX).is_err());
    }

    #[test]
    fn buffers_are_zero_and_as_long_as_asked_for() {
        check::<u8>(HugeBuffer::zeroed, 7);
        check::<u8>(HugeBuffer::from_reserve, 7);
        check::<[u64; 8]>(HugeBuffer::zeroed, [u64::MAX; 8]);
    }

    #[cfg(not(miri))]
    #[test]
    fn large_buffers_start_at_a_huge_page() {
        for length in [HUGE_PAGE / 4, HUGE_PAGE - 1, 3 * HUGE_PAGE + 5] {
            assert_eq!(HugeBuffer::<u8>::zeroed(length).unwrap().as_ptr() as usize % HUGE_PAGE, 0);
        }
    }
}
