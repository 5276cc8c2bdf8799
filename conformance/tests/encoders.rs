//! Every CPU level through the encoder suite.

use condprog_conformance::encoder_suite;
use condprog_cpu::{Encoder, Level};

encoder_suite!(cpu_portable, "cpu/portable", |job, rows, records| {
    Encoder::with_level(job.layout, job.rule, job.search, Level::Portable).map(|encoder| encoder.encode(rows, records))
});
encoder_suite!(cpu_avx2, "cpu/avx2", |job, rows, records| {
    Encoder::with_level(job.layout, job.rule, job.search, Level::Avx2).map(|encoder| encoder.encode(rows, records))
});
encoder_suite!(cpu_avx512, "cpu/avx512", |job, rows, records| {
    Encoder::with_level(job.layout, job.rule, job.search, Level::Avx512).map(|encoder| encoder.encode(rows, records))
});
