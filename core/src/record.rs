//! The record: code bytes, then the scale field (SPEC section 6).

pub use crate::scale::SCALE_BYTES;
use crate::scale::Scale;
use crate::trellis::Layout;

/// One record, split into its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The code, `layout.code_bytes()` bytes.
    pub code: &'a [u8],
    /// The scale field.
    pub scale: Scale,
}

impl<'a> Record<'a> {
    /// Splits the bytes of one record.
    ///
    /// # Panics
    /// When `bytes` is not `layout.record_bytes()` long.
    #[inline]
    pub fn new(layout: Layout, bytes: &'a [u8]) -> Record<'a> {
        assert_eq!(bytes.len(), layout.record_bytes(), "record length");
        let (code, scale) = bytes.split_at(layout.code_bytes());
        Record { code, scale: Scale::from_bits(u16::from_le_bytes([scale[0], scale[1]])) }
    }

    /// Whether the padding bits after the code are zero, as a writer must leave them. A decoder ignores them.
    pub fn padding_is_zero(&self, layout: Layout) -> bool {
        match layout.code_bits() % 8 {
            0 => true,
            used => self.code[self.code.len() - 1] & (0xff >> used) == 0,
        }
    }
}

/// Writes a record of `code` (padding bits zero) and `scale` into `bytes`.
///
/// # Panics
/// When `code` is not `layout.code_bytes()` or `bytes` not `layout.record_bytes()` long.
pub fn write(layout: Layout, code: &[u8], scale: Scale, bytes: &mut [u8]) {
    assert_eq!(bytes.len(), layout.record_bytes(), "record length");
    let (head, tail) = bytes.split_at_mut(layout.code_bytes());
    head.copy_from_slice(code);
    tail.copy_from_slice(&scale.to_bits().to_le_bytes());
}
