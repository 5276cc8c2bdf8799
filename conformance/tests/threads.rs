//! The CPU backend at other thread counts than this machine's: the same bits.

use condprog_conformance::{Backend, EncoderBackend, Job, check_decoder, check_encoder};
use condprog_core::encoder::{EncodeError, Outcome};
use condprog_core::{BackendError, Decoder, Table};
use condprog_cpu::{CpuDecoder, Encoder, Level};

struct Cpu(Level);

impl Backend for Cpu {
    fn decoder<'t>(&'t self, table: Table<'t>) -> Result<impl Decoder, impl BackendError> {
        CpuDecoder::with_level(table, self.0)
    }
}

impl EncoderBackend for Cpu {
    fn encode(
        &self,
        job: Job,
        rows: &[f32],
        records: &mut [u8],
    ) -> Result<Vec<Result<Outcome, EncodeError>>, impl BackendError> {
        Encoder::with_level(job.layout, job.rule, job.search, self.0).map(|encoder| encoder.encode(rows, records))
    }
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
