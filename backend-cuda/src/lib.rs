//! guide
#![deny(clippy::undocumented_unsafe_blocks)]

mod decoder;
mod device;
mod error;
mod host;
mod memory;
mod nvrtc;
mod placement;

pub use cudarc;
pub use decoder::{CudaDecoder, DeviceIds, DeviceOutput, IdWidth, NONE_MISSING, RawRequest};
pub use device::{Device, device_count};
pub use error::CudaError;
pub use memory::PinnedMapping;
pub use nvrtc::compile;
pub use placement::{MappedSegment, PlacedSegment, Placement};
