//! What can go wrong with a job, as one type: faults of the input, of the output, and of the request.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use condprog_core::LayoutError;
use condprog_core::encoder::EncodeError;

use crate::codec::CodecError;

mod rewrite;

pub use rewrite::RewriteError;

/// Why a table could not be made, joined, restored or checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read or written, or is not a table file.
    #[error(transparent)]
    File(#[from] condprog_table::Error),
    /// A checkpoint has no such table.
    #[error(transparent)]
    Checkpoint(condprog_checkpoint::Error),
    /// There is no room for the output.
    #[error("cannot write {}: no space left; {needed} bytes are needed in all", .path.display())]
    DiskFull {
        /// The unfinished output.
        path: PathBuf,
        /// Bytes of the whole output.
        needed: u64,
        /// Whether the same call resumes from what is written.
        resumes: bool,
    },
    /// There would not be enough room for the output.
    #[error("{} would take {needed} bytes, but {free} are free on its disk", .path.display())]
    NoRoom {
        /// The output.
        path: PathBuf,
        /// Bytes of the whole output.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// Something other than a regular file has the output's name.
    #[error("output {} is {kind}, expected the name of a file, new or to be replaced", .path.display())]
    OutputNotAFile {
        /// The output.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// The name of a working file is taken by something that this program has not made.
    #[error(
        "{} is {kind}, and the name is needed for a working file: move it away, or choose another output; it has not been touched",
        .path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// An unfinished output is there, but what has been done of it is not known.
    #[error(
        "{} was begun, but its journal {} is {what}, so it is not known which rows are done; use force to start over",
        .path.display(),
        .journal.display()
    )]
    JournalLost {
        /// The unfinished output.
        path: PathBuf,
        /// Where its journal should be.
        journal: PathBuf,
        /// Missing or damaged.
        what: &'static str,
    },
    /// The source is not what it was at the start.
    #[error("{} changed while it was being read: {what}; the output is not finished", .path.display())]
    SourceChanged {
        /// The file.
        path: PathBuf,
        /// What tells.
        what: String,
    },
    /// The name of an output has bytes that an index cannot hold.
    #[error("output {} is cut into files, whose names go into an index: expected a name in UTF-8", .path.display())]
    Name {
        /// The output.
        path: PathBuf,
    },
    /// A table has a width that the rate does not allow.
    #[error("tensor {tensor:?}: {source}")]
    Width {
        /// The source tensor.
        tensor: String,
        /// What is wrong.
        source: LayoutError,
    },
    /// A row cannot be coded.
    #[error("tensor {tensor:?}, row {row}: {source}")]
    Row {
        /// The source tensor.
        tensor: String,
        /// The row.
        row: u64,
        /// What is wrong, with column and value.
        source: EncodeError,
    },
    /// The one scale of a table cannot be stored.
    #[error("tensor {tensor:?}: its global scale {scale:e} is above 65024, the largest there is")]
    GlobalScale {
        /// The source tensor.
        tensor: String,
        /// Got.
        scale: f64,
    },
    /// Segments do not fit their table, or are of one that is not compressed.
    #[error("segments of tensor {tensor:?} have {got} rows, expected {expected}, and at least 1 in each")]
    SegmentRows {
        /// The source tensor.
        tensor: String,
        /// Got.
        got: u128,
        /// Rows of the tensor; 0 when it is not among those compressed.
        expected: u64,
    },
    /// A range of rows with a rate of its own does not fit.
    #[error("rows {}..{} of table {table:?} have a rate of their own, expected ranges within its {rows} rows that do not overlap", .range.start, .range.end)]
    RateRows {
        /// The table.
        table: String,
        /// Got.
        range: Range<u64>,
        /// Rows of the table.
        rows: u64,
    },
    /// A part does not fit its table.
    #[error("the part is rows {}..{} of table {table:?}, expected a range within its {rows} rows", .range.start, .range.end)]
    PartRows {
        /// The table.
        table: String,
        /// Got.
        range: Range<u64>,
        /// Rows of the table.
        rows: u64,
    },
    /// A range of rows was asked for, of several tables.
    #[error("a range of rows is a part of one table, got tables {tables:?}: select one, or code a share of all")]
    PartOfSeveral {
        /// The tables.
        tables: Vec<String>,
    },
    /// A file is not a part that could be joined with others.
    #[error("{} is not a part of a table: expected one that was compressed as a range or share of rows", .path.display())]
    NoPart {
        /// The file.
        path: PathBuf,
    },
    /// A part's account of the whole contradicts itself.
    #[error("{}: the part is malformed: {what}", .path.display())]
    BadPart {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Parts are of different wholes.
    #[error("{} and {} are not parts of one table: {what} is {got}, expected {expected} as in the first", .paths[0].display(), .paths[1].display())]
    PartsDiffer {
        /// The first file, and the one that is compared with it.
        paths: Box<[PathBuf; 2]>,
        /// In what.
        what: String,
        /// Got.
        got: String,
        /// Expected.
        expected: String,
    },
    /// Rows are in no part.
    #[error("rows {}..{} of table {table:?} are in no part", .rows.start, .rows.end)]
    PartMissing {
        /// The table.
        table: String,
        /// The rows.
        rows: Range<u64>,
    },
    /// Rows are in two parts.
    #[error("rows {}..{} of table {table:?} are in {} and in {}, expected once", .rows.start, .rows.end, .paths[0].display(), .paths[1].display())]
    PartTwice {
        /// The table.
        table: String,
        /// The rows.
        rows: Range<u64>,
        /// The parts.
        paths: Box<[PathBuf; 2]>,
    },
    /// An option is out of its range.
    #[error("{option} is {got}, expected {expected}")]
    Option {
        /// Which.
        option: &'static str,
        /// Got.
        got: u64,
        /// Expected.
        expected: String,
    },
    /// A limit that no table could meet.
    #[error("the largest error allowed is {got}, expected a number above 0")]
    MaxError {
        /// Got.
        got: f64,
    },
    /// Two tensors of the output would have one name.
    #[error("output would have two tensors {tensor:?}: compress them into two files")]
    NameTaken {
        /// The name.
        tensor: String,
    },
    /// There is nothing to compress.
    #[error("no table to compress, expected at least one")]
    NothingToDo,
    /// A checkpoint cannot be rebuilt around its tables.
    #[error("{}: {source}", .path.display())]
    Rewrite {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong.
        source: Box<RewriteError>,
    },
    /// More bytes than can be counted.
    #[error("{what} would take 2^64 bytes or more")]
    TooLarge {
        /// Of what.
        what: String,
    },
    /// The output is also an input.
    #[error("{} is both input and output, expected two files", .path.display())]
    SameFile {
        /// The file.
        path: PathBuf,
    },
    /// A file has the name of a part of the output, but is not one.
    #[error(
        "{} has the name that a file of output {} could have, but is not a table file: a loader would read both; \
         move it away, or choose another output",
        .path.display(),
        .output.display()
    )]
    Beside {
        /// The file.
        path: PathBuf,
        /// The output.
        output: PathBuf,
    },
    /// The output already exists.
    #[error("{} already exists; use force to overwrite it", .path.display())]
    OutputExists {
        /// The output.
        path: PathBuf,
    },
    /// An unfinished output is there that this run cannot resume.
    #[error(
        "{} is the unfinished output of another run ({what} was {got}, is {expected}); use force to start over, or the old parameters to resume",
        .path.display()
    )]
    OtherRun {
        /// The unfinished output.
        path: PathBuf,
        /// What differs.
        what: &'static str,
        /// In the unfinished run.
        got: String,
        /// Now.
        expected: String,
    },
    /// Another process is writing the same output.
    #[error("{} is being written by another process", .path.display())]
    Busy {
        /// The output.
        path: PathBuf,
    },
    /// The caller asked to stop.
    #[error("stopped; the same call resumes")]
    Cancelled,
    /// The source to compare with is another one.
    #[error("table {table:?} was made from {what} {expected}, got {got}")]
    OtherSource {
        /// The table.
        table: String,
        /// What differs.
        what: &'static str,
        /// Of the source given.
        got: String,
        /// Of the source the table was made from.
        expected: String,
    },
    /// The source format of a table is not known to this version.
    #[error("table {table:?} was made from type {got:?}, expected F32, F16, BF16, or F8_E4M3 or I8 with scales")]
    SourceDtype {
        /// The table.
        table: String,
        /// Got.
        got: String,
    },
    /// The backend is not there, or failed.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// No threads.
    #[error("cannot start threads: {0}")]
    Threads(#[source] io::Error),
}

