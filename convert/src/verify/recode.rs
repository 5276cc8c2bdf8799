//! Rows that are coded again. The encoder is integer arithmetic and makes one record of one row, whatever the machine: a
//! record that differs was made of another row, or by another version.

use std::ops::Range;

use condprog_checkpoint::RawRows;
use condprog_core::encoder::{Outcome, ScaleRule, Search};
use condprog_core::{Job, Scale};
use condprog_table::Tables;
use condprog_table::format::{SegmentInfo, TableInfo};
use condprog_table::{Damage, Fault};

use super::Sample;
use super::limits::Figures;
use crate::codec::{BoxEncoder, Codec, CodecError};
use crate::error::Error;

/// Rows that were coded again and are not the source's, from which on rows in doubt are not coded again: a source that is
/// another one altogether shows at once.
const ENOUGH: u64 = 128;

/// Rows that differ and are no further apart than this are reported as one run.
const NEAR: u64 = 256;

/// Runs that are reported; from there on those of a tensor are put together, however far apart they are.
const MOST_RUNS: usize = 1000;

/// Why a row is coded again.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reason {
    /// It is further from its source row than nearly any.
    Doubt(Figures),
    /// It is one of several that are further from theirs in the mean.
    Mean { got: f64, expected: f64 },
    /// It is in the sample.
    Sample,
}

/// The rule by which the scales of a segment were chosen, where this version knows it.
pub(super) fn rule(table: &TableInfo, segment: &SegmentInfo) -> Option<ScaleRule> {
    let rule: ScaleRule<()> = table.scale_rule.parse().ok()?;
    match (rule, segment.global_scale) {
        (ScaleRule::Global(()), None) => None,
        (rule, bits) => Some(rule.with_global(Scale::from_bits(bits.unwrap_or(0)))),
    }
}

/// The rows of a sample, in row order.
pub(super) enum Sampled {
    All,
    Rows(Vec<u64>),
}

impl Sampled {
    pub(super) fn new(table: &TableInfo, sample: Sample) -> Sampled {
        let count = match sample {
            Sample::Rows(0) => return Sampled::Rows(Vec::new()),
            Sample::Rows(count) if count < table.rows => count,
            _ => return Sampled::All,
        };
        // One row of each of equally many parts; which one depends on the part: equal steps could keep to one kind of
        // row.
        let edge = |part: u64| (u128::from(table.rows) * u128::from(part) / u128::from(count)) as u64;
        let mut rows: Vec<u64> = (0..count)
            .map(|part| {
                let (start, end) = (edge(part), edge(part + 1));
                start + mixed(part) % (end - start).max(1)
            })
            .collect();
        rows.extend(
            table.segments.iter().flat_map(|segment| [segment.first_row, segment.first_row + segment.rows - 1]),
        );
        rows.sort_unstable();
        rows.dedup();
        Sampled::Rows(rows)
    }

    /// Those within some rows.
    pub(super) fn within(&self, rows: Range<u64>) -> Vec<u64> {
        match self {
            Sampled::All => rows.collect(),
            Sampled::Rows(all) => {
                let place = |row| all.partition_point(|&other| other < row);
                all[place(rows.start)..place(rows.end)].to_vec()
            }
        }
    }
}

/// A number that depends on another in no simple way: the end of MurmurHash3.
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed = (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ mixed >> 33
}

/// Codes rows again, as many at a time as keeps all threads busy, and gathers those that differ.
pub(super) struct Recoder<'a> {
    file: &'a Tables,
    table: &'a TableInfo,
    codec: &'a dyn Codec,
    /// An encoder keeps memory per thread: one at a time.
    encoder: Option<BoxEncoder>,
    /// Rows to code: which, of which segment, why.
    rows: Vec<(u64, usize, Reason)>,
    values: Vec<f32>,
    /// As the file has them.
    records: Vec<u8>,
    /// Rows that were coded again.
    pub(super) recoded: u64,
    /// Rows that are not those of the source.
    pub(super) mismatched: u64,
    found: Vec<Damage>,
}

