//! Inputs by formula: the same numbers on every machine and in every language, from 32-bit integer arithmetic.

use condprog_core::{Layout, Scale, record};

/// A stream of numbers: xorshift32. The state `s` starts at `seed * 2654435769 mod 2^32`, or 1 if that is 0; each step
/// does `s ^= s << 13`, `s ^= s >> 17`, `s ^= s << 5` and gives `s`.
#[derive(Clone, Debug)]
pub struct Stream(u32);

impl Stream {
    /// The stream of a seed.
    pub fn new(seed: u32) -> Stream {
        Stream(seed.wrapping_mul(2_654_435_769).max(1))
    }

    /// The next number.
    pub fn next_u32(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }

    /// A number in `0..bound`: the high word of the next one times `bound`.
    pub fn below(&mut self, bound: u32) -> u32 {
        (u64::from(self.next_u32()) * u64::from(bound) >> 32) as u32
    }

    /// Bytes: the top byte of each number.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| (self.next_u32() >> 24) as u8).collect()
    }
}

/// Records of random bytes, scale fields and padding bits too: every bit pattern is a valid record.
pub fn random_records(layout: Layout, rows: u32, seed: u32) -> Vec<u8> {
    Stream::new(seed).bytes(rows as usize * layout.record_bytes())
}

/// One record of a random code with zero padding, and a given scale field.
pub fn random_record(layout: Layout, scale: Scale, seed: u32) -> Vec<u8> {
    let mut code = Stream::new(seed).bytes(layout.code_bytes());
    clear_padding(layout, &mut code);
    join(layout, &code, scale)
}

/// The record of a code and a scale field.
pub fn join(layout: Layout, code: &[u8], scale: Scale) -> Vec<u8> {
    let mut bytes = vec![0; layout.record_bytes()];
    record::write(layout, code, scale, &mut bytes);
    bytes
}

/// Zeroes the padding bits of a code.
pub fn clear_padding(layout: Layout, code: &mut [u8]) {
    if let (used @ 1.., Some(last)) = (layout.code_bits() % 8, code.last_mut()) {
        *last &= !(0xff >> used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_xorshift32() {
        // The first three numbers from state 1, by hand.
        let mut stream = Stream::new(0);
        assert_eq!([stream.next_u32(), stream.next_u32(), stream.next_u32()], [270_369, 67_634_689, 2_647_435_461]);
        let mut stream = Stream::new(340_573_321); // the inverse of the multiplier
        assert_eq!(stream.next_u32(), 270_369);
    }
}
