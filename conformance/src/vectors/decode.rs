//! The golden vectors for decoding, `vectors/v1/decode.json`: their form, and how they are made and read.
//!
//! Only the reference decoder of core makes them. They are frozen with the format version: a change in this file means
//! that decoded bits have changed.

use condprog_core::program::VARIANTS;
use condprog_core::{Dtype, FORMAT_VERSION, Layout, Rate, Scale, Segment, Table};
use serde::{Deserialize, Serialize};

use super::layout;
use crate::bits::{from_hex, reference_bits, sha256, to_hex};
use crate::input::{Stream, clear_padding, join, random_record, random_records};

/// The file as it was when this crate was built.
pub const JSON: &str = include_str!("../../vectors/v1/decode.json");

const COMMENT: &str = "Golden vectors for decoding, format version 1. rate is in quarter bits per value; bytes and values are \
hexadecimal digits. 'records': one record each, with the bits of its values in all three formats. 'digests': a table of \
random records, its bytes the top bytes of xorshift32 (s ^= s << 13, s ^= s >> 17, s ^= s << 5, give s; s starts at \
seed * 2654435769 mod 2^32), with the SHA-256 of all its rows in order, values little-endian. 'scales': 4096 records of one code, the scale \
field of row i being i | (i % 16) << 12, with the same digests.";

/// The vectors of one format version.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct DecodeVectors {
    /// What the file is.
    #[serde(rename = "_comment")]
    pub comment: String,
    /// The format version of the records.
    pub format_version: u32,
    /// Single records.
    pub records: Vec<RecordVector>,
    /// Tables by formula.
    pub digests: Vec<DigestVector>,
    /// Every scale with every level.
    pub scales: Vec<ScalesVector>,
}

/// One record and its values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordVector {
    /// What it is there for.
    pub name: String,
    /// Row width.
    pub dim: u32,
    /// Quarter bits per value.
    pub rate: u32,
    /// The record, hexadecimal.
    pub record: String,
    /// Values as bf16 bits, hexadecimal, separated by spaces.
    pub bf16: String,
    /// Values as f16 bits.
    pub f16: String,
    /// Values as f32 bits.
    pub f32: String,
}

/// SHA-256 of the rows of a table, per number format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Digests {
    /// Of bf16 values.
    pub bf16: String,
    /// Of f16 values.
    pub f16: String,
    /// Of f32 values.
    pub f32: String,
}

/// A table of random records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DigestVector {
    /// Row width.
    pub dim: u32,
    /// Quarter bits per value.
    pub rate: u32,
    /// Rows of the table.
    pub rows: u32,
    /// Seed of its bytes.
    pub seed: u32,
    /// Digests of all rows in order.
    pub sha256: Digests,
}

/// One code under every scale.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScalesVector {
    /// Row width.
    pub dim: u32,
    /// Quarter bits per value.
    pub rate: u32,
    /// The code, hexadecimal.
    pub code: String,
    /// Digests of all rows in order.
    pub sha256: Digests,
}

impl RecordVector {
    fn new(name: String, layout: Layout, record: &[u8]) -> RecordVector {
        let bits = |dtype: Dtype| {
            let digits = 2 * dtype.size();
            let values = of_table(layout, record, dtype);
            values.iter().map(|v| format!("{v:0digits$x}")).collect::<Vec<_>>().join(" ")
        };
        RecordVector {
            name,
            dim: layout.dim(),
            rate: layout.rate().quarters(),
            record: to_hex(record),
            bf16: bits(Dtype::Bf16),
            f16: bits(Dtype::F16),
            f32: bits(Dtype::F32),
        }
    }

    /// The bits of the values.
    ///
    /// # Errors
    /// When they are no hexadecimal numbers.
    pub fn bits(&self, dtype: Dtype) -> Result<Vec<u32>, String> {
        let values = match dtype {
            Dtype::Bf16 => &self.bf16,
            Dtype::F16 => &self.f16,
            Dtype::F32 => &self.f32,
        };
        values
            .split(' ')
            .map(|v| u32::from_str_radix(v, 16).map_err(|e| format!("{}: \"{v}\": {e}", self.name)))
            .collect()
    }

    /// The record's bytes.
    ///
    /// # Errors
    /// When they are no hexadecimal digits.
    pub fn bytes(&self) -> Result<Vec<u8>, String> {
        from_hex(&self.record)
    }
}

