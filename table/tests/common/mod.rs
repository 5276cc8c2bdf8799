//! Small safetensors files, made with the `safetensors` crate, so that this crate's own reader is held against it.
#![allow(dead_code, reason = "every test file takes its part")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use condprog_core::{Decoder, Missing, Output, Table};
use condprog_cpu::CpuDecoder;
use condprog_table::source::RowSource;
use condprog_table::{CompressOptions, CompressReport, Error, TableFile, compress_file, quiet};
use safetensors::tensor::{Dtype, TensorView};
use tempfile::TempDir;

/// A folder of its own for a test.
#[derive(Debug)]
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Folder {
        Folder(TempDir::new().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The names of what is in it, sorted.
    pub(crate) fn list(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// A tensor: name, type, shape, bytes.
pub(crate) type Tensor<N = &'static str> = (N, Dtype, Vec<usize>, Vec<u8>);

pub(crate) fn write<N: AsRef<str>>(path: &Path, tensors: &[Tensor<N>]) {
    let view = |dtype: &Dtype, shape: &Vec<usize>, data| TensorView::new(*dtype, shape.clone(), data).unwrap();
    let views = tensors.iter().map(|(name, dtype, shape, data)| (name.as_ref(), view(dtype, shape, data.as_slice())));
    fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

/// A tensor whose name is made up by a test.
pub(crate) type Named = Tensor<String>;

/// Writes the files of a checkpoint, and the index that lists all their tensors.
pub(crate) fn write_checkpoint<N: AsRef<str>>(folder: &Folder, files: &[(&str, Vec<Tensor<N>>)]) {
    let mut listed = Vec::new();
    for (file, tensors) in files {
        write(&folder.path(file), tensors);
        listed.extend(tensors.iter().map(|(name, ..)| (name.as_ref(), *file)));
    }
    write_index(&folder.path("model.safetensors.index.json"), &listed);
}

/// Writes an index: pairs of tensor and file.
pub(crate) fn write_index(path: &Path, listed: &[(&str, &str)]) {
    let map: BTreeMap<_, _> = listed.iter().copied().collect();
    let json = serde_json::json!({ "metadata": { "total_size": 1 }, "weight_map": map });
    fs::write(path, json.to_string()).unwrap();
}

pub(crate) fn bf16_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|&value| half::bf16::from_f32(value).to_le_bytes()).collect()
}

/// All values of a table, read in one block.
pub(crate) fn values(table: &mut impl RowSource) -> Vec<f32> {
    let (rows, dim) = (table.info().rows as usize, table.info().dim as usize);
    let mut out = vec![f32::NAN; rows * dim];
    table.read(0, rows).unwrap().to_f32(0..rows, &mut out);
    out
}

/// A 64-bit generator: good enough to fill rows with, and the same everywhere.
pub(crate) struct Seeded(pub(crate) u64);

impl Seeded {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Nearly normal: the sum of twelve uniform numbers, less six.
    pub(crate) fn normal(&mut self) -> f32 {
        (0..12).map(|_| (self.next() >> 40) as f32 / (1 << 24) as f32).sum::<f32>() - 6.0
    }
}

/// Rows of nearly normal values, of different lengths.
pub(crate) fn rows(rows: usize, dim: usize, seed: u64) -> Vec<f32> {
    let mut random = Seeded(seed);
    (0..rows)
        .flat_map(|row| {
            let length = 0.01 * (1 + row % 7) as f32;
            (0..dim).map(|_| length * random.normal()).collect::<Vec<_>>()
        })
        .collect()
}

pub(crate) fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// One F32 table.
pub(crate) fn f32_table(path: &Path, name: &'static str, dim: usize, values: &[f32]) {
    write(path, &[(name, Dtype::F32, vec![values.len() / dim, dim], f32_bytes(values))]);
}

/// The cheapest options, in blocks of few rows.
pub(crate) fn options(block_rows: u32) -> CompressOptions {
    CompressOptions { effort: 0, block_rows: Some(block_rows), ..CompressOptions::default() }
}

pub(crate) fn compress(input: &Path, output: &Path, options: &CompressOptions) -> Result<CompressReport, Error> {
    compress_file(input, &[], output, options, &quiet)
}

/// Rows of a table by their ids, as bits, a missing one as zeros.
pub(crate) fn decode(file: &TableFile, table: &str, ids: &[i64]) -> Vec<u32> {
    let records = file.load(table).unwrap();
    let segments = records.segments();
    let decoder = CpuDecoder::new(Table::new(&segments).unwrap()).unwrap();
    let mut out = vec![f32::NAN; ids.len() * decoder.shape().dim as usize];
    decoder.decode(ids, Missing::Zero, Output::F32(&mut out)).unwrap();
    out.into_iter().map(f32::to_bits).collect()
}

/// The bytes of files, by name.
pub(crate) fn read_all(paths: impl IntoIterator<Item = impl AsRef<Path>>) -> BTreeMap<String, Vec<u8>> {
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_string();
    paths.into_iter().map(|path| (name(path.as_ref()), fs::read(path).unwrap())).collect()
}
