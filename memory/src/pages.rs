//! Zeroed pages from the system.

use std::io;
use std::marker::PhantomData;

use bytemuck::Pod;
use memmap2::{MmapMut, MmapOptions};

use crate::{HUGE_PAGE, bytes_of};

/// Bytes from which on a buffer takes whole huge pages: each may then take three times as many more, at most.
const WHOLE: usize = HUGE_PAGE / 4;

/// A mapping and the items in it.
pub(crate) struct Pages<T> {
    map: MmapMut,
    /// Where the items start, and how many bytes they take.
    start: usize,
    bytes: usize,
    items: PhantomData<T>,
}

impl<T: Pod> Pages<T> {
    pub(crate) fn zeroed(len: usize) -> io::Result<Pages<T>> {
        let bytes = bytes_of::<T>(len)?;
        if bytes < WHOLE {
            return Ok(Pages { map: MmapMut::map_anon(bytes)?, start: 0, bytes, items: PhantomData });
        }
        let whole = bytes.next_multiple_of(HUGE_PAGE);
        // One page more than needed, so that there are as many aligned ones. Nobody touches the rest.
        let map = MmapMut::map_anon(whole + HUGE_PAGE)?;
        let start = map.as_ptr().align_offset(HUGE_PAGE);
        // Advice only: a system that does not take it is slower, not wrong.
        #[cfg(target_os = "linux")]
        let _ = map.advise_range(memmap2::Advice::HugePage, start, whole);
        Ok(Pages { map, start, bytes, items: PhantomData })
    }

    pub(crate) fn from_reserve(len: usize) -> io::Result<Pages<T>> {
        let bytes = bytes_of::<T>(len)?;
        if bytes > 0 {
            // Whole huge pages: the kernel unmaps nothing less.
            let whole = bytes.next_multiple_of(HUGE_PAGE);
            let log2 = Some(HUGE_PAGE.ilog2() as u8);
            if let Ok(map) = MmapOptions::new().len(whole).huge(log2).map_anon() {
                return Ok(Pages { map, start: 0, bytes, items: PhantomData });
            }
        }
        Pages::zeroed(len)
    }

    #[inline]
    pub(crate) fn items(&self) -> &[T] {
        bytemuck::cast_slice(&self.map[self.start..self.start + self.bytes])
    }

    #[inline]
    pub(crate) fn items_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut self.map[self.start..self.start + self.bytes])
    }
}
