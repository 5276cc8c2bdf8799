//! Hashed n-gram tables of language models ("conditional memory"), kept at 2 bits a value and decoded row by row, with the
//! same bits on every backend.
//!
//! ```
//! # let folder = condprog_testkit::Folder::new();
//! # let rows = condprog_testkit::rows(100, 64, 1);
//! # condprog_testkit::f32_table(&folder.path("model.safetensors"), "embed.weight", 64, &rows);
//! # std::env::set_current_dir(folder.path(""))?;
//! use condprog::{Backend, CompressOptions, Cpu, Decoder, Missing, Output, Tables, compress_file, quiet};
//!
//! // Once: a tensor of a checkpoint becomes a table file.
//! let (tensors, options) = (["embed.weight".into()], CompressOptions::default());
//! compress_file("model.safetensors", &tensors, "table.safetensors", &options, &Cpu::detect()?, &quiet)?;
//!
//! // Where rows are needed: open the file, put a table on a backend, ask for rows by their ids.
//! let tables = Tables::open("table.safetensors")?;
//! for table in tables.iter() {
//!     println!("{}: {} rows of {} values", table.name(), table.rows(), table.dim());
//! }
//! let decoder = tables.table("embed.weight")?.decoder(&Backend::Cpu)?; // owns what it reads
//! let mut rows = vec![0u16; 3 * 64];
//! decoder.decode(&[5, 17, -1], Missing::Zero, Output::Bf16(&mut rows))?; // -1 gives a row of zeros
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`TableDecoder`] owns or keeps alive all that it reads, can be sent to other threads and used by many at once. Which
//! backend it runs on shows in speed alone.
//!
//! # Where to look
//!
//! | for | see |
//! |---|---|
//! | opening and decoding | [`Tables`], [`Table`], [`Backend`], [`TableDecoder`] |
//! | compressing, joining, restoring, verifying | [`compress`], [`join`], [`decompress`], [`verify`] and [`convert`] |
//! | what a checkpoint has, model families | [`checkpoint`] |
//! | the format: records, layouts, the decoder trait | [`core`] |
//! | table files below the handles of this crate | [`table`] |
//! | decoding on the caller's own CUDA stream, without a copy | `condprog-cuda` |
//! | a GPU that the caller has opened already | `condprog-wgpu` |
//!
//! # Features
//!
//! * `cuda` (default): [`Backend::Cuda`]. Nothing of CUDA is needed to build, and the driver is loaded when it is asked for.
//! * `wgpu`: `Backend::Wgpu`.

mod backend;
mod codec;
mod error;
mod mapped;
mod tables;

pub use backend::{Backend, TableDecoder};
pub use codec::Cpu;
pub use condprog_checkpoint as checkpoint;
pub use condprog_convert as convert;
pub use condprog_convert::{
    CompressOptions, DecompressOptions, JoinOptions, VerifyOptions, compress, compress_file, decompress, join, quiet,
    verify,
};
pub use condprog_core as core;
pub use condprog_core::{Decoder, Dtype, Missing, Output, TableShape};
#[cfg(feature = "cuda")]
pub use condprog_cuda::Placement;
pub use condprog_table as table;
pub use error::Error;
pub use mapped::MappedRecords;
pub use tables::{Table, Tables};
