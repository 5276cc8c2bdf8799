//! The decoder: a placed table, and requests on the caller's stream.

use std::sync::{Arc, Mutex};

use condprog_core::{BatchError, Dtype, Layout, Table, TableShape};
use condprog_kernels::cuda::{Kernel, Request, Segment};
use cudarc::driver::sys::{CUdeviceptr, CUstream};
use cudarc::driver::{CudaStream, CudaView, CudaViewMut, DevicePtr};

use crate::device::Device;
use crate::error::CudaError;
use crate::host::Staging;
use crate::memory::{DeviceMemory, PinnedMapping};
use crate::placement::{self, Keep, MappedSegment, PlacedSegment, Placement};

/// A table on a device.
///
/// Requests may be enqueued from any thread. Dropping it waits until the context has finished all work, then frees the
/// table; where the driver refuses to wait, the table is leaked.
#[derive(Debug)]
pub struct CudaDecoder {
    // Fields are dropped in this order: the memory waits for the kernels that read it, and the device, which may be the
    // last to keep those loaded, goes after it.
    pub(crate) staging: Mutex<Option<Staging>>,
    segments: DeviceMemory,
    /// Kept, and freed as any of this crate's memory: when the context has no work left.
    _memory: Vec<Keep>,
    shape: TableShape,
    layouts: Vec<Layout>,
    segment_count: u32,
    pub(crate) device: Device,
}