impl<'a> Recoder<'a> {
    pub(super) fn new(file: &'a Tables, table: &'a TableInfo, codec: &'a dyn Codec) -> Recoder<'a> {
        let (rows, values, records, found) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Recoder { file, table, codec, encoder: None, rows, values, records, recoded: 0, mismatched: 0, found }
    }

    /// Takes a row of a segment, which is row `place` of `raw`. Rows come in row order. Says whether rows were coded.
    pub(super) fn take(
        &mut self,
        (row, segment): (u64, usize),
        rule: Option<ScaleRule>,
        (raw, place): (&RawRows, usize),
        reason: Reason,
    ) -> Result<bool, Error> {
        let info = &self.table.segments[segment];
        let rule = match (rule.filter(|_| self.table.effort <= Search::MAX_EFFORT), reason) {
            (Some(rule), Reason::Sample) => rule,
            (Some(rule), _) if self.mismatched < ENOUGH => rule,
            // How it was coded is not known to this version.
            (None, Reason::Sample) => return Ok(false),
            _ => {
                self.found(row, segment, reason);
                return Ok(false);
            }
        };
        let job = Job::new(info.layout, rule, Search::effort(self.table.effort));
        let fits = self.encoder.as_ref().is_some_and(|encoder| *encoder.job() == job);
        let mut coded = false;
        if !fits {
            coded = self.flush()?;
            self.encoder = None;
            self.encoder = Some(self.codec.encoder(job)?);
        }
        self.rows.push((row, segment, reason));
        let end = self.values.len();
        self.values.resize(end + raw.dim, 0.0);
        raw.to_f32(place..place + 1, &mut self.values[end..]);
        let first = row - info.first_row;
        self.file.read_records(info, first..first + 1, &mut self.records)?;
        let full =
            self.encoder.as_ref().map_or(1, |encoder| 2 * encoder.preferred_rows() * rayon::current_num_threads());
        if self.rows.len() >= full {
            coded |= self.flush()?;
        }
        Ok(coded)
    }

    /// Codes what was taken. Says whether there was anything.
    pub(super) fn flush(&mut self) -> Result<bool, Error> {
        let Some(encoder) = self.encoder.as_ref().filter(|_| !self.rows.is_empty()) else {
            return Ok(false);
        };
        let mut coded = vec![0; self.records.len()];
        // Rows that cannot be coded are zero records, in the file as here.
        let mut outcomes = vec![Ok(Outcome::Zero); self.rows.len()];
        encoder.encode(&self.values, &mut coded, &mut outcomes).map_err(CodecError::from)?;
        let rows = std::mem::take(&mut self.rows);
        let records = std::mem::take(&mut self.records);
        self.values.clear();
        self.recoded += rows.len() as u64;
        let stride = encoder.job().layout.record_bytes();
        let pairs = records.chunks_exact(stride).zip(coded.chunks_exact(stride));
        for ((row, segment, reason), _) in rows.into_iter().zip(pairs).filter(|(_, (got, expected))| got != expected) {
            self.found(row, segment, reason);
        }
        Ok(true)
    }

    /// Notes a row that is not the source's.
    fn found(&mut self, row: u64, segment: usize, reason: Reason) {
        let fault = match reason {
            Reason::Doubt(figures) => Fault::SourceRows {
                row,
                count: 1,
                relative_mse: figures.relative_mse(),
                cosine: figures.cosine(),
                norm_ratio: figures.norm_ratio(),
            },
            Reason::Mean { got, expected } => Fault::Cosine { got, expected },
            Reason::Sample => Fault::Records { row, count: 1, of: 0 },
        };
        self.mismatched += 1;
        let tensor = &self.table.segments[segment].tensor;
        // The last of the same kind: rows in doubt lie among rows of the sample.
        let near = if self.found.len() < MOST_RUNS { NEAR } else { u64::MAX / 2 };
        let last = self.found.iter_mut().rev().find(|last| last.fault.code() == fault.code());
        let is_near = |last: &&mut Damage| row.saturating_sub(last.first_row) < last.rows + near;
        if let Some(last) = last.filter(|last| last.tensor == *tensor).filter(is_near) {
            last.rows = row + 1 - last.first_row;
            match (&mut last.fault, fault) {
                (Fault::SourceRows { count, .. } | Fault::Records { count, .. }, _) => *count += 1,
                (Fault::Cosine { got, .. }, Fault::Cosine { got: other, .. }) => *got = got.min(other),
                _ => {}
            }
            return;
        }
        let (table, tensor) = (self.table.name.clone(), tensor.clone());
        self.found.push(Damage { table, tensor, first_row: row, rows: 1, fault });
    }

    /// All that was found, in row order.
    pub(super) fn finish(mut self) -> Vec<Damage> {
        for damage in &mut self.found {
            if let Fault::Records { of, .. } = &mut damage.fault {
                *of = self.recoded;
            }
        }
        self.found.sort_by_key(|damage| damage.first_row);
        self.found
    }
}
