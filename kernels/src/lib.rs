//! The device kernels of Conditional Program as text, for the backends to compile.
//!
//! Checks that need no device are this crate's tests; every number that `condprog-core` defines is asserted there.
#![no_std]
#![forbid(unsafe_code)]

pub mod cuda;
pub mod wgsl;
