//! 8 rows in an array, for the compiler to vectorise as the compilation target allows.

use bytemuck::{Pod, Zeroable};

use super::lanes::Lanes;
use super::search::{Block, Pass};

/// As wide as the vectors every 64-bit target has.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(16))]
pub(super) struct Words([u16; 8]);

impl Words {
    #[inline(always)]
    fn map(self, f: impl Fn(u16) -> u16) -> Words {
        Words(self.0.map(f))
    }

    #[inline(always)]
    fn zip(self, other: Words, f: impl Fn(u16, u16) -> u16) -> Words {
        Words(std::array::from_fn(|i| f(self.0[i], other.0[i])))
    }
}

impl Lanes for Words {
    const IN_PLACE: bool = false;

    #[inline(always)]
    unsafe fn splat(value: u16) -> Self {
        Words([value; 8])
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        self.zip(other, u16::wrapping_add)
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        self.zip(other, u16::wrapping_sub)
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        self.zip(other, u16::min)
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        self.map(|x| (x as i16).unsigned_abs())
    }
    #[inline(always)]
    unsafe fn mul_low(self, other: Self) -> Self {
        self.zip(other, u16::wrapping_mul)
    }
    #[inline(always)]
    unsafe fn mul_high(self, other: Self) -> Self {
        self.zip(other, |x, y| (u32::from(x) * u32::from(y) >> 16) as u16)
    }
    #[inline(always)]
    unsafe fn shift_left(self, count: u32) -> Self {
        self.map(|x| x << count)
    }
    #[inline(always)]
    unsafe fn shift_right(self, count: u32) -> Self {
        self.map(|x| x >> count)
    }
    #[inline(always)]
    unsafe fn select(self, other: Self, mask: Self) -> Self {
        Words(std::array::from_fn(|i| self.0[i] & mask.0[i] | other.0[i] & !mask.0[i]))
    }
    #[inline(always)]
    unsafe fn and_or(self, mask: Self, bits: Self) -> Self {
        Words(std::array::from_fn(|i| self.0[i] & mask.0[i] | bits.0[i]))
    }
    #[inline(always)]
    unsafe fn if_equal(self, other: Self, then: Self, otherwise: Self) -> Self {
        Words(std::array::from_fn(|i| if self.0[i] == other.0[i] { then.0[i] } else { otherwise.0[i] }))
    }
}

/// The pass of [`super::search`] without any instruction set of its own.
///
/// # Safety
/// None: [`Words`] uses no instructions that a CPU could lack.
pub(super) unsafe fn pass(block: &mut Block<Words>, pass: &Pass) {
    // SAFETY: Lanes for Words works on every CPU.
    unsafe { block.pass(pass) }
}
