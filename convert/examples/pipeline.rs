//! What reading, checking and writing take from the encoder: rows per second of `compress`, from file to file, beside
//! those of the encoder alone on the same rows in memory, in turn, medians.
//!
//! ```text
//! pipeline [EFFORT [ROWS [ROUNDS]]]
//! ```
//!
//! The rows are those of a table in FP8 with scales for groups of columns, 256 wide.

#[path = "../tests/common/cpu.rs"]
mod cpu;

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use condprog_checkpoint::fp8;
use condprog_checkpoint::{Checkpoint, RowSource};
use condprog_convert::{CompressOptions, compress, quiet};
use condprog_core::encoder::{Outcome, ScaleRule, Search};
use condprog_core::{Encoder, Job, Layout, Rate};
use condprog_cpu::CpuEncoder;
use cpu::Cpu;
use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize_to_file};

const DIM: usize = 256;
const TABLE: &str = "layers.1.engram.embed.weight";

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: usize| arguments.next().map_or(Ok(default), |text| text.parse());
    let (effort, rows, rounds) = (number(0)?, number(16_384)?, number(5)?);
    let effort = u8::try_from(effort)?;
    let folder = tempfile::tempdir()?;
    let source = folder.path().join("in.safetensors");
    write_source(&source, rows)?;
    let (mut alone, mut whole) = (Vec::new(), Vec::new());
    let layout = Layout::new(DIM as u32, Rate::TWO)?;
    let checkpoint = Checkpoint::open(&source)?;
    let mut values = vec![0.0; rows * DIM];
    let (mut records, mut outcomes) = (vec![0; rows * layout.record_bytes()], vec![Ok(Outcome::Zero); rows]);
    checkpoint.table(TABLE)?.read(0, rows)?.to_f32(0..rows, &mut values);
    for round in 0..rounds {
        let start = Instant::now();
        let encoder = CpuEncoder::new(Job::new(layout, ScaleRule::Projection, Search::effort(effort)))?;
        encoder.encode(&values, &mut records, &mut outcomes)?;
        alone.push(start.elapsed().as_secs_f64());

        let output = folder.path().join(format!("{round}.safetensors"));
        let options = CompressOptions { effort, ..CompressOptions::default() };
        let start = Instant::now();
        compress(&mut [Box::new(checkpoint.table(TABLE)?)], &output, &options, &Cpu, &quiet)?;
        whole.push(start.elapsed().as_secs_f64());
    }
    let speed = |seconds: &mut Vec<f64>| {
        seconds.sort_by(f64::total_cmp);
        rows as f64 / seconds[seconds.len() / 2]
    };
    let (alone, whole) = (speed(&mut alone), speed(&mut whole));
    let threads = rayon::current_num_threads();
    println!("{rows} rows, effort {effort}, {threads} threads, medians of {rounds}, rows per second");
    println!("encoder alone     {alone:.0}");
    println!("from file to file {whole:.0}, {:.1} % of it", 100.0 * whole / alone);
    Ok(())
}

/// A table whose rows are nearly Gaussian.
fn write_source(path: &Path, rows: usize) -> Result<(), Box<dyn Error>> {
    let mut state = 1u64;
    let mut gaussian = || {
        let sum: u64 = (0..12)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                state >> 40
            })
            .sum();
        sum as f32 / (1u64 << 24) as f32 - 6.0
    };
    let (mut elements, mut scales) = (vec![0; rows * DIM], Vec::new());
    for elements in elements.chunks_exact_mut(fp8::GROUP) {
        let values: Vec<_> = (0..fp8::GROUP).map(|_| gaussian()).collect();
        scales.push(fp8::encode_group(&values, elements));
    }
    let tensors = [
        (TABLE, TensorView::new(Dtype::F8_E4M3, vec![rows, DIM], &elements)?),
        ("layers.1.engram.embed.scale", TensorView::new(Dtype::F8_E8M0, vec![rows, DIM / fp8::GROUP], &scales)?),
    ];
    Ok(serialize_to_file(tensors, None, path)?)
}
