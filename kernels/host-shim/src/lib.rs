//! The CUDA kernels on the CPU: the text of `kernels/decode.cu`, compiled by the host's C++ compiler with a small
//! model of the device (`cpp/`), as a decoder that the conformance suite can run.
//!
//! The kernels run in a process of their own, which is sent tables and requests through pipes. So a kernel that
//! crashes or that a sanitizer stops is an error, not the end of the tests; the same suite runs against any build of
//! them, with sanitizers or with a fault planted; and no unsafe code is needed here.
//!
//! What the model checks beyond the results is written in `cpp/block.h`. It says nothing about speed, nor about
//! whether the device's compiler keeps the meaning of the text: `kernels/check-cuda.sh` looks at the machine code.
#![forbid(unsafe_code)]

mod build;
mod decoder;
mod error;
mod process;

pub use build::{COMPILER_VARIABLE, FLAGS_VARIABLE, Program, simulated_driver};
pub use decoder::{HostDecoder, Order, Shape, gather};
pub use error::HostError;
