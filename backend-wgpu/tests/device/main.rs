//! The backend on the GPU of this environment, beyond conformance: sizes, steady state, errors, concurrency, and that
//! the suite sees a wrong kernel.

mod concurrent;
mod errors;
mod existing;
mod mutations;
mod sizes;
mod steady;
mod support;
