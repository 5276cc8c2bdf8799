//! Proof that a backend gives the bits of SPEC.md: golden vectors, and a suite that every backend runs in full.
//!
//! A backend opts in with one line in a test of its own; it cannot leave a case out:
//!
//! ```
//! # use condprog_core::{ReferenceDecoder, ShapeMismatch};
//! condprog_conformance::decoder_suite!(reference, |table| Ok::<_, ShapeMismatch>(ReferenceDecoder::new(table)));
//! ```
//!
//! [`decoder_suite!`] and [`encoder_suite!`] make tests. Programs call [`check_decoder`] and [`check_encoder`] instead,
//! and print the [`Report`]: `condprog conformance` does so for every backend of a machine.
//!
//! A suite compares a backend with core's reference, bit for bit: outputs are poisoned before, guarded on both sides
//! and start at every alignment; ids are of every kind; tables have many segments or none; random cases follow from a
//! seed that each failure prints (`CONDPROG_SEED`). The number of cases is part of the verdict, so that a suite that
//! ends early has failed. A device that is not there is a [`Verdict`] of its own; the list in [`REQUIRE_VARIABLE`]
//! turns it into a failure.
//!
//! # Vectors
//!
//! The golden vectors lie in `vectors/v1/`, beside the table files that must be refused; [`vectors`] reads them. Only
//! core's reference makes them: `cargo run --release -p condprog-conformance --example vectors -- decode` writes them
//! again, and a test compares.
#![forbid(unsafe_code)]

mod bits;
mod cases;
mod decode;
mod encode;
pub mod input;
mod json;
mod oracle;
mod report;
pub mod vectors;

#[doc(hidden)]
pub use condprog_core as core;
pub use decode::{Backend, DECODE_CASES, check_decoder, check_with_device, first_failure};
pub use encode::{ENCODE_CASES, check_encoder, first_encoder_failure};
pub use oracle::reference;
pub use report::{REQUIRE_VARIABLE, Report, Verdict, unmet};

/// A test named `$test` that runs the decoder suite.
///
/// * `decoder_suite!(wgpu, |table| WgpuDecoder::new(table));` takes an expression that makes a decoder from a
///   [`Table`](condprog_core::Table), as a `Result` whose error is a [`BackendError`](condprog_core::BackendError).
/// * `decoder_suite!(avx2, "cpu/avx2", |table| ...);` gives the backend another name than the test.
/// * `decoder_suite!(wgpu, "wgpu", Device = device(), |device, table| WgpuDecoder::new(device, table));` makes a
///   device first, once, and lends it (`&Device`) to every decoder. `device()` gives a `Result` as well.
///
/// An error of kind `Unavailable` counts as "no device", which is a failure only where the environment variable
/// `CONDPROG_REQUIRE` lists the backend's name.
#[macro_export]
macro_rules! decoder_suite {
    ($test:ident, |$table:ident| $decoder:expr) => {
        $crate::decoder_suite!($test, stringify!($test), |$table| $decoder);
    };
    ($test:ident, $name:expr, |$table:ident| $decoder:expr) => {
        #[test]
        fn $test() {
            struct Under;
            impl $crate::Backend for Under {
                fn decoder<'t>(
                    &'t self,
                    $table: $crate::core::Table<'t>,
                ) -> Result<impl $crate::core::Decoder, impl $crate::core::BackendError> {
                    $decoder
                }
            }
            $crate::check_decoder($name, &Under).assert();
        }
    };
    ($test:ident, $name:expr, $Device:ty = $open:expr, |$device:ident, $table:ident| $decoder:expr) => {
        #[test]
        fn $test() {
            struct Under($Device);
            impl $crate::Backend for Under {
                fn decoder<'t>(
                    &'t self,
                    $table: $crate::core::Table<'t>,
                ) -> Result<impl $crate::core::Decoder, impl $crate::core::BackendError> {
                    let $device = &self.0;
                    $decoder
                }
            }
            $crate::check_with_device($name, $open.map(Under)).assert();
        }
    };
}

/// A test named `$test` that runs the encoder suite: golden rows, and rows by formula against core's reference.
///
/// `encoder_suite!(avx2, "cpu/avx2", |job| CpuEncoder::with_isa(job, Isa::Avx2));` takes an expression that makes an
/// [`Encoder`](condprog_core::Encoder) of a [`Job`](condprog_core::Job), as a `Result` whose error is a
/// [`BackendError`](condprog_core::BackendError). "No device" is as in [`decoder_suite!`].
#[macro_export]
macro_rules! encoder_suite {
    ($test:ident, |$job:ident| $encoder:expr) => {
        $crate::encoder_suite!($test, stringify!($test), |$job| $encoder);
    };
    ($test:ident, $name:expr, |$job:ident| $encoder:expr) => {
        #[test]
        fn $test() {
            $crate::check_encoder($name, |$job: $crate::core::Job| $encoder).assert();
        }
    };
}
