//! What the search asks of a vector: one row per 16-bit lane.

use bytemuck::Pod;

/// A vector of unsigned 16-bit lanes.
///
/// Every method may use instructions of its instruction set without asking: the caller must run on a CPU that has
/// them. Methods are `inline(always)` so that they compile inside the `target_feature` function they end up in.
pub(super) trait Lanes: Pod {
    /// Lanes, and rows coded together.
    const ROWS: usize = size_of::<Self>() / size_of::<u16>();
    /// Whether a step that can work in place should: where two arrays of path metrics would fill the cache.
    const IN_PLACE: bool;

    /// Every lane `value`.
    unsafe fn splat(value: u16) -> Self;
    /// Lane-wise sum, wrapping.
    unsafe fn add(self, other: Self) -> Self;
    /// Lane-wise difference, wrapping.
    unsafe fn sub(self, other: Self) -> Self;
    /// Lane-wise unsigned minimum.
    unsafe fn min(self, other: Self) -> Self;
    /// Lane-wise magnitude of a signed number.
    unsafe fn abs(self) -> Self;
    /// Low halves of the lane-wise products.
    unsafe fn mul_low(self, other: Self) -> Self;
    /// High halves of the lane-wise unsigned products.
    unsafe fn mul_high(self, other: Self) -> Self;
    /// Lanes shifted left by `count`, below 16.
    unsafe fn shift_left(self, count: u32) -> Self;
    /// Lanes shifted right by `count`, below 16, zeros in.
    unsafe fn shift_right(self, count: u32) -> Self;
    /// `self & mask | other & !mask`.
    unsafe fn select(self, other: Self, mask: Self) -> Self;
    /// `self & mask | bits`.
    unsafe fn and_or(self, mask: Self, bits: Self) -> Self;
    /// `then` where `self == other`, else `otherwise`.
    unsafe fn if_equal(self, other: Self, then: Self, otherwise: Self) -> Self;
}
