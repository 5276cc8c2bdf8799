//! Table files of the Conditional Program codec: what they hold, checked, and their records for any decoder.
//!
//! A table file is a safetensors file whose tensors are records; `FORMAT.md` beside this crate is normative. [`Tables`]
//! is one such file, or all that an index names, opened:
//!
//! ```no_run
//! let tables = condprog_table::Tables::open("table.safetensors")?;
//! for table in tables.tables() {
//!     println!("{}: {} rows of {} values", table.name, table.rows, table.dim);
//! }
//! # Ok::<(), condprog_table::Error>(())
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`Tables`] | table files, opened; records in memory, all of a table's or those of some rows |
//! | [`inspect()`] | figures of a file |
//! | [`mod@format`], [`header`], [`index`] | the metadata, the safetensors header, the index of several files |
//! | [`source`] | what a table was made from |
//!
//! Table files are made by `condprog-convert`; the `condprog` crate is what most programs depend on.
#![forbid(unsafe_code)]

// What this project's other crates share with this one: hidden, and no part of the interface that stays.
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
