//! Companions of quantised tensors, by name: scales, zero points, shapes, orders of columns. None of them is a table,
//! and some change what the values of a table are.

use std::io::{Read, Seek, SeekFrom};

use condprog_table::error::IoContext;
use condprog_table::header::TensorEntry;
use condprog_table::input;
use condprog_table::source::SourceDtype;
use half::{bf16, f16};

use crate::checkpoint::Checkpoint;
use crate::error::{Error, SourceError};
use crate::fp8;

/// What a companion of a tensor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Companion {
    /// Scales.
    Scales,
    /// A further factor of each value: ones where it changes nothing.
    Factors,
    /// What is taken from each element before it is scaled, or added after: zeros where it changes nothing.
    Offsets,
    /// What else belongs to a quantised tensor.
    Other,
}

impl Companion {
    /// In the plural, for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Companion::Scales => "scales",
            Companion::Factors => "factors of scales",
            Companion::Offsets => "zero points",
            Companion::Other => "notes of a quantiser",
        }
    }
}

/// Last words of names, each with whether it says enough where no quantised tensor is there that it belongs to.
const WORDS: [(&str, Companion, bool); 28] = [
    ("scale", Companion::Scales, true),
    ("scales", Companion::Scales, true),
    ("scale_inv", Companion::Scales, true),
    ("weight_scale", Companion::Scales, true),
    ("weight_scales", Companion::Scales, true),
    ("weight_scale_inv", Companion::Scales, true),
    ("SCB", Companion::Scales, false),
    ("absmax", Companion::Scales, false),
    ("nested_absmax", Companion::Scales, false),
    ("scale_2", Companion::Factors, true),
    ("weight_scale_2", Companion::Factors, true),
    ("global_scale", Companion::Factors, true),
    ("weight_global_scale", Companion::Factors, true),
    ("zero_point", Companion::Offsets, true),
    ("zero_points", Companion::Offsets, true),
    ("weight_zero_point", Companion::Offsets, true),
    ("weight_zero_points", Companion::Offsets, true),
    ("weight_zp", Companion::Offsets, true),
    ("qzeros", Companion::Offsets, true),
    ("zeros", Companion::Offsets, false),
    ("biases", Companion::Offsets, false),
    ("g_idx", Companion::Other, true),
    ("weight_g_idx", Companion::Other, true),
    ("weight_shape", Companion::Other, true),
    ("input_scale", Companion::Other, true),
    ("output_scale", Companion::Other, true),
    ("quant_map", Companion::Other, false),
    ("nested_quant_map", Companion::Other, false),
];

/// Last words of the names of tensors that hold several elements in one number, and of others that do so at times.
const PACKED: [&str; 4] = ["qweight", "weight_packed", "packed", "blocks"];

/// Bytes of zero points that are read at a time.
const CHUNK: usize = 1 << 20;

/// A name without its last word, which follows a `.` or a `_`.
fn without<'a>(name: &'a str, word: &str) -> Option<&'a str> {
    name.strip_suffix(word)?.strip_suffix(['.', '_']).filter(|base| !base.is_empty())
}

/// What the names of a tensor's companions start with: its own, and that without `weight`.
pub(super) fn bases(tensor: &str) -> Vec<&str> {
    let shorter = ["weight"].into_iter().chain(PACKED).find_map(|word| without(tensor, word));
    [tensor].into_iter().chain(shorter).collect()
}

impl Checkpoint {
    /// Whether a tensor is there that is not of a float type; one whose file is not there may be.
    fn is_quantised(&self, name: &str) -> bool {
        let float = |tensor: &TensorEntry| {
            SourceDtype::from_name(&tensor.dtype).is_some_and(|dtype| !dtype.has_scales()) || tensor.dtype == "F64"
        };
        self.contains(name) && self.tensor(name).is_none_or(|tensor| !float(tensor))
    }

    /// What a tensor is that belongs to another, and the other where it is there and quantised.
    pub fn companion(&self, name: &str) -> Option<(Companion, Option<String>)> {
        let owner = |base: &str| {
            let packed = PACKED.iter().flat_map(|word| [format!("{base}.{word}"), format!("{base}_{word}")]);
            let mut owners = [base.to_string(), format!("{base}.weight")].into_iter().chain(packed);
            owners.find(|owner| owner != name && self.is_quantised(owner))
        };
        let mut found = None;
        for (word, what, is_enough) in WORDS {
            let Some(base) = without(name, word) else { continue };
            match owner(base) {
                Some(owner) => return Some((what, Some(owner))),
                // A word after a `_` may be part of any name.
                None if is_enough && name.as_bytes()[base.len()] == b'.' => found = Some((what, None)),
                None => {}
            }
        }
        found
    }

    /// The companions that a tensor has, by their names; those beside it count where they are one number.
    fn companions(&self, tensor: &str) -> Vec<(Companion, String)> {
        let bases = bases(tensor);
        let beside = bases[bases.len() - 1].rsplit_once('.').map(|(parent, _)| parent);
        let mut found = Vec::new();
        for (word, what, _) in WORDS {
            let own = bases.iter().flat_map(|base| [format!("{base}.{word}"), format!("{base}_{word}")]);
            found.extend(own.filter(|name| name != tensor && self.contains(name)).map(|name| (what, name)));
            let beside = beside.map(|parent| format!("{parent}.{word}"));
            found.extend(beside.filter(|name| name != tensor && self.is_number(name)).map(|name| (what, name)));
        }
        found
    }

