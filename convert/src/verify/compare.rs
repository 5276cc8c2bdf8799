//! Every row of a table beside its source row.

use std::collections::BTreeMap;
use std::ops::Range;

use condprog_checkpoint::{RawRows, RowSource};
use condprog_core::encoder::ScaleRule;
use condprog_core::{Missing, Output};
use condprog_table::Tables;
use condprog_table::checksum;
use condprog_table::format::{SegmentInfo, TableInfo};
use condprog_table::{Damage, Fault};
use rayon::prelude::*;

use super::limits::{Figures, Limits, relative};
use super::recode::{Reason, Recoder, Sampled, rule};
use super::{VerifyOptions, VerifyTable};
use crate::codec::{Codec, CodecError};
use crate::error::Error;
use crate::stream::{Block, Counter, default_block_rows, read_ahead};

/// Rows that one task compares, and of which the mean is looked at.
const PART_ROWS: usize = 256;

/// Compares a table with its source, and writes down what is found.
pub(super) fn compare(
    file: &Tables,
    table: &TableInfo,
    source: Box<dyn RowSource>,
    options: &VerifyOptions,
    codec: &dyn Codec,
    report: &mut VerifyTable,
    counter: &mut Counter<'_>,
) -> Result<(), Error> {
    let compared = Compared::new(file, table, codec);
    let sampled = Sampled::new(table, options.sample);
    let size = default_block_rows(u64::from(table.dim));
    let blocks = (0..table.rows.div_ceil(size)).map(|block| {
        let first = block * size;
        Block { source: 0, first: table.first_row + first, rows: size.min(table.rows - first) as usize, tag: first }
    });
    let mut sums = Sums::default();
    let mut digests = vec![0u64; table.segments.len()];
    let mut recoder = Recoder::new(file, table, codec);
    read_ahead(&mut [source], blocks, |block, raw| {
        let first = block.tag;
        let parts = (0..block.rows).into_par_iter().step_by(PART_ROWS);
        let parts = parts.map(|start| compared.part(&raw, first, start..block.rows.min(start + PART_ROWS)));
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        let sample = sampled.within(first..first + block.rows as u64);
        let mut again: BTreeMap<u64, Reason> = sample.into_iter().map(|row| (row, Reason::Sample)).collect();
        for part in parts {
            sums.add(&part.sums);
            for (segment, digest) in part.digests {
                digests[segment] = digests[segment].wrapping_add(digest);
            }
            again.extend(part.doubts);
        }
        for (row, reason) in again {
            let segment = compared.segment(row);
            let rule = compared.segments[segment].0;
            if recoder.take((row, segment), rule, (&raw, (row - first) as usize), reason)? {
                // May take long: ask whether to stop.
                counter.add(&table.name, 0)?;
            }
        }
        counter.add(&table.name, block.rows as u64)
    })?;
    recoder.flush()?;
    sums.write(report);
    (report.recoded_rows, report.mismatched_rows) = (Some(recoder.recoded), Some(recoder.mismatched));
    let of_table = sums.faults(options, recoder.mismatched > 0);
    let of_rows = recoder.finish();
    let tensor = &table.segments[0].tensor;
    report.damage.extend(of_table.into_iter().map(|fault| Damage {
        table: table.name.clone(),
        tensor: tensor.clone(),
        first_row: 0,
        rows: table.rows,
        fault,
    }));
    report.damage.extend(of_rows);
    report.damage.extend(table.segments.iter().zip(digests).filter_map(|(segment, got)| {
        let (got, expected) = (checksum::hex(got), segment.source_xxh3_64.clone()?);
        (got != expected).then(|| Damage {
            table: table.name.clone(),
            tensor: segment.tensor.clone(),
            first_row: segment.first_row,
            rows: segment.rows,
            fault: Fault::SourceDigest { got, expected },
        })
    }));
    Ok(())
}

/// A table that is compared, with the rule and the limits of each segment.
struct Compared<'a> {
    file: &'a Tables,
    table: &'a TableInfo,
    codec: &'a dyn Codec,
    segments: Vec<(Option<ScaleRule>, Limits)>,
}

/// What is known of some rows.
struct Part {
    sums: Sums,
    /// Rows in doubt, in row order.
    doubts: Vec<(u64, Reason)>,
    /// Of the segments that they are in, the digests of their source rows.
    digests: Vec<(usize, u64)>,
}

