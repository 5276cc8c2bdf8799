//! Table files of the Conditional Program codec: made from checkpoints, opened for decoding, restored, checked.
//!
//! | module | what it holds |
//! |---|---|
//! | [`source`] | tables in safetensors checkpoints of one file or many, read in blocks |
//! | [`family`] | the model families whose tables are known |
//! | [`Footprint`] | bytes before and after, per GPU and in all |
//! | [`compress()`] | source tables to table files: streamed, resumable, in parts |
//! | [`join()`] | parts that many machines coded, to the files one would have written |
//! | [`TableFile`] | a table file, or all that an index names, and its records for any backend |
//! | [`Rewrite`] | a whole checkpoint made anew around its table files |
//! | [`decompress()`] | a table file to an ordinary safetensors file |
//! | [`verify()`], [`inspect()`] | checks and figures |
//! | [`mod@format`], [`header`], [`index`] | the metadata, the header and the index of several files, see `FORMAT.md` |
#![forbid(unsafe_code)]

mod aspect;
mod checksum;
mod compress;
mod decompress;
mod error;
pub mod family;
mod file;
mod footprint;
mod foreign;
pub mod format;
pub mod fp8;
pub mod header;
pub mod index;
mod input;
mod inspect;
mod journal;
mod output;
mod quote;
mod read;
mod records;
mod rewrite;
mod seal;
pub mod source;
mod stream;
mod verify;

pub use compress::{
    CompressOptions, CompressReport, JoinOptions, NonFinite, PartOf, Preview, ScaleMode, SegmentPlan, compress,
    compress_file, finished, is_begun, join, preview, rate_segments,
};
pub use decompress::{DecompressOptions, RestoredDtype, decompress};
pub use error::Error;
pub use file::TableFile;
pub use footprint::{Footprint, OnGpus};
pub use input::regular_file;
pub use inspect::{ScaleRange, SegmentSummary, TableSummary, inspect};
pub use output::NewFile;
pub use records::{PickedRows, TableRecords};
pub use rewrite::{Rewrite, RewriteError, RewriteOptions, RewritePreview, RewriteReport};
pub use stream::{MAX_THREADS, Progress, Stage, Update, quiet};
pub use verify::{Damage, Fault, Sample, VerifyOptions, VerifyReport, VerifyTable, verify};
