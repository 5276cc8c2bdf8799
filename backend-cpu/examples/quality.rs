//! Relative MSE of restored Gaussian rows, as the CSV `backend-cpu/quality.csv` holds it.
//!
//! `cargo run --release -p condprog-cpu --example quality -- [ROWS] [DIM:QUARTERS:EFFORT]...`
use std::time::Instant;

use condprog_core::encoder::{ScaleRule, Search};
use condprog_core::{Decoder, Layout, Missing, Output, Rate, Segment, Table};
use condprog_cpu::{CpuDecoder, Encoder};

fn main() {
    let mut args = std::env::args().skip(1);
    let rows: usize = args.next().map_or(2048, |a| a.parse().unwrap());
    for case in args {
        let mut parts = case.split(':').map(|p| p.parse::<u32>().unwrap());
        let (dim, quarters, effort) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        let layout = Layout::new(dim, Rate::from_quarters(quarters).unwrap()).unwrap();
        let mut seed = 88172645463325252u64;
        let mut uniform = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            ((seed >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        };
        let source: Vec<f32> = (0..rows * dim as usize)
            .map(|_| ((-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()) as f32)
            .collect();
        let mut search = Search::effort(effort as u8);
        if let Ok(v) = std::env::var("WINDOW") {
            search.window = v.parse().unwrap()
        }
        if let Ok(v) = std::env::var("RECUTS") {
            search.recuts = v.parse().unwrap()
        }
        let encoder = Encoder::new(layout, ScaleRule::Norm, search).unwrap();
        let mut records = vec![0; rows * layout.record_bytes()];
        let start = Instant::now();
        encoder.encode(&source, &mut records);
        let took = start.elapsed().as_secs_f64();
        let segments = [Segment { rows: rows as u64, layout, records: &records }];
        let decoder = CpuDecoder::new(Table::new(&segments).unwrap()).unwrap();
        let ids: Vec<i64> = (0..rows as i64).collect();
        let mut out = vec![0.0f32; source.len()];
        decoder.decode(&ids, Missing::Error, Output::F32(&mut out)).unwrap();
        let (mut mse, mut square) = (0.0, 0.0);
        for (row, out) in source.chunks(dim as usize).zip(out.chunks(dim as usize)) {
            let e: f64 = row.iter().map(|&x| f64::from(x).powi(2)).sum();
            let d: f64 = row.iter().zip(out).map(|(&x, &y)| (f64::from(x) - f64::from(y)).powi(2)).sum();
            mse += d / e;
            square += (d / e).powi(2);
        }
        let n = rows as f64;
        let mean = mse / n;
        let error = ((square / n - mean * mean) / n).sqrt();
        println!("{dim},{quarters},{effort},{mean:.5},{error:.5},{:.0} rows/s", n / took);
    }
}
