//! What is compressed: tables of rows in checkpoints, read in blocks and turned into binary32 without loss.
//!
//! | file | what it holds |
//! |---|---|
//! | `checkpoint.rs` | a checkpoint, one file or many: which tensors it has, and what each is |
//! | `select.rs`, `near.rs` | the tables that names and patterns select, and what may have been meant |
//! | `join.rs`, `order.rs` | tables of several tensors, in the order of the numbers in their names |
//! | `family.rs` | the tables of a model family, and what a configuration says of them |
//! | `scale.rs` | the scales of FP8 and INT8 tensors: by which names and shapes they are found |
//! | `companion.rs` | what else quantised tensors have beside them, and what is refused for it |
//! | `list.rs` | what each tensor of a checkpoint would be taken for |
//! | `rows.rs` | the rows of a table, read from its files |
//! | `error.rs` | why a tensor is no table |

use std::ops::Range;
use std::path::PathBuf;

use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::error::Error;
use crate::fp8;

mod checkpoint;
mod companion;
mod error;
mod family;
mod join;
mod list;
mod near;
mod order;
mod rows;
mod scale;
mod select;

pub use checkpoint::Checkpoint;
pub use companion::Companion;
pub use error::SourceError;
pub use list::{ListedTensor, Role};
pub use rows::TableRows;
pub use scale::{ScaleKind, ScaleTensor};
pub(crate) use scale::{number_at_least, number_bytes, number_size};

/// Number format of the elements of a source table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SourceDtype {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    #[serde(rename = "BF16")]
    Bf16,
    /// FP8, with scales.
    #[serde(rename = "F8_E4M3")]
    F8E4m3,
    /// 8-bit integers, with scales.
    I8,
}

impl SourceDtype {
    /// Every source format.
    pub const ALL: [SourceDtype; 5] =
        [SourceDtype::F32, SourceDtype::F16, SourceDtype::Bf16, SourceDtype::F8E4m3, SourceDtype::I8];

    /// As a safetensors header spells it.
    pub const fn name(self) -> &'static str {
        match self {
            SourceDtype::F32 => "F32",
            SourceDtype::F16 => "F16",
            SourceDtype::Bf16 => "BF16",
            SourceDtype::F8E4m3 => "F8_E4M3",
            SourceDtype::I8 => "I8",
        }
    }

    /// Bytes per element.
    pub const fn size(self) -> usize {
        match self {
            SourceDtype::F32 => 4,
            SourceDtype::F16 | SourceDtype::Bf16 => 2,
            SourceDtype::F8E4m3 | SourceDtype::I8 => 1,
        }
    }

    /// Whether an element means nothing without a scale.
    pub const fn has_scales(self) -> bool {
        matches!(self, SourceDtype::F8E4m3 | SourceDtype::I8)
    }

    pub(crate) fn from_name(name: &str) -> Option<SourceDtype> {
        SourceDtype::ALL.into_iter().find(|dtype| dtype.name() == name)
    }
}

/// The formats, as messages list them.
pub(crate) const FORMATS: &str = "F32, F16, BF16, F8_E4M3 or I8";

/// A tensor of a source table: a run of its rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourcePart {
    /// Name of the tensor.
    pub name: String,
    /// Its rows, at least 1.
    pub rows: u64,
    /// Its scales, for a format that has them. Parts may share one tensor of one scale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<ScaleTensor>,
}

impl SourcePart {
    /// Names of the tensors that it takes: its scales, if it has them, and its own.
    pub fn tensors(&self) -> impl Iterator<Item = &str> {
        self.scale.iter().map(|scale| scale.name.as_str()).chain([self.name.as_str()])
    }
}

/// What a source table is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceInfo {
    /// Name of the table: that of its tensor, or what its tensors are called together.
    pub name: String,
    /// Number format.
    pub dtype: SourceDtype,
    /// Rows, at least 1.
    pub rows: u64,
    /// Values per row, at least 1.
    pub dim: u64,
    /// Its tensors in row order, at least one.
    pub parts: Vec<SourcePart>,
}

impl SourceInfo {
    /// Rows of each of its tensors.
    pub fn part_rows(&self) -> Vec<u64> {
        self.parts.iter().map(|part| part.rows).collect()
    }

    /// Bytes per row, its scales included; a scale for the whole table is not counted.
    pub fn row_bytes(&self) -> u64 {
        let scales = self.parts[0].scale.as_ref().map_or(0, |scale| scale.bytes_per_row(self.dim));
        self.dim * self.dtype.size() as u64 + scales
    }

    /// Bytes of the whole table, scales of rows included.
    pub fn bytes(&self) -> u64 {
        self.rows * self.row_bytes()
    }
}

/// A table whose rows can be read in blocks.
pub trait RowSource: Send {
    /// What is read.
    fn info(&self) -> &SourceInfo;

    /// What the rows are, 16 lower-case hexadecimal digits: the same for a copy of the source on another machine,
    /// another one for another source. It is in every file that is made from the source.
    ///
    /// It is a digest of names, types, shapes and of samples: of a table of a hundred gigabytes not every byte can be
    /// read on each of the machines that share the work. What was read is told exactly by [`RawRows::digest`].
    ///
    /// # Errors
    /// [`Error::Io`] when the samples cannot be read.
    fn identity(&mut self) -> Result<String, Error>;

    /// The states of the files that are open, in the order of [`RowSource::files`]: while none changes, no row does.
    ///
    /// # Errors
    /// [`Error::Io`] when the system does not tell.
    fn state(&self) -> Result<Vec<FileState>, Error>;

