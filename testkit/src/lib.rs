//! What tests of several crates need: folders of their own, small safetensors files, numbers that are the same everywhere.
//!
//! Files are made with the `safetensors` crate, so that this project's own reader is held against it. Not published; it
//! depends on no crate of the project, so that every one of them can use it.
//!
//! ```
//! use condprog_testkit::{Folder, f32_table, rows};
//!
//! let folder = Folder::new(); // removed when it is dropped
//! let model = folder.path("model.safetensors");
//! f32_table(&model, "embed.weight", 64, &rows(100, 64, 1)); // rows of different lengths, from seed 1
//! assert_eq!(folder.list(), ["model.safetensors"]);
//! ```
#![forbid(unsafe_code)]
#![allow(clippy::missing_panics_doc, reason = "tests panic when something is wrong")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

pub use safetensors::tensor::Dtype;
use safetensors::tensor::TensorView;
use tempfile::TempDir;

/// A folder of its own for a test.
#[derive(Debug)]
pub struct Folder(TempDir);

impl Folder {
    /// A new one.
    #[allow(clippy::new_without_default, reason = "a folder is made, not assumed")]
    pub fn new() -> Folder {
        Folder(TempDir::new().unwrap())
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The names of what is in it, sorted.
    pub fn list(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// A tensor: name, type, shape, bytes.
pub type Tensor<N = &'static str> = (N, Dtype, Vec<usize>, Vec<u8>);

/// Writes a safetensors file.
pub fn write<N: AsRef<str>>(path: &Path, tensors: &[Tensor<N>]) {
    let view = |dtype: &Dtype, shape: &Vec<usize>, data| TensorView::new(*dtype, shape.clone(), data).unwrap();
    let views = tensors.iter().map(|(name, dtype, shape, data)| (name.as_ref(), view(dtype, shape, data.as_slice())));
    fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

/// A tensor whose name is made up by a test.
pub type Named = Tensor<String>;

/// Writes the files of a checkpoint, and the index that lists all their tensors.
pub fn write_checkpoint<N: AsRef<str>>(folder: &Folder, files: &[(&str, Vec<Tensor<N>>)]) {
    let mut listed = Vec::new();
    for (file, tensors) in files {
        write(&folder.path(file), tensors);
        listed.extend(tensors.iter().map(|(name, ..)| (name.as_ref(), *file)));
    }
    write_index(&folder.path("model.safetensors.index.json"), &listed);
}

/// Writes an index: pairs of tensor and file.
pub fn write_index(path: &Path, listed: &[(&str, &str)]) {
    let map: BTreeMap<_, _> = listed.iter().copied().collect();
    let json = serde_json::json!({ "metadata": { "total_size": 1 }, "weight_map": map });
    fs::write(path, json.to_string()).unwrap();
}

/// Values rounded to bf16, little-endian.
pub fn bf16_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|&value| half::bf16::from_f32(value).to_le_bytes()).collect()
}

/// A 64-bit generator: good enough to fill rows with, and the same everywhere.
pub struct Seeded(pub u64);

impl Seeded {
    /// The next 64 bits.
    #[allow(clippy::should_implement_trait, reason = "a stream of numbers has no end")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Nearly normal: the sum of twelve uniform numbers, less six.
    pub fn normal(&mut self) -> f32 {
        (0..12).map(|_| (self.next() >> 40) as f32 / (1 << 24) as f32).sum::<f32>() - 6.0
    }
}

/// Rows of nearly normal values, of different lengths.
pub fn rows(rows: usize, dim: usize, seed: u64) -> Vec<f32> {
    let mut random = Seeded(seed);
    (0..rows)
        .flat_map(|row| {
            let length = 0.01 * (1 + row % 7) as f32;
            (0..dim).map(|_| length * random.normal()).collect::<Vec<_>>()
        })
        .collect()
}

/// Values as little-endian binary32.
pub fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// One F32 table.
pub fn f32_table(path: &Path, name: &'static str, dim: usize, values: &[f32]) {
    write(path, &[(name, Dtype::F32, vec![values.len() / dim, dim], f32_bytes(values))]);
}

/// The bytes of files, by name.
pub fn read_all(paths: impl IntoIterator<Item = impl AsRef<Path>>) -> BTreeMap<String, Vec<u8>> {
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_string();
    paths.into_iter().map(|path| (name(path.as_ref()), fs::read(path).unwrap())).collect()
}
