//! Decoding speed, compressed rows beside raw ones in the same run, medians of nine.
//!
//! `cargo run --release -p condprog-cpu --example decode_speed -- [ROWS]`, 8,388,608 rows of 256 values unless said: the
//! table takes 0.6 GB, the raw bf16 table beside it 4.3 GB. Both lie on huge pages where the system has them.

use std::hint::black_box;
use std::time::Instant;

use condprog_core::{Decoder, Layout, Missing, Output, Rate, Segment, Table};
use condprog_cpu::{CpuDecoder, Isa};
use condprog_memory::HugeBuffer;
use rayon::prelude::*;

const DIM: usize = 256;
const BLOCK: usize = 16;
/// 4,096 tokens of 48 rows.
const REQUEST: usize = 4096 * 48;
const RUNS: usize = 9;

fn main() {
    let rows: usize = std::env::args().nth(1).map_or(8 << 20, |arg| arg.parse().expect("a number of rows"));
    let layout = Layout::new(DIM as u32, Rate::TWO).expect("a layout of format version 1");
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    // Any bytes are valid records.
    let mut records = HugeBuffer::<u8>::zeroed(rows * layout.record_bytes()).expect("memory");
    records.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&random.next().to_le_bytes()));
    let segments = [Segment { rows: rows as u64, layout, records: &records }];
    let table = Table::new(&segments).expect("a table");
    let decoders = || {
        let supported = Isa::ALL.into_iter().filter(|isa| isa.is_supported());
        supported.map(|isa| CpuDecoder::with_isa(table, isa).expect("supported"))
    };

    println!("64 rows of {DIM} values at 2 bits from cache, one thread:");
    let ids: Vec<i64> = (0..64).collect();
    let (mut half, mut single) = (vec![0; ids.len() * DIM], vec![0.0; ids.len() * DIM]);
    for decoder in decoders() {
        for dtype in condprog_core::Dtype::ALL {
            let mut times = Vec::new();
            for _ in 0..RUNS {
                let start = (Instant::now(), time_stamp());
                for _ in 0..200 {
                    let output = match dtype {
                        condprog_core::Dtype::Bf16 => Output::Bf16(&mut half),
                        condprog_core::Dtype::F16 => Output::F16(&mut half),
                        condprog_core::Dtype::F32 => Output::F32(&mut single),
                    };
                    decoder.decode(black_box(&ids), Missing::Zero, output).expect("decodes");
                }
                let per_row = 1.0 / (200 * ids.len()) as f64;
                let cycles = (time_stamp() - start.1) as f64 * per_row;
                times.push((start.0.elapsed().as_secs_f64() * 1e9 * per_row, cycles));
            }
            let (ns, cycles) = median(times, |&(ns, _)| ns);
            println!("  {:8} {dtype:4} {ns:7.1} ns, {cycles:6.0} time-stamp cycles per row", decoder.isa().name());
        }
    }

    println!("random rows of {rows} to bf16, beside a prefetched copy of raw bf16 rows:");
    let mut raw = HugeBuffer::<u8>::zeroed(rows * DIM * 2).expect("memory");
    raw.chunks_exact_mut(4096).for_each(|page| page[0] = 1);
    let mut out = vec![0u16; REQUEST * DIM];
    for (threads, request) in [(1, 1024), (1, REQUEST), (2, 1024), (2, REQUEST)] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        for decoder in decoders() {
            let mut times = Vec::new();
            for _ in 0..RUNS {
                let ids: Vec<i64> = (0..REQUEST).map(|_| (random.next() % rows as u64) as i64).collect();
                let start = Instant::now();
                pool.install(|| {
                    for ids in ids.chunks(request) {
                        let out = &mut out[..ids.len() * DIM];
                        decoder.decode(ids, Missing::Zero, Output::Bf16(out)).expect("decodes");
                    }
                });
                let packed = start.elapsed().as_secs_f64();
                let start = Instant::now();
                pool.install(|| ids.chunks(request).for_each(|ids| gather(&raw, ids, &mut out[..ids.len() * DIM])));
                times.push((packed, start.elapsed().as_secs_f64()));
            }
            let ns = |seconds: f64| seconds * 1e9 / REQUEST as f64;
            let (packed, copied) = (median(times.clone(), |t| t.0).0, median(times.clone(), |t| t.1).1);
            let (a, b) = median(times, |t| t.1 / t.0);
            println!(
                "  {threads} thread(s), requests of {request:6} rows, {:8} {:6.1} ns per compressed row, {:6.1} per raw row: {:.2} times as many",
                decoder.isa().name(),
                ns(packed),
                ns(copied),
                b / a
            );
        }
    }
}

/// Copies rows as the decoder decodes them: a block's lines are asked for while the block before is copied.
fn gather(raw: &[u8], ids: &[i64], out: &mut [u16]) {
    out.par_chunks_mut(256 * DIM).zip(ids.par_chunks(256)).for_each(|(out, ids)| {
        let row = |id: i64| &raw[id as usize * DIM * 2..][..DIM * 2];
        let fetch = |ids: &[i64]| {
            for &id in ids {
                row(id).chunks(64).for_each(prefetch);
            }
        };
        fetch(&ids[..BLOCK.min(ids.len())]);
        let blocks = ids.chunks(BLOCK).zip(ids.chunks(BLOCK).skip(1).chain([&[][..]]));
        for ((ids, next), out) in blocks.zip(out.chunks_mut(BLOCK * DIM)) {
            fetch(next);
            for (&id, out) in ids.iter().zip(out.chunks_exact_mut(DIM)) {
                bytemuck::cast_slice_mut(out).copy_from_slice(row(id));
            }
        }
    });
}

fn median<T: Copy>(mut values: Vec<T>, key: impl Fn(&T) -> f64) -> T {
    values.sort_by(|a, b| key(a).total_cmp(&key(b)));
    values[values.len() / 2]
}

#[cfg(target_arch = "x86_64")]
fn prefetch(line: &[u8]) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch is a hint and does not fault.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) }
}

#[cfg(not(target_arch = "x86_64"))]
fn prefetch(_: &[u8]) {}

#[cfg(target_arch = "x86_64")]
fn time_stamp() -> u64 {
    // SAFETY: every x86-64 CPU has the counter.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn time_stamp() -> u64 {
    0
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
