//! What is asked of an encoder, and what becomes of a row (SPEC annex A.1 and A.7).

mod search;

use core::fmt;
use core::str::FromStr;

pub use search::{Search, SearchError};

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
///
/// `G` is the one scale of [`ScaleRule::Global`]: a [`Scale`] in a [`Job`], `()` where a rule is chosen before the rows
/// have been looked at, as users and the metadata of table files name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ScaleRule<G = Scale> {
    /// `|e| / |f|`: the restored row has the length of the source row. The rule of the paper, and of figures of relative
    /// error.
    Norm,
    /// `|e|^2 / <e, f>`: the restored row's projection on the source row is the source row, so a linear readout along
    /// it is not shrunk. It changes the output of a language model least: 19 % less KL than `Norm` at 2 bits, less at
    /// every rate from 1.5 to 3 (`docs/results.md`).
    Projection,
    /// `<e, f> / |f|^2`: the smallest squared error.
    LeastSquares,
    /// One scale for all rows; they are coded as they are, not by their direction.
    Global(G),
}

impl ScaleRule<()> {
    /// Every rule.
    pub const ALL: [ScaleRule<()>; 4] =
        [ScaleRule::Norm, ScaleRule::Projection, ScaleRule::LeastSquares, ScaleRule::Global(())];
}

impl<G> ScaleRule<G> {
    /// As users and the metadata of table files write it.
    pub const fn name(&self) -> &'static str {
        match self {
            ScaleRule::Norm => "norm",
            ScaleRule::Projection => "projection",
            ScaleRule::LeastSquares => "least-squares",
            ScaleRule::Global(_) => "global",
        }
    }

    /// The rule with another global scale.
    pub fn with_global<H>(self, scale: H) -> ScaleRule<H> {
        match self {
            ScaleRule::Norm => ScaleRule::Norm,
            ScaleRule::Projection => ScaleRule::Projection,
            ScaleRule::LeastSquares => ScaleRule::LeastSquares,
            ScaleRule::Global(_) => ScaleRule::Global(scale),
        }
    }
}

/// [`ScaleRule::Projection`].
impl Default for ScaleRule<()> {
    fn default() -> ScaleRule<()> {
        ScaleRule::Projection
    }
}

impl<G> fmt::Display for ScaleRule<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ScaleRule<()> {
    type Err = ParseScaleRuleError;

    fn from_str(name: &str) -> Result<ScaleRule<()>, ParseScaleRuleError> {
        ScaleRule::ALL.into_iter().find(|rule| rule.name() == name).ok_or(ParseScaleRuleError(()))
    }
}

/// The text is no scale rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseScaleRuleError(());

impl fmt::Display for ParseScaleRuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a scale rule: expected norm, projection, least-squares or global")
    }
}

impl core::error::Error for ParseScaleRuleError {}

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
