//! What Conditional Program costs in quality: every method it is compared with, on the same rows and at its true
//! storage cost; error measures; and what the methods do to the output of a small language model.
//!
//! | module | what it holds |
//! |---|---|
//! | [`method`] | the methods and the bytes per row of each |
//! | [`measure`] | errors of restored rows, Gaussianity of source rows |
//! | [`language_model`] | output KL on a language model with a hashed n-gram memory |
//! | [`harness`] | runs over methods, and the CSV files they leave |
//! | [`report`] | a table's report: page, CSV, plots |
//! | [`interval`] | means and ratios with 95 % intervals |
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
