//! What is compressed: tables of rows in checkpoints, read in blocks and turned into binary32 without loss.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use glob::{MatchOptions, Pattern};
use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::error::{Error, IoContext};
use crate::fp8;
use crate::header::{Header, TensorEntry};

/// Number format of a source table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SourceDtype {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    #[serde(rename = "BF16")]
    Bf16,
    /// FP8 with an `F8_E8M0` scale per 32 columns of a row. A value is the product, rounded to bf16.
    #[serde(rename = "F8_E4M3")]
    F8E4m3,
}

impl SourceDtype {
    /// Every source format.
    pub const ALL: [SourceDtype; 4] = [SourceDtype::F32, SourceDtype::F16, SourceDtype::Bf16, SourceDtype::F8E4m3];

    /// As a safetensors header spells it.
    pub const fn name(self) -> &'static str {
        match self {
            SourceDtype::F32 => "F32",
            SourceDtype::F16 => "F16",
            SourceDtype::Bf16 => "BF16",
            SourceDtype::F8E4m3 => "F8_E4M3",
        }
    }

    /// Bytes per element.
    pub const fn size(self) -> usize {
        match self {
            SourceDtype::F32 => 4,
            SourceDtype::F16 | SourceDtype::Bf16 => 2,
            SourceDtype::F8E4m3 => 1,
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<SourceDtype> {
        SourceDtype::ALL.into_iter().find(|dtype| dtype.name() == name)
    }
}

/// Data type of the scales of an FP8 table.
pub const SCALE_DTYPE: &str = "F8_E8M0";

/// The tensor that holds the scales of a source table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleTensor {
    /// Name.
    pub name: String,
    /// Data type, [`SCALE_DTYPE`].
    pub dtype: String,
    /// Rows, and scales per row.
    pub shape: [u64; 2],
}

/// What a source table is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceInfo {
    /// Name of the tensor.
    pub name: String,
    /// Number format.
    pub dtype: SourceDtype,
    /// Rows, at least 1.
    pub rows: u64,
    /// Values per row, at least 1.
    pub dim: u64,
    /// The scales, for a format that has them.
    pub scale: Option<ScaleTensor>,
}

impl SourceInfo {
    /// Bytes per row, scales included.
    pub fn row_bytes(&self) -> u64 {
        self.dim * self.dtype.size() as u64 + self.scale.as_ref().map_or(0, |scale| scale.shape[1])
    }

    /// Bytes of the whole table, scales included.
    pub fn bytes(&self) -> u64 {
        self.rows * self.row_bytes()
    }
}

/// A table whose rows can be read in blocks. Files are one source; parts of a table in other files or layouts are
/// others.
pub trait RowSource: Send {
    /// What is read.
    fn info(&self) -> &SourceInfo;

    /// Tells apart one state of the source from another: equal identities mean equal rows. A run that was cut short
    /// resumes only against an equal one.
    fn identity(&self) -> &str;

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

/// A block of rows as it lies in its source.
#[derive(Clone, Debug)]
pub struct RawRows {
    /// Number format.
    pub dtype: SourceDtype,
    /// Values per row.
    pub dim: usize,
    /// Elements, little-endian, row-major.
    pub data: Vec<u8>,
    /// Scale bytes, `dim / 32` per row, for [`SourceDtype::F8E4m3`]; else empty.
    pub scales: Vec<u8>,
}

impl RawRows {
    /// Rows in the block.
    pub fn rows(&self) -> usize {
        self.data.len() / (self.dim * self.dtype.size())
    }

    /// Writes rows as binary32 numbers: exact for the three float formats, [`fp8::value`] for FP8.
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
            SourceDtype::F8E4m3 => {
                let groups = self.dim / fp8::GROUP;
                let scales = &self.scales[rows.start * groups..rows.end * groups];
                let (data, out) = (data.chunks_exact(fp8::GROUP), out.chunks_exact_mut(fp8::GROUP));
                for ((elements, out), &scale) in data.zip(out).zip(scales) {
                    let scale = fp8::e8m0_to_f32(scale);
                    for (out, &element) in out.iter_mut().zip(elements) {
                        *out = fp8::value(element, scale);
                    }
                }
            }
        }
    }
}