impl<'a> Compared<'a> {
    fn new(file: &'a Tables, table: &'a TableInfo, codec: &'a dyn Codec) -> Compared<'a> {
        let limits = |segment: &SegmentInfo| {
            let rule = rule(table, segment);
            (rule, Limits::new(segment.layout, rule))
        };
        Compared { file, table, codec, segments: table.segments.iter().map(limits).collect() }
    }

    /// The segment that a row is in.
    fn segment(&self, row: u64) -> usize {
        self.table.segments.partition_point(|segment| segment.first_row + segment.rows <= row)
    }

    /// Digests of source rows of a block, by segment.
    fn digests(&self, raw: &RawRows, first: u64, rows: Range<usize>) -> Vec<(usize, u64)> {
        let mut digests = Vec::new();
        let mut start = rows.start;
        while start < rows.end {
            let segment = self.segment(first + start as u64);
            let about = &self.table.segments[segment];
            let end = rows.end.min((about.first_row + about.rows - first) as usize);
            digests.push((segment, raw.digest(start..end, self.table.first_row + first)));
            start = end;
        }
        digests
    }

    /// Compares rows of a block, which are counted from the block's first.
    fn part(&self, raw: &RawRows, first: u64, rows: Range<usize>) -> Result<Part, Error> {
        let start = first + rows.start as u64;
        let records = self.file.read_rows(self.table, start..first + rows.end as u64)?;
        let decoder = self.codec.decoder(records)?;
        let (mut source, mut restored) = (vec![0.0; rows.len() * raw.dim], vec![0.0; rows.len() * raw.dim]);
        raw.to_f32(rows.clone(), &mut source);
        let ids: Vec<i64> = (0..rows.len() as i64).collect();
        decoder.decode(&ids, Missing::Error, Output::F32(&mut restored)).map_err(CodecError::from)?;
        let mut part =
            Part { sums: Sums::default(), doubts: Vec::new(), digests: self.digests(raw, first, rows.clone()) };
        for ((row, source), restored) in (start..).zip(source.chunks(raw.dim)).zip(restored.chunks(raw.dim)) {
            let figures = Figures::of(source, restored);
            let limits = &self.segments[self.segment(row)].1;
            part.sums.row(row, &figures, limits);
            if limits.doubt(&figures) {
                part.doubts.push((row, Reason::Doubt(figures)));
            }
        }
        if let Some((got, expected)) = part.sums.mean_doubt() {
            // A doubt about the row itself comes later, and takes its place.
            let of_all = (start..).take(rows.len()).map(|row| (row, Reason::Mean { got, expected }));
            part.doubts.splice(0..0, of_all);
        }
        Ok(part)
    }
}

/// Sums over rows, and the worst of them.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    error: f64,
    energy: f64,
    cosines: f64,
    ratios: f64,
    /// Rows that are not zero in the source.
    directed: u64,
    worst: Option<(u64, f64)>,
    /// Rows whose direction says something, the sum of their cosines, and the least that it should be.
    counted: u64,
    counted_cosines: f64,
    least_cosines: f64,
}

impl Sums {
    fn row(&mut self, row: u64, figures: &Figures, limits: &Limits) {
        if limits.counts(figures) {
            self.counted += 1;
            self.counted_cosines += figures.cosine();
            self.least_cosines += limits.cosine;
        }
        if !figures.energy.is_finite() {
            return;
        }
        self.error += figures.error;
        self.energy += figures.energy;
        if figures.energy > 0.0 {
            self.directed += 1;
            self.ratios += figures.norm_ratio();
            self.cosines += figures.cosine();
        }
        self.worse(row, figures.relative_mse());
    }

    fn worse(&mut self, row: u64, relative: f64) {
        if self.worst.is_none_or(|(_, worst)| relative > worst) {
            self.worst = Some((row, relative));
        }
    }

    fn add(&mut self, other: &Sums) {
        self.error += other.error;
        self.energy += other.energy;
        self.cosines += other.cosines;
        self.ratios += other.ratios;
        self.directed += other.directed;
        self.counted += other.counted;
        self.counted_cosines += other.counted_cosines;
        self.least_cosines += other.least_cosines;
        if let Some((row, relative)) = other.worst {
            self.worse(row, relative);
        }
    }

    fn write(&self, table: &mut VerifyTable) {
        let mean = |sum: f64| if self.directed > 0 { sum / self.directed as f64 } else { 1.0 };
        table.relative_mse = Some(relative(self.error, self.energy));
        table.mean_cosine = Some(mean(self.cosines));
        table.norm_ratio = Some(mean(self.ratios));
        table.worst_row = self.worst.map(|(row, _)| row);
        table.worst_relative_mse = self.worst.map(|(_, relative)| relative);
    }

    /// The mean cosine and the least that it should be, where it is less.
    fn mean_doubt(&self) -> Option<(f64, f64)> {
        let mean = |sum: f64| sum / self.counted as f64;
        (self.counted_cosines < self.least_cosines).then(|| (mean(self.counted_cosines), mean(self.least_cosines)))
    }

    /// What is wrong with the table in the mean. What the rate explains, or does not, is a matter of doubt as that of a
    /// row: it counts where rows are known to differ.
    fn faults(&self, options: &VerifyOptions, differs: bool) -> Vec<Fault> {
        let mut faults = Vec::new();
        if let Some((got, expected)) = self.mean_doubt().filter(|_| differs) {
            faults.push(Fault::Cosine { got, expected });
        }
        let got = relative(self.error, self.energy);
        if let Some(expected) = options.max_error.filter(|&most| got.is_nan() || got > most) {
            faults.push(Fault::MaxError { got, expected });
        }
        faults
    }
}
