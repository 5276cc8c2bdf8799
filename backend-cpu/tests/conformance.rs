//! The reference and the CPU backend, with every instruction set and at other thread counts than this machine's, through the suites.

use condprog_conformance::{Backend, check_decoder, check_encoder, decoder_suite, encoder_suite};
use condprog_core::{BackendError, Decoder, ReferenceDecoder, ShapeMismatch, Table};
use condprog_cpu::{CpuDecoder, CpuEncoder, Isa};

decoder_suite!(reference, |table| Ok::<_, ShapeMismatch>(ReferenceDecoder::new(table)));
decoder_suite!(decode_portable, "cpu/portable", |table| CpuDecoder::with_isa(table, Isa::Portable));
decoder_suite!(decode_avx2, "cpu/avx2", |table| CpuDecoder::with_isa(table, Isa::Avx2));
decoder_suite!(decode_avx512, "cpu/avx512", |table| CpuDecoder::with_isa(table, Isa::Avx512));

encoder_suite!(encode_portable, "cpu/portable", |job| CpuEncoder::with_isa(job, Isa::Portable));
encoder_suite!(encode_avx2, "cpu/avx2", |job| CpuEncoder::with_isa(job, Isa::Avx2));
encoder_suite!(encode_avx512, "cpu/avx512", |job| CpuEncoder::with_isa(job, Isa::Avx512));

struct Cpu(Isa);

impl Backend for Cpu {
    fn decoder<'t>(&'t self, table: Table<'t>) -> Result<impl Decoder, impl BackendError> {
        CpuDecoder::with_isa(table, self.0)
    }
}

fn check(threads: usize) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads can be had");
    let cpu = Cpu(Isa::best());
    let name = format!("cpu/{} on {threads} threads", cpu.0);
    pool.install(|| {
        assert_eq!(rayon::current_num_threads(), threads);
        check_decoder(&name, &cpu).assert();
        check_encoder(&name, |job| CpuEncoder::with_isa(job, cpu.0)).assert();
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
