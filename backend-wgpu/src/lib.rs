//! Conditional Program on any GPU, through wgpu: Vulkan, Metal or Direct3D 12.
//!
//! The kernel computes bits in integers only, so every conformant driver gives the bits of the specification, software
//! drivers such as lavapipe and SwiftShader included. It asks for WebGPU's default limits and no optional feature;
//! larger tables are split over bindings, larger requests over dispatches.
//!
//! ```no_run
//! use condprog_core::{Decoder, Layout, Missing, Output, Rate, Segment, Table};
//! use condprog_wgpu::{Gpu, Options, WgpuDecoder};
//!
//! let gpu = Gpu::open(&Options::default())?;
//! println!("{}", gpu.adapter());
//!
//! let records = std::fs::read("records.bin")?;
//! let layout = Layout::new(256, Rate::TWO)?;
//! let rows = (records.len() / layout.record_bytes()) as u64;
//! let segments = [Segment { rows, layout, records: &records }];
//! let decoder = WgpuDecoder::new(&gpu, Table::new(&segments)?)?;
//!
//! let mut out = vec![0u16; 3 * 256];
//! decoder.decode(&[5, -1, 0], Missing::Zero, Output::Bf16(&mut out))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod adapter;
mod decoder;
mod error;
mod gpu;
mod parts;
mod slot;

pub use adapter::{Adapter, adapters};
pub use decoder::{Stages, WgpuDecoder};
pub use error::Error;
pub use gpu::{Gpu, Options};
