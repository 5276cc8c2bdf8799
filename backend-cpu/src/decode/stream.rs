//! Copies that go to memory past the caches.

/// Bytes that go to memory together.
const LINE: usize = 64;

/// A number of decoded rows.
///
/// # Safety
/// A value has no padding, and a line holds a whole number of them.
pub(super) unsafe trait Value: Copy + Default + Send {}

// SAFETY: two bytes, all of them the number's.
unsafe impl Value for u16 {}
// SAFETY: four bytes, all of them the number's.
unsafe impl Value for f32 {}

/// Copies `from` to `to` with stores that do not read the lines they write. For large outputs only: whoever reads them
/// next finds them in memory. Other threads see them after [`finish`].
///
/// # Panics
/// When the lengths differ.
pub(super) fn copy<T: Value>(from: &[T], to: &mut [T]) {
    const { assert!(LINE.is_multiple_of(size_of::<T>()), "lines of whole values") }
    assert_eq!(from.len(), to.len(), "length");
    #[cfg(target_arch = "x86_64")]
    {
        // Miri has no stores past the caches; an aligned one asks the same of its address.
        #[cfg(miri)]
        use std::arch::x86_64::_mm_store_si128 as _mm_stream_si128;
        #[cfg(not(miri))]
        use std::arch::x86_64::_mm_stream_si128;
        use std::arch::x86_64::{__m128i, _mm_loadu_si128};
        // Whole lines of the target; what is before and after them is stored as usual.
        let head = to.as_ptr().align_offset(LINE).min(to.len());
        let per_line = LINE / size_of::<T>();
        let lines = (to.len() - head) / per_line;
        let tail = head + lines * per_line;
        to[..head].copy_from_slice(&from[..head]);
        to[tail..].copy_from_slice(&from[tail..]);
        let (from, to) = (from[head..tail].as_ptr().cast::<__m128i>(), to[head..tail].as_mut_ptr().cast::<__m128i>());
        for piece in 0..lines * (LINE / size_of::<__m128i>()) {
            // SAFETY: both slices are `lines` whole lines, the target's aligned to one; a `Value` has no padding; every
            // x86-64 CPU has SSE2.
            unsafe { _mm_stream_si128(to.add(piece), _mm_loadu_si128(from.add(piece))) }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    to.copy_from_slice(from);
}

/// Streamed stores are not ordered with others: whoever is told that rows are there must find them. Once per request and
/// thread, since it waits for memory.
pub(super) fn finish() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 CPU has SSE.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_any_length_at_any_alignment() {
        let from: Vec<u16> = (0..1000).collect();
        for start in (0..40).step_by(if cfg!(miri) { 13 } else { 1 }) {
            for length in [0, 1, 7, 31, 32, 33, 100, 500] {
                let mut to = vec![0xffff; 1000];
                copy(&from[3..3 + length], &mut to[start..start + length]);
                finish();
                assert_eq!(to[start..start + length], from[3..3 + length]);
                assert!(to[..start].iter().chain(&to[start + length..]).all(|&word| word == 0xffff));
            }
        }
    }
}
