//! Decoded values as bits, in a buffer that shows every write where none belongs.

use condprog_core::{Decoder, Dtype, Missing, Output, ReferenceDecoder, Table};
use sha2::{Digest, Sha256};

/// Elements on each side of the output that must stay as they were.
const GUARD: usize = 64;
/// What buffers hold before: NaNs of all three formats, which no decoder writes.
const POISON_16: u16 = 0x7fa5;
const POISON_32: u32 = 0x7fa5_5aa5;

/// Memory for an output, poisoned, with guards on both sides.
pub(crate) enum Buffer {
    Bits16(Dtype, Vec<u16>, std::ops::Range<usize>),
    Bits32(Vec<f32>, std::ops::Range<usize>),
}

impl Buffer {
    /// Room for `len` values, `lead` elements after a guard: so the output's address takes every alignment there is.
    pub(crate) fn new(dtype: Dtype, len: usize, lead: usize) -> Buffer {
        let inside = GUARD + lead..GUARD + lead + len;
        let all = inside.end + GUARD;
        match dtype {
            Dtype::F32 => Buffer::Bits32(vec![f32::from_bits(POISON_32); all], inside),
            _ => Buffer::Bits16(dtype, vec![POISON_16; all], inside),
        }
    }

    /// The output inside.
    pub(crate) fn output(&mut self) -> Output<'_> {
        match self {
            Buffer::Bits16(Dtype::Bf16, all, inside) => Output::Bf16(&mut all[inside.clone()]),
            Buffer::Bits16(_, all, inside) => Output::F16(&mut all[inside.clone()]),
            Buffer::Bits32(all, inside) => Output::F32(&mut all[inside.clone()]),
        }
    }

    /// The bits of the values inside.
    pub(crate) fn bits(&self) -> Vec<u32> {
        match self {
            Buffer::Bits16(_, all, inside) => all[inside.clone()].iter().map(|&v| v.into()).collect(),
            Buffer::Bits32(all, inside) => all[inside.clone()].iter().map(|v| v.to_bits()).collect(),
        }
    }

    /// Elements outside the output that were written to.
    pub(crate) fn damaged_guards(&self) -> usize {
        match self {
            Buffer::Bits16(_, all, inside) => outside(all, inside).filter(|&&v| v != POISON_16).count(),
            Buffer::Bits32(all, inside) => outside(all, inside).filter(|v| v.to_bits() != POISON_32).count(),
        }
    }

    /// Whether nothing at all was written.
    pub(crate) fn is_untouched(&self) -> bool {
        let poison = match self {
            Buffer::Bits16(..) => POISON_16.into(),
            Buffer::Bits32(..) => POISON_32,
        };
        self.damaged_guards() == 0 && self.bits().iter().all(|&v| v == poison)
    }
}

fn outside<'a, T>(all: &'a [T], inside: &std::ops::Range<usize>) -> impl Iterator<Item = &'a T> {
    all[..inside.start].iter().chain(&all[inside.end..])
}

/// What the reference decoder of core gives for a request; ids that name no row give zeros.
pub(crate) fn reference_bits(table: Table<'_>, ids: &[i64], dtype: Dtype) -> Vec<u32> {
    let mut buffer = Buffer::new(dtype, ids.len() * table.shape().dim as usize, 0);
    ReferenceDecoder::new(table)
        .decode(ids, Missing::Zero, buffer.output())
        .expect("the output is as long as the request asks");
    buffer.bits()
}

/// SHA-256 of values, little-endian, in hexadecimal digits.
pub(crate) fn sha256(bits: &[u32], dtype: Dtype) -> String {
    let bytes: Vec<u8> = bits.iter().flat_map(|v| v.to_le_bytes().into_iter().take(dtype.size())).collect();
    to_hex(&Sha256::digest(bytes))
}

/// Bytes as hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Bytes from hexadecimal digits.
pub(crate) fn from_hex(digits: &str) -> Result<Vec<u8>, String> {
    if !digits.len().is_multiple_of(2) || !digits.is_ascii() {
        return Err(format!("{} characters are no whole number of bytes in hexadecimal digits", digits.len()));
    }
    (0..digits.len())
        .step_by(2)
        .map(|at| {
            u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| format!("\"{}\" is no byte", &digits[at..at + 2]))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_write_outside_the_output_shows() {
        for dtype in Dtype::ALL {
            for lead in [0, 3] {
                let mut buffer = Buffer::new(dtype, 5, lead);
                assert!(buffer.is_untouched());
                match buffer.output() {
                    Output::Bf16(out) | Output::F16(out) => out.fill(0),
                    Output::F32(out) => out.fill(0.0),
                }
                assert!(!buffer.is_untouched());
                assert_eq!((buffer.damaged_guards(), buffer.bits()), (0, vec![0; 5]));
                match &mut buffer {
                    Buffer::Bits16(_, all, inside) => (all[inside.start - 1], all[inside.end]) = (0, 0),
                    Buffer::Bits32(all, inside) => (all[inside.start - 1], all[inside.end]) = (0.0, 0.0),
                }
                assert_eq!(buffer.damaged_guards(), 2);
            }
        }
    }

    #[test]
    fn hexadecimal_digits_round_trip() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&bytes)), Ok(bytes));
        for bad in ["0", "0g", "0é", "é"] {
            assert!(from_hex(bad).is_err(), "{bad}");
        }
    }
}
