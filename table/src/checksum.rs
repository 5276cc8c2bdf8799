//! Checksums of blocks of records: XXH3-64, seed 0.
//!
//! XXH3 is as fast as memory, has a written specification and libraries in every language, and 64 bits leave
//! accidental damage no chance. It does not protect against deliberate forgery.

use std::hash::Hasher as _;

use twox_hash::XxHash3_64;
use twox_hash::xxhash3_64::{DEFAULT_SECRET_LENGTH, RawHasher, SecretBuffer};

/// The checksum of some bytes.
pub fn of(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// The checksum of bytes that come in pieces.
pub struct Pieces(RawHasher<&'static [u8; DEFAULT_SECRET_LENGTH]>);

impl Default for Pieces {
    fn default() -> Pieces {
        Pieces(RawHasher::new(SecretBuffer::default()))
    }
}

impl Pieces {
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    pub fn checksum(&self) -> u64 {
        self.0.finish()
    }
}

/// As the metadata spells it: 16 lower-case hexadecimal digits.
pub fn hex(checksum: u64) -> String {
    format!("{checksum:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..5000u32).map(|i| (i * i % 251) as u8).collect();
        for length in [0, 1, 16, 17, 128, 129, 240, 241, 256, 257, 1024, 1025, 5000] {
            // Miri takes minutes for the longer ones.
            if cfg!(miri) && length > 257 {
                break;
            }
            for piece in [1, 7, 64, 256, 1000] {
                let mut pieces = Pieces::default();
                bytes[..length].chunks(piece).for_each(|bytes| pieces.add(bytes));
                assert_eq!(pieces.checksum(), of(&bytes[..length]), "{length} bytes in pieces of {piece}");
            }
        }
    }
}
