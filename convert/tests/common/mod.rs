//! Jobs of tests, over what `condprog-testkit` has for all crates.
#![allow(dead_code, unused_imports, reason = "every test file takes its part")]

mod cpu;

use std::path::Path;

use condprog_checkpoint::RowSource;
use condprog_convert::{CompressOptions, CompressReport, Error, compress_file, quiet};
use condprog_core::{Decoder, Missing, Output, Table};
use condprog_cpu::CpuDecoder;
use condprog_table::Tables;
pub(crate) use condprog_testkit::*;
pub(crate) use cpu::Cpu;

/// All values of a table, read in one block.
pub(crate) fn values(table: &mut impl RowSource) -> Vec<f32> {
    let (rows, dim) = (table.info().rows as usize, table.info().dim as usize);
    let mut out = vec![f32::NAN; rows * dim];
    table.read(0, rows).unwrap().to_f32(0..rows, &mut out);
    out
}

/// The cheapest options, in blocks of few rows.
pub(crate) fn options(block_rows: u32) -> CompressOptions {
    CompressOptions { effort: 0, block_rows: Some(block_rows), ..CompressOptions::default() }
}

pub(crate) fn compress(input: &Path, output: &Path, options: &CompressOptions) -> Result<CompressReport, Error> {
    compress_file(input, &[], output, options, &Cpu, &quiet)
}

/// Rows of a table by their ids, as bits, a missing one as zeros.
pub(crate) fn decode(file: &Tables, table: &str, ids: &[i64]) -> Vec<u32> {
    let records = file.load(table).unwrap();
    let segments = records.segments();
    let decoder = CpuDecoder::new(Table::new(&segments).unwrap()).unwrap();
    let mut out = vec![f32::NAN; ids.len() * decoder.shape().dim as usize];
    decoder.decode(ids, Missing::Zero, Output::F32(&mut out)).unwrap();
    out.into_iter().map(f32::to_bits).collect()
}
