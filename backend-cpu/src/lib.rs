//! Conditional Program on the CPU: [`CpuEncoder`] turns rows into records, [`CpuDecoder`] records into rows.
//!
//! ```
//! use condprog_core::encoder::{Outcome, ScaleRule, Search};
//! use condprog_core::{Decoder, Encoder, Job, Layout, Missing, Output, Rate, Segment, Table};
//! use condprog_cpu::{CpuDecoder, CpuEncoder};
//!
//! // A hundred rows of 64 values, to be coded at 2 bits a value: 18 bytes a row.
//! let rows: Vec<f32> = (0..100 * 64).map(|i| ((i * i % 1009) as f32 / 504.0 - 1.0) * 0.02).collect();
//! let job = Job::new(Layout::new(64, Rate::TWO)?, ScaleRule::Projection, Search::effort(0));
//! let (mut records, mut outcomes) = (vec![0; 100 * job.layout.record_bytes()], vec![Ok(Outcome::Zero); 100]);
//! CpuEncoder::new(job.clone())?.encode(&rows, &mut records, &mut outcomes)?;
//! assert!(outcomes.iter().all(|outcome| *outcome == Ok(Outcome::Coded)));
//!
//! let segments = [Segment { rows: 100, layout: job.layout, records: &records }];
//! let decoder = CpuDecoder::new(Table::new(&segments)?)?;
//! let mut restored = vec![0.0; 3 * 64];
//! decoder.decode(&[99, 0, -1], Missing::Zero, Output::F32(&mut restored))?;
//! assert!(rows[99 * 64..].iter().zip(&restored).all(|(row, restored)| (row - restored).abs() < 0.02));
//! assert!(restored[2 * 64..] == [0.0; 64]); // -1 names no row
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Instruction sets
//!
//! The best [`Isa`] of the CPU is taken, unless the environment variable `CONDPROG_CPU_LEVEL` or
//! [`with_isa`](CpuDecoder::with_isa) names another one: portable code for any CPU, AVX2, AVX-512. All give the same bits.
//!
//! # Owners
//!
//! A [`CpuDecoder`] keeps whatever it is given that has [`Segments`](condprog_core::Segments): a borrowed
//! [`Table`](condprog_core::Table) as above, or an owner of records, and then it can be kept, sent to other threads and
//! shared by them.
//!
//! # Threads
//!
//! With the feature `rayon`, which is on by default, large requests and batches are spread over the threads of the current
//! rayon pool. Without it everything runs on the calling thread. Bits do not depend on it, and neither decoder nor encoder
//! locks its callers out: both can be used from many threads at once.
//!
//! # Memory
//!
//! Random rows come several times faster from huge pages; `condprog-memory` asks the system for them. An encoder takes
//! `dim` times 128 KiB for each thread that works at the same time, and keeps it until it is dropped.

mod decode;
mod encode;
mod error;
mod isa;

pub use decode::CpuDecoder;
pub use encode::CpuEncoder;
pub use error::CpuError;
pub use isa::{ISA_VARIABLE, Isa, UnsupportedIsa};

/// The program that the code here is written for.
const PROGRAM: condprog_core::Program = condprog_core::Program::V1;
