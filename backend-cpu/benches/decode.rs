//! Rows per second of decoding: from cache, and random rows of a table larger than any cache.
//!
//! The comparison with raw rows is in the example `decode_speed`, which measures both in turn.

use std::hint::black_box;

use condprog_core::{Decoder, Layout, Missing, Output, Rate, Segment, Table};
use condprog_cpu::{CpuDecoder, Isa};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn decode(criterion: &mut Criterion) {
    let mut seed = 1u64;
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for (name, rows) in [("cached", 64), ("memory", 4 << 20)] {
        let mut group = criterion.benchmark_group(format!("decode {name}, 256 values at 2 bits to bf16"));
        group.sample_size(20);
        let layout = Layout::new(256, Rate::TWO).expect("a layout");
        // Any bytes are valid records.
        let records: Vec<u8> = (0..rows * layout.record_bytes() / 8).flat_map(|_| next().to_le_bytes()).collect();
        let segments = [Segment { rows: rows as u64, layout, records: &records }];
        let table = Table::new(&segments).expect("a table");
        let ids: Vec<i64> = (0..1024).map(|_| (next() % rows as u64) as i64).collect();
        let mut out = vec![0; ids.len() * 256];
        group.throughput(Throughput::Elements(ids.len() as u64));
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_supported()) {
            let decoder = CpuDecoder::with_isa(table, isa).expect("supported");
            // On one thread: requests this small stay on it when the pool has no other.
            let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
            group.bench_function(isa.name(), |bencher| {
                pool.install(|| {
                    bencher.iter(|| {
                        decoder.decode(black_box(&ids), Missing::Zero, Output::Bf16(&mut out)).expect("decodes");
                    });
                });
            });
        }
    }
}

criterion_group!(benches, decode);
criterion_main!(benches);
