//! Copies that go to memory past the caches.

/// Copies `from` to `to` with stores that do not read the lines they write. For large outputs only: whoever reads them
/// next finds them in memory. Other threads see them after [`finish`].
///
/// # Panics
/// When the lengths differ.
pub(super) fn copy<T: Copy>(from: &[T], to: &mut [T]) {
    assert_eq!(from.len(), to.len(), "length");
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        const LINE: usize = 64;
        // Whole lines of the target; what is before and after them is stored as usual.
        let head = to.as_ptr().align_offset(LINE).min(to.len());
        let per_line = LINE / size_of::<T>();
        let lines = (to.len() - head) / per_line;
        let tail = head + lines * per_line;
        to[..head].copy_from_slice(&from[..head]);
        to[tail..].copy_from_slice(&from[tail..]);
        let (from, to) = (from[head..tail].as_ptr().cast::<__m128i>(), to[head..tail].as_mut_ptr().cast::<__m128i>());
        for piece in 0..lines * (LINE / size_of::<__m128i>()) {
            // SAFETY: both slices are `lines` whole lines, the target's aligned to one; T is plain numbers without
            // padding; every x86-64 CPU has SSE2.
            unsafe { _mm_stream_si128(to.add(piece), _mm_loadu_si128(from.add(piece))) }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    to.copy_from_slice(from);
}

/// Streamed stores are not ordered with others: whoever is told that rows are there must find them. Once per request and
/// thread, since it waits for memory.
pub(super) fn finish() {
    #[cfg(target_arch = "x86_64")]
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
        for start in 0..40 {
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
