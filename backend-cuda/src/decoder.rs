//! The decoder: a placed table, and requests on the caller's stream.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use condprog_core::{Dtype, Layout, Table, TableShape};
use condprog_kernels::cuda::{Kernel, Request, Segment};

use crate::device::Device;
use crate::error::CudaError;
use crate::memory::{DeviceMemory, PinnedMapping};
use crate::placement::{self, Keep, MappedSegment, PlacedSegment, Placement, Reader};
use crate::staging::Staging;

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
    device: Device,
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
    pub ids: u64,
    /// Size of an id.
    pub id_width: IdWidth,
    /// Number of ids, 0 allowed.
    pub count: u64,
    /// Address of the output, `count * dim` values, aligned to a value; better to 16 bytes.
    pub out: u64,
    /// Number format of the output.
    pub dtype: Dtype,
    /// Address of an u64 that is lowered to the first position whose id names no row, or 0. See [`NONE_MISSING`].
    pub missing: u64,
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
        let shapes: Vec<_> = table.segments().iter().map(|segment| (segment.rows, segment.layout)).collect();
        let (segments, memory) = placement::place(device.context(), &shapes, placement, table)?;
        CudaDecoder::assemble(device, &segments, memory)
    }

    /// Puts a table where `placement` says and asks for its records piece by piece, so that they need not all be in
    /// memory beside it: those for page-locked memory are written straight to their place.
    ///
    /// The table is given by the row count and the layout of each segment. `read` gets the index of a segment, a range
    /// of its rows and the place for their records, back to back. Each row is asked for once.
    ///
    /// ```no_run
    /// use std::io::Read;
    ///
    /// use condprog_core::{Layout, Rate};
    /// use condprog_cuda::{CudaDecoder, Device, Placement};
    ///
    /// let layout = Layout::new(256, Rate::TWO)?;
    /// let mut file = std::fs::File::open("records.bin")?;
    /// let rows = file.metadata()?.len() / layout.record_bytes() as u64;
    /// let decoder = CudaDecoder::load(&Device::open(0)?, &[(rows, layout)], Placement::Host, |_, _, records| {
    ///     file.read_exact(records)?; // rows of a segment are asked for in order
    ///     Ok::<_, Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`CudaDecoder::new`], [`CudaError::Segment`] when there is no segment or widths differ, and what `read`
    /// returns.
    pub fn load<E: From<CudaError>>(
        device: &Device,
        segments: &[(u64, Layout)],
        placement: Placement,
        read: impl FnMut(usize, Range<u64>, &mut [u8]) -> Result<(), E>,
    ) -> Result<CudaDecoder, E> {
        let (segments, memory) = placement::place(device.context(), segments, placement, Reader(read))?;
        Ok(CudaDecoder::assemble(device, &segments, memory)?)
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

    /// Enqueues a request given by addresses and a stream's handle: rows in request order, zeros where an id names no
    /// row.
    ///
    /// One kernel launch. Allocates nothing, waits for nothing, and can be captured in a CUDA graph; the thread's current
    /// context is afterwards what it was. `stream` is a `CUstream` or `cudaStream_t`, null for the default stream.
    ///
    /// # Errors
    /// [`CudaError::Driver`] when the launch is refused; then nothing was enqueued. What goes wrong on the device later
    /// is reported by a later call of whoever waits for the stream.
    ///
    /// # Safety
    /// The caller answers for:
    /// * `stream` is a live stream of [`Device::raw_context`], which is the device's primary context unless the caller
    ///   gave another;
    /// * `ids` holds `count` integers of `id_width`, readable and written before the kernel runs in stream order;
    /// * `out` holds `count * dim` values of `dtype`, writable, overlapping neither the ids nor the table;
    /// * `missing` is 0 or the 8-byte aligned address of a writable u64;
    /// * all of these and the decoder live until the kernel has run, or as long as a graph that captured it may be
    ///   launched, and nobody writes the ids or uses the output before.
    pub unsafe fn enqueue_raw(&self, stream: *mut c_void, request: &RawRequest) -> Result<(), CudaError> {
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
        unsafe { self.device.launch(&kernel, grid, stream.cast(), request) }
    }
}
