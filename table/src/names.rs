//! Names that table files use: keys of the metadata, suffixes of file names.

/// Bytes of the length field before a safetensors header.
pub const LENGTH_BYTES: u64 = 8;
/// The key of a safetensors header that holds the string map.
pub const METADATA_KEY: &str = "__metadata__";
/// Suffix of an unfinished table file's name.
pub const PARTIAL_SUFFIX: &str = ".condprog-partial";

/// What a table file says it is.
pub const FORMAT: &str = "condprog-table";
/// The program of format version 1: 128 Gaussian levels, one per step, chosen by a hash `s(2s + 1)` of the state.
pub const PROGRAM: &str = condprog_core::Program::V1.name();
/// The checksum of format version 1. A colon and the header's own checksum follow in files that have one.
pub const CHECKSUM: &str = "xxh3-64";

/// Metadata key: [`FORMAT`].
pub const KEY_FORMAT: &str = "condprog.format";
/// Metadata key: the format version, a decimal number.
pub const KEY_VERSION: &str = "condprog.format_version";
/// Metadata key: [`CHECKSUM`].
pub const KEY_CHECKSUM: &str = "condprog.checksum";
/// Metadata key: the tables, a JSON text.
pub const KEY_TABLES: &str = "condprog.tables";
/// Metadata key: the identity of the run that wrote the file, the same in all files of its output, 16 lower-case
/// hexadecimal digits.
pub const KEY_RUN: &str = "condprog.run";
/// Metadata key of a part that is to be joined with others: a JSON text, the business of `condprog-convert` alone.
pub const KEY_PART: &str = "condprog.part";
/// Metadata key that belongs to Hugging Face's loaders, some of which refuse a file without it.
pub const KEY_LOADERS: &str = "format";
