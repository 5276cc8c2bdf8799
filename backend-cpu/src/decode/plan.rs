//! What a layout needs to be decoded, worked out once per table.

use condprog_core::Layout;

/// Values that are decoded together: 32 values are exactly `quarters` bytes of code, at any rate.
pub(super) const GROUP: usize = 32;

/// Bytes that may be read past the code in a [`Scratch`].
const SLACK: usize = 64;

/// Byte offsets and shifts of the states in a code.
#[derive(Clone, Debug)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "shuffles are for vectors"))]
pub(super) struct Plan {
    pub(super) layout: Layout,
    /// Bytes from one group to the next.
    pub(super) group_bytes: usize,
    /// Byte shuffles for 512-bit vectors. Where a code fits one vector (and ends with a byte), one for each group,
    /// over the whole code, wrapping; else one for all groups, over the bytes from the group's first on.
    pub(super) wide: Vec<WideShuffle>,
    /// Bits by which the 16-bit words of a group are shifted left, and the powers of two that do so.
    pub(super) shifts: Aligned<[u16; GROUP]>,
    pub(super) powers: Aligned<[u16; GROUP]>,
    /// For 256-bit vectors, a quarter group per 128-bit lane: where each lane's bytes start in the group, and the byte
    /// shuffles within a lane, for the first two bytes that a state touches and for the third one.
    pub(super) lane_offsets: [usize; 4],
    pub(super) narrow: Aligned<[[u8; GROUP * 2]; 2]>,
}

/// Aligned for vector loads.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Aligned<T>(pub(super) T);

/// Shuffles that give 32 words: the first two bytes that a state touches, and the third one in the upper half.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct WideShuffle {
    pub(super) first: [u8; 64],
    pub(super) third: [u8; 64],
}

impl Plan {
    pub(super) fn new(layout: Layout) -> Plan {
        let rate = layout.rate();
        let quarters = rate.quarters() as usize;
        let bit = |value: usize| value * quarters / 4;
        let mut shifts = [0; GROUP];
        let mut narrow = [[0; GROUP * 2]; 2];
        // A lane's eight values start at bit 2 * quarters * lane.
        let lane_offsets = std::array::from_fn(|lane| bit(8 * lane) / 8);
        for i in 0..GROUP {
            shifts[i] = (bit(i) % 8) as u16;
            let byte = (bit(i) / 8 - lane_offsets[i / 8]) as u8;
            // Words are little-endian, codes run from the most significant bit on: the first byte goes on top.
            narrow[0][2 * i..][..2].copy_from_slice(&[byte + 1, byte]);
            narrow[1][2 * i..][..2].copy_from_slice(&[byte + 2, 0x80]); // 0x80 gives zero
        }
        let wide_of = |start: usize, length: usize| {
            let mut shuffle = WideShuffle { first: [0; 64], third: [0; 64] };
            for i in 0..GROUP {
                let byte = start + bit(i) / 8;
                shuffle.first[2 * i] = ((byte + 1) % length) as u8;
                shuffle.first[2 * i + 1] = (byte % length) as u8;
                shuffle.third[2 * i + 1] = ((byte + 2) % length) as u8;
            }
            shuffle
        };
        let wide = if fits_vector(layout) {
            let groups = (layout.dim() as usize).div_ceil(GROUP);
            (0..groups).map(|group| wide_of(group * quarters, layout.code_bytes())).collect()
        } else {
            vec![wide_of(0, 64)]
        };
        Plan {
            layout,
            group_bytes: quarters,
            wide,
            shifts: Aligned(shifts),
            powers: Aligned(shifts.map(|shift| 1 << shift)),
            lane_offsets,
            narrow: Aligned(narrow),
        }
    }

    /// Whether [`Plan::wide`] has a shuffle for each group, over the code alone.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn fits_vector(&self) -> bool {
        fits_vector(self.layout)
    }
}

fn fits_vector(layout: Layout) -> bool {
    layout.code_bits().is_multiple_of(8) && layout.code_bytes() <= 64
}

/// Codes of a few rows, unrolled: each followed by its own first bits, so that no state wraps, and by room for vector
/// loads that begin inside it.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    bytes: Vec<u8>,
}

impl Scratch {
    /// Bytes from one row's code to the next.
    pub(super) fn stride(layout: Layout) -> usize {
        // A group's loads start at most one byte past the last whole group and read at most SLACK bytes.
        (layout.code_bytes() + GROUP + SLACK).next_multiple_of(64)
    }

    /// Room for `rows` codes.
    pub(super) fn room(&mut self, layout: Layout, rows: usize) -> &mut [u8] {
        let bytes = rows * Scratch::stride(layout);
        if self.bytes.len() < bytes {
            self.bytes.resize(bytes, 0);
        }
        &mut self.bytes[..bytes]
    }
}

/// Copies a code to the front of `out`, which is [`Scratch::stride`] long, and its first bits behind it.
pub(super) fn unroll(layout: Layout, code: &[u8], out: &mut [u8]) {
    // By sixteens: a call to copy a few dozen bytes would cost as much as a tenth of the decoding.
    let (pieces, rest) = code.as_chunks::<16>();
    let (places, _) = out.as_chunks_mut::<16>();
    for (place, piece) in places.iter_mut().zip(pieces) {
        *place = *piece;
    }
    out[code.len() - rest.len()..][..rest.len()].copy_from_slice(rest);
    let used = layout.code_bits() as usize % 8;
    let end = code.len() - usize::from(used != 0);
    // Padding bits go; then the first three bytes follow at bit `used` of byte `end`. A code of 16 bits has but two
    // bytes, and its states need no third.
    let head = u32::from_be_bytes([0, code[0], code[1], *code.get(2).unwrap_or(&0)]);
    let last = if used == 0 { 0 } else { code[end] & !(0xff >> used) };
    let tail = (head << 8 >> used) | u32::from(last) << 24;
    out[end..end + 4].copy_from_slice(&tail.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use condprog_core::Rate;
    use condprog_core::trellis::state;

    #[test]
    fn unrolled_codes_hold_every_state_in_a_row() {
        for rate in Rate::all() {
            let dims: &[u32] = if cfg!(miri) { &[8, 20] } else { &[4, 8, 16, 20, 36, 100, 250, 256] };
            for &dim in dims {
                let Ok(layout) = Layout::new(dim, rate) else { continue };
                let code: Vec<u8> = (0..layout.code_bytes()).map(|i| (i * 89 + 37) as u8).collect();
                let mut out = vec![0xff; Scratch::stride(layout)];
                unroll(layout, &code, &mut out);
                for t in 0..dim {
                    let bit = rate.bit_offset(t) as usize;
                    let word = u32::from_be_bytes(out[bit / 8..][..4].try_into().unwrap());
                    assert_eq!((word << (bit % 8) >> 16) as u16, state(layout, &code, t), "{layout:?} {t}");
                }
            }
        }
    }
}