/// Files of a checkpoint are files: one variant covers the faults of all.
impl From<condprog_checkpoint::Error> for Error {
    fn from(error: condprog_checkpoint::Error) -> Error {
        match error {
            condprog_checkpoint::Error::File(error) => Error::File(error),
            error => Error::Checkpoint(error),
        }
    }
}

impl Error {
    /// A short, stable name: reject files are tied to it, and programs may compare it.
    pub fn code(&self) -> &'static str {
        match self {
            Error::File(source) => source.code(),
            Error::Checkpoint(source) => source.code(),
            Error::DiskFull { .. } => "disk-full",
            Error::NoRoom { .. } => "no-room",
            Error::OutputNotAFile { .. } => "output-not-a-file",
            Error::Foreign { .. } => "foreign",
            Error::JournalLost { .. } => "journal-lost",
            Error::SourceChanged { .. } => "source-changed",
            Error::Name { .. } => "name",
            Error::Width { .. } => "width",
            Error::Row { .. } => "row",
            Error::GlobalScale { .. } => "global-scale",
            Error::SegmentRows { .. } => "segment-rows",
            Error::RateRows { .. } => "rate-rows",
            Error::PartRows { .. } => "part-rows",
            Error::PartOfSeveral { .. } => "part-of-several",
            Error::NoPart { .. } => "part-none",
            Error::BadPart { .. } => "part-malformed",
            Error::PartsDiffer { .. } => "part-differs",
            Error::PartMissing { .. } => "part-missing",
            Error::PartTwice { .. } => "part-twice",
            Error::Option { .. } => "option",
            Error::MaxError { .. } => "max-error",
            Error::NameTaken { .. } => "name-taken",
            Error::NothingToDo => "nothing-to-do",
            Error::Rewrite { source, .. } => source.code(),
            Error::TooLarge { .. } => "too-large",
            Error::SameFile { .. } => "same-file",
            Error::Beside { .. } => "beside",
            Error::OutputExists { .. } => "output-exists",
            Error::OtherRun { .. } => "other-run",
            Error::Busy { .. } => "busy",
            Error::Cancelled => "cancelled",
            Error::OtherSource { .. } => "other-source",
            Error::SourceDtype { .. } => "source-dtype",
            Error::Codec(_) => "backend",
            Error::Threads(_) => "threads",
        }
    }
}

/// Adds what was tried, and on which file.
pub(crate) trait IoContext<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, Error>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, Error> {
        Ok(condprog_table::error::IoContext::context(self, action, path)?)
    }
}
