//! The WGSL kernel, for WebGPU implementations native and in browsers.
//!
//! Bindings and structures are documented in the source. All three entry points share them.

/// Source of the decoder: baseline WGSL without floats.
pub const DECODE: &str = include_str!("../decode.wgsl");

/// Entry point that writes bf16 bits, two values to a word.
pub const DECODE_BF16: &str = "decode_bf16";
/// Entry point that writes f16 bits, two values to a word.
pub const DECODE_F16: &str = "decode_f16";
/// Entry point that writes f32 bits, one value to a word.
pub const DECODE_F32: &str = "decode_f32";

/// Threads of a workgroup, along x.
pub const WORKGROUP: u32 = 64;
/// Values of a group. Rows in the output are padded to whole groups.
pub const GROUP: u32 = 8;
/// Name of the pipeline-overridable number of consecutive groups that one thread decodes.
pub const GROUPS_PER_THREAD: &str = "groups_per_thread";
/// Record number that gives a row of zeros.
pub const MISSING: u32 = u32::MAX;
/// Bytes by which the binding of the records must be longer than the records.
pub const RECORDS_SLACK: usize = 12;