/// Ids in device memory. Those that are negative or not below the row count give rows of zeros.
#[derive(Debug)]
pub enum DeviceIds<'a> {
    /// 32 bits each.
    I32(CudaView<'a, i32>),
    /// 64 bits each.
    I64(CudaView<'a, i64>),
}

/// Where rows go in device memory: row-major, `ids * dim` values, in request order. 16-bit formats as their bits.
///
/// Only addresses that are multiples of 16, as those of allocations are, get the kernel of a common layout.
#[derive(Debug)]
pub enum DeviceOutput<'a> {
    /// Bits of bf16 numbers.
    Bf16(CudaViewMut<'a, u16>),
    /// Bits of f16 numbers.
    F16(CudaViewMut<'a, u16>),
    /// Binary32 numbers.
    F32(CudaViewMut<'a, f32>),
}

/// Size of the ids of a [`RawRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdWidth {
    /// Signed 32-bit integers.
    I32,
    /// Signed 64-bit integers.
    I64,
}

impl IdWidth {
    /// Bytes of an id.
    pub const fn bytes(self) -> u32 {
        match self {
            IdWidth::I32 => 4,
            IdWidth::I64 => 8,
        }
    }
}

/// A request by addresses, as a host in C++ or Python has them. See [`CudaDecoder::enqueue_raw`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRequest {
    /// Address of the ids, aligned to their width.
    pub ids: CUdeviceptr,
    /// Size of an id.
    pub id_width: IdWidth,
    /// Number of ids, 0 allowed.
    pub count: u64,
    /// Address of the output, `count * dim` values, aligned to a value; better to 16 bytes.
    pub out: CUdeviceptr,
    /// Number format of the output.
    pub dtype: Dtype,
    /// Address of an u64 that is lowered to the first position whose id names no row, or 0. See [`NONE_MISSING`].
    pub missing: CUdeviceptr,
}

/// What the word for the first missing position must hold before a request: all ones, so that
/// `cuMemsetD8Async(address, 0xff, 8, stream)` sets it, and what it still holds when every id named a row.
pub const NONE_MISSING: u64 = u64::MAX;

impl CudaDecoder {
    /// Copies a table to where `placement` says. Waits until it is there.
    ///
    /// # Errors
    /// [`CudaError::OutOfMemory`], [`CudaError::Share`] and [`CudaError::Driver`].
    pub fn new(device: &Device, table: Table<'_>, placement: Placement) -> Result<CudaDecoder, CudaError> {
        let (segments, memory) = placement::place(device.context(), &table, placement)?;
        CudaDecoder::assemble(device, &segments, memory)
    }

    /// A table whose segments lie in page-locked host memory, such as a mapped file; nothing is copied.
    ///
    /// # Errors
    /// [`CudaError::Segment`] when there is no segment, widths differ or records reach beyond the mapping.
    pub fn from_mapping(
        device: &Device,
        mapping: Arc<PinnedMapping>,
        segments: &[MappedSegment],
    ) -> Result<CudaDecoder, CudaError> {
        let segments = placement::in_mapping(&mapping, segments)?;
        CudaDecoder::assemble(device, &segments, vec![Box::new(mapping)])
    }

    /// A table whose segments lie at addresses that the caller answers for.
    ///
    /// # Errors
    /// [`CudaError::Segment`] when there is no segment or widths differ.
    ///
    /// # Safety
    /// As long as the decoder lives, and after that as long as a graph that captured a request of it may be launched:
    /// each segment's `rows * record_bytes` bytes, and what completes the aligned 4-byte words at both ends, must be
    /// readable by the device, and no write to them may run at the same time as a request.
    pub unsafe fn from_addresses(device: &Device, segments: &[PlacedSegment]) -> Result<CudaDecoder, CudaError> {
        CudaDecoder::assemble(device, segments, Vec::new())
    }

    fn assemble(device: &Device, placed: &[PlacedSegment], memory: Vec<Keep>) -> Result<CudaDecoder, CudaError> {
        let (segments, rows) = placement::for_kernels(placed)?;
        let segment_count = u32::try_from(segments.len())
            .map_err(|_| CudaError::Segment { segment: u32::MAX as usize, problem: "is beyond the last possible" })?;
        let mut words = Vec::with_capacity(size_of_val(&segments[..]));
        for &Segment { first, records, record_bytes, rate } in &segments {
            words.extend_from_slice(&first.to_le_bytes());
            words.extend_from_slice(&records.to_le_bytes());
            words.extend_from_slice(&record_bytes.to_le_bytes());
            words.extend_from_slice(&rate.to_le_bytes());
        }
        let mut on_device = DeviceMemory::new(device.context(), words.len())?;
        on_device.upload(0, &words)?;
        // Segments without rows do not decide which kernel the others get.
        let with_rows = placed.iter().filter(|segment| segment.rows > 0).map(|segment| segment.layout);
        Ok(CudaDecoder {
            staging: Mutex::new(None),
            segments: on_device,
            _memory: memory,
            shape: TableShape { rows, dim: placed[0].layout.dim() },
            layouts: with_rows.collect(),
            segment_count,
            device: device.clone(),
        })
    }

    /// The device the table is on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Rows and width of the table.
    pub fn table_shape(&self) -> TableShape {
        self.shape
    }

    /// Enqueues a request on a stream: rows in request order, zeros where an id names no row.
    ///
    /// One kernel launch. Allocates nothing, waits for nothing, and can be captured in a CUDA graph. If `missing` is
    /// given, its one value is lowered to the first position whose id names no row; the caller sets it to
    /// [`NONE_MISSING`] before.
    ///
    /// Between streams, cudarc orders the work by the events that it keeps for its slices. It does not know of graphs:
    /// for capturing, make the slices while event tracking is off
    /// ([`CudaContext::disable_event_tracking`](cudarc::driver::CudaContext::disable_event_tracking)), and keep slices
    /// and decoder alive as long as the graph may be launched.
    ///
    /// # Errors
    /// [`CudaError::Request`] when the output does not hold `ids * dim` values, [`CudaError::Context`] when the stream
    /// is of another context, [`CudaError::Driver`] when the launch is refused. Nothing was enqueued then.
    pub fn enqueue(
        &self,
        stream: &CudaStream,
        ids: DeviceIds<'_>,
        output: DeviceOutput<'_>,
        missing: Option<CudaViewMut<'_, u64>>,
    ) -> Result<(), CudaError> {
        if **stream.context() != **self.device.context() {
            return Err(CudaError::Context);
        }
        let (count, id_width) = match &ids {
            DeviceIds::I32(ids) => (ids.len(), IdWidth::I32),
            DeviceIds::I64(ids) => (ids.len(), IdWidth::I64),
        };
        let (got, dtype) = match &output {
            DeviceOutput::Bf16(out) => (out.len(), Dtype::Bf16),
            DeviceOutput::F16(out) => (out.len(), Dtype::F16),
            DeviceOutput::F32(out) => (out.len(), Dtype::F32),
        };
        let expected = count as u128 * u128::from(self.shape.dim);
        if got as u128 != expected {
            return Err(CudaError::Request(BatchError::OutputLength { got, expected }));
        }
        if missing.as_ref().is_some_and(|word| word.len() != 1) {
            return Err(CudaError::Request(BatchError::OutputLength {
                got: missing.map_or(0, |word| word.len()),
                expected: 1,
            }));
        }
        // Each guard records the use of its slice when it is dropped, after the launch.
        let (ids, _ids_in_use) = match &ids {
            DeviceIds::I32(ids) => ids.device_ptr(stream),
            DeviceIds::I64(ids) => ids.device_ptr(stream),
        };
        let (out, _out_in_use) = match output {
            DeviceOutput::Bf16(out) | DeviceOutput::F16(out) => out.view_ptr_mut(stream),
            DeviceOutput::F32(out) => out.view_ptr_mut(stream),
        };
        let missing = missing.map(|word| word.view_ptr_mut(stream));
        let request = RawRequest {
            ids,
            id_width,
            count: count as u64,
            out,
            dtype,
            missing: missing.as_ref().map_or(0, |(address, _)| *address),
        };
        // SAFETY: the addresses are of slices of this context with the lengths just checked, and cudarc frees and
        // reuses slices in the order of the stream; the stream is of this context.
        unsafe { self.enqueue_raw(stream.cu_stream(), &request) }
    }

    /// Enqueues a request given by addresses and a stream's handle, as [`enqueue`](CudaDecoder::enqueue) does.
    ///
    /// `stream` is a `CUstream` or `cudaStream_t`, null for the default stream. Nothing is allocated, nothing waited
    /// for; capturable.
    ///
    /// # Errors
    /// [`CudaError::Driver`] when the launch is refused; then nothing was enqueued. What goes wrong on the device later
    /// is reported by a later call of whoever waits for the stream.
    ///
    /// # Safety
    /// The caller answers for:
    /// * `stream` is a live stream of [`Device::context`], which is the device's primary context unless the caller
    ///   made another;
    /// * `ids` holds `count` integers of `id_width`, readable and written before the kernel runs in stream order;
    /// * `out` holds `count * dim` values of `dtype`, writable, overlapping neither the ids nor the table;
    /// * `missing` is 0 or the 8-byte aligned address of a writable u64;
    /// * all of these and the decoder live until the kernel has run, or as long as a graph that captured it may be
    ///   launched, and nobody writes the ids or uses the output before.
    pub unsafe fn enqueue_raw(&self, stream: CUstream, request: &RawRequest) -> Result<(), CudaError> {
        if request.count == 0 {
            return Ok(());
        }
        let kernel = Kernel::select(self.layouts.iter().copied(), request.dtype, request.out);
        let grid = self.device.grid(&kernel, request.count);
        let request = Request {
            ids: request.ids,
            out: request.out,
            missing: request.missing,
            segments: self.segments.address(),
            count: request.count,
            rows: self.shape.rows,
            segment_count: self.segment_count,
            dim: self.shape.dim,
            id_bytes: request.id_width.bytes(),
            chunk_log2: grid.chunk_log2,
        };
        // SAFETY: the segments are this decoder's and name memory that it keeps (or whose owner promised to, for
        // `from_addresses`); the rest is the caller's promise.
        unsafe { self.device.launch(&kernel, grid, stream, request) }
    }
}
