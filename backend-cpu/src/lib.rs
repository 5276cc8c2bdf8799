//! Conditional Program on the CPU: the reference backend for everyone, and the encoder.
mod decode;
mod encode;
mod level;
mod map;
mod memory;

/// What the vector code here is written for.
const PROGRAM: condprog_core::Program = condprog_core::Program::V1;

pub use decode::CpuDecoder;
pub use encode::Encoder;
pub use level::{LEVEL_VARIABLE, Level, UnsupportedLevel};
pub use map::{Access, HugeBuffer, MappedFile};
