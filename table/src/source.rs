//! What a table was made from: names, types and shapes of the tensors of a checkpoint, and of their scales.

use serde::{Deserialize, Serialize};

/// Columns that share one scale, where groups of columns have scales.
pub const GROUP: usize = 32;

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

    /// The format that a safetensors header spells so.
    pub fn from_name(name: &str) -> Option<SourceDtype> {
        SourceDtype::ALL.into_iter().find(|dtype| dtype.name() == name)
    }
}

/// The formats, as messages list them.
pub const FORMATS: &str = "F32, F16, BF16, F8_E4M3 or I8";

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

/// Data type of scales for groups of columns.
pub const GROUP_DTYPE: &str = "F8_E8M0";

/// What one scale is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScaleKind {
    /// 32 columns of a row: `F8_E8M0 [rows, dim / 32]`, with `F8_E4M3` elements.
    Groups,
    /// A row: `[rows, 1]` or `[rows]` of F32, BF16 or F16.
    Rows,
    /// A whole tensor: one F32, BF16 or F16.
    Global,
}

/// The tensor that holds the scales of a source tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleTensor {
    /// Name.
    pub name: String,
    /// Data type as its safetensors header spelled it.
    pub dtype: String,
    /// Shape.
    pub shape: Vec<u64>,
    /// Where the tensor has the scales of all rows of a table of several tensors, the first row that is this one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_row: Option<u64>,
    /// Of one scale for the whole tensor, the bits of its value in binary32.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_bits: Option<u32>,
}

impl ScaleTensor {
    /// What one scale is for.
    pub fn kind(&self) -> ScaleKind {
        match (self.value_bits, self.dtype.as_str()) {
            (Some(_), _) => ScaleKind::Global,
            (None, GROUP_DTYPE) => ScaleKind::Groups,
            (None, _) => ScaleKind::Rows,
        }
    }

    /// Bytes of scales that a row of `dim` values has of its own.
    pub fn bytes_per_row(&self, dim: u64) -> u64 {
        match self.kind() {
            ScaleKind::Groups => dim / GROUP as u64,
            ScaleKind::Rows => number_size(&self.dtype).unwrap_or(0) as u64,
            ScaleKind::Global => 0,
        }
    }
}

/// Bytes of a number, of a type that scales of rows and tensors have.
pub fn number_size(dtype: &str) -> Option<usize> {
    match dtype {
        "F32" => Some(4),
        "BF16" | "F16" => Some(2),
        _ => None,
    }
}
