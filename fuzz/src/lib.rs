//! What several fuzz targets need.

use std::path::PathBuf;

use condprog_convert::{BoxDecoder, BoxEncoder, Codec, CodecError, CompressOptions, erase_decoder, erase_encoder};
use condprog_core::Job;
use condprog_cpu::{CpuDecoder, CpuEncoder};
use condprog_table::TableRecords;
use condprog_testkit::{Folder, f32_table, rows};

/// The CPU, for all jobs.
pub struct Cpu;

impl Codec for Cpu {
    fn encoder(&self, job: Job) -> Result<BoxEncoder, CodecError> {
        CpuEncoder::new(job).map(erase_encoder).map_err(CodecError::new)
    }

    fn decoder(&self, records: TableRecords) -> Result<BoxDecoder, CodecError> {
        CpuDecoder::new(records).map(erase_decoder).map_err(CodecError::new)
    }
}

/// A table of 20 rows in a folder, in `in`.
pub fn small_table(folder: &Folder) -> PathBuf {
    let path = folder.path("in");
    f32_table(&path, "t", 8, &rows(20, 8, 1));
    path
}

/// The cheapest options, five blocks for [`small_table`].
pub fn options() -> CompressOptions {
    CompressOptions { effort: 0, block_rows: Some(4), ..CompressOptions::default() }
}
