//! The checksum of a table file's header, stored in that header: XXH3-64 of the whole header, length field and padding
//! included, with zeros for its own digits.
//!
//! It is in the value of a key that readers must find, so that no flip of a few bits can make it disappear unnoticed.

use crate::checksum;
use crate::names::{CHECKSUM, KEY_CHECKSUM, LENGTH_BYTES};

const DIGITS: usize = 16;

/// What the checksum of a header is, and what the header says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    pub got: u64,
    pub expected: u64,
}

impl Seal {
    /// The value of the metadata key before the checksum is known.
    pub fn blank() -> String {
        format!("{CHECKSUM}:{}", "0".repeat(DIGITS))
    }

    /// Writes the checksum into a header, length field included, that has a blank one.
    pub fn set(header: &mut [u8]) {
        let length = LENGTH_BYTES as usize;
        if let Some(place) = place(&header[length..]) {
            let digits = checksum::hex(checksum::of(header));
            header[length + place..length + place + DIGITS].copy_from_slice(digits.as_bytes());
        }
    }

    /// The checksum in the JSON text of a header, if it has one.
    pub fn of(json: &[u8]) -> Option<Seal> {
        let place = place(json)?;
        let digits = std::str::from_utf8(&json[place..place + DIGITS]).ok()?;
        let is_lower = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let expected = u64::from_str_radix(digits, 16).ok().filter(|_| is_lower)?;
        let mut header = Vec::with_capacity(LENGTH_BYTES as usize + json.len());
        header.extend((json.len() as u64).to_le_bytes());
        header.extend(json);
        header[LENGTH_BYTES as usize + place..][..DIGITS].fill(b'0');
        Some(Seal { got: checksum::of(&header), expected })
    }
}

/// Where the digits are.
fn place(json: &[u8]) -> Option<usize> {
    let before = format!("\"{KEY_CHECKSUM}\":\"{CHECKSUM}:");
    let place = json.windows(before.len()).position(|window| window == before.as_bytes())? + before.len();
    (json.get(place + DIGITS) == Some(&b'"')).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_header_is_sound_and_no_flip_of_a_bit_is_missed() {
        let json = format!("{{\"a\":1,\"{KEY_CHECKSUM}\":\"{}\"}}  ", Seal::blank());
        let mut header = [&(json.len() as u64).to_le_bytes(), json.as_bytes()].concat();
        Seal::set(&mut header);
        let seal = Seal::of(&header[8..]).unwrap();
        assert_eq!(seal.got, seal.expected);
        assert_ne!(seal.got, 0);
        for bit in (64..8 * header.len()).step_by(if cfg!(miri) { 37 } else { 1 }) {
            let mut flipped = header.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // Without a seal, the reader misses the key or refuses its value.
            assert!(Seal::of(&flipped[8..]).is_none_or(|seal| seal.got != seal.expected), "bit {bit}");
        }
        // Of a header that says another length of itself.
        assert!(Seal::of(&header[8..header.len() - 1]).is_none_or(|seal| seal.got != seal.expected));
    }

    #[test]
    fn a_header_without_a_seal_has_none() {
        for json in ["", "{}", "{\"condprog.checksum\":\"xxh3-64\"}", "{\"condprog.checksum\":\"xxh3-64:00\"}"] {
            assert_eq!(Seal::of(json.as_bytes()), None, "{json}");
        }
    }
}
