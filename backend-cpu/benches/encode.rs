//! Rows per second of encoding, effort 0, one thread and two.

use condprog_core::encoder::{Outcome, ScaleRule, Search};
use condprog_core::{Encoder, Job, Layout, Rate};
use condprog_cpu::{CpuEncoder, Isa};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn encode(criterion: &mut Criterion) {
    let layout = Layout::new(256, Rate::TWO).expect("a layout");
    let mut seed = 1u64;
    let mut uniform = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    let rows: Vec<f32> = (0..128 * 256).map(|_| uniform() + uniform() + uniform() + uniform()).collect();
    let (mut records, mut outcomes) = (vec![0; 128 * layout.record_bytes()], [Ok(Outcome::Zero); 128]);
    let mut group = criterion.benchmark_group("encode, 256 values at 2 bits");
    group.sample_size(10).throughput(Throughput::Elements(128));
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_supported()) {
        for threads in [1, 2] {
            let job = Job::new(layout, ScaleRule::Norm, Search::effort(0));
            let encoder = CpuEncoder::with_isa(job, isa).expect("supported");
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
            group.bench_function(format!("{isa}, {threads} thread(s)"), |bencher| {
                bencher.iter(|| pool.install(|| encoder.encode(&rows, &mut records, &mut outcomes)));
            });
        }
    }
}

criterion_group!(benches, encode);
criterion_main!(benches);
