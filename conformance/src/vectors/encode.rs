//! The golden vectors for encoding, `vectors/v1/encode.json`.
//!
//! They bind only the deterministic encoder of annex A: any code is a valid code. A change of the search changes them
//! and not the format.

use condprog_core::encoder::{Job, ScaleRule, Search};
use condprog_core::{FORMAT_VERSION, Layout, Rate, Scale};
use serde::{Deserialize, Serialize};

use super::layout;
use crate::bits::{from_hex, to_hex};
use crate::input::{Kind, Row};
use crate::json;
use crate::oracle::{outcome_text, reference};

/// The file as it was when this crate was built.
pub const JSON: &str = include_str!("../../vectors/v1/encode.json");

const COMMENT: &str = "Golden vectors for the deterministic encoder of SPEC.md, annex A. rate is in quarter bits per value; \
rule is norm, projection, least-squares, or global and the bits of the scale; the row is made by the formula of \
condprog_conformance::input::Row from kind, seed and exponent. outcome is coded, zero, underflow, or the error and its \
column; the record of an error is all zero.";

/// The vectors.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct EncodeVectors {
    /// What the file is.
    #[serde(rename = "_comment")]
    pub comment: String,
    /// The format version of the records.
    pub format_version: u32,
    /// Rows and their records.
    pub rows: Vec<RowVector>,
}

/// One row and its record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowVector {
    /// Row width.
    pub dim: u32,
    /// Quarter bits per value.
    pub rate: u32,
    /// Effort, 0 to 4.
    pub effort: u8,
    /// Scale rule.
    pub rule: String,
    /// The row.
    #[serde(flatten)]
    pub row: Row,
    /// What became of it.
    pub outcome: String,
    /// The record, hexadecimal.
    pub record: String,
}

impl RowVector {
    fn new(layout: Layout, effort: u8, rule: &str, row: Row) -> RowVector {
        let mut vector = RowVector {
            dim: layout.dim(),
            rate: layout.rate().quarters(),
            effort,
            rule: rule.into(),
            row,
            outcome: String::new(),
            record: String::new(),
        };
        let job = vector.job().expect("the generator names only rules there are");
        let mut record = vec![0; layout.record_bytes()];
        let outcome = reference(job, &row.values(layout.dim()), &mut record);
        vector.outcome = outcome_text(&outcome[0]);
        vector.record = to_hex(&record);
        vector
    }

    /// What an encoder is asked for.
    ///
    /// # Errors
    /// When format version 1 does not have it.
    pub fn job(&self) -> Result<Job, String> {
        let rule = match self.rule.split_once(' ') {
            None if self.rule == "norm" => ScaleRule::Norm,
            None if self.rule == "projection" => ScaleRule::Projection,
            None if self.rule == "least-squares" => ScaleRule::LeastSquares,
            Some(("global", bits)) => {
                let bits =
                    u16::from_str_radix(bits, 16).map_err(|e| format!("scale of rule \"{}\": {e}", self.rule))?;
                ScaleRule::Global(Scale::from_bits(bits))
            }
            _ => return Err(format!("\"{}\" is no scale rule", self.rule)),
        };
        Ok(Job::new(layout(self.dim, self.rate)?, rule, Search::effort(self.effort)))
    }

    /// The record's bytes.
    ///
    /// # Errors
    /// When they are no hexadecimal digits.
    pub fn bytes(&self) -> Result<Vec<u8>, String> {
        from_hex(&self.record)
    }
}

/// The vectors, from the reference encoder.
pub fn generate() -> EncodeVectors {
    let mut rows = Vec::new();
    let mut seed = 0;
    let mut add = |dim: u32, rate: u32, effort: u8, rule: &str, make: &dyn Fn(u32) -> Row| {
        seed += 1;
        let layout = layout(dim, rate).expect("the generator names only layouts there are");
        rows.push(RowVector::new(layout, effort, rule, make(seed)));
    };
    let gaussian = |seed| Row::gaussian(seed);
    for rate in Rate::all() {
        add(32, rate.quarters(), 0, "norm", &gaussian);
    }
    for (dim, rate) in
        [(8, 8), (16, 8), (36, 8), (64, 8), (160, 8), (256, 8), (256, 8), (384, 6), (1024, 4), (1024, 16)]
    {
        add(dim, rate, 0, "norm", &gaussian);
    }
    for (dim, rate) in [(4, 16), (5, 16), (6, 12), (7, 16), (20, 5), (100, 7), (250, 10), (36, 13), (100, 15)] {
        add(dim, rate, 0, "norm", &gaussian);
    }
    for effort in 1..=Search::MAX_EFFORT {
        add(32, 8, effort, "norm", &gaussian);
        add(64, 6, effort, "norm", &gaussian);
        add(36, 13, effort, "norm", &gaussian);
    }
    add(160, 8, 1, "norm", &gaussian);
    for rule in ["projection", "least-squares", "global 0b40", "global 0000", "global f000", "global 0fff"] {
        add(32, 8, 0, rule, &gaussian);
        add(32, 8, 0, rule, &|seed| Row { kind: Kind::Heavy, ..Row::gaussian(seed) });
    }
    for kind in Kind::ALL {
        add(32, 8, 0, "norm", &|seed| Row { kind, ..Row::gaussian(seed) });
        add(64, 5, 1, "norm", &|seed| Row { kind, ..Row::gaussian(seed) });
    }
    for kind in [Kind::Heavy, Kind::OneHot, Kind::Outlier] {
        add(256, 8, 0, "norm", &|seed| Row { kind, ..Row::gaussian(seed) });
    }
    // Lengths from far below the smallest scale to far above the largest.
    for exponent in [-149, -116, -62, -60, -59, -58, -40, -3, -1, 5, 6, 7, 80, 108] {
        add(16, 8, 0, "norm", &|seed| Row { exponent, ..Row::gaussian(seed) });
    }
    EncodeVectors { comment: COMMENT.into(), format_version: FORMAT_VERSION, rows }
}

/// The text of `encode.json`: JSON with one vector a line.
pub fn to_json(vectors: &EncodeVectors) -> String {
    json::object(&[
        ("_comment", json::value(&vectors.comment)),
        ("format_version", json::value(&vectors.format_version)),
        ("rows", json::lines(&vectors.rows)),
    ])
}

/// The vectors this crate was built with.
///
/// # Errors
/// As [`parse`].
pub fn load() -> Result<EncodeVectors, String> {
    parse(JSON)
}

/// The vectors in a text.
///
/// # Errors
/// When the text is not what [`EncodeVectors`] says, of another format version, or empty.
pub fn parse(text: &str) -> Result<EncodeVectors, String> {
    let vectors: EncodeVectors = serde_json::from_str(text).map_err(|e| format!("encode.json: {e}"))?;
    if vectors.format_version != FORMAT_VERSION {
        return Err(format!("encode.json has format version {}, expected {FORMAT_VERSION}", vectors.format_version));
    }
    if vectors.rows.is_empty() {
        return Err("encode.json has no vectors".into());
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
        let mut cut = whole.clone();
        cut["rows"] = serde_json::json!([]);
        assert!(parse(&cut.to_string()).is_err());
        cut.as_object_mut().unwrap().remove("rows");
        assert!(parse(&cut.to_string()).is_err());
        whole["format_version"] = 2.into();
        assert!(parse(&whole.to_string()).is_err());
        assert!(parse("").is_err());
    }
}
