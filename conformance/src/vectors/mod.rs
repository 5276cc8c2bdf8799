//! The golden vectors, `vectors/v1/`: their form, how they are made from core's reference, and how they are read.

use condprog_core::{Layout, Rate};

pub mod decode;
pub mod encode;

/// A layout of a vector.
///
/// # Errors
/// When format version 1 does not have it.
pub fn layout(dim: u32, rate: u32) -> Result<Layout, String> {
    Rate::from_quarters(rate).and_then(|rate| Layout::new(dim, rate)).map_err(|e| e.to_string())
}
