//! **Conditional Program (CP)**: the format in which a row of a language model's hashed n-gram table is stored as a
//! short trellis code and a scale, and given back bit-exactly: `row = alpha * f(code)`.
//!
//! This crate is the format. It has no dependencies, needs neither `std` nor an allocator, and contains no unsafe
//! code. `SPEC.md` beside it is normative.
//!
//! # Reading a table
//!
//! A [`Layout`] says what a record is: how many values a row has, at how many bits per value. A [`Segment`] is a run of
//! records of one layout, a [`Table`] is segments whose rows are numbered consecutively. A backend makes a [`Decoder`]
//! of a table; [`ReferenceDecoder`] is the one that is always there, slow and literal.
//!
//! ```
//! use condprog_core::{Decoder, Layout, Missing, Output, Rate, ReferenceDecoder, Segment, Table};
//!
//! // One record of eight values at 2 bits: two bytes of code, then a scale of 1 (0x0c00, little-endian).
//! let records = [0b0001_1011, 0b0110_0011, 0x00, 0x0c];
//! let segments = [Segment { rows: 1, layout: Layout::new(8, Rate::TWO)?, records: &records }];
//! let decoder = ReferenceDecoder::new(Table::new(&segments)?);
//!
//! // Rows come in the order of the ids. -1 names no row and gives zeros, which Missing::Error would refuse.
//! let mut rows = [0.0; 3 * 8];
//! decoder.decode(&[0, -1, 0], Missing::Zero, Output::F32(&mut rows))?;
//! assert_eq!(rows[..8], [19.0, 79.0, 14.0, 36.0, 20.0, 46.0, -5.0, 73.0]);
//! assert!(rows[8..16] == [0.0; 8] && rows[16..] == rows[..8]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Writing a table
//!
//! A [`Job`] is everything that a record depends on besides its row: the layout, the scale rule, how much to search. A
//! backend makes an [`Encoder`] of a job. [`ReferenceEncoder`](encoder::ReferenceEncoder) works in memory that the
//! caller lends it; to code whole tables, use `condprog-cpu`.
//!
//! ```
//! use condprog_core::encoder::{Job, Outcome, ReferenceEncoder, ScaleRule, Search, Workspace, WorkspaceSize};
//! use condprog_core::{Encoder, Layout, Rate, reference};
//!
//! let layout = Layout::new(32, Rate::TWO)?;
//! let size = WorkspaceSize::of(layout);
//! let (mut metrics, mut decisions) = (vec![0; size.metrics], vec![0; size.decisions]);
//! let (mut targets, mut states) = (vec![0; size.targets], vec![0; size.states]);
//! let workspace = Workspace {
//!     metrics: &mut metrics,
//!     decisions: &mut decisions,
//!     targets: &mut targets,
//!     states: &mut states,
//! };
//! let job = Job::new(layout, ScaleRule::Projection, Search::effort(0));
//! let encoder = ReferenceEncoder::new(job, workspace)?;
//!
//! // Two rows; the second one cannot be coded, which does not affect the first.
//! let mut rows = [0.5, -1.0, 0.25, 2.0, -0.5, 1.5, -1.75, 0.75].repeat(8);
//! rows[32 + 3] = f32::NAN;
//! let mut records = vec![0; 2 * layout.record_bytes()];
//! let mut outcomes = [Ok(Outcome::Zero); 2];
//! encoder.encode(&rows, &mut records, &mut outcomes)?;
//! assert_eq!(outcomes[0], Ok(Outcome::Coded));
//! assert_eq!(outcomes[1].unwrap_err().to_string(), "value in column 3 is NaN, expected a finite number");
//!
//! let mut restored = [0.0; 32];
//! reference::decode_f32(layout, &records[..layout.record_bytes()], &mut restored);
//! let error: f32 = rows.iter().zip(&restored).map(|(a, b)| (a - b) * (a - b)).sum();
//! assert!(error < 0.15 * rows[..32].iter().map(|a| a * a).sum::<f32>());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Writing a backend
//!
//! Implement [`Decoder`], whose requests come checked as a [`Batch`], or [`Encoder`], whose rows come checked as an
//! [`EncodeBatch`](encoder::EncodeBatch); say through [`ErrorKind`] what generic code needs to know of an error; then let
//! `condprog-conformance` compare every bit. The modules are named and ordered as the sections of `SPEC.md`:
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
//! | [`encoder`] | jobs, the [`Encoder`] trait, the literal encoder | annex A |
//! | [`hazmat`] | the parts that encoders share | annex A |
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod decoder;
pub mod encoder;
pub mod hazmat;
mod job;
pub mod program;
pub mod record;
pub mod reference;
pub mod rounding;
pub mod scale;
pub mod table;
pub mod trellis;

pub use decoder::{
    BackendError, Batch, BatchError, DecodeError, Decoder, Dtype, ErrorKind, Missing, Output, ReferenceDecoder,
    ShapeMismatch,
};
pub use encoder::{Encoder, Job};
pub use program::Program;
pub use record::Record;
pub use scale::Scale;
pub use table::{Segment, Segments, Table, TableError, TableShape};
pub use trellis::{Layout, LayoutError, Rate};

/// The format version that this crate reads and writes: it changes exactly when decoded bits change.
pub const FORMAT_VERSION: u32 = 1;