    /// Whether a tensor is there and is one number.
    pub(super) fn is_number(&self, name: &str) -> bool {
        self.tensor(name).is_some_and(|entry| entry.shape.iter().all(|&size| size == 1))
    }

    /// Why a tensor is quantised in a form that is not read; `None` where it is not.
    pub(super) fn packed(&self, tensor: &TensorEntry) -> Option<SourceError> {
        let is_integer = tensor.dtype.starts_with(['U', 'I']) || tensor.dtype.starts_with("F4");
        let says_packed = || PACKED[..3].iter().any(|word| without(&tensor.name, word).is_some());
        if !is_integer || tensor.dtype == SourceDtype::I8.name() && !says_packed() {
            return None;
        }
        // What belongs to another tensor is packed with it.
        if self.companion(&tensor.name).is_some() {
            return None;
        }
        let with: Vec<_> = self.companions(&tensor.name).into_iter().map(|(_, name)| name).collect();
        (says_packed() || !with.is_empty()).then(|| SourceError::Packed {
            tensor: tensor.name.clone(),
            dtype: tensor.dtype.clone(),
            with,
        })
    }

    /// Refuses a tensor whose values are more than elements times scales: with zero points that are not zero, or with
    /// further factors that are not one. `scale` is the name of its scales.
    pub(super) fn refuse_offsets(&self, tensor: &str, scale: &str) -> Result<(), Error> {
        let mut companions = self.companions(tensor);
        // Beside scales that the user names, zero points have names like theirs.
        let like_scale = ["zero_point", "zeros"].map(|word| scale.replacen("scale", word, 1));
        for name in like_scale.into_iter().filter(|name| name != scale && name != tensor && self.contains(name)) {
            if companions.iter().all(|(_, known)| *known != name) {
                companions.push((Companion::Offsets, name));
            }
        }
        for (what, name) in companions {
            let neutral = match what {
                Companion::Factors => 1.0,
                Companion::Offsets => 0.0,
                Companion::Scales | Companion::Other => continue,
            };
            if name == scale {
                continue;
            }
            let (tensor, companion) = (tensor.to_string(), name.clone());
            if let Some((index, value)) = self.first_other_than(neutral, &name)? {
                let expected = if what == Companion::Factors { "ones" } else { "zeros" };
                let what = what.name();
                return Err(self.error(SourceError::NotNeutral { tensor, companion, what, index, value, expected }));
            }
        }
        Ok(())
    }

    /// The first element of a tensor that is not this number, and its place.
    fn first_other_than(&self, neutral: f64, name: &str) -> Result<Option<(u64, f64)>, Error> {
        let (file, entry) = self.find(name).map_err(|source| self.error(source))?;
        let Some(size) = number_bytes(&entry.dtype) else {
            let (tensor, got) = (name.into(), entry.dtype.clone());
            return Err(self.error(SourceError::CompanionDtype { tensor, got }));
        };
        let (mut open, _) = input::open(&file.path)?;
        open.seek(SeekFrom::Start(file.header.data_start + entry.start)).context("read", &file.path)?;
        let mut bytes = vec![0; CHUNK.min(entry.bytes() as usize)];
        let mut done = 0;
        while done < entry.bytes() {
            let count = (bytes.len() as u64).min(entry.bytes() - done) as usize;
            open.read_exact(&mut bytes[..count]).context("read", &file.path)?;
            let mut elements = bytes[..count].chunks_exact(size).map(|bytes| number(&entry.dtype, bytes));
            let is_other = |value: &f64| value.is_nan() || *value != neutral;
            if let Some((at, value)) = (0..).zip(&mut elements).find(|(_, value)| is_other(value)) {
                return Ok(Some((done / size as u64 + at, value)));
            }
            done += count as u64;
        }
        Ok(None)
    }
}

/// Bytes of an element that [`number`] reads.
fn number_bytes(dtype: &str) -> Option<usize> {
    Some(match dtype {
        "BOOL" | "U8" | "I8" | "F8_E4M3" => 1,
        "U16" | "I16" | "F16" | "BF16" => 2,
        "U32" | "I32" | "F32" => 4,
        "U64" | "I64" | "F64" => 8,
        _ => return None,
    })
}

/// An element of one of these types, near enough to tell whether it is zero or one.
fn number(dtype: &str, bytes: &[u8]) -> f64 {
    match (dtype, bytes) {
        ("I8", &[a]) => f64::from(a as i8),
        ("F8_E4M3", &[a]) => fp8::e4m3_to_f32(a).into(),
        (_, &[a]) => a.into(),
        ("U16", &[a, b]) => u16::from_le_bytes([a, b]).into(),
        ("I16", &[a, b]) => i16::from_le_bytes([a, b]).into(),
        ("F16", &[a, b]) => f16::from_le_bytes([a, b]).into(),
        (_, &[a, b]) => bf16::from_le_bytes([a, b]).into(),
        ("U32", &[a, b, c, d]) => u32::from_le_bytes([a, b, c, d]).into(),
        ("I32", &[a, b, c, d]) => i32::from_le_bytes([a, b, c, d]).into(),
        (_, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]).into(),
        ("U64", &[a, b, c, d, e, f, g, h]) => u64::from_le_bytes([a, b, c, d, e, f, g, h]) as f64,
        ("I64", &[a, b, c, d, e, f, g, h]) => i64::from_le_bytes([a, b, c, d, e, f, g, h]) as f64,
        (_, &[a, b, c, d, e, f, g, h]) => f64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => f64::NAN,
    }
}
