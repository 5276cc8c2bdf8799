//! Checksums of blocks of records: XXH3-64, seed 0.
//!
//! XXH3 is as fast as memory, has a written specification and libraries in every language, and 64 bits leave no
//! chance to damage by accident. It does not protect against someone who means to deceive.

use twox_hash::XxHash3_64;

/// The checksum of some bytes.
pub(crate) fn of(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// As the metadata spells it: 16 lower-case hexadecimal digits.
pub(crate) fn hex(checksum: u64) -> String {
    format!("{checksum:016x}")
}
