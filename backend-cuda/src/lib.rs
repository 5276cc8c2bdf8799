//! Conditional Program on NVIDIA GPUs: a request of row ids in, rows out, in one kernel launch on the caller's stream.
//!
//! **Nothing of this crate has run on a GPU yet.** The kernels are checked without one: their text runs the whole
//! conformance suite on the CPU, this crate runs it through a simulated driver, and the machine code made from the text
//! is inspected (`kernels/check-cuda.sh`). Where speeds are mentioned, they are budgets (`kernels/decode.cu`).
//!
//! # What is needed
//!
//! To build: nothing of CUDA. To run: a device of compute capability 9.0 (Hopper) or later and driver 520 or later; the
//! crate carries PTX, which the driver compiles when a [`Device`] is opened. For devices from 8.0 on, NVRTC compiles the
//! kernels instead ([`Code::Compiled`]). Without a driver or a device, every call returns an error of kind
//! [`Unavailable`](condprog_core::ErrorKind::Unavailable); nothing panics.
//!
//! # From a table to rows
//!
//! ```no_run
//! use std::ffi::c_void;
//!
//! use condprog_core::{Decoder, Dtype, Layout, Missing, Output, Rate, Segment, Table};
//! use condprog_cuda::{CudaDecoder, CudaError, Device, IdWidth, Placement, RawRequest};
//!
//! // A table of 66-byte records, 256 values at 2 bits.
//! let records = std::fs::read("records.bin")?;
//! let layout = Layout::new(256, Rate::TWO)?;
//! let rows = (records.len() / layout.record_bytes()) as u64;
//! let segments = [Segment { rows, layout, records: &records }];
//!
//! // Once: open the device, put the table there. A quarter of the rows in device memory, the rest in host memory.
//! let device = Device::open(0)?;
//! let placement = Placement::Split { device_share: 0.25 };
//! let decoder = CudaDecoder::new(&device, Table::new(&segments)?, placement)?;
//!
//! // Per request, where ids and rows are on the host: they are copied in and out. -1 names no row and gives zeros.
//! let mut out = vec![0u16; 3 * 256];
//! decoder.decode(&[5, -1, 0], Missing::Zero, Output::Bf16(&mut out))?;
//!
//! // Per request, where they are on the device: one launch, in the order of the stream.
//! fn lookup(decoder: &CudaDecoder, stream: *mut c_void, ids: u64, count: u64, out: u64) -> Result<(), CudaError> {
//!     let request = RawRequest { ids, id_width: IdWidth::I64, count, out, dtype: Dtype::Bf16, missing: 0 };
//!     // SAFETY: the addresses and the stream come from whoever allocated them; see the contract of `enqueue_raw`.
//!     unsafe { decoder.enqueue_raw(stream, &request) }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`CudaDecoder::load`] asks for records piece by piece, for tables that should not be in host memory twice.
//!
//! # With cudarc
//!
//! Addresses and handles are the stable part of this interface. Who has streams and slices of the crate
//! [cudarc](https://docs.rs/cudarc) can pass them instead, checked where raw calls are promised: with the cargo feature
//! `cudarc`, which is off by default, as what it adds changes with cudarc's versions. The version that it takes is
//! exported as `condprog_cuda::cudarc`.
//!
#![cfg_attr(feature = "cudarc", doc = "```no_run")]
#![cfg_attr(not(feature = "cudarc"), doc = "```ignore")]
//! use condprog_cuda::{CudaDecoder, Device, DeviceIds, DeviceOutput, NONE_MISSING};
//!
//! # fn lookup(device: &Device, decoder: &CudaDecoder) -> Result<(), Box<dyn std::error::Error>> {
//! // Per stream: room for ids and rows.
//! let stream = device.cudarc_context()?.new_stream()?;
//! let ids = stream.clone_htod(&[5i32, -1, 0])?;
//! let mut out = stream.alloc_zeros::<u16>(3 * 256)?;
//! let mut missing = stream.clone_htod(&[NONE_MISSING])?;
//!
//! // Per request.
//! decoder.enqueue(
//!     &stream,
//!     DeviceIds::I32(ids.as_view()),
//!     DeviceOutput::Bf16(out.as_view_mut()),
//!     Some(missing.as_view_mut()),
//! )?;
//!
//! // Whoever uses the rows on the same stream needs no synchronization. Here they are copied to the host.
//! let bits: Vec<u16> = stream.clone_dtoh(&out)?;
//! assert_eq!(stream.clone_dtoh(&missing)?, [1]);
//! # Ok(())
//! # }
//! ```
//!
//! # Linking into a serving stack
//!
//! **Streams.** [`CudaDecoder::enqueue_raw`], and `enqueue` of the feature `cudarc`, make one kernel launch on the stream
//! given, and nothing else: no allocation, no copy, no wait, no other stream. So they obey the stream's order and can be
//! captured in a CUDA graph (`examples/stream.rs`). A graph remembers addresses and the number of ids: for batches of
//! another size capture another graph, or pad with -1, which costs a row of zeros each. Requests may be enqueued from
//! any number of threads and streams at once; the table is only read.
//!
//! **Ids** are signed, 32 or 64 bits wide. What is negative or not below the row count gives a row of zeros, as serving
//! stacks want it for padding and for rows that another rank owns. To get an error, pass a word of device memory, set it
//! to [`NONE_MISSING`] in stream order (`cuMemsetD8Async(address, 0xff, 8, stream)`) and look at it later: it holds the
//! first position that named no row.
//!
//! **Outputs** are row-major in request order, in bf16, f16 or f32. They should start at a multiple of 16 bytes; any
//! alignment of a value works, by the general kernel.
//!
//! **Raw calls.** A host in C++ or Python passes addresses and a stream's handle: [`CudaDecoder::enqueue_raw`] with a
//! [`RawRequest`]. Its safety contract is the list in its documentation; in short, the addresses hold what they should,
//! the stream is of the device's context (by default the one of the CUDA runtime and of PyTorch), and everything lives
//! until the kernel has run, or until no graph that captured it will be launched. `examples/c_abi.rs` makes a shared
//! library of it, `examples/c_abi.cpp` and `examples/c_abi.py` call that.
//!
//! **Contexts.** [`Device::open`] takes the device's primary context, [`Device::from_raw_context`] any that is there.
//! Calls push it where it is not current and pop it again, so that each thread's current context is afterwards what it
//! was.
//!
//! **Where the table lies.** [`Placement::Device`] when it fits. [`Placement::Host`] keeps it in page-locked memory that
//! the kernel reads over the bus, in huge pages where the system gives them: those matter, as each row is a random
//! access. [`Placement::Split`] does both, and one launch reads from both. [`CudaDecoder::from_mapping`] reads a mapped
//! file in place, through a [`PinnedMapping`] that page-locks it once; several decoders may share one. Page-locked
//! memory needs the right to lock so much (`ulimit -l`), and is memory that nobody else has: on machines whose GPU
//! shares the host's memory it gains nothing.
//!
//! **Lifetimes.** A decoder keeps its device, its records and its mapping. Dropping it waits for all work of the context
//! and then frees them, so do not drop it, or the last [`Device`], while a stream is capturing. Where the driver refuses
//! to wait, memory and kernels are leaked, for work that is still under way must not find them gone. Records that were
//! given by address ([`CudaDecoder::from_addresses`]) are their owner's to keep.
//!
//! **Segments.** Rows are numbered through the segments of a table in order; each may have its own rate, as may the
//! shards of a checkpoint. Any number is read by one launch. Tables whose segments all have one of the common layouts
//! (2 bits at widths 160 and 256; 1.5, 2.5 and 3 bits at 256) get a kernel made for it, all others the general one.
//!
//! **Errors** are [`CudaError`]s; [`kind`](condprog_core::BackendError::kind) says what generic code needs to know. A
//! launch that is refused enqueued nothing. What fails on the device later is reported by the driver to whoever waits
//! for the stream; after [`DeviceLost`](condprog_core::ErrorKind::DeviceLost) the context takes no more work.
//!
//! **Exactness.** Rows have the bits of the specification, on every device: `cargo test -p condprog-cuda` runs the
//! conformance suite where there is one, and `backend-cuda/gpu-check.sh` runs it and then the benchmark of the command.

mod context;
mod decoder;
mod device;
mod error;
mod host;
mod memory;
mod nvrtc;
mod placement;
#[cfg(feature = "cudarc")]
pub mod plain;
#[cfg(feature = "cudarc")]
mod slices;
mod staging;

pub use context::device_count;
#[cfg(feature = "cudarc")]
pub use cudarc;
pub use decoder::{CudaDecoder, IdWidth, NONE_MISSING, RawRequest};
pub use device::{Code, Device};
pub use error::{CudaError, DriverCode};
pub use memory::PinnedMapping;
pub use nvrtc::compile;
pub use placement::{MappedSegment, PlacedSegment, Placement};
#[cfg(feature = "cudarc")]
pub use slices::{DeviceIds, DeviceOutput};
