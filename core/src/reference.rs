//! The literal decoder, in the order of the specification: slow, and the oracle for every other one.

use crate::record::Record;
use crate::rounding;
use crate::trellis::{self, Layout};

/// The signed levels and the scale of one record (SPEC sections 3 to 6): `level(t)` for every value of the row.
///
/// # Panics
/// When `record` is not `layout.record_bytes()` long.
fn levels<'a>(layout: Layout, record: &Record<'a>) -> impl Iterator<Item = i8> + 'a {
    let Record { code, scale } = *record;
    (0..layout.dim()).map(move |t| layout.program().value(trellis::state(layout, code, t), scale.variant()))
}

/// Decodes one record to binary32, exact.
///
/// # Panics
/// When `record` is not `layout.record_bytes()` or `out` not `layout.dim()` long.
pub fn decode_f32(layout: Layout, record: &[u8], out: &mut [f32]) {
    decode(layout, record, out, |scale, level| f32::from_bits(rounding::f32_bits(scale, level)));
}

/// Decodes one record to the bits of bf16 numbers.
///
/// # Panics
/// As [`decode_f32`].
pub fn decode_bf16(layout: Layout, record: &[u8], out: &mut [u16]) {
    decode(layout, record, out, rounding::bf16_bits);
}

/// Decodes one record to the bits of f16 numbers.
///
/// # Panics
/// As [`decode_f32`].
pub fn decode_f16(layout: Layout, record: &[u8], out: &mut [u16]) {
    decode(layout, record, out, rounding::f16_bits);
}

fn decode<T>(layout: Layout, record: &[u8], out: &mut [T], round: fn(crate::scale::Scale, i8) -> T) {
    assert_eq!(out.len(), layout.dim() as usize, "output length");
    let record = Record::new(layout, record);
    for (out, level) in out.iter_mut().zip(levels(layout, &record)) {
        *out = round(record.scale, level);
    }
}
