//! What is compressed: tables whose rows are read in blocks, and turned into binary32 without loss.

use std::ops::Range;
use std::path::PathBuf;

use condprog_table::source::{SourceDtype, SourceInfo};
use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::error::Error;
use crate::fp8;

/// A table whose rows can be read in blocks.
pub trait RowSource: Send {
    /// What is read.
    fn info(&self) -> &SourceInfo;

    /// What the rows are, 16 lower-case hexadecimal digits: the same for a copy of the source on another machine,
    /// different for a different source. Every file that is made from the source carries it.
    ///
    /// It is a digest of names, types, shapes and of samples: of a table of a hundred gigabytes not every byte can be
    /// read on each of the machines that share the work. What was read is told exactly by [`RawRows::digest`].
    ///
    /// # Errors
    /// [`Error::File`] when the samples cannot be read.
    fn identity(&mut self) -> Result<String, Error>;

    /// The states of the files that are open, in the order of [`RowSource::files`]: while none changes, no row does.
    ///
    /// # Errors
    /// [`Error::File`] when the system does not tell.
    fn state(&self) -> Result<Vec<FileState>, Error>;

    /// The files that are read; none of them may be the output.
    fn files(&self) -> &[PathBuf] {
        &[]
    }

    /// Reads `rows` rows, starting at `first`.
    ///
    /// # Errors
    /// [`Error::File`] when they cannot be read.
    ///
    /// # Panics
    /// May panic when there are no such rows.
    fn read(&mut self, first: u64, rows: usize) -> Result<RawRows, Error>;
}

/// What tells one state of a file from another.
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
