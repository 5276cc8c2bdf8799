//! Rows that are not compressed, gathered as they are: what decoding is measured against, on the same device, with the
//! same ids.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use condprog_core::BatchError;
use condprog_core::decoder::names_row;
use condprog_kernels::cuda::{self, BENCH_BLOCK, BENCH_PTX};
use cudarc::driver::sys::CUfunction;
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut, result};

use crate::device::{Device, Module};
use crate::error::CudaError;
use crate::memory::PinnedMemory;
use crate::slices::check_context;

/// What a row of a [`PlainTable`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlainRow {
    /// 256 values in bf16.
    Bf16,
    /// 256 values in 8 bits each.
    Fp8,
}

impl PlainRow {
    /// Bytes of a row.
    pub const fn bytes(self) -> usize {
        match self {
            PlainRow::Bf16 => 512,
            PlainRow::Fp8 => 256,
        }
    }
}

/// A table of uncompressed rows in device memory, with contents as [`content`] gives them.
#[derive(Debug)]
pub struct PlainTable {
    device: Device,
    row: PlainRow,
    rows: u64,
    values: CudaSlice<u8>,
    gather: CUfunction,
    // After the last use of its function.
    _module: Module,
}

/// Ids in device memory, each of which is a row of the [`PlainTable`] that made them.
#[derive(Debug)]
pub struct PlainIds {
    rows: u64,
    ids: CudaSlice<i64>,
}

/// Bytes `at..` of what a [`PlainTable`] holds.
pub fn content(at: u64, bytes: &mut [u8]) {
    let word = |at: u64| cuda::content(at / 4).to_le_bytes();
    let (head, rest) = bytes.split_at_mut(((4 - at % 4) % 4).min(bytes.len() as u64) as usize);
    head.copy_from_slice(&word(at)[(at % 4) as usize..][..head.len()]);
    for (at, bytes) in (at + head.len() as u64..).step_by(4).zip(rest.chunks_mut(4)) {
        bytes.copy_from_slice(&word(at)[..bytes.len()]);
    }
}

impl PlainTable {
    /// A table of so many rows, enqueued to be filled on the device.
    ///
    /// # Errors
    /// [`CudaError::Context`] when the stream is of another context, [`CudaError::Driver`] also for a lack of memory.
    pub fn new(device: &Device, stream: &Arc<CudaStream>, row: PlainRow, rows: u64) -> Result<PlainTable, CudaError> {
        check_context(device, stream.context())?;
        let module = Module::load(device.context().clone(), BENCH_PTX)?;
        let (gather, fill) = match row {
            PlainRow::Bf16 => (module.function("gather_512")?, module.function("fill")?),
            PlainRow::Fp8 => (module.function("gather_256")?, module.function("fill")?),
        };
        let bytes = usize::try_from(rows).ok().and_then(|rows| rows.checked_mul(row.bytes()));
        let bytes = bytes.ok_or(CudaError::Segment { segment: 0, problem: "it is larger than memory can be" })?;
        let mut values = stream.alloc_zeros::<u8>(bytes).map_err(CudaError::doing("allocating device memory"))?;
        {
            let (mut out, _in_use) = values.device_ptr_mut(stream);
            let (mut first, mut words) = (0u64, bytes as u64 / 4);
            let mut parameters = [(&raw mut out).cast(), (&raw mut first).cast(), (&raw mut words).cast()];
            // SAFETY: `fill` takes an address and two numbers, and writes as many words, which the slice has.
            unsafe { launch(device, stream, fill, bytes as u64 / 4, &mut parameters) }?;
        }
        Ok(PlainTable { device: device.clone(), row, rows, values, gather, _module: module })
    }

    /// Copies ids to the device, after looking whether each is a row.
    ///
    /// # Errors
    /// [`CudaError::Request`] when one is not, and [`CudaError::Driver`].
    pub fn ids(&self, stream: &Arc<CudaStream>, ids: &[i64]) -> Result<PlainIds, CudaError> {
        check_context(&self.device, stream.context())?;
        if let Some(position) = ids.iter().position(|&id| !names_row(id, self.rows)) {
            return Err(CudaError::Request(BatchError::MissingRow { position, id: ids[position], rows: self.rows }));
        }
        let ids = stream.clone_htod(ids).map_err(CudaError::doing("copying ids"))?;
        Ok(PlainIds { rows: self.rows, ids })
    }

