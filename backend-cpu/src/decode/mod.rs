//! The CPU decoder.

use condprog_core::{Batch, Decoder, ReferenceDecoder, ShapeMismatch, Table, TableShape};

use crate::level::{Level, UnsupportedLevel};

/// A decoder over a borrowed table.
#[derive(Clone, Copy, Debug)]
pub struct CpuDecoder<'a> {
    table: Table<'a>,
    level: Level,
}

impl<'a> CpuDecoder<'a> {
    /// A decoder at the level [`Level::detect`] gives.
    ///
    /// # Errors
    /// [`UnsupportedLevel`] when the environment asks for a level this CPU does not have.
    pub fn new(table: Table<'a>) -> Result<CpuDecoder<'a>, UnsupportedLevel> {
        CpuDecoder::with_level(table, Level::detect()?)
    }

    /// A decoder at a given level.
    ///
    /// # Errors
    /// [`UnsupportedLevel`] when this CPU does not have it.
    pub fn with_level(table: Table<'a>, level: Level) -> Result<CpuDecoder<'a>, UnsupportedLevel> {
        Ok(CpuDecoder { table, level: level.supported()? })
    }

    /// The level in use.
    pub fn level(&self) -> Level {
        self.level
    }
}

impl Decoder for CpuDecoder<'_> {
    type Error = ShapeMismatch;

    fn shape(&self) -> TableShape {
        self.table.shape()
    }

    fn decode_batch(&self, batch: Batch<'_>) -> Result<(), ShapeMismatch> {
        ReferenceDecoder::new(self.table).decode_batch(batch)
    }
}