impl Digests {
    fn new(layout: Layout, records: &[u8]) -> Digests {
        let digest = |dtype| sha256(&of_table(layout, records, dtype), dtype);
        Digests { bf16: digest(Dtype::Bf16), f16: digest(Dtype::F16), f32: digest(Dtype::F32) }
    }

    /// The digest of one number format.
    pub fn of(&self, dtype: Dtype) -> &str {
        match dtype {
            Dtype::Bf16 => &self.bf16,
            Dtype::F16 => &self.f16,
            Dtype::F32 => &self.f32,
        }
    }
}

impl ScalesVector {
    /// The records of the table.
    ///
    /// # Errors
    /// When the code is no hexadecimal digits of the right number.
    pub fn records(&self) -> Result<Vec<u8>, String> {
        let (layout, code) = (layout(self.dim, self.rate)?, from_hex(&self.code)?);
        if code.len() != layout.code_bytes() {
            return Err(format!("code is {} bytes, expected {}", code.len(), layout.code_bytes()));
        }
        let scale = |row: u16| Scale::from_bits(row).with_variant((row % u16::from(VARIANTS)) as u8);
        Ok((0..1 << 12).flat_map(|row| join(layout, &code, scale(row))).collect())
    }
}

fn of_table(layout: Layout, records: &[u8], dtype: Dtype) -> Vec<u32> {
    let rows = (records.len() / layout.record_bytes()) as u64;
    let segments = [Segment { rows, layout, records }];
    let table = Table::new(&segments).expect("whole records make a table");
    reference_bits(table, &(0..rows as i64).collect::<Vec<_>>(), dtype)
}

/// Every layout that format version 1 has among these widths, by rate.
fn layouts<const N: usize>(dims: [u32; N]) -> impl Iterator<Item = Layout> {
    Rate::all().flat_map(move |rate| dims.into_iter().filter_map(move |dim| Layout::new(dim, rate).ok()))
}

/// The vectors, from the reference decoder.
pub fn generate() -> DecodeVectors {
    let mut seeds = 1..;
    let mut seed = || seeds.next().unwrap_or(0);
    let mut records = Vec::new();
    // A scale at which f16 values are normal numbers.
    let scale = Scale::from_bits(44 << 6 | 21);
    for layout in layouts([4, 5, 6, 7, 8, 10, 16, 20, 32, 36]) {
        let mut add = |what: &str, record: &[u8]| {
            let name = format!("{} bits, width {}, {what}", layout.rate(), layout.dim());
            records.push(RecordVector::new(name, layout, record));
        };
        add("random code", &random_record(layout, scale, seed()));
        add("code of zeros", &join(layout, &vec![0; layout.code_bytes()], scale));
        let mut ones = vec![0xff; layout.code_bytes()];
        clear_padding(layout, &mut ones);
        add("code of ones", &join(layout, &ones, scale));
        if layout.code_bits() % 8 != 0 {
            let mut code = Stream::new(seed()).bytes(layout.code_bytes());
            clear_padding(layout, &mut code);
            let last = code.len() - 1;
            code[last] |= 0xff >> (layout.code_bits() % 8);
            add("padding bits set, to be ignored", &join(layout, &code, scale));
        }
    }
    let layout = Layout::new(32, Rate::TWO).expect("32 values at 2 bits are 64 bits");
    let mut add = |name: String, record: &[u8]| records.push(RecordVector::new(name, layout, record));
    for variant in 0..VARIANTS {
        add(format!("variant {variant}"), &random_record(layout, scale.with_variant(variant), 1000));
    }
    add("record of zeros".into(), &vec![0; layout.record_bytes()]);
    add("zero row with a code".into(), &random_record(layout, Scale::ZERO, seed()));
    add("zero row with a code and a variant".into(), &random_record(layout, Scale::ZERO.with_variant(15), seed()));
    add("smallest scale".into(), &random_record(layout, Scale::MIN, seed()));
    add("largest scale".into(), &random_record(layout, Scale::MAX, seed()));
    add("largest scale, variant 15".into(), &random_record(layout, Scale::MAX.with_variant(15), seed()));
    // Around the end of f16's normal numbers, of its subnormal ones, and of its range.
    for exponent in [17, 18, 20, 22, 24, 25, 26, 28, 31, 34, 35, 56, 57, 58, 62] {
        let scale = Scale::from_bits(exponent << 6 | (exponent * 29) % 64);
        add(format!("scale exponent {exponent}"), &random_record(layout, scale, seed()));
    }
    let digests = layouts([64, 96, 100, 160, 250, 256, 384, 1024, 65_536])
        .map(|layout| {
            let (rows, seed) = (if layout.dim() < 65_536 { 48 } else { 2 }, seed());
            let sha256 = Digests::new(layout, &random_records(layout, rows, seed));
            DigestVector { dim: layout.dim(), rate: layout.rate().quarters(), rows, seed, sha256 }
        })
        .collect();
    DecodeVectors {
        comment: COMMENT.into(),
        format_version: FORMAT_VERSION,
        records,
        digests,
        scales: vec![every_level()],
    }
}

