//! Rows per second on the GPU that this environment offers, beside the CPU backend in the same run.
//!
//! ```text
//! cargo run --release -p condprog-wgpu --example speed [table rows [repeats]]
//! ```
//!
//! 196,608 random rows of d = 256 at 2 bits to bf16, medians of the repeats: both dispatch shapes, several sizes of a
//! dispatch, and what the stages take one after the other. Then requests of 48 rows, as decoding a token makes them.

use std::time::{Duration, Instant};

use condprog_conformance::input::{Stream, random_records};
use condprog_core::{Batch, Decoder, Layout, Missing, Output, Rate, Segment, Table};
use condprog_cpu::CpuDecoder;
use condprog_wgpu::{Gpu, Options, WgpuDecoder};

const DIM: u32 = 256;
const REQUEST: usize = 196_608;
const FEW: usize = 48;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let rows: u32 = arguments.next().map_or(Ok(1 << 20), |rows| rows.parse())?;
    let repeats: usize = arguments.next().map_or(Ok(7), |repeats| repeats.parse())?;

    let layout = Layout::new(DIM, Rate::TWO)?;
    let records = random_records(layout, rows, 1);
    let segments = [Segment { rows: u64::from(rows), layout, records: &records }];
    let table = Table::new(&segments)?;
    let mut stream = Stream::new(2);
    let ids: Vec<i64> = (0..REQUEST).map(|_| i64::from(stream.below(rows))).collect();
    let mut out = vec![0u16; REQUEST * DIM as usize];

    let cpu = CpuDecoder::new(table)?;
    let time = median(repeats, || cpu.decode(&ids, Missing::Error, Output::Bf16(&mut out)))?;
    println!("{:44} {:6.2} M rows/s", format!("cpu ({})", cpu.isa()), rate(time));
    let expected = out.clone();

    let per_row = DIM.div_ceil(condprog_kernels::wgsl::GROUP);
    for (groups_per_thread, dispatch_mib) in [(1, 8), (4, 8), (per_row, 8), (per_row, 1), (per_row, 32)] {
        let mut options = Options::default();
        options.groups_per_thread = Some(groups_per_thread);
        options.dispatch_bytes = Some(dispatch_mib << 20);
        let gpu = Gpu::open(&options)?;
        let decoder = WgpuDecoder::new(&gpu, table)?;
        if (groups_per_thread, dispatch_mib) == (1, 8) {
            println!("{}, table of {} bytes on the device", gpu.adapter(), decoder.table_bytes());
        }
        out.fill(0);
        let time = median(repeats, || decoder.decode(&ids, Missing::Error, Output::Bf16(&mut out)))?;
        assert!(out == expected, "rows differ from the CPU's");

        let mut stages = (0..repeats)
            .map(|_| {
                let batch = Batch::new(decoder.shape(), &ids, Missing::Error, Output::Bf16(&mut out))?;
                Ok(decoder.decode_timed(batch)?)
            })
            .collect::<Result<Vec<_>, Box<dyn std::error::Error>>>()?;
        stages.sort_by_key(|stages| stages.upload + stages.kernel + stages.readback);
        let stages = stages[repeats / 2];
        let share = |stage: Duration| {
            100.0 * stage.as_secs_f64() / (stages.upload + stages.kernel + stages.readback).as_secs_f64()
        };
        let shape = match groups_per_thread {
            1 => "a thread per group of 8 values".to_owned(),
            n if n == per_row => "a thread per row".to_owned(),
            n => format!("a thread per {n} groups"),
        };
        println!(
            "{:44} {:6.2} M rows/s; upload {:.0} %, kernel {:.0} % ({:.2} M rows/s), readback {:.0} %",
            format!("{shape}, {dispatch_mib} MiB"),
            rate(time),
            share(stages.upload),
            share(stages.kernel),
            rate(stages.kernel),
            share(stages.readback),
        );
    }

    let decoder = WgpuDecoder::new(&Gpu::open(&Options::default())?, table)?;
    let few = &mut out[..FEW * DIM as usize];
    let time = median(1001, || decoder.decode(&ids[..FEW], Missing::Error, Output::Bf16(few)))?;
    println!("{:44} {:6.0} us", format!("a request of {FEW} rows"), time.as_secs_f64() * 1e6);
    Ok(())
}

fn rate(time: Duration) -> f64 {
    REQUEST as f64 / time.as_secs_f64() / 1e6
}

/// Median of a few runs, after one to warm up.
fn median<E>(repeats: usize, mut run: impl FnMut() -> Result<(), E>) -> Result<Duration, E> {
    run()?;
    let mut times = (0..repeats)
        .map(|_| {
            let started = Instant::now();
            run().map(|()| started.elapsed())
        })
        .collect::<Result<Vec<_>, E>>()?;
    times.sort();
    Ok(times[repeats / 2])
}