fn convert<const N: usize>(data: &[u8], out: &mut [f32], value: impl Fn([u8; N]) -> f32) {
    for (out, bytes) in out.iter_mut().zip(data.as_chunks::<N>().0) {
        *out = value(*bytes);
    }
}

/// Why a tensor is no table that can be compressed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// No tensor has this name.
    #[error("tensor {tensor:?} is not in the file")]
    Missing {
        /// Name.
        tensor: String,
    },
    /// The tensor is not a matrix.
    #[error("tensor {tensor:?} has shape {shape:?}, expected two dimensions: rows and values per row")]
    Rank {
        /// Name.
        tensor: String,
        /// Got.
        shape: Vec<u64>,
    },
    /// A format that is not read.
    #[error("tensor {tensor:?} has type {got}, expected F32, F16, BF16 or F8_E4M3")]
    Dtype {
        /// Name.
        tensor: String,
        /// Got.
        got: String,
    },
    /// The table is empty.
    #[error("tensor {tensor:?} has shape {shape:?}, expected at least one row of at least one value")]
    Empty {
        /// Name.
        tensor: String,
        /// Got.
        shape: Vec<u64>,
    },
    /// An FP8 table's rows cannot be cut into groups.
    #[error("tensor {tensor:?} of type F8_E4M3 has rows of {dim} values, expected a multiple of {}", fp8::GROUP)]
    Group {
        /// Name.
        tensor: String,
        /// Got.
        dim: u64,
    },
    /// An FP8 table has no scales.
    #[error(
        "tensor {tensor:?} of type F8_E4M3 has no scales: expected a tensor {scale:?} of type F8_E8M0 and shape {expected:?}"
    )]
    MissingScale {
        /// Name.
        tensor: String,
        /// Name of the scales.
        scale: String,
        /// Their shape.
        expected: [u64; 2],
    },
    /// An FP8 table's scales have another type or shape.
    #[error(
        "scales {scale:?} of tensor {tensor:?} have type {dtype} and shape {shape:?}, expected F8_E8M0 and {expected:?}"
    )]
    Scale {
        /// Name.
        tensor: String,
        /// Name of the scales.
        scale: String,
        /// Got.
        dtype: String,
        /// Got.
        shape: Vec<u64>,
        /// Expected shape.
        expected: [u64; 2],
    },
    /// A pattern is malformed.
    #[error("pattern {pattern:?} is malformed: {source}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        source: glob::PatternError,
    },
    /// A pattern selects nothing.
    #[error("pattern {pattern:?} matches no tensor in the file")]
    NoMatch {
        /// The pattern.
        pattern: String,
    },
    /// The file has no table.
    #[error("file has no two-dimensional tensor of type F32, F16, BF16 or F8_E4M3")]
    NoTables,
}

impl SourceError {
    /// A short name that stays: what a reject file is tied to, and what machines may compare.
    pub fn code(&self) -> &'static str {
        match self {
            SourceError::Missing { .. } => "source-missing",
            SourceError::Rank { .. } => "source-rank",
            SourceError::Dtype { .. } => "source-dtype",
            SourceError::Empty { .. } => "source-empty",
            SourceError::Group { .. } => "source-group",
            SourceError::MissingScale { .. } => "source-missing-scale",
            SourceError::Scale { .. } => "source-scale",
            SourceError::Pattern { .. } => "source-pattern",
            SourceError::NoMatch { .. } => "source-no-match",
            SourceError::NoTables => "source-no-tables",
        }
    }
}

/// A safetensors file to read tables from.
#[derive(Debug)]
pub struct SourceFile {
    path: PathBuf,
    header: Header,
    identity: String,
}

