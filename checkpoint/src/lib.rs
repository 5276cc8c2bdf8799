//! Tables in safetensors checkpoints of language models: which tensors are tables, where their scales are, and their
//! rows, read in blocks and turned into binary32 without loss.
//!
//! ```
//! use condprog_checkpoint::{Checkpoint, RowSource};
//! # let folder = condprog_testkit::Folder::new();
//! # let model = folder.path("model.safetensors");
//! # condprog_testkit::f32_table(&model, "layers.1.embed.weight", 64, &condprog_testkit::rows(10, 64, 1));
//!
//! // A safetensors file here; as well an index, or the folder of a checkpoint of many files.
//! let checkpoint = Checkpoint::open(&model)?;
//! for info in checkpoint.select(&["*.embed.weight".into()])? {
//!     let mut table = checkpoint.rows(info)?;
//!     let block = table.read(0, 4)?; // as the file has them, with their scales
//!     let mut values = vec![0.0; block.rows() * block.dim];
//!     block.to_f32(0..block.rows(), &mut values);
//!     assert_eq!(values.len(), 4 * 64);
//! }
//! # Ok::<(), condprog_checkpoint::Error>(())
//! ```
//!
//! Opening reads headers only. [`Checkpoint::select`] finds tables by name or pattern, and the [`family`] module those
//! of the model families that are known; either way each table comes with the scales that belong to it, in whatever
//! file they are. [`Checkpoint::list`] says for every tensor what it would be taken for, and if for nothing, why.
//!
//! [`Checkpoint::rows`] makes a [`RowSource`] of a table. Implement that trait to compress rows that come from
//! elsewhere.
//!
//! # Where to look
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

/// Shared with this project's other crates: not part of the stable interface.
#[doc(hidden)]
pub mod internal {
    pub use crate::scale::{number_at_least, number_bytes};
}