/// A code whose states have all 256 signed levels (by their hash's top byte): each next value takes the first bits
/// that give a level not seen yet, or random ones.
fn every_level() -> ScalesVector {
    use condprog_core::trellis;
    let layout = Layout::new(384, Rate::MAX).expect("384 values at 4 bits are 1536 bits");
    let mut nibbles = vec![0u8; layout.dim() as usize];
    let mut seen = [false; 256];
    let (mut state, mut stream) = (0u16, Stream::new(1));
    for nibble in &mut nibbles[4..] {
        let top = |next: u8| usize::from(layout.program().hash(state << 4 | u16::from(next), 0) >> 8);
        *nibble = (0..16).find(|&next| !seen[top(next)]).unwrap_or_else(|| stream.below(16) as u8);
        seen[top(*nibble)] = true;
        state = state << 4 | u16::from(*nibble);
    }
    let code: Vec<u8> = nibbles.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    let mut levels = [false; 256];
    for t in 0..layout.dim() {
        levels[usize::from(layout.program().hash(trellis::state(layout, &code, t), 0) >> 8)] = true;
    }
    assert!(!levels.contains(&false), "the code has to have every level");
    let mut vector = ScalesVector {
        dim: layout.dim(),
        rate: layout.rate().quarters(),
        code: to_hex(&code),
        sha256: Digests { bf16: String::new(), f16: String::new(), f32: String::new() },
    };
    vector.sha256 = Digests::new(layout, &vector.records().expect("the code was just written"));
    vector
}

/// The text of `decode.json`: JSON with one vector a line.
pub fn to_json(vectors: &DecodeVectors) -> String {
    crate::json::object(&[
        ("_comment", crate::json::value(&vectors.comment)),
        ("format_version", crate::json::value(&vectors.format_version)),
        ("records", crate::json::lines(&vectors.records)),
        ("digests", crate::json::lines(&vectors.digests)),
        ("scales", crate::json::lines(&vectors.scales)),
    ])
}

/// The vectors this crate was built with.
///
/// # Errors
/// As [`parse`].
pub fn load() -> Result<DecodeVectors, String> {
    parse(JSON)
}

/// The vectors in a text.
///
/// # Errors
/// When the text is not what [`DecodeVectors`] says, of another format version, or a part of it is empty.
pub fn parse(text: &str) -> Result<DecodeVectors, String> {
    let vectors: DecodeVectors = serde_json::from_str(text).map_err(|e| format!("decode.json: {e}"))?;
    if vectors.format_version != FORMAT_VERSION {
        return Err(format!("decode.json has format version {}, expected {FORMAT_VERSION}", vectors.format_version));
    }
    if vectors.records.is_empty() || vectors.digests.is_empty() || vectors.scales.is_empty() {
        return Err("decode.json has a part without vectors".into());
    }
    Ok(vectors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_vectors_are_refused() {
        let mut whole: serde_json::Value = serde_json::from_str(JSON).unwrap();
        assert!(parse(&whole.to_string()).is_ok());
        for part in ["records", "digests", "scales"] {
            let mut cut = whole.clone();
            cut[part] = serde_json::json!([]);
            assert!(parse(&cut.to_string()).is_err(), "{part} is empty");
            cut.as_object_mut().unwrap().remove(part);
            assert!(parse(&cut.to_string()).is_err(), "{part} is absent");
        }
        whole["format_version"] = 2.into();
        assert!(parse(&whole.to_string()).is_err());
        assert!(parse("").is_err());
    }
}
