//! Relative MSE of restored Gaussian rows, the table that `backend-cpu/quality.csv` holds.
//!
//! `cargo run --release -p condprog-cpu --example quality > backend-cpu/quality.csv` makes it anew, in minutes;
//! `-- DIM:QUARTERS:EFFORT ...` measures only these. The rows are the same on every machine.

use condprog_core::encoder::{Outcome, ScaleRule, Search};
use condprog_core::{Decoder, Encoder, Job, Layout, Missing, Output, Rate, Segment, Table};
use condprog_cpu::{CpuDecoder, CpuEncoder};

/// Rows of a measurement; its standard error is then about 0.08 % at 2 bits.
pub(crate) const ROWS: usize = 2048;
/// Rows that a test measures again.
pub(crate) const CHECK_ROWS: usize = 32;
/// First line of the table.
pub(crate) const HEADER: &str = "dim,bits,effort,relative_mse,standard_error,relative_mse_of_first_32";

#[allow(dead_code)] // not where a test takes this file in
fn main() {
    let mut cases: Vec<Case> = std::env::args().skip(1).map(|arg| Case::parse(&arg)).collect();
    if cases.is_empty() {
        for dim in [256, 160] {
            cases.extend([4, 6, 8, 10, 12, 14, 16].map(|quarters| Case { dim, quarters, effort: 0 }));
            cases.extend([1, 2, 3, 4].map(|effort| Case { dim, quarters: 8, effort }));
        }
    }
    println!("{HEADER}");
    for case in cases {
        let errors = case.errors(ROWS);
        let mean = mean(&errors);
        let deviation = mean_of(errors.iter().map(|e| (e - mean) * (e - mean))).sqrt();
        println!("{},{mean:.5},{:.5},{}", case.key(), deviation / (ROWS as f64).sqrt(), case.check(&errors));
    }
}

/// A layout and an effort.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// Values per row.
    pub(crate) dim: u32,
    /// Quarter bits per value.
    pub(crate) quarters: u32,
    /// Encoder effort.
    pub(crate) effort: u8,
}

impl Case {
    fn parse(text: &str) -> Case {
        let numbers: Vec<u32> = text.split(':').map(|n| n.parse().expect("DIM:QUARTERS:EFFORT")).collect();
        Case { dim: numbers[0], quarters: numbers[1], effort: numbers[2] as u8 }
    }

    /// The columns that name it.
    pub(crate) fn key(&self) -> String {
        format!("{},{},{}", self.dim, f64::from(self.quarters) / 4.0, self.effort)
    }

    /// The column that a test can make again: all digits of the mean over the first rows.
    pub(crate) fn check(&self, errors: &[f64]) -> String {
        format!("{:e}", mean(&errors[..CHECK_ROWS]))
    }

    /// Relative squared error of each of the first `rows` rows.
    pub(crate) fn errors(&self, rows: usize) -> Vec<f64> {
        let rate = Rate::from_quarters(self.quarters).expect("a rate");
        let layout = Layout::new(self.dim, rate).expect("a layout");
        let dim = self.dim as usize;
        let source = gaussian(rows * dim);
        let job = Job::new(layout, ScaleRule::Norm, Search::effort(self.effort));
        let (mut records, mut outcomes) = (vec![0; rows * layout.record_bytes()], vec![Ok(Outcome::Zero); rows]);
        let encoder = CpuEncoder::new(job).expect("an instruction set");
        encoder.encode(&source, &mut records, &mut outcomes).expect("encodes");
        let segments = [Segment { rows: rows as u64, layout, records: &records }];
        let decoder = CpuDecoder::new(Table::new(&segments).expect("a table")).expect("an instruction set");
        let ids: Vec<i64> = (0..rows as i64).collect();
        let mut restored = vec![0.0f32; source.len()];
        decoder.decode(&ids, Missing::Error, Output::F32(&mut restored)).expect("decodes");
        let pairs = source.chunks_exact(dim).zip(restored.chunks_exact(dim));
        pairs
            .map(|(row, restored)| {
                let energy: f64 = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
                let error: f64 = row.iter().zip(restored).map(|(&x, &y)| f64::from(x - y).powi(2)).sum();
                error / energy
            })
            .collect()
    }
}

/// Normal numbers by Box and Muller's method from a seeded generator, through `libm` so that they do not depend on the
/// machine.
fn gaussian(count: usize) -> Vec<f32> {
    let mut seed = 88172645463325252u64;
    let mut uniform = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        ((seed >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    };
    (0..count)
        .map(|_| {
            let radius = libm::sqrt(-2.0 * libm::log(uniform()));
            (radius * libm::cos(std::f64::consts::TAU * uniform())) as f32
        })
        .collect()
}

fn mean(values: &[f64]) -> f64 {
    mean_of(values.iter().copied())
}

fn mean_of(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}
