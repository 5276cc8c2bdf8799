//! The CPU as what codes and restores rows for jobs.

use condprog_convert::{BoxDecoder, BoxEncoder, Codec, CodecError, erase_decoder, erase_encoder};
use condprog_core::Job;
use condprog_cpu::{CpuDecoder, CpuEncoder, Isa, UnsupportedIsa};
use condprog_table::TableRecords;

/// The CPU, with one instruction set: the [`Codec`] of [`compress`](crate::compress) and its siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    isa: Isa,
}

impl Cpu {
    /// With the best instruction set of this CPU, or the one that the environment variable `CONDPROG_CPU_LEVEL` names.
    ///
    /// # Errors
    /// [`UnsupportedIsa`] when the variable names one that this CPU does not have.
    pub fn detect() -> Result<Cpu, UnsupportedIsa> {
        Ok(Cpu { isa: Isa::detect()? })
    }

    /// With a given instruction set. All give the same bytes.
    ///
    /// # Errors
    /// [`UnsupportedIsa`] when this CPU does not have it.
    pub fn with_isa(isa: Isa) -> Result<Cpu, UnsupportedIsa> {
        Ok(Cpu { isa: isa.supported()? })
    }
}

impl Codec for Cpu {
    fn encoder(&self, job: Job) -> Result<BoxEncoder, CodecError> {
        CpuEncoder::with_isa(job, self.isa).map(erase_encoder).map_err(CodecError::new)
    }

    fn decoder(&self, records: TableRecords) -> Result<BoxDecoder, CodecError> {
        CpuDecoder::with_isa(records, self.isa).map(erase_decoder).map_err(CodecError::new)
    }
}
