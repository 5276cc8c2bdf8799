//! Conditional Program tables made from checkpoints, joined, restored, and verified.
//!
//! ```no_run
//! use condprog_convert::{Codec, CompressOptions, Error, compress_file, quiet};
//!
//! /// `codec` codes the rows: the `condprog` crate has one for the CPU.
//! fn compress_embeddings(codec: &dyn Codec) -> Result<(), Error> {
//!     let patterns = ["layers.*.embed.weight".into()];
//!     compress_file("model/", &patterns, "table.safetensors", &CompressOptions::default(), codec, &quiet)?;
//!     Ok(())
//! }
//! ```
//!
//! | folder or file | what it does |
//! |---|---|
//! | `codec.rs` | what codes and restores rows for these jobs: any backend |
//! | `compress/` | source tables to table files: streamed, resumable, in parts that are joined later |
//! | `rewrite/` | a whole checkpoint rebuilt around its table files |
//! | `decompress.rs` | a table file to an ordinary safetensors file |
//! | `verify/` | whether a table file is sound, and its rows those of a source |
//! | `footprint.rs` | bytes before and after, per GPU and in all |
//! | `output/`, `journal.rs` | files that appear complete or not at all; how far an unfinished output is |
//! | `stream.rs` | work in blocks of rows: reading ahead, progress, threads |
//!
//! # What a job promises
//!
//! * **Sources are only read.** An output is created under a working name, and renamed when it is complete and on disk.
//! * **Interrupted work resumes.** The same call on the same output continues after the last complete block, and gives
//!   the bytes of an undisturbed run. [`is_begun`] and [`finished`] say how far an output is.
//! * **Bytes depend on source and options alone**: not on threads, instruction set or machine, nor on how the rows were
//!   divided ([`PartOf`], [`join`]).
//! * **What does not fit is refused first.** [`preview`] says what would be written, [`Error`] names what is in the way.
//! * **Damage is a result.** [`verify`] reports it; only what keeps it from looking is an error.
//!
//! A [`Codec`] codes and restores the rows; [`Progress`] is told of each block, and can stop the job.
#![forbid(unsafe_code)]

mod codec;
mod compress;
mod decompress;
mod error;
mod footprint;
mod journal;
mod output;
mod rewrite;
mod stream;
mod verify;

pub use codec::{BoxDecoder, BoxEncoder, Codec, CodecError, erase_decoder, erase_encoder};
pub use compress::{
    CompressOptions, CompressReport, JoinOptions, NonFinite, PartOf, Preview, compress, compress_file, finished,
    is_begun, join, preview, rate_segments,
};
pub use decompress::{DecompressOptions, RestoredDtype, decompress};
pub use error::{Error, RewriteError};
pub use footprint::{Footprint, OnGpus};
pub use output::NewFile;
pub use rewrite::{Rewrite, RewriteOptions, RewritePreview, RewriteReport};
pub use stream::{MAX_THREADS, Progress, Stage, Update, quiet};
pub use verify::{Sample, VerifyOptions, VerifyReport, VerifyTable, verify};
