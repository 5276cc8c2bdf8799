//! The reference and the CPU backend, at every level and at other thread counts than this machine's, through the suites.

use condprog_conformance::backends::cpu::Cpu;
use condprog_conformance::{check_decoder, check_encoder, decoder_suite, encoder_suite};
use condprog_core::encoder::{EncodeError, Outcome};
use condprog_core::{BackendError, Job, ReferenceDecoder, ShapeMismatch};
use condprog_cpu::{CpuDecoder, Encoder, Level};

decoder_suite!(reference, |table| Ok::<_, ShapeMismatch>(ReferenceDecoder::new(table)));
decoder_suite!(decode_portable, "cpu/portable", |table| CpuDecoder::with_level(table, Level::Portable));
decoder_suite!(decode_avx2, "cpu/avx2", |table| CpuDecoder::with_level(table, Level::Avx2));
decoder_suite!(decode_avx512, "cpu/avx512", |table| CpuDecoder::with_level(table, Level::Avx512));

encoder_suite!(encode_portable, "cpu/portable", |job, rows, records| encode(Level::Portable, job, rows, records));
encoder_suite!(encode_avx2, "cpu/avx2", |job, rows, records| encode(Level::Avx2, job, rows, records));
encoder_suite!(encode_avx512, "cpu/avx512", |job, rows, records| encode(Level::Avx512, job, rows, records));

fn encode(
    level: Level,
    job: Job,
    rows: &[f32],
    records: &mut [u8],
) -> Result<Vec<Result<Outcome, EncodeError>>, impl BackendError> {
    Encoder::with_level(job.layout, job.rule, job.search, level).map(|encoder| encoder.encode(rows, records))
}

fn check(threads: usize) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads can be had");
    let cpu = Cpu(Level::best());
    let name = format!("cpu/{} on {threads} threads", cpu.0);
    pool.install(|| {
        assert_eq!(rayon::current_num_threads(), threads);
        check_decoder(&name, &cpu).assert();
        check_encoder(&name, &cpu).assert();
    });
}

#[test]
fn one_thread() {
    check(1);
}

#[test]
fn seven_threads() {
    check(7);
}
