//! What every encoder implements: [`Encoder`], a [`Job`] made ready, over an [`EncodeBatch`] that has been checked; and
//! a literal implementation of SPEC annex A, [`ReferenceEncoder`].
//!
//! A decoder needs none of this. The search is integer arithmetic, so that one row gives one record on every machine
//! and at every thread count. Faster encoders share the parts in [`hazmat`](crate::hazmat) and replace only the search.
//! Any code is a valid code: what an encoder finds decides quality, never correctness.

mod batch;
mod reference;

pub use batch::{EncodeBatch, EncodeBatchError, EncodeFailure, Encoder, LayoutMismatch};
pub use reference::{ReferenceEncoder, Workspace, WorkspaceError, WorkspaceSize};

pub use crate::job::{EncodeError, Job, Outcome, ParseScaleRuleError, ScaleRule, Search, SearchError};
