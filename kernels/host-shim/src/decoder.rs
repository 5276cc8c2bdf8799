//! The kernels as a [`Decoder`].

use std::sync::{Mutex, PoisonError};

use condprog_core::{Batch, Decoder, Dtype, Layout, Output, ShapeMismatch, Table, TableShape};
use condprog_kernels::cuda::{BLOCK, CHUNK, Grid, Kernel, WARP};

use crate::build::Program;
use crate::error::HostError;
use crate::process::{Message, Process};

/// In which order the threads of a block run between two waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// Ascending.
    Forward,
    /// Descending, blocks too.
    Reverse,
    /// Another one after every wait.
    Shuffled,
}

/// How requests are launched. Whatever it is, the rows are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks of at most this many threads, a multiple of a warp.
    pub threads: u32,
    /// At most this many blocks.
    pub blocks: u32,
    /// Bytes by which the output misses a multiple of 16, a multiple of a value. Not 0: the general kernel.
    pub skew: u32,
    /// 4 or 8 bytes to an id. Ids beyond 32 bits are sent in 8 bytes anyway.
    pub id_bytes: u32,
}

impl Shape {
    /// Two warps in each of two blocks: enough to have neighbours in both senses.
    pub const SMALL: Shape = Shape { threads: 2 * WARP, blocks: 2, skew: 0, id_bytes: 8 };
    /// The blocks that a device with one multiprocessor would run.
    pub const FULL: Shape = Shape { threads: BLOCK, blocks: 3, skew: 0, id_bytes: 8 };
}

/// A table in a process of its own, decoded by the CUDA kernels.
#[derive(Debug)]
pub struct HostDecoder {
    process: Mutex<Process>,
    layouts: Vec<Layout>,
    table: TableShape,
    order: Order,
    shape: Shape,
}

impl HostDecoder {
    /// Starts a process and gives it the table. Segments start at addresses that are aligned differently.
    ///
    /// # Errors
    /// [`HostError::Io`] and [`HostError::Process`].
    pub fn new(program: &Program, order: Order, shape: Shape, table: Table<'_>) -> Result<HostDecoder, HostError> {
        let mut process = Process::start(program)?;
        process.table(&table, |segment| [2, 0, 1, 3][segment % 4])?;
        let layouts = table.segments().iter().map(|segment| segment.layout).collect();
        Ok(HostDecoder { process: Mutex::new(process), layouts, table: table.shape(), order, shape })
    }

    /// A table of `rows` rows in one segment, of which only the last records are given; the others are zero and take
    /// no memory.
    ///
    /// # Errors
    /// As [`HostDecoder::new`].
    pub fn with_last_records(
        program: &Program,
        order: Order,
        shape: Shape,
        layout: Layout,
        rows: u64,
        records: &[u8],
    ) -> Result<HostDecoder, HostError> {
        let mut process = Process::start(program)?;
        let bytes = rows * layout.record_bytes() as u64;
        process.send(Message::default().u32(0).u32(1))?;
        process.segment(0, layout, 2, bytes, bytes - records.len() as u64, records)?;
        let table = TableShape { rows, dim: layout.dim() };
        Ok(HostDecoder { process: Mutex::new(process), layouts: vec![layout], table, order, shape })
    }

    /// Decodes any ids, missing ones to zeros, and gives the bytes of the rows and the first position of a missing id.
    ///
    /// # Errors
    /// [`HostError::Process`] when the kernel crashed or broke a rule.
    pub fn rows(&self, ids: &[i64], dtype: Dtype) -> Result<(Vec<u8>, Option<u64>), HostError> {
        if ids.is_empty() {
            return Ok((Vec::new(), None));
        }
        let warps = u64::from(self.shape.threads / WARP);
        // The chunk that a device of this size would get, and no more blocks than have work.
        let chunk_log2 = Grid::new(ids.len() as u64 * u64::from(BLOCK / WARP) / warps, 1, self.shape.blocks).chunk_log2;
        let blocks = (ids.len() as u64).div_ceil(warps << chunk_log2).min(u64::from(self.shape.blocks)) as u32;
        self.request(Part { ids, of: ids.len() as u64, blocks, first_block: 0, chunk_log2 }, dtype)
    }

