//! The device kernels of Conditional Program as text, for the backends to compile: [`cuda`] for NVIDIA GPUs, [`wgsl`] for
//! WebGPU.
//!
//! To decode, use a backend (`condprog-cuda`, `condprog-wgpu`). This crate is for who writes one: it has the sources, what
//! they take, and which kernel a table needs in what shape, and touches no device.
//!
//! ```
//! use condprog_core::{Dtype, Layout, Rate};
//! use condprog_kernels::cuda::{DECODE_PTX, Grid, Kernel};
//!
//! // 196,608 rows of 256 values at 2 bits to bf16, on 132 multiprocessors that hold 3 blocks each.
//! let layout = Layout::new(256, Rate::TWO)?;
//! let kernel = Kernel::select([layout], Dtype::Bf16, 0x1000);
//! assert_eq!(kernel.name, "decode_r8_d256_bf16");
//! assert!(DECODE_PTX.contains(kernel.name));
//! assert_eq!(Grid::new(196_608, 132, 3), Grid { blocks: 396, threads: 512, chunk_log2: 3 });
//! # Ok::<(), condprog_core::LayoutError>(())
//! ```
//!
//! What is made from the sources and checked in (PTX, the report on the machine code) lies in `prebuilt/`.
//! `kernels/check-cuda.sh` makes it again and compares. Checks that need no device are this crate's tests; every number
//! that `condprog-core` defines is asserted there.
#![no_std]
#![forbid(unsafe_code)]

pub mod cuda;
pub mod wgsl;