    /// The files that are read; none of them may be the output.
    fn files(&self) -> &[PathBuf] {
        &[]
    }

    /// Reads `rows` rows from `first` on.
    ///
    /// # Errors
    /// [`Error::Io`] when they cannot be read.
    ///
    /// # Panics
    /// May panic when there are no such rows.
    fn read(&mut self, first: u64, rows: usize) -> Result<RawRows, Error>;
}

/// What tells apart one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileState {
    /// Its length.
    pub bytes: u64,
    /// When it was last written to, in nanoseconds since 1970.
    pub modified_ns: u64,
}

/// The scales of a block of rows.
#[derive(Clone, Debug, PartialEq)]
pub enum RawScales {
    /// The format has none.
    None,
    /// A byte for every [`fp8::GROUP`] columns: `dim / 32` per row.
    Groups(Vec<u8>),
    /// A number for every row.
    Rows(Vec<f32>),
}

/// A block of rows as it lies in its source.
#[derive(Clone, Debug)]
pub struct RawRows {
    /// Number format.
    pub dtype: SourceDtype,
    /// Values per row.
    pub dim: usize,
    /// Elements, little-endian, row-major.
    pub data: Vec<u8>,
    /// Their scales.
    pub scales: RawScales,
}

impl RawRows {
    /// Rows in the block.
    pub fn rows(&self) -> usize {
        self.data.len() / (self.dim * self.dtype.size())
    }

    /// A digest of rows of the block, whose first row is row `first` of the table: the sum, modulo 2^64, of the XXH3-64 of
    /// the bytes of each row with its number as the seed; and where rows have scales, of the XXH3-64 of a row's E8M0 bytes,
    /// or of its one scale as little-endian binary32, with the complement of its number as the seed.
    ///
    /// So digests of neighbouring runs of rows add up to that of all of them, however a table is cut.
    ///
    /// # Panics
    /// When there are no such rows.
    pub fn digest(&self, rows: Range<usize>, first: u64) -> u64 {
        let (groups, stride) = (self.dim / fp8::GROUP, self.dim * self.dtype.size());
        let of_row = |row: usize| {
            let number = first + row as u64;
            let data = XxHash3_64::oneshot_with_seed(number, &self.data[row * stride..][..stride]);
            let scale = |bytes: &[u8]| data.wrapping_add(XxHash3_64::oneshot_with_seed(!number, bytes));
            match &self.scales {
                RawScales::None => data,
                RawScales::Groups(scales) => scale(&scales[row * groups..][..groups]),
                RawScales::Rows(scales) => scale(&scales[row].to_le_bytes()),
            }
        };
        rows.map(of_row).fold(0, u64::wrapping_add)
    }

    /// Writes rows as binary32 numbers: exact for the three float formats; for FP8 and INT8 the product with the scale
    /// in binary32, rounded to bf16, as the checkpoints' own code has it.
    ///
    /// An e4m3 element 0x7f or 0xff and a scale byte 255 are NaN; a scale byte 0 is 2^-127.
    ///
    /// # Panics
    /// When there are no such rows, or `out` is not as long as they are.
    pub fn to_f32(&self, rows: Range<usize>, out: &mut [f32]) {
        assert_eq!(out.len(), rows.len() * self.dim, "values of {} rows of {}", rows.len(), self.dim);
        let stride = self.dim * self.dtype.size();
        let data = &self.data[rows.start * stride..rows.end * stride];
        match self.dtype {
            SourceDtype::F32 => convert(data, out, f32::from_le_bytes),
            SourceDtype::F16 => convert(data, out, |bytes| f16::from_le_bytes(bytes).to_f32()),
            SourceDtype::Bf16 => convert(data, out, |bytes| bf16::from_le_bytes(bytes).to_f32()),
            SourceDtype::F8E4m3 => self.scaled(rows, data, out, fp8::e4m3_to_f32),
            SourceDtype::I8 => self.scaled(rows, data, out, |byte| f32::from(byte as i8)),
        }
    }

    fn scaled(&self, rows: Range<usize>, data: &[u8], out: &mut [f32], number: impl Fn(u8) -> f32) {
        let group = |data: &[u8], out: &mut [f32], scale: f32| {
            for (out, &element) in out.iter_mut().zip(data) {
                *out = bf16::from_f32(number(element) * scale).to_f32();
            }
        };
        match &self.scales {
            // A reader gives scales with every format that has them.
            RawScales::None => group(data, out, 1.0),
            RawScales::Groups(scales) => {
                let groups = self.dim / fp8::GROUP;
                let scales = &scales[rows.start * groups..rows.end * groups];
                let (data, out) = (data.chunks_exact(fp8::GROUP), out.chunks_exact_mut(fp8::GROUP));
                data.zip(out).zip(scales).for_each(|((data, out), &scale)| group(data, out, fp8::e8m0_to_f32(scale)));
            }
            RawScales::Rows(scales) => {
                let (data, out) = (data.chunks_exact(self.dim), out.chunks_exact_mut(self.dim));
                data.zip(out).zip(&scales[rows]).for_each(|((data, out), &scale)| group(data, out, scale));
            }
        }
    }
}

fn convert<const N: usize>(data: &[u8], out: &mut [f32], value: impl Fn([u8; N]) -> f32) {
    for (out, bytes) in out.iter_mut().zip(data.as_chunks::<N>().0) {
        *out = value(*bytes);
    }
}
