//! The conformance suite on the CUDA kernels, on the CPU, in three orders of threads. `CONDPROG_HOST_FLAGS` builds the
//! kernels with more flags, such as those of a sanitizer.

use std::path::Path;

use condprog_conformance::decoder_suite;
use condprog_cuda_host::{HostDecoder, Order, Program, Shape};

fn program() -> Result<Program, condprog_cuda_host::HostError> {
    Program::new(Path::new(env!("CARGO_TARGET_TMPDIR")))
}

decoder_suite!(forward, "cuda-host", Program = program(), |program, table| HostDecoder::new(
    program,
    Order::Forward,
    Shape::SMALL,
    table
));

decoder_suite!(reverse, "cuda-host", Program = program(), |program, table| HostDecoder::new(
    program,
    Order::Reverse,
    Shape { threads: 96, blocks: 3, skew: 0, id_bytes: 4 },
    table
));

decoder_suite!(shuffled, "cuda-host", Program = program(), |program, table| HostDecoder::new(
    program,
    Order::Shuffled,
    Shape { threads: 128, blocks: 1, skew: 0, id_bytes: 8 },
    table
));

// The general kernel on every layout, with outputs that are aligned for a value only.
decoder_suite!(unaligned, "cuda-host", Program = program(), |program, table| HostDecoder::new(
    program,
    Order::Forward,
    Shape { skew: 4, ..Shape::SMALL },
    table
));
