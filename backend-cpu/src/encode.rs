//! The CPU encoder.

use condprog_core::Layout;
use condprog_core::encoder::{EncodeError, Outcome, ScaleRule, Search, Workspace, WorkspaceSize, encode_row};
use rayon::prelude::*;

use crate::level::{Level, UnsupportedLevel};

/// An encoder for rows of one layout. All levels and thread counts give the same bytes.
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    layout: Layout,
    rule: ScaleRule,
    search: Search,
    level: Level,
}

impl Encoder {
    /// An encoder at the level [`Level::detect`] gives.
    ///
    /// # Errors
    /// [`UnsupportedLevel`] when the environment asks for a level this CPU does not have.
    pub fn new(layout: Layout, rule: ScaleRule, search: Search) -> Result<Encoder, UnsupportedLevel> {
        Encoder::with_level(layout, rule, search, Level::detect()?)
    }

    /// An encoder at a given level.
    ///
    /// # Errors
    /// [`UnsupportedLevel`] when this CPU does not have it.
    pub fn with_level(
        layout: Layout,
        rule: ScaleRule,
        search: Search,
        level: Level,
    ) -> Result<Encoder, UnsupportedLevel> {
        Ok(Encoder { layout, rule, search, level: level.supported()? })
    }

    /// The level in use.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The layout of the rows.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Rows that are coded together by one thread; a call with a multiple of `block_rows() * threads` rows wastes
    /// nothing.
    pub fn block_rows(&self) -> usize {
        32
    }

    /// Codes rows (`n * dim` values, row-major) into records (`n * record_bytes` bytes), on the threads of the current
    /// rayon pool. Returns what became of each row; the record of a row that failed is all zero.
    ///
    /// # Panics
    /// When `rows` is not a whole number of rows or `records` not the same number of records.
    pub fn encode(&self, rows: &[f32], records: &mut [u8]) -> Vec<Result<Outcome, EncodeError>> {
        let (dim, stride) = (self.layout.dim() as usize, self.layout.record_bytes());
        assert!(rows.len().is_multiple_of(dim), "{} values are no whole number of rows of {dim}", rows.len());
        assert_eq!(records.len(), rows.len() / dim * stride, "record bytes");
        let size = WorkspaceSize::of(self.layout);
        rows.par_chunks_exact(dim)
            .zip(records.par_chunks_exact_mut(stride))
            .map(|(row, record)| {
                let (mut m, mut d) = (vec![0; size.metrics], vec![0; size.decisions]);
                let (mut z, mut s) = (vec![0; size.targets], vec![0; size.states]);
                let mut w = Workspace::new(self.layout, &mut m, &mut d, &mut z, &mut s).expect("sizes are right");
                encode_row(self.layout, row, self.rule, self.search, &mut w, record).inspect_err(|_| record.fill(0))
            })
            .collect()
    }
}
