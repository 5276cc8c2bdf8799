//! One scale for a whole segment.

use condprog_checkpoint::{RawRows, RowSource};
use condprog_core::encoder::EncodeError;
use condprog_core::hazmat::Metric;
use condprog_core::scale::Nearest;
use condprog_core::{Program, Rate, Scale};
use condprog_table::source::SourceInfo;
use rayon::prelude::*;

use super::plan::Plan;
use super::{CompressOptions, NonFinite};
use crate::error::Error;
use crate::stream::{Block, Counter, Progress, Stage, default_block_rows, read_ahead};

/// Sets the global scales of all segments: the root mean square of a table, so that its values have the deviation that
/// the search expects. Rows are summed in order, so that the scale does not depend on threads.
pub(super) fn measure(
    sources: &mut [Box<dyn RowSource>],
    plan: &mut Plan,
    options: &CompressOptions,
    progress: &Progress<'_>,
) -> Result<(), Error> {
    // The whole tables, even for a part of them: all parts have the same scale.
    let tables: Vec<_> = sources.iter().map(|source| source.info().clone()).collect();
    let mut counter = Counter::new(Stage::Measure, progress, 0, tables.iter().map(|table| table.rows).sum());
    // Of each table, the energy and the rows that have one.
    let mut sums = vec![(0.0, 0u64); tables.len()];
    let blocks: Vec<_> = (0..tables.len()).flat_map(|source| source_blocks(source, &tables[source])).collect();
    read_ahead(sources, blocks.into_iter(), |block, raw| {
        let table = &tables[block.source];
        for (row, energy) in (block.first..).zip(energies(&raw)) {
            match (energy, options.non_finite) {
                (Ok(energy), _) => {
                    sums[block.source].0 += energy;
                    sums[block.source].1 += 1;
                }
                (Err(_), NonFinite::Zero) => {}
                (Err(source), NonFinite::Error) => {
                    return Err(Error::Row { tensor: table.name.clone(), row, source });
                }
            }
        }
        counter.add(&table.name, block.rows as u64)
    })?;
    for segment in 0..plan.segments.len() {
        let source = plan.segments[segment].source;
        let (table, (energy, rows)) = (&tables[source], sums[source]);
        let rms = if rows == 0 { 0.0 } else { (energy / (rows * table.dim) as f64).sqrt() };
        let scale = global_scale(&table.name, rms, plan.segments[segment].layout.rate())?;
        plan.segment_mut(segment).global_scale = Some(scale.to_bits());
    }
    Ok(())
}

/// Sum of squares of each row, or its first value that is not finite.
fn energies(raw: &RawRows) -> Vec<Result<f64, EncodeError>> {
    let rows = (0..raw.rows()).into_par_iter().with_min_len(64);
    let energy = |values: &mut Vec<f32>, row: usize| {
        raw.to_f32(row..row + 1, values);
        match values.iter().position(|value| !value.is_finite()) {
            Some(column) => Err(EncodeError::NonFinite { column, value: values[column] }),
            None => Ok(values.iter().map(|&value| f64::from(value) * f64::from(value)).sum()),
        }
    };
    rows.map_init(|| vec![0.0; raw.dim], energy).collect()
}

/// Blocks of a table as the source is read when no records are written.
fn source_blocks(source: usize, table: &SourceInfo) -> impl Iterator<Item = Block<()>> + use<> {
    let (rows, size) = (table.rows, default_block_rows(table.dim));
    (0..rows.div_ceil(size)).map(move |block| {
        let first = block * size;
        Block { source, first, rows: size.min(rows - first) as usize, tag: () }
    })
}

/// The scale with which values of this root mean square have the deviation the search expects of them: it counts in
/// quarter levels, four of which are worth one scale.
fn global_scale(tensor: &str, rms: f64, rate: Rate) -> Result<Scale, Error> {
    let scale = 4.0 * rms / Metric::new(Program::default(), rate).deviation();
    let edge = |twice: u32, exponent: u32| f64::from(twice) * 2f64.powi(exponent as i32 - 55);
    match Scale::nearest(|twice, exponent| scale >= edge(twice, exponent)) {
        Nearest::Below => Ok(Scale::ZERO),
        Nearest::Scale(scale) => Ok(scale),
        Nearest::Above => Err(Error::GlobalScale { tensor: tensor.into(), scale }),
    }
}
