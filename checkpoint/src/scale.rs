//! The scales of FP8 and INT8 tensors. Which kind a tensor has is decided by types and shapes alone: configuration files
//! say it wrong, or not at all.

use std::collections::HashMap;

use condprog_table::header::TensorEntry;
use condprog_table::read::ReadFile;
use condprog_table::source::{GROUP_DTYPE, ScaleKind, ScaleTensor, SourceDtype, SourceInfo, SourcePart, number_size};
use half::{bf16, f16};

use crate::checkpoint::{Checkpoint, CheckpointFile};
use crate::error::{Error, SourceError};
use crate::fp8;

/// The number that the bytes of such a type are.
pub(crate) fn number(dtype: &str, bytes: &[u8]) -> f32 {
    match (dtype, bytes) {
        ("F32", &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
        ("F16", &[a, b]) => f16::from_le_bytes([a, b]).to_f32(),
        (_, &[a, b]) => bf16::from_le_bytes([a, b]).to_f32(),
        _ => f32::NAN,
    }
}

/// The bytes of the number of such a type that is nearest.
pub fn number_bytes(dtype: &str, value: f64) -> Vec<u8> {
    match dtype {
        "F32" => (value as f32).to_le_bytes().into(),
        "F16" => f16::from_f64(value).to_le_bytes().into(),
        _ => bf16::from_f64(value).to_le_bytes().into(),
    }
}

/// The smallest number of such a type that is at least `value`, which is positive; the largest there is if none is.
pub fn number_at_least(dtype: &str, value: f64) -> f64 {
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
fn names(tensor: &str) -> (Vec<String>, Vec<String>) {
    let base = tensor.strip_suffix(".weight").unwrap_or(tensor);
    let of = |base: &str, sign: char| NAMES.map(|name| format!("{base}{sign}{name}"));
    let mut own: Vec<_> = of(base, '.').into();
    if base == tensor {
        own.extend(of(tensor, '_'));
    }
    let beside = base.rsplit_once('.').map_or(Vec::new(), |(parent, _)| of(parent, '.').into());
    (own, beside)
}

/// What scales are called.
const NAMES: [&str; 3] = ["scale", "weight_scale", "weight_scale_inv"];

/// Where the scales of a tensor are to be looked for.
#[derive(Clone, Debug)]
pub(crate) enum ScalePlace {
    /// Under a name that tells, or beside the tensor.
    ByName,
    /// In this tensor, which holds nothing else.
    In(String),
    /// In this tensor, which has those of all rows of a table, starting at this row.
    From { name: String, first_row: u64, table_rows: u64 },
}

impl Checkpoint {
    /// What a tensor is as a table. Its own type says whether it has scales: what is called a scale beside a tensor of a
    /// float type was left over by other tools, and is not looked at.
    ///
    /// # Errors
    /// [`Error::Source`] when it is not a table, [`Error::File`] when its scale cannot be read.
    pub fn info(&self, name: &str) -> Result<SourceInfo, Error> {
        self.info_with(name, &ScalePlace::ByName)
    }

    pub(crate) fn info_with(&self, name: &str, scale: &ScalePlace) -> Result<SourceInfo, Error> {
        let (dtype, [rows, dim]) = self.describe(name).map_err(|source| self.error(source))?;
        let scale = match dtype.has_scales() {
            true => Some(self.scales(name, dtype, [rows, dim], scale)?),
            false => None,
        };
        let parts = vec![SourcePart { name: name.into(), rows, scale }];
        Ok(SourceInfo { name: name.into(), dtype, rows, dim, parts })
    }

    /// The scales of a tensor, whichever file they are in.
    pub(crate) fn scales(
        &self,
        tensor: &str,
        dtype: SourceDtype,
        [rows, dim]: [u64; 2],
        place: &ScalePlace,
    ) -> Result<ScaleTensor, Error> {
        let error = |source| self.error(source);
        let (name, first_row, rows) = match place {
            ScalePlace::ByName => (self.find_scales(tensor, dtype, [rows, dim])?, None, rows),
            ScalePlace::In(name) => (name.clone(), None, rows),
            ScalePlace::From { name, first_row, table_rows } => (name.clone(), Some(*first_row), *table_rows),
        };
        let (file, entry) = self.find(&name).map_err(error)?;
        let kind = kind(tensor, dtype, [rows, dim], entry).map_err(error)?;
        self.refuse_offsets(tensor, &name)?;
        let (dtype, shape) = (entry.dtype.clone(), entry.shape.clone());
        if kind != ScaleKind::Global {
            return Ok(ScaleTensor { name, dtype, shape, first_row, value_bits: None });
        }
        let value = one_number(file, entry)?;
        if !(value.is_finite() && value > 0.0) {
            return Err(error(SourceError::ScaleValue { tensor: tensor.into(), scale: name, value }));
        }
        Ok(ScaleTensor { name, dtype, shape, first_row: None, value_bits: Some(value.to_bits()) })
    }

    /// The name of a tensor's scales: its own, or one number for all tensors beside it. A placeholder, one number that
    /// is 1, gives way to any other.
    fn find_scales(&self, tensor: &str, dtype: SourceDtype, shape: [u64; 2]) -> Result<String, Error> {
        let (own, beside) = names(tensor);
        let mut found: Vec<&String> = own.iter().filter(|name| self.contains(name)).collect();
        let count = found.len();
        // What lies beside a tensor is its scale only when it is one number: else it belongs to something else.
        let may_be = |name: &&String| self.contains(name) && (self.tensor(name).is_none() || self.is_number(name));
        found.extend(beside.iter().filter(may_be));
        if found.len() > 1 {
            let mut kept = Vec::new();
            for name in &found {
                if !self.is_placeholder(name)? {
                    kept.push(*name);
                }
            }
            match kept.is_empty() {
                false => found = kept,
                // All say the same, and its own are before those of all.
                true if count > 0 => found.truncate(count),
                true => {}
            }
        }
        match found.as_slice() {
            [one] => Ok((*one).clone()),
            [] => Err(self.error(SourceError::MissingScale {
                tensor: tensor.into(),
                dtype: dtype.name(),
                names: own.into_iter().chain(beside).collect(),
                expected: expected(dtype, shape),
            })),
            [first, second, ..] => {
                let scales = [(*first).clone(), (*second).clone()];
                Err(self.error(SourceError::TwoScales { tensor: tensor.into(), scales }))
            }
        }
    }

    /// Whether a tensor is one number that is 1, as tools write where they have no scale.
    fn is_placeholder(&self, name: &str) -> Result<bool, Error> {
        let (file, entry) = self.find(name).map_err(|source| self.error(source))?;
        let is_number = self.is_number(name) && number_size(&entry.dtype).is_some();
        Ok(is_number && one_number(file, entry)? == 1.0)
    }

    /// Refuses scales of rows that several tensors would share.
    ///
    /// # Errors
    /// [`Error::Source`].
    pub fn refuse_shared_scales(&self, tables: &[SourceInfo]) -> Result<(), Error> {
        let mut users = HashMap::new();
        for part in tables.iter().flat_map(|table| &table.parts) {
            let Some(scale) = part.scale.as_ref().filter(|scale| scale.kind() != ScaleKind::Global) else { continue };
            if let Some(other) = users.insert((&scale.name, scale.first_row), &part.name)
                && *other != part.name
            {
                let tensors = [other.clone(), part.name.clone()];
                return Err(self.error(SourceError::SharedScale { scale: scale.name.clone(), tensors }));
            }
        }
        Ok(())
    }
}

/// The number of a tensor that is one, of a type that scales have.
fn one_number(file: &CheckpointFile, entry: &TensorEntry) -> Result<f32, Error> {
    let mut bytes = vec![0; entry.bytes() as usize];
    ReadFile::open(&file.path)?.read_at(file.header.data_start + entry.start, &mut bytes)?;
    Ok(number(&entry.dtype, &bytes))
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
