//! 16 rows in a 256-bit vector.

use std::arch::x86_64::*;

use super::lanes::Lanes;
use super::search::{Block, Pass};

impl Lanes for __m256i {
    const IN_PLACE: bool = false;

    #[inline(always)]
    unsafe fn splat(value: u16) -> Self {
        // SAFETY: as the trait's contract; so in every method here.
        unsafe { _mm256_set1_epi16(value as i16) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { _mm256_add_epi16(self, other) }
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { _mm256_sub_epi16(self, other) }
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { _mm256_min_epu16(self, other) }
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { _mm256_abs_epi16(self) }
    }
    #[inline(always)]
    unsafe fn mul_low(self, other: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { _mm256_mullo_epi16(self, other) }
    }
    #[inline(always)]
    unsafe fn mul_high(self, other: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { _mm256_mulhi_epu16(self, other) }
    }
    #[inline(always)]
    unsafe fn shift_left(self, count: u32) -> Self {
        // SAFETY: the trait's contract.
        unsafe { _mm256_sll_epi16(self, _mm_cvtsi32_si128(count as i32)) }
    }
    #[inline(always)]
    unsafe fn shift_right(self, count: u32) -> Self {
        // SAFETY: the trait's contract.
        unsafe { _mm256_srl_epi16(self, _mm_cvtsi32_si128(count as i32)) }
    }
    #[inline(always)]
    unsafe fn select(self, other: Self, mask: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { _mm256_xor_si256(other, _mm256_and_si256(_mm256_xor_si256(self, other), mask)) }
    }
    #[inline(always)]
    unsafe fn and_or(self, mask: Self, bits: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { _mm256_or_si256(_mm256_and_si256(self, mask), bits) }
    }
    #[inline(always)]
    unsafe fn if_equal(self, other: Self, then: Self, otherwise: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { _mm256_blendv_epi8(otherwise, then, _mm256_cmpeq_epi16(self, other)) }
    }
}

/// The pass of [`super::search`] with AVX2.
///
/// # Safety
/// The CPU must have AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn pass(block: &mut Block<__m256i>, pass: &Pass) {
    // SAFETY: this function has the features that Lanes for __m256i uses.
    unsafe { block.pass(pass) }
}
