//! The CPU as a codec, for tests and examples.

use condprog_convert::{BoxDecoder, BoxEncoder, Codec, CodecError, erase_decoder, erase_encoder};
use condprog_core::Job;
use condprog_cpu::{CpuDecoder, CpuEncoder};
use condprog_table::TableRecords;

/// The CPU, for all jobs.
pub(crate) struct Cpu;

impl Codec for Cpu {
    fn encoder(&self, job: Job) -> Result<BoxEncoder, CodecError> {
        CpuEncoder::new(job).map(erase_encoder).map_err(CodecError::new)
    }

    fn decoder(&self, records: TableRecords) -> Result<BoxDecoder, CodecError> {
        CpuDecoder::new(records).map(erase_decoder).map_err(CodecError::new)
    }
}
