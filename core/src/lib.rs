//! **Conditional Program (CP)**: the format in which a row of a language model's hashed n-gram table is stored as a
//! short trellis code and a scale, and given back bit-exactly: `row = alpha * f(code)`.
//!
//! This crate is the format. It has no dependencies, needs neither `std` nor an allocator, and contains no unsafe
//! code. `SPEC.md` beside it is normative; the modules are named and ordered as its sections:
//!
//! | module | what it holds | SPEC |
//! |---|---|---|
//! | [`program`] | the 128 levels and the state hash | 3 |
//! | [`trellis`] | rates, widths, the bitshift trellis | 4 |
//! | [`scale`] | the 16-bit scale field | 5 |
//! | [`record`] | code and scale in one record | 6 |
//! | [`rounding`] | exact f32, bf16 and f16 outputs | 7 |
//! | [`table`], [`decoder`] | segments, requests, the [`Decoder`] trait | 8 |
//! | [`reference`](mod@reference) | the literal decoder | 3 to 7 |
//! | [`encoder`] | the reference encoder, in a workspace of the caller's | annex A |
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod decoder;
pub mod encoder;
pub mod error;
pub mod program;
pub mod record;
pub mod reference;
pub mod rounding;
pub mod scale;
pub mod table;
pub mod trellis;

pub use decoder::{
    BackendError, Batch, DecodeError, Decoder, Dtype, ErrorKind, Missing, Output, ReferenceDecoder, ShapeMismatch,
};
pub use error::{BatchError, LayoutError, TableError};
pub use record::Record;
pub use scale::Scale;
pub use table::{Segment, Table, TableShape};
pub use trellis::{Layout, Rate};

/// The format version that this crate reads and writes: it changes exactly when decoded bits change.
pub const FORMAT_VERSION: u32 = 1;
