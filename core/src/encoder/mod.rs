//! What every encoder implements: [`Encoder`], a [`Job`] made ready, over an [`EncodeBatch`] that has been checked; and
//! a literal implementation of SPEC annex A, [`ReferenceEncoder`].
//!
//! A decoder needs none of this. The search is integer arithmetic, so that one row gives one record on every machine
//! and at every thread count. Faster encoders share the parts in [`hazmat`](crate::hazmat) and replace only the search.
//! Any code is a valid code: what an encoder finds decides quality, never correctness.

mod batch;
mod reference;
mod search;

pub use batch::{EncodeBatch, EncodeBatchError, EncodeFailure, Encoder, LayoutMismatch};
pub use reference::{ReferenceEncoder, Workspace, WorkspaceError, WorkspaceSize};
pub use search::{Search, SearchError};

use core::fmt;

use crate::scale::Scale;
use crate::trellis::Layout;

/// What an encoder is asked for: everything, beside a row, that its record depends on.
///
/// ```
/// use condprog_core::encoder::{Job, ScaleRule, Search};
/// use condprog_core::{Layout, Rate};
///
/// let job = Job::new(Layout::new(256, Rate::TWO)?, ScaleRule::Projection, Search::effort(1));
/// assert_eq!(job.layout.record_bytes(), 66);
/// # Ok::<(), condprog_core::LayoutError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Job {
    /// Width, rate and program of the rows.
    pub layout: Layout,
    /// How a row's scale follows from its code.
    pub rule: ScaleRule,
    /// How much of the search to do.
    pub search: Search,
}

impl Job {
    /// A job without anything that is optional.
    pub const fn new(layout: Layout, rule: ScaleRule, search: Search) -> Job {
        Job { layout, rule, search }
    }
}

/// How a row's scale follows from the row `e` and its code's levels `f`. The decoder does not know which was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ScaleRule {
    /// `|e| / |f|`: the restored row has the length of the source row.
    Norm,
    /// `|e|^2 / <e, f>`: the restored row's projection on the source row is the source row, so a linear readout along
    /// it is not shrunk.
    Projection,
    /// `<e, f> / |f|^2`: the smallest squared error.
    LeastSquares,
    /// One scale for the whole table; rows are coded as they are, not by their direction.
    Global(Scale),
}

/// What became of a row that was coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Coded.
    Coded,
    /// All values were zero: a zero record.
    Zero,
    /// The scale was below the smallest: a zero record.
    Underflow,
}

/// A row that the format cannot hold; the other rows of its batch are not affected.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum EncodeError {
    /// A value is a NaN or an infinity.
    NonFinite {
        /// Its column.
        column: usize,
        /// Got.
        value: f32,
    },
    /// The scale would be above the largest.
    ScaleAbove {
        /// The column with the largest magnitude.
        column: usize,
        /// Its value.
        value: f32,
    },
}

impl EncodeError {
    /// The column to blame.
    pub fn column(&self) -> usize {
        match *self {
            EncodeError::NonFinite { column, .. } | EncodeError::ScaleAbove { column, .. } => column,
        }
    }
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            EncodeError::NonFinite { column, value } => {
                write!(f, "value in column {column} is {value}, expected a finite number")
            }
            EncodeError::ScaleAbove { column, value } => write!(
                f,
                "row scale is above 65024, the largest there is (largest value: {value:e} in column {column})"
            ),
        }
    }
}

impl core::error::Error for EncodeError {}
