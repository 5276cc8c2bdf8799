//! Rows per second of encoding, effort 0, one thread and two.

use condprog_core::encoder::{ScaleRule, Search};
use condprog_core::{Layout, Rate};
use condprog_cpu::{Encoder, Level};
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
    let mut records = vec![0; 128 * layout.record_bytes()];
    let mut group = criterion.benchmark_group("encode, 256 values at 2 bits");
    group.sample_size(10).throughput(Throughput::Elements(128));
    for level in Level::ALL.into_iter().filter(|level| level.is_supported()) {
        for threads in [1, 2] {
            let encoder = Encoder::with_level(layout, ScaleRule::Norm, Search::effort(0), level).expect("supported");
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
            group.bench_function(format!("{level}, {threads} thread(s)"), |bencher| {
                bencher.iter(|| pool.install(|| encoder.encode(&rows, &mut records)));
            });
        }
    }
}

criterion_group!(benches, encode);
criterion_main!(benches);
