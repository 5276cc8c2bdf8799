//! What Conditional Program costs in quality: every method it is compared with, on the same rows and at its true
//! storage cost; error measures; and what the methods do to the output of a small language model.
//!
//! ```
//! use condprog_eval::measure::Measures;
//! use condprog_eval::{Method, Origin, Rows, Subject};
//!
//! // Rows under test, and others for methods that fit a codebook.
//! let (rows, fit) = (Rows::gaussian(64, 128, 1), Rows::gaussian(64, 128, 2));
//! let (rms, largest) = (fit.rms(), fit.largest());
//! let origin = Origin { fit: &fit, rms, largest, source_bytes: 256.0, table_rows: None };
//! let mut subject = Subject::new(&rows, origin);
//! let mut errors = Vec::new();
//! for method in Method::matching(["cp-2-e0-norm", "rtn-2-asym-range"])? {
//!     let restored = subject.restore(method)?;
//!     let measures = Measures::of(&rows, &restored.rows, None);
//!     println!("{method}: {} bytes per row, relative MSE {:.4}", restored.row_bytes, measures.relative_mse.mean);
//!     errors.push(measures.relative_mse.mean);
//! }
//! assert!(errors[0] < 0.5 * errors[1]);
//! # Ok::<(), condprog_eval::Error>(())
//! ```
//!
//! A number of one method means little: measure all on the same rows, and read [`interval`]s before differences.
//! `docs/results.md` has what comes out; `eval/results.sh` makes it again.
//!
//! | module | what it holds |
//! |---|---|
//! | [`method`] | the methods and the bytes per row of each |
//! | [`measure`] | errors of restored rows, Gaussianity of source rows |
//! | [`language_model`] | output KL on a language model with a hashed n-gram memory |
//! | [`harness`] | runs over methods, and the CSV files they leave |
//! | [`allocate`] | rates by how often rows are asked for |
//! | [`report`] | a table's report: page, CSV, plots |
//! | [`interval`] | means and ratios with 95 % intervals |
//! | [`rows`], [`table`], [`noise`] | rows in memory, rows and traces from files, random rows |
#![forbid(unsafe_code)]

pub mod allocate;
pub mod error;
pub mod harness;
pub mod interval;
mod kmeans;
pub mod language_model;
pub mod measure;
pub mod method;
pub mod noise;
pub mod report;
pub mod rows;
pub mod table;

pub use error::Error;
pub use method::{Method, Origin, Restored, Subject};
pub use rows::Rows;
