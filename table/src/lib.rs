//! Table files of the Conditional Program codec: what they hold, checked, and their records for any decoder.
//!
//! A table file is a safetensors file whose tensors are records; `FORMAT.md` in this crate's folder is normative.
//! [`Tables`] is one such file, or all that an index names, opened:
//!
//! ```no_run
//! let tables = condprog_table::Tables::open("table.safetensors")?;
//! for table in tables.tables() {
//!     println!("{}: {} rows of {} values", table.name, table.rows, table.dim);
//! }
//! # Ok::<(), condprog_table::Error>(())
//! ```
//!
//! Opening checks all that a file says of itself, so that no later look-up can contradict it, and reads no records.
//! Records are read by position when they are asked for, never mapped: a file that is cut short or a disk that fails is
//! an [`Error`], not a signal. Choose by how much of a table is needed:
//!
//! | needed | call |
//! |---|---|
//! | all rows, many times | [`Tables::load`], on huge pages |
//! | some rows, once | [`Tables::pick`]: memory for these alone |
//! | where the records lie, to map or transfer them | [`Tables::runs`] |
//! | whether they are intact | [`Tables::check_block`], against the file's checksums |
//!
//! [`TableRecords`] and [`PickedRows`] are [`Segments`](condprog_core::Segments), which every decoder takes.
//!
//! # Where to look
//!
//! | module | what it holds |
//! |---|---|
//! | [`mod@format`] | the metadata: tables, segments, runs and parts |
//! | [`header`], [`index`] | the safetensors header, the index of several files |
//! | [`source`] | what a table was made from |
//! | [`inspect()`] | a summary of a file, for people |
//!
//! Table files are made by `condprog-convert`; the `condprog` crate is what most programs depend on.
#![forbid(unsafe_code)]

// Shared with this project's other crates: hidden, and not part of the stable interface.
#[doc(hidden)]
pub mod aspect;
#[doc(hidden)]
pub mod checksum;
#[doc(hidden)]
pub mod error;
#[doc(hidden)]
pub mod input;
#[doc(hidden)]
pub mod names;
#[doc(hidden)]
pub mod quote;
#[doc(hidden)]
pub mod read;
#[doc(hidden)]
pub mod tables;

mod damage;
mod foreign;
pub mod format;
pub mod header;
pub mod index;
mod inspect;
mod plan;
mod records;
mod seal;
pub mod source;

pub use damage::{Damage, Fault};
pub use error::Error;
pub use input::regular_file;
pub use inspect::{ScaleRange, SegmentSummary, TableSummary, inspect};
pub use plan::SegmentPlan;
pub use records::{PickedRows, TableRecords};
pub use tables::{RecordRun, Tables};
