//! The commands, one module each.

pub(crate) mod bench;
pub(crate) mod compress;
pub(crate) mod conformance;
pub(crate) mod decompress;
pub(crate) mod demo;
mod dry_run;
#[cfg(feature = "eval")]
pub(crate) mod eval;
pub(crate) mod inspect;
pub(crate) mod join;
pub(crate) mod list;
pub(crate) mod plan;
pub(crate) mod rows;
pub(crate) mod verify;