    /// Decodes the last ids of a request of `count` ids.
    ///
    /// The grid is as large as the request and only the blocks with these ids run, so a request can be longer than what
    /// memory or time would allow. What such a block has before these ids is undefined ids.
    ///
    /// # Errors
    /// As [`HostDecoder::rows`].
    pub fn last_rows(&self, ids: &[i64], count: u64, dtype: Dtype) -> Result<(Vec<u8>, Option<u64>), HostError> {
        let chunk_log2 = CHUNK.ilog2();
        let per_block = u64::from(self.shape.threads / WARP) << chunk_log2;
        let first_block = (count - ids.len() as u64) / per_block;
        let blocks = count.div_ceil(per_block) as u32;
        self.request(Part { ids, of: count, blocks, first_block: first_block as u32, chunk_log2 }, dtype)
    }

    fn request(&self, part: Part<'_>, dtype: Dtype) -> Result<(Vec<u8>, Option<u64>), HostError> {
        let Part { ids, of, blocks, first_block, chunk_log2 } = part;
        let kernel = Kernel::select(self.layouts.iter().copied(), dtype, u64::from(self.shape.skew));
        let row_bytes = u64::from(self.table.dim) * dtype.size() as u64;
        let narrow = self.shape.id_bytes == 4 && ids.iter().all(|&id| i32::try_from(id).is_ok());
        let id_bytes = if narrow { 4 } else { 8 };
        let (given, skipped) = (ids.len() as u64, of - ids.len() as u64);

        let mut message = Message::default();
        message.u32(1).u32(kernel.name.len() as u32).bytes(kernel.name.as_bytes());
        message.u32(blocks).u32(first_block).u32(self.shape.threads).u32(self.order as u32).u32(ids.len() as u32);
        message.u64(of).u64(self.table.rows).u32(self.table.dim).u32(id_bytes);
        message.u32(chunk_log2).u32(self.shape.skew).u64(of * row_bytes);
        message.u64(skipped * u64::from(id_bytes)).u64(given * u64::from(id_bytes));
        for &id in ids {
            if narrow {
                message.u32(id as u32);
            } else {
                message.u64(id as u64);
            }
        }
        message.u64(skipped * row_bytes).u64(given * row_bytes);
        // A panic in another test's thread leaves nothing half-done here that a second request would not notice.
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        process.send(&message)?;
        let rows = process.receive((given * row_bytes) as usize)?;
        let missing = process.receive(8)?;
        let missing = missing.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
        Ok((rows, (missing != u64::MAX).then_some(missing)))
    }
}

/// Rows that a kernel of `kernels/bench.cu` gathers from a table of `rows` rows of `row_bytes` (256 or 512) that the
/// kernel `fill` wrote.
///
/// # Errors
/// [`HostError::Io`] and [`HostError::Process`].
pub fn gather(program: &Program, row_bytes: u32, rows: u64, ids: &[i64]) -> Result<Vec<u8>, HostError> {
    let mut process = Process::start(program)?;
    let mut message = Message::default();
    message.u32(2).u32(row_bytes).u32(3).u32(2 * WARP).u64(rows).u64(ids.len() as u64);
    for &id in ids {
        message.u64(id as u64);
    }
    process.send(&message)?;
    process.receive(ids.len() * row_bytes as usize)
}

/// The ids at the end of a request, and how it is launched.
struct Part<'a> {
    ids: &'a [i64],
    of: u64,
    blocks: u32,
    first_block: u32,
    chunk_log2: u32,
}

impl Decoder for HostDecoder {
    type Error = HostError;

    fn shape(&self) -> TableShape {
        self.table
    }

    fn decode_batch(&self, batch: Batch<'_>) -> Result<(), HostError> {
        ShapeMismatch::check(&batch, self.table).map_err(HostError::Shape)?;
        let (ids, output) = batch.into_parts();
        let (rows, _) = self.rows(ids, output.dtype())?;
        match output {
            Output::Bf16(out) | Output::F16(out) => {
                for (out, bytes) in out.iter_mut().zip(rows.chunks_exact(2)) {
                    *out = u16::from_le_bytes([bytes[0], bytes[1]]);
                }
            }
            Output::F32(out) => {
                for (out, bytes) in out.iter_mut().zip(rows.chunks_exact(4)) {
                    *out = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                }
            }
        }
        Ok(())
    }
}