    /// Enqueues copying the rows of the ids in `range`, back to back, to the start of `out`. One kernel launch.
    ///
    /// # Errors
    /// [`CudaError::Request`] when `out` is too short, `range` is not within the ids, or they are of a larger table;
    /// [`CudaError::Context`] when the stream is of another context; [`CudaError::Driver`] when the launch is refused.
    pub fn gather(
        &self,
        stream: &CudaStream,
        ids: &PlainIds,
        range: Range<usize>,
        out: &mut CudaSlice<u8>,
    ) -> Result<(), CudaError> {
        check_context(&self.device, stream.context())?;
        let expected = range.len() as u128 * self.row.bytes() as u128;
        let within = ids.rows <= self.rows && range.start <= range.end && range.end <= ids.ids.len();
        if !within || (out.len() as u128) < expected {
            return Err(CudaError::Request(BatchError::OutputLength { got: out.len(), expected }));
        }
        let threads = range.len() as u64 * self.row.bytes() as u64 / 16;
        let (mut table, _table_in_use) = self.values.device_ptr(stream);
        let (ids, _ids_in_use) = ids.ids.device_ptr(stream);
        let (mut out, _out_in_use) = out.device_ptr_mut(stream);
        let (mut ids, mut count) = (ids + range.start as u64 * 8, range.len() as u64);
        let mut parameters =
            [(&raw mut table).cast(), (&raw mut ids).cast(), (&raw mut out).cast(), (&raw mut count).cast()];
        // SAFETY: a gather takes three addresses and a number. There is room for as many rows, each id was checked to
        // be a row, and slices begin at multiples of 16 bytes and are freed in the order of the streams that use them.
        unsafe { launch(&self.device, stream, self.gather, threads, &mut parameters) }
    }
}

/// Page-locked host memory, which copies to the device are measured from.
#[derive(Debug)]
pub struct PlainHost {
    device: Device,
    memory: PinnedMemory,
    bytes: usize,
}

impl PlainHost {
    /// So many bytes, as [`content`] gives them.
    ///
    /// # Errors
    /// [`CudaError::OutOfMemory`] and [`CudaError::Driver`].
    pub fn new(device: &Device, bytes: usize) -> Result<PlainHost, CudaError> {
        let fill = |pages: &mut [u8]| {
            content(0, pages);
            Ok::<_, CudaError>(())
        };
        Ok(PlainHost { device: device.clone(), memory: PinnedMemory::new(device.context(), bytes, fill)?, bytes })
    }

    /// Enqueues copying all of it to the start of `out`.
    ///
    /// # Errors
    /// [`CudaError::Request`] when `out` is too short, [`CudaError::Context`] when the stream is of another context,
    /// [`CudaError::Driver`] when the copy is refused.
    pub fn copy(&self, stream: &Arc<CudaStream>, out: &mut CudaSlice<u8>) -> Result<(), CudaError> {
        check_context(&self.device, stream.context())?;
        if out.len() < self.bytes {
            let (got, expected) = (out.len(), self.bytes as u128);
            return Err(CudaError::Request(BatchError::OutputLength { got, expected }));
        }
        // The copy is still under way when this returns; dropping the memory waits for it.
        stream.memcpy_htod(&self.memory.bytes()[..self.bytes], out).map_err(CudaError::doing("copying to the device"))
    }
}

/// Enqueues a kernel on no more threads than fill the device.
///
/// # Safety
/// `parameters` must be those of `function`, whose module is loaded until the kernel has run, and what they point to
/// must live so long; the stream is of the device's context.
unsafe fn launch(
    device: &Device,
    stream: &CudaStream,
    function: CUfunction,
    threads: u64,
    parameters: &mut [*mut c_void],
) -> Result<(), CudaError> {
    if threads == 0 {
        return Ok(());
    }
    let most = u64::from(device.processors() * 2048 / BENCH_BLOCK).max(1);
    let blocks = threads.div_ceil(u64::from(BENCH_BLOCK)).min(most) as u32;
    let _entered = device.context().enter()?;
    // SAFETY: the caller's promise.
    unsafe { result::launch_kernel(function, (blocks, 1, 1), (BENCH_BLOCK, 1, 1), 0, stream.cu_stream(), parameters) }
        .map_err(CudaError::doing("launching a gather of plain rows"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_the_same_from_any_place() {
        let mut all = vec![0u8; 1001];
        content(28, &mut all);
        for at in [28, 29, 30, 31, 94] {
            for length in [0, 1, 2, 3, 66] {
                let mut part = vec![0; length];
                content(at, &mut part);
                assert_eq!(part, all[at as usize - 28..][..length], "{at} {length}");
            }
        }
    }
}
