//! Large zeroed buffers, on huge pages where the system gives them.

use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// A fixed-length buffer of zero bytes, page-aligned, for which huge pages were asked: the search walks megabytes at
/// large strides, and with 4 KiB pages spends much of its time on TLB misses.
pub(crate) struct HugeVec<T> {
    map: Option<MmapMut>,
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
        assert!(align_of::<T>() <= 4096, "page-aligned is aligned enough");
        let bytes = len.checked_mul(size_of::<T>()).expect("buffer size fits usize");
        let map = (bytes > 0).then(|| {
            let map = MmapMut::map_anon(bytes).unwrap_or_else(|error| panic!("no memory for {bytes} bytes: {error}"));
            #[cfg(target_os = "linux")]
            let _ = map.advise(memmap2::Advice::HugePage); // only advice: a kernel without it is slower
            map
        });
        HugeVec { map, len, _items: std::marker::PhantomData }
    }
}

impl<T> Deref for HugeVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.map {
            // SAFETY: the mapping is `len * size_of::<T>()` bytes, page-aligned, and valid as T (see `zeroed`).
            Some(map) => unsafe { std::slice::from_raw_parts(map.as_ptr().cast(), self.len) },
            None => &[],
        }
    }
}

impl<T> DerefMut for HugeVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.map {
            // SAFETY: as in `deref`, and the mapping is borrowed mutably.
            Some(map) => unsafe { std::slice::from_raw_parts_mut(map.as_mut_ptr().cast(), self.len) },
            None => &mut [],
        }
    }
}
