//! The scales of FP8 and INT8 tensors. Which kind a tensor has is decided by types and shapes alone: configuration files
//! say it wrong, or not at all.

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

use super::{SourceDtype, SourceError};
use crate::fp8;
use crate::header::TensorEntry;

/// Data type of scales for groups of columns.
pub(super) const GROUP_DTYPE: &str = "F8_E8M0";

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
    pub(crate) fn bytes_per_row(&self, dim: u64) -> u64 {
        match self.kind() {
            ScaleKind::Groups => dim / fp8::GROUP as u64,
            ScaleKind::Rows => number_size(&self.dtype).unwrap_or(0) as u64,
            ScaleKind::Global => 0,
        }
    }
}

/// Bytes of a number, of a type that scales of rows and tensors have.
pub(crate) fn number_size(dtype: &str) -> Option<usize> {
    match dtype {
        "F32" => Some(4),
        "BF16" | "F16" => Some(2),
        _ => None,
    }
}

/// The number that the bytes of such a type are.
pub(crate) fn number(dtype: &str, bytes: &[u8]) -> f32 {
    match (dtype, bytes) {
        ("F32", &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
        ("F16", &[a, b]) => f16::from_le_bytes([a, b]).to_f32(),
        (_, &[a, b]) => bf16::from_le_bytes([a, b]).to_f32(),
        _ => f32::NAN,
    }
}

/// The bytes of a number of such a type: of those that it has, the nearest.
pub(crate) fn number_bytes(dtype: &str, value: f64) -> Vec<u8> {
    match dtype {
        "F32" => (value as f32).to_le_bytes().into(),
        "F16" => f16::from_f64(value).to_le_bytes().into(),
        _ => bf16::from_f64(value).to_le_bytes().into(),
    }
}

/// The smallest number of such a type that is at least `value`, which is positive; the largest there is if none is.
pub(crate) fn number_at_least(dtype: &str, value: f64) -> f64 {
    // Positive numbers ascend with their bits.
    let least = |bits: u32, last: u32, number: &dyn Fn(u32) -> f64| {
        let bits = if number(bits) < value { bits + 1 } else { bits };
        number(bits.clamp(1, last))
    };
    match dtype {
        "F32" => least((value as f32).to_bits(), f32::MAX.to_bits(), &|bits| f32::from_bits(bits).into()),
        "F16" => {
            let number = |bits: u32| f16::from_bits(bits as u16).to_f64();
            least(f16::from_f64(value).to_bits().into(), f16::MAX.to_bits().into(), &number)
        }
        _ => {
            let number = |bits: u32| bf16::from_bits(bits as u16).to_f64();
            least(bf16::from_f64(value).to_bits().into(), bf16::MAX.to_bits().into(), &number)
        }
    }
}

/// Names under which checkpoints keep the scales of a tensor: its own, then one for all that lie beside it.
pub(crate) fn names(tensor: &str) -> (Vec<String>, Vec<String>) {
    let base = tensor.strip_suffix(".weight").unwrap_or(tensor);
    let of = |base: &str| ["scale", "weight_scale", "weight_scale_inv"].map(|name| format!("{base}.{name}"));
    let mut own: Vec<_> = of(base).into();
    if base == tensor {
        own.push(format!("{tensor}_scale"));
    }
    let beside = base.rsplit_once('.').map_or(Vec::new(), |(parent, _)| of(parent).into());
    (own, beside)
}

/// What the scales of a tensor `[rows, dim]` are, by the type and shape of theirs; the value of a global one is not
/// known yet.
pub(crate) fn kind(
    tensor: &str,
    dtype: SourceDtype,
    [rows, dim]: [u64; 2],
    scale: &TensorEntry,
) -> Result<ScaleKind, SourceError> {
    let groups = [rows, dim / fp8::GROUP as u64];
    if scale.dtype == GROUP_DTYPE && dtype == SourceDtype::F8E4m3 {
        if !dim.is_multiple_of(fp8::GROUP as u64) {
            return Err(SourceError::Group { tensor: tensor.into(), dim });
        }
        if scale.shape == groups {
            return Ok(ScaleKind::Groups);
        }
    }
    if number_size(&scale.dtype).is_some() {
        match scale.shape.as_slice() {
            [] | [1] | [1, 1] => return Ok(ScaleKind::Global),
            [n] | [n, 1] if *n == rows => return Ok(ScaleKind::Rows),
            _ => {}
        }
    }
    Err(SourceError::Scale {
        tensor: tensor.into(),
        scale: scale.name.clone(),
        dtype: scale.dtype.clone(),
        shape: scale.shape.clone(),
        expected: expected(dtype, [rows, dim]),
    })
}

/// The scales that a tensor may have, for messages.
pub(crate) fn expected(dtype: SourceDtype, [rows, dim]: [u64; 2]) -> String {
    let numbers = format!("F32, BF16 or F16 and [{rows}, 1] or [1]");
    match dtype {
        SourceDtype::F8E4m3 if dim.is_multiple_of(fp8::GROUP as u64) => {
            format!("{GROUP_DTYPE} and {:?}, or {numbers}", [rows, dim / fp8::GROUP as u64])
        }
        _ => numbers,
    }
}
