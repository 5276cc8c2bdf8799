//! The reference and every CPU level through the suite.

use condprog_conformance::decoder_suite;
use condprog_core::{ReferenceDecoder, ShapeMismatch};
use condprog_cpu::{CpuDecoder, Level};

decoder_suite!(reference, |table| Ok::<_, ShapeMismatch>(ReferenceDecoder::new(table)));
decoder_suite!(cpu_portable, "cpu/portable", |table| CpuDecoder::with_level(table, Level::Portable));
decoder_suite!(cpu_avx2, "cpu/avx2", |table| CpuDecoder::with_level(table, Level::Avx2));
decoder_suite!(cpu_avx512, "cpu/avx512", |table| CpuDecoder::with_level(table, Level::Avx512));
