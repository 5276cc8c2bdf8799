//! Large zeroed buffers, on huge pages where the system gives them.

use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// Size and alignment of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// A fixed-length buffer of zero bytes for which huge pages were asked: the search walks megabytes at large strides,
/// and with 4 KiB pages spends much of its time on TLB misses. Only whole, aligned huge pages are given, so the buffer
/// starts at one and its mapping ends at one.
pub(crate) struct HugeVec<T> {
    map: Option<MmapMut>,
    /// Where the first huge page starts in `map`.
    start: usize,
    len: usize,
    _items: std::marker::PhantomData<T>,
}

impl<T: Copy> HugeVec<T> {
    /// `len` items of zero bytes.
    ///
    /// # Safety
    /// Zero bytes must be a valid `T`, and so must be any bytes that are written through the buffer.
    ///
    /// # Panics
    /// When the system has no memory, as `Vec` does.
    pub(crate) unsafe fn zeroed(len: usize) -> HugeVec<T> {
        assert!(HUGE_PAGE.is_multiple_of(align_of::<T>()), "a huge page is aligned enough");
        let bytes = len.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_next_multiple_of(HUGE_PAGE));
        let bytes = bytes.expect("buffer size fits usize");
        if bytes == 0 {
            return HugeVec { map: None, start: 0, len, _items: std::marker::PhantomData };
        }
        let map = MmapMut::map_anon(bytes + HUGE_PAGE);
        let map = map.unwrap_or_else(|error| panic!("no memory for {bytes} bytes: {error}"));
        let start = map.as_ptr().align_offset(HUGE_PAGE);
        #[cfg(target_os = "linux")]
        let _ = map.advise_range(memmap2::Advice::HugePage, start, bytes); // only advice: without it, slower
        HugeVec { map: Some(map), start, len, _items: std::marker::PhantomData }
    }
}

impl<T> Deref for HugeVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.map {
            // SAFETY: from `start` on, a multiple of a huge page away from address 0, the mapping holds
            // `len * size_of::<T>()` bytes, valid as T (see `zeroed`).
            Some(map) => unsafe { std::slice::from_raw_parts(map.as_ptr().add(self.start).cast(), self.len) },
            None => &[],
        }
    }
}

impl<T> DerefMut for HugeVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.map {
            // SAFETY: as in `deref`, and the mapping is borrowed mutably.
            Some(map) => unsafe { std::slice::from_raw_parts_mut(map.as_mut_ptr().add(self.start).cast(), self.len) },
            None => &mut [],
        }
    }
}