impl SourceFile {
    /// Reads and checks the header.
    ///
    /// # Errors
    /// [`Error::Header`] when it is not a safetensors file or not whole, [`Error::Io`] when it cannot be read.
    pub fn open(path: impl AsRef<Path>) -> Result<SourceFile, Error> {
        let path = path.as_ref();
        let mut file = File::open(path).context("open", path)?;
        let about = file.metadata().context("read", path)?;
        let header = Header::read(&mut file, about.len())
            .context("read", path)?
            .map_err(|source| Error::header(path, source))?;
        // Path and host are left out: the same file under another name is the same source.
        let modified = about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        let mut json = vec![0; header.data_start as usize];
        read_at(&mut file, path, 0, &mut json)?;
        let identity = format!(
            "{} bytes, modified {} ns, header {:016x}",
            about.len(),
            modified.as_nanos(),
            XxHash3_64::oneshot(&json)
        );
        Ok(SourceFile { path: path.into(), header, identity })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What a tensor is as a table.
    ///
    /// # Errors
    /// [`Error::Source`] when it is none.
    pub fn info(&self, name: &str) -> Result<SourceInfo, Error> {
        self.describe(name).map_err(|source| self.error(source))
    }

    /// Opens a table for reading.
    ///
    /// # Errors
    /// As [`SourceFile::info`], and [`Error::Io`] when the file cannot be opened.
    pub fn table(&self, name: &str) -> Result<FileRows, Error> {
        let info = self.info(name)?;
        let start = |name: &str| self.header.tensor(name).map_or(0, |tensor| self.header.data_start + tensor.start);
        let (data, scales) = (start(name), info.scale.as_ref().map_or(0, |scale| start(&scale.name)));
        let file = File::open(&self.path).context("open", &self.path)?;
        Ok(FileRows { path: self.path.clone(), file, info, identity: self.identity.clone(), data, scales })
    }

    /// The tables that patterns select, in file order; without patterns every two-dimensional tensor of a format that
    /// can be read. Scales come with their tables, however they are matched.
    ///
    /// A pattern is a name, or has `*`, `?` and `[...]` in it. A name must be a table. A pattern with wildcards takes
    /// the tables among what it matches, and must match one.
    ///
    /// # Errors
    /// [`Error::Source`] when a pattern is malformed or selects nothing, a named tensor is no table, or an FP8 tensor
    /// lacks its scales.
    pub fn select(&self, patterns: &[String]) -> Result<Vec<SourceInfo>, Error> {
        self.select_tables(patterns).map_err(|source| self.error(source))
    }

    fn select_tables(&self, patterns: &[String]) -> Result<Vec<SourceInfo>, SourceError> {
        let is_candidate = |tensor: &&TensorEntry| {
            tensor.shape.len() == 2 && SourceDtype::from_name(&tensor.dtype).is_some() && !tensor.shape.contains(&0)
        };
        let mut names: Vec<&str> = Vec::new();
        for pattern in patterns {
            let wild =
                Pattern::new(pattern).map_err(|source| SourceError::Pattern { pattern: pattern.clone(), source })?;
            // A name is a name even where it has brackets in it.
            if self.header.tensor(pattern).is_some() || !pattern.contains(['*', '?', '[']) {
                names.push(pattern);
                continue;
            }
            let matched: Vec<_> = self
                .header
                .tensors
                .iter()
                .filter(|tensor| wild.matches_with(&tensor.name, MatchOptions::default()))
                .collect();
            let tables: Vec<_> = matched.iter().copied().filter(is_candidate).map(|t| t.name.as_str()).collect();
            match (matched.first(), tables.is_empty()) {
                (None, _) => return Err(SourceError::NoMatch { pattern: pattern.clone() }),
                // Nothing of use was matched: the first tensor says why.
                (Some(first), true) => names.push(&first.name),
                (Some(_), false) => names.extend(tables),
            }
        }
        if patterns.is_empty() {
            names.extend(self.header.tensors.iter().filter(is_candidate).map(|tensor| tensor.name.as_str()));
            if names.is_empty() {
                return Err(SourceError::NoTables);
            }
        }
        names.sort_by_key(|name| self.header.place(name));
        names.dedup();
        names.into_iter().map(|name| self.describe(name)).collect()
    }

    fn describe(&self, name: &str) -> Result<SourceInfo, SourceError> {
        let tensor = self.header.tensor(name).ok_or_else(|| SourceError::Missing { tensor: name.into() })?;
        let (name, shape) = (tensor.name.clone(), tensor.shape.clone());
        let &[rows, dim] = tensor.shape.as_slice() else {
            return Err(SourceError::Rank { tensor: name, shape });
        };
        let dtype = SourceDtype::from_name(&tensor.dtype)
            .ok_or_else(|| SourceError::Dtype { tensor: name.clone(), got: tensor.dtype.clone() })?;
        if rows == 0 || dim == 0 {
            return Err(SourceError::Empty { tensor: name, shape });
        }
        let scale = if dtype == SourceDtype::F8E4m3 { Some(self.scales(&name, rows, dim)?) } else { None };
        Ok(SourceInfo { name, dtype, rows, dim, scale })
    }

    /// The scales of an FP8 table: the tensor `X.scale` beside `X.weight`, or beside `X`.
    fn scales(&self, tensor: &str, rows: u64, dim: u64) -> Result<ScaleTensor, SourceError> {
        if !dim.is_multiple_of(fp8::GROUP as u64) {
            return Err(SourceError::Group { tensor: tensor.into(), dim });
        }
        let expected = [rows, dim / fp8::GROUP as u64];
        let name = format!("{}.scale", tensor.strip_suffix(".weight").unwrap_or(tensor));
        let Some(scale) = self.header.tensor(&name) else {
            return Err(SourceError::MissingScale { tensor: tensor.into(), scale: name, expected });
        };
        if scale.dtype != SCALE_DTYPE || scale.shape != expected {
            return Err(SourceError::Scale {
                tensor: tensor.into(),
                scale: name,
                dtype: scale.dtype.clone(),
                shape: scale.shape.clone(),
                expected,
            });
        }
        Ok(ScaleTensor { name, dtype: SCALE_DTYPE.into(), shape: expected })
    }

    fn error(&self, source: SourceError) -> Error {
        Error::source(&self.path, source)
    }
}

/// The rows of one table of a [`SourceFile`].
#[derive(Debug)]
pub struct FileRows {
    path: PathBuf,
    file: File,
    info: SourceInfo,
    identity: String,
    /// Where the elements start in the file.
    data: u64,
    /// Where the scales start.
    scales: u64,
}

impl RowSource for FileRows {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn identity(&self) -> &str {
        &self.identity
    }

    fn files(&self) -> &[PathBuf] {
        std::slice::from_ref(&self.path)
    }

    fn read(&mut self, first: u64, rows: usize) -> Result<RawRows, Error> {
        let end = first.checked_add(rows as u64);
        assert!(end.is_some_and(|end| end <= self.info.rows), "rows {first}.. of {}", self.info.rows);
        let row_bytes = self.info.dim * self.info.dtype.size() as u64;
        let mut data = vec![0; rows * row_bytes as usize];
        read_at(&mut self.file, &self.path, self.data + first * row_bytes, &mut data)?;
        let groups = self.info.scale.as_ref().map_or(0, |scale| scale.shape[1]);
        let mut scales = vec![0; rows * groups as usize];
        read_at(&mut self.file, &self.path, self.scales + first * groups, &mut scales)?;
        Ok(RawRows { dtype: self.info.dtype, dim: self.info.dim as usize, data, scales })
    }
}

/// Reads rather than maps: a file that is cut short under a running job is then an error, not a signal, and the
/// memory in use is that of the blocks in flight.
fn read_at(file: &mut File, path: &Path, offset: u64, out: &mut [u8]) -> Result<(), Error> {
    file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(out)).context("read", path)
}
