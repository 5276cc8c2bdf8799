//! Conditional Program on any GPU, through wgpu: Vulkan, Metal or Direct3D 12.
//!
//! The kernel computes bits in integers only, so every conformant driver gives the bits of the specification, software
//! drivers such as lavapipe and SwiftShader included.
//!
//! # From a table to rows
//!
//! ```no_run
//! use condprog_core::{Decoder, Layout, Missing, Output, Rate, Segment, Table};
//! use condprog_wgpu::{Gpu, Options, WgpuDecoder};
//!
//! // Once: open a GPU. Where there is none, this is an error of kind `Unavailable`.
//! let gpu = Gpu::open(&Options::default())?;
//! println!("{}", gpu.adapter());
//!
//! // A table of 66-byte records, 256 values at 2 bits, is uploaded, and not needed on the host afterwards.
//! let records = std::fs::read("records.bin")?;
//! let layout = Layout::new(256, Rate::TWO)?;
//! let rows = (records.len() / layout.record_bytes()) as u64;
//! let segments = [Segment { rows, layout, records: &records }];
//! let decoder = WgpuDecoder::new(&gpu, Table::new(&segments)?)?;
//!
//! // Per request: ids in, rows out, as the bits of bf16 numbers. -1 names no row and gives zeros.
//! let mut out = vec![0u16; 3 * 256];
//! decoder.decode(&[5, -1, 0], Missing::Zero, Output::Bf16(&mut out))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What to know
//!
//! **Which GPU.** [`Gpu::open`] takes the first adapter that works, GPUs with memory of their own before others.
//! [`Options::adapter`] and the environment variable `WGPU_ADAPTER_NAME` take a part of a name, `WGPU_BACKEND` an API;
//! [`adapters`] lists what there is. To share a device with a renderer or another library, pass it to
//! [`Gpu::from_device`].
//!
//! **Sizes.** Nothing beyond WebGPU's default limits is asked for and no optional feature. Larger tables are split over
//! bindings of 128 MiB, larger requests over dispatches, of which two are under way at a time.
//!
//! **Threads and futures.** A [`WgpuDecoder`] may be used from any number of threads at once. `decode` blocks;
//! [`WgpuDecoder::decode_batch_async`] is a future that any executor runs and that gives its request up when dropped.
//!
//! **Steady state.** Ids and rows pass through buffers that the next request uses again: no buffer, bind group or
//! pipeline is made once the largest request has been seen.
//!
//! **Errors** are [`Error`]s; [`kind`](condprog_core::BackendError::kind) says what generic code needs to know. No
//! adapter, a lost device, a want of memory and what validation refuses are errors, and nothing panics.
//!
//! **Versions.** [`Gpu::from_device`] takes wgpu's own types. The version of wgpu that it takes is exported as
//! [`wgpu`], and another major version of wgpu is another major version of this crate.
#![forbid(unsafe_code)]

mod adapter;
mod decoder;
mod device;
mod error;
mod gpu;
mod kernel;
mod parts;
mod slot;

pub use adapter::{Adapter, adapters};
pub use decoder::{Stages, WgpuDecoder};
pub use error::Error;
pub use gpu::{Gpu, Options};
pub use wgpu;
