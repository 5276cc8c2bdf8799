//! The functions that the compiler calls for copies, fills and comparisons; libc has them elsewhere.

use core::arch::asm;

/// # Safety
/// `source` must be readable and `target` writable for `count` bytes, and they must not overlap.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(target: *mut u8, source: *const u8, count: usize) -> *mut u8 {
    // SAFETY: copies exactly the bytes the caller vouches for; the direction flag is clear at every call.
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") count => _, inout("rdi") target => _, inout("rsi") source => _,
            options(nostack, preserves_flags)
        );
    }
    target
}

/// # Safety
/// `target` must be writable for `count` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(target: *mut u8, byte: i32, count: usize) -> *mut u8 {
    // SAFETY: writes exactly the bytes the caller vouches for; the direction flag is clear at every call.
    unsafe {
        asm!(
            "rep stosb",
            inout("rcx") count => _, inout("rdi") target => _, in("al") byte as u8,
            options(nostack, preserves_flags)
        );
    }
    target
}

/// # Safety
/// `a` and `b` must be readable for `count` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, count: usize) -> i32 {
    for at in 0..count {
        // SAFETY: `at` is below `count`, for which the caller vouches. Volatile reads, or this loop would be made a
        // call of itself.
        if unsafe { a.add(at).read_volatile() != b.add(at).read_volatile() } {
            return 1;
        }
    }
    0
}
