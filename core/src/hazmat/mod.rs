//! Building blocks for writing an encoder. To decode, or to use an encoder, none of them is needed.
//!
//! SPEC annex A fixes what each of these computes, and every encoder that is to give the same records takes them from
//! here: a row becomes a [`Target`]; the search minimises a [`Metric`] over paths; a [`Score`] chooses between the paths
//! of several variants; [`finish`] gives the scale field, and [`write_record`] the record.
//!
//! They are not safe to misuse: slices of the wrong length panic, and parts of different rows or layouts give a record
//! that is wrong.

mod metric;
mod scale;
mod target;

pub use metric::Metric;
pub use scale::finish;
pub use target::Target;

use crate::scale::Scale;
use crate::trellis::Layout;

/// How good a code is, in exact integers: the larger `dot^2 / norm`, the smaller its angle to the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Score {
    /// Sum of target times level.
    pub dot: i64,
    /// Sum of squared levels.
    pub norm: u64,
}

impl Score {
    /// The score of a path, one state per value.
    pub fn of(layout: Layout, target: &[i32], path: &[u16], variant: u8) -> Score {
        let mut score = Score { dot: 0, norm: 0 };
        for (&z, &state) in target.iter().zip(path) {
            let level = layout.program().value(state, variant);
            score.dot += i64::from(z) * i64::from(level);
            score.norm += (i32::from(level) * i32::from(level)) as u64;
        }
        score
    }

    /// Whether this code points closer to the row than `other`.
    pub fn beats(&self, other: &Score) -> bool {
        let square = |dot: i64| (dot.unsigned_abs() as u128).pow(2);
        match (self.dot > 0, other.dot > 0) {
            (true, true) => square(self.dot) * other.norm as u128 > square(other.dot) * self.norm as u128,
            (ours, theirs) => ours && !theirs,
        }
    }
}

/// Writes the code of a path, one state per value, with zero padding bits. Each state gives the bits that leave it.
///
/// # Panics
/// When `path` is not `layout.dim()` or `code` not `layout.code_bytes()` long.
pub fn write_code(layout: Layout, path: &[u16], code: &mut [u8]) {
    assert_eq!(path.len(), layout.dim() as usize, "path length");
    assert_eq!(code.len(), layout.code_bytes(), "code length");
    code.fill(0);
    for (t, &state) in (0..).zip(path) {
        let bits = layout.shift(t + 1);
        let at = layout.rate().bit_offset(t);
        for i in 0..bits {
            let bit = (state >> (15 - i) & 1) as u8;
            code[((at + i) / 8) as usize] |= bit << (7 - (at + i) % 8);
        }
    }
}

/// Writes the record of a path, one state per value, with its scale; a zero scale makes a zero record.
///
/// # Panics
/// When `path` is not `layout.dim()` or `bytes` not `layout.record_bytes()` long.
pub fn write_record(layout: Layout, path: &[u16], scale: Scale, bytes: &mut [u8]) {
    assert_eq!(bytes.len(), layout.record_bytes(), "record length");
    if scale == Scale::ZERO {
        return bytes.fill(0);
    }
    let (code, tail) = bytes.split_at_mut(layout.code_bytes());
    write_code(layout, path, code);
    tail.copy_from_slice(&scale.to_bits().to_le_bytes());
}
