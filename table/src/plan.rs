//! How the rows of a table are cut before it is written.

use condprog_core::Rate;

/// A run of rows and its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentPlan {
    /// Number of rows.
    pub rows: u64,
    /// Bits per value.
    pub rate: Rate,
}
