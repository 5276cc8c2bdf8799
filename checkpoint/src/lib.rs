//! Tables in safetensors checkpoints of language models: which tensors are tables, where their scales are, and their
//! rows, read in blocks and turned into binary32 without loss.
//!
//! ```no_run
//! use condprog_checkpoint::{Checkpoint, RowSource};
//!
//! let checkpoint = Checkpoint::open("model/")?;
//! for info in checkpoint.select(&["*.embed.weight".into()])? {
//!     let mut table = checkpoint.rows(info)?;
//!     let block = table.read(0, 1)?;
//!     let mut values = vec![0.0; block.dim];
//!     block.to_f32(0..1, &mut values);
//! }
//! # Ok::<(), condprog_checkpoint::Error>(())
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `checkpoint.rs` | a checkpoint, one file or many: which tensors it has |
//! | `select.rs`, `near.rs` | the tables that names and patterns select, and what may have been meant |
//! | `join.rs`, `order.rs` | tables of several tensors, in the order of the numbers in their names |
//! | `family/`, `tables.rs` | the model families whose tables are known, and their tables in a checkpoint |
//! | `scale.rs`, `fp8.rs` | the scales of FP8 and INT8 tensors: by which names and shapes they are found |
//! | `companion.rs` | what else quantised tensors have beside them, and what is refused for it |
//! | `list.rs` | what each tensor of a checkpoint would be taken for |
//! | `source.rs`, `rows.rs` | what can be read in blocks of rows; the rows of a table, read from its files |
#![forbid(unsafe_code)]

mod checkpoint;
mod companion;
mod error;
pub mod family;
pub mod fp8;
mod join;
mod list;
mod near;
mod order;
mod rows;
mod scale;
mod select;
mod source;
mod tables;

pub use checkpoint::Checkpoint;
pub use companion::Companion;
pub use error::{Error, SourceError};
pub use list::{ListedTensor, Role};
pub use rows::TableRows;
pub use source::{FileState, RawRows, RawScales, RowSource};

/// What this project's other crates share with this one: no part of the interface that stays.
#[doc(hidden)]
pub mod internal {
    pub use crate::scale::{number_at_least, number_bytes};
}
