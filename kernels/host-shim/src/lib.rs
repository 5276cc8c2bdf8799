//! The CUDA kernels on the CPU: the text of `kernels/decode.cu`, compiled by the host's C++ compiler with a small
//! model of the device (`cpp/`), as a decoder that the conformance suite can run.
//!
//! It is here to test kernels where there is no GPU, and is not published. A change of a kernel is tried like this:
//!
//! ```no_run
//! use std::path::Path;
//!
//! use condprog_core::{Decoder, Layout, Missing, Output, Rate, Segment, Table};
//! use condprog_cuda_host::{HostDecoder, Order, Program, Shape};
//!
//! // Compiled once; `Program::build` takes any other text, such as one with a fault planted.
//! let program = Program::new(Path::new("target/tmp"))?;
//!
//! let layout = Layout::new(256, Rate::TWO)?;
//! let records = vec![0x5a; 10 * layout.record_bytes()];
//! let segments = [Segment { rows: 10, layout, records: &records }];
//!
//! // The threads of a block in reverse order: what relies on another order gives other rows.
//! let decoder = HostDecoder::new(&program, Order::Reverse, Shape::SMALL, Table::new(&segments)?)?;
//! let mut out = vec![0u16; 2 * 256];
//! decoder.decode(&[3, -1], Missing::Zero, Output::Bf16(&mut out))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The kernels run in a process of their own, which is sent tables and requests through pipes. So a kernel that
//! crashes or that a sanitizer stops is an error, not the end of the tests; the same suite runs against any build of
//! them, with sanitizers or with a fault planted; and no unsafe code is needed here.
//!
//! What the model checks beyond the results is written in `cpp/block.h`. It says nothing about speed, nor about
//! whether the device's compiler keeps the meaning of the text: `kernels/check-cuda.sh` looks at the machine code.
//!
//! [`simulated_driver`] makes a `libcuda.so` of the same model (`cpp/driver.cpp`), with which the CUDA backend's own
//! code runs whole: put its folder first in `LD_LIBRARY_PATH`.
#![forbid(unsafe_code)]

mod build;
mod decoder;
mod error;
mod process;

pub use build::{COMPILER_VARIABLE, FLAGS_VARIABLE, Program, simulated_driver};
pub use decoder::{HostDecoder, Order, Shape, gather};
pub use error::HostError;
