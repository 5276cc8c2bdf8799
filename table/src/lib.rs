//! Table files of the Conditional Program codec: made from checkpoints, opened for decoding, restored, checked.
//!
//! | module | what it holds |
//! |---|---|
//! | [`source`] | tables in safetensors checkpoints, read in blocks |
//! | [`family`] | the model families whose tables are known |
//! | [`Footprint`] | bytes before and after, per GPU and in all |
//! | [`compress()`] | source tables to a table file: streamed, resumable |
//! | [`TableFile`] | a table file, opened and checked, as segments for any backend |
//! | [`Rewrite`] | a whole checkpoint made anew around its table files |
//! | [`decompress()`] | a table file to an ordinary safetensors file |
//! | [`verify()`], [`inspect()`] | checks and figures |
//! | [`mod@format`], [`header`] | the metadata and the header, see `FORMAT.md` |
#![forbid(unsafe_code)]

mod aspect;
mod checksum;
mod compress;
mod decompress;
mod error;
pub mod family;
mod file;
mod footprint;
pub mod format;
pub mod fp8;
pub mod header;
pub mod index;
mod inspect;
mod journal;
mod output;
mod rewrite;
pub mod source;
mod stream;
mod verify;

pub use compress::{
    CompressOptions, CompressReport, JoinOptions, NonFinite, PartOf, ScaleMode, SegmentPlan, compress, compress_file,
    finished, join, rate_segments,
};
pub use decompress::{DecompressOptions, RestoredDtype, decompress};
pub use error::Error;
pub use file::TableFile;
pub use footprint::{Footprint, OnGpus};
pub use inspect::{ScaleRange, SegmentSummary, TableSummary, inspect};
pub use rewrite::{Rewrite, RewriteError, RewriteReport};
pub use stream::{Progress, Stage, Update, quiet};
pub use verify::{Damage, Fault, VerifyOptions, VerifyReport, VerifyTable, verify};
