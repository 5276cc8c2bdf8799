//! Writes a table of seeded rows to try things on: `table ROWS DIM FILE.safetensors`. One BF16 tensor, `table`, whose
//! rows are Gaussian, with lengths spread over a few octaves as in trained tables.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use condprog_eval::noise::Noise;
use half::bf16;
use rayon::prelude::*;

/// Rows that are made at a time.
const CHUNK: u64 = 1 << 14;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [rows, dim, path] = arguments.as_slice() else { panic!("usage: table ROWS DIM FILE.safetensors") };
    let (rows, dim): (u64, usize) = (rows.parse().expect("ROWS is a number"), dim.parse().expect("DIM is a number"));
    let mut out = BufWriter::new(File::create(path)?);
    let bytes = rows * dim as u64 * 2;
    let header = format!(r#"{{"table":{{"dtype":"BF16","shape":[{rows},{dim}],"data_offsets":[0,{bytes}]}}}}"#);
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    for first in (0..rows).step_by(CHUNK as usize) {
        let chunk: Vec<u8> =
            (first..rows.min(first + CHUNK)).into_par_iter().flat_map_iter(|id| row(id, dim)).collect();
        out.write_all(&chunk)?;
    }
    out.flush()
}

/// A row of a deviation that is 0.02 in the median, and in one row of twenty below a fifth of that or above five times.
fn row(id: u64, dim: usize) -> impl Iterator<Item = u8> {
    let mut noise = Noise::new(id);
    let deviation = 0.02 * libm::exp(0.82 * noise.normal());
    (0..dim).flat_map(move |_| bf16::from_f64(deviation * noise.normal()).to_le_bytes())
}
