//! 32 rows in a 512-bit vector.

use std::arch::x86_64::*;

use super::lanes::Lanes;
use super::search::{Block, Pass};

impl Lanes for __m512i {
    const IN_PLACE: bool = true;

    #[inline(always)]
    unsafe fn splat(value: u16) -> Self {
        // SAFETY: as the trait's contract; so in every method here.
        unsafe { _mm512_set1_epi16(value as i16) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { _mm512_add_epi16(self, other) }
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { _mm512_sub_epi16(self, other) }
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { _mm512_min_epu16(self, other) }
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { _mm512_abs_epi16(self) }
    }
    #[inline(always)]
    unsafe fn mul_low(self, other: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { _mm512_mullo_epi16(self, other) }
    }
    #[inline(always)]
    unsafe fn mul_high(self, other: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { _mm512_mulhi_epu16(self, other) }
    }
    #[inline(always)]
    unsafe fn shift_left(self, count: u32) -> Self {
        // SAFETY: the trait's contract.
        unsafe { _mm512_sll_epi16(self, _mm_cvtsi32_si128(count as i32)) }
    }
    #[inline(always)]
    unsafe fn shift_right(self, count: u32) -> Self {
        // SAFETY: the trait's contract.
        unsafe { _mm512_srl_epi16(self, _mm_cvtsi32_si128(count as i32)) }
    }
    #[inline(always)]
    unsafe fn select(self, other: Self, mask: Self) -> Self {
        // 0xca: first operand chooses between the second and the third.
        // SAFETY: the trait's contract.
        unsafe { _mm512_ternarylogic_epi32(mask, self, other, 0xca) }
    }
    #[inline(always)]
    unsafe fn and_or(self, mask: Self, bits: Self) -> Self {
        // 0xea: (a & b) | c.
        // SAFETY: the trait's contract.
        unsafe { _mm512_ternarylogic_epi32(self, mask, bits, 0xea) }
    }
    #[inline(always)]
    unsafe fn if_equal(self, other: Self, then: Self, otherwise: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { _mm512_mask_blend_epi16(_mm512_cmpeq_epi16_mask(self, other), otherwise, then) }
    }
}

/// The pass of [`super::search`] with AVX-512.
///
/// # Safety
/// The CPU must have AVX-512 F and BW.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn pass(block: &mut Block<__m512i>, pass: &Pass) {
    // SAFETY: this function has the features that Lanes for __m512i uses.
    unsafe { block.pass(pass) }
}
