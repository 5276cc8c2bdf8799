//! The rows that a report is made on.

use std::collections::HashMap;

use super::Options;
use crate::error::Error;
use crate::harness::FIT_ROWS;
use crate::method::Origin;
use crate::noise;
use crate::rows::Rows;
use crate::table::{SourceTable, trace_counts};

/// The sample of a table, or rows that stand for one.
pub struct Sample {
    /// What the report is about.
    pub title: String,
    /// What it was made from: facts for the head of the page, name and value.
    pub facts: Vec<(String, String)>,
    /// The rows, in the order in which parts of the sample are taken.
    pub rows: Rows,
    /// Their ids.
    pub ids: Vec<u64>,
    /// Other rows, to fit on; none when the sample is the whole table.
    pub fit: Rows,
    /// Bytes per row in the source.
    pub source_bytes: f64,
    /// Rows of the table; `None` where the rows stand for a table without end.
    pub table_rows: Option<u64>,
    /// How often the trace asks for each row.
    pub weights: Option<Vec<f64>>,
}

impl Sample {
    /// A seeded sample of a table, in random order, and other rows to fit on.
    ///
    /// # Errors
    /// [`Error`] when the table cannot be read, has values that are not finite, or the trace names none of its rows.
    pub fn of_table(mut table: SourceTable, options: &Options) -> Result<Sample, Error> {
        let mut ids = noise::sample(table.len(), options.sample, options.seed);
        let read = read_finite(&mut table, &ids)?;
        // A part of the sample must be a sample too.
        let mut order: Vec<usize> = (0..ids.len()).collect();
        let mut random = noise::Noise::new(options.seed ^ 0x0bde);
        for i in (1..order.len()).rev() {
            order.swap(i, random.below(i as u64 + 1) as usize);
        }
        let mut rows = read.select(&order);
        let fit_ids = noise::sample_beside(table.len(), &ids, FIT_ROWS, options.seed.wrapping_add(1));
        let mut fit = read_finite(&mut table, &fit_ids)?;
        ids = order.iter().map(|&i| ids[i]).collect();
        let joined = match table.tensors() {
            1 => String::new(),
            tensors => format!(", joined from {tensors} tensors"),
        };
        let mut facts = vec![
            ("Table".into(), format!("{} rows of {} values, {}{joined}", table.len(), table.dim(), table.dtype())),
            ("Source size".into(), format!("{} bytes per row", table.row_bytes())),
            ("Sample".into(), format!("{} rows, seed {}", rows.len(), options.seed)),
            ("Fitted on".into(), format!("{} other rows, for methods that have something to fit", fit.len())),
        ];
        let mut source_bytes = table.row_bytes() as f64;
        if let Some(columns) = options.columns {
            if columns == 0 || columns > table.dim() {
                return Err(Error::Columns { got: columns, dim: table.dim() });
            }
            (rows, fit) = (rows.narrowed(columns), fit.narrowed(columns));
            source_bytes *= columns as f64 / table.dim() as f64;
            facts.push(("Columns".into(), format!("only the first {columns} values of each row")));
        }
        let counts = options.trace.as_deref().map(|trace| trace_counts(trace, table.len())).transpose()?;
        let weight = |counts: &HashMap<u64, u32>, id: &u64| f64::from(counts.get(id).copied().unwrap_or(0));
        let weights: Option<Vec<f64>> = counts.map(|counts| ids.iter().map(|id| weight(&counts, id)).collect());
        if let Some(weights) = &weights {
            let hit = weights.iter().filter(|&&weight| weight > 0.0).count();
            let all: f64 = weights.iter().sum();
            facts.push(("Trace".into(), format!("asks {all:.0} times for {hit} of the sampled rows")));
        }
        let (title, table_rows) = (table.name().into(), Some(table.len()));
        Ok(Sample { title, facts, rows, ids, fit, source_bytes, table_rows, weights })
    }

    /// Rows of zeros have no relative error and no direction: they are taken out, and counted among the facts.
    pub(super) fn without_zero_rows(mut self) -> Result<Sample, Error> {
        let (all, kept) = (self.rows.len(), self.rows.nonzero());
        if kept.is_empty() {
            return Err(Error::AllZero { rows: all });
        }
        if kept.len() < all {
            self.rows = self.rows.select(&kept);
            self.ids = kept.iter().map(|&row| self.ids[row]).collect();
            self.weights = self.weights.map(|weights| kept.iter().map(|&row| weights[row]).collect());
            self.facts.push(("Rows of zeros".into(), format!("{} of the sample, left out", all - kept.len())));
        }
        self.fit = self.fit.select(&self.fit.nonzero());
        Ok(self)
    }

    /// Standard normal rows, stored as binary32.
    pub fn gaussian(rows: usize, dim: usize, seed: u64) -> Sample {
        let fit = Rows::gaussian(FIT_ROWS as usize, dim, seed.wrapping_add(1));
        Sample {
            title: format!("Gaussian rows of {dim} values"),
            facts: vec![("Sample".into(), format!("{rows} standard normal rows, seed {seed}"))],
            rows: Rows::gaussian(rows, dim, seed),
            ids: (0..rows as u64).collect(),
            fit,
            source_bytes: 4.0 * dim as f64,
            table_rows: None,
            weights: None,
        }
    }

    /// What methods may know of the table.
    pub(super) fn origin(&self) -> Origin<'_> {
        // Two numbers of the whole table, which no row is fitted to: without other rows, those of the sample do.
        let any = if self.fit.is_empty() { &self.rows } else { &self.fit };
        Origin {
            fit: &self.fit,
            rms: any.rms(),
            largest: any.largest(),
            source_bytes: self.source_bytes,
            table_rows: self.table_rows,
        }
    }
}

/// Rows of a table, all of whose values must be finite.
fn read_finite(table: &mut SourceTable, ids: &[u64]) -> Result<Rows, Error> {
    let rows = table.read(ids)?;
    match rows.values().iter().position(|value| !value.is_finite()) {
        Some(at) => {
            let (row, column, value) = (ids[at / rows.dim()], at % rows.dim(), rows.values()[at]);
            Err(Error::NotFinite { row, column, value })
        }
        None => Ok(rows),
    }
}
