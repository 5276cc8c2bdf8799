//! Requests from host slices: [`Decoder`] for those who do not keep ids and rows on the device.

use std::sync::{Arc, PoisonError};

use condprog_core::{Batch, Decoder, Dtype, Output, ShapeMismatch, TableShape};
use cudarc::driver::sys::CUstream;
use cudarc::driver::{CudaContext, result};

use crate::decoder::{CudaDecoder, IdWidth, RawRequest};
use crate::error::CudaError;
use crate::memory::DeviceMemory;

/// Bytes of rows that are decoded and copied back at a time.
const PIECE: usize = 64 << 20;

/// A stream and device memory for ids and rows, kept between requests and made larger when one needs it.
#[derive(Debug)]
pub(crate) struct Staging {
    ids: DeviceMemory,
    rows: DeviceMemory,
    stream: Stream,
}

impl Staging {
    fn new(context: &Arc<CudaContext>) -> Result<Staging, CudaError> {
        Ok(Staging {
            ids: DeviceMemory::new(context, 0)?,
            rows: DeviceMemory::new(context, 0)?,
            stream: Stream::new(context)?,
        })
    }

    fn reserve(&mut self, context: &Arc<CudaContext>, ids: usize, rows: usize) -> Result<(), CudaError> {
        for (memory, bytes) in [(&mut self.ids, ids), (&mut self.rows, rows)] {
            if memory.bytes() < bytes {
                *memory = DeviceMemory::new(context, bytes)?;
            }
        }
        Ok(())
    }
}

impl Decoder for CudaDecoder {
    type Error = CudaError;

    fn shape(&self) -> TableShape {
        self.table_shape()
    }

    /// Copies ids in and rows out, and waits. One request at a time; others wait for their turn.
    fn decode_batch(&self, batch: Batch<'_>) -> Result<(), CudaError> {
        ShapeMismatch::check(&batch, self.table_shape()).map_err(CudaError::Shape)?;
        let dtype = batch.dtype();
        let (ids, output) = batch.into_parts();
        match output {
            Output::Bf16(out) | Output::F16(out) => self.decode_pieces(ids, out, dtype),
            Output::F32(out) => self.decode_pieces(ids, out, dtype),
        }
    }
}

impl CudaDecoder {
    fn decode_pieces<T>(&self, ids: &[i64], out: &mut [T], dtype: Dtype) -> Result<(), CudaError> {
        let (context, dim) = (self.device.context(), self.table_shape().dim as usize);
        let rows_at_once = (PIECE / (dim * size_of::<T>())).max(1);
        // A request that failed left nothing in the staging that the next one relies on.
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        if staging.is_none() {
            *staging = Some(Staging::new(context)?);
        }
        let Some(staging) = staging.as_mut() else { return Ok(()) };
        for (ids, out) in ids.chunks(rows_at_once).zip(out.chunks_mut(rows_at_once * dim)) {
            staging.reserve(context, size_of_val(ids), size_of_val(out))?;
            let enqueued = self.enqueue_piece(staging, ids, out, dtype);
            // In any case, before the borrows of `ids` and `out` end: a part may have been enqueued.
            let finished = staging.stream.synchronize();
            enqueued.and(finished)?;
        }
        Ok(())
    }

    fn enqueue_piece<T>(&self, staging: &Staging, ids: &[i64], out: &mut [T], dtype: Dtype) -> Result<(), CudaError> {
        let stream = staging.stream.handle;
        self.device.context().bind_to_thread().map_err(CudaError::doing("making the context current"))?;
        let request = RawRequest {
            ids: staging.ids.address(),
            id_width: IdWidth::I64,
            count: ids.len() as u64,
            out: staging.rows.address(),
            dtype,
            missing: 0,
        };
        // SAFETY: the staging was made large enough; `T` is u16 or f32, of which any bits are values; the caller
        // synchronizes the stream while `ids`, `out` and the staging are still borrowed, on errors too.
        unsafe {
            result::memcpy_htod_async(staging.ids.address(), ids, stream).map_err(CudaError::doing("copying ids"))?;
            self.enqueue_raw(stream, &request)?;
            result::memcpy_dtoh_async(out, staging.rows.address(), stream).map_err(CudaError::doing("copying rows"))
        }
    }
}

/// A stream of this crate's own. Not cudarc's, the first of which makes it track the events of every slice.
#[derive(Debug)]
pub(crate) struct Stream {
    context: Arc<CudaContext>,
    handle: CUstream,
}

// SAFETY: the handle is a name that the driver takes from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    pub(crate) fn new(context: &Arc<CudaContext>) -> Result<Stream, CudaError> {
        context.bind_to_thread().map_err(CudaError::doing("making the context current"))?;
        let handle = result::stream::create(result::stream::StreamKind::NonBlocking)
            .map_err(CudaError::doing("making a stream"))?;
        Ok(Stream { context: context.clone(), handle })
    }

    pub(crate) fn handle(&self) -> CUstream {
        self.handle
    }

    pub(crate) fn synchronize(&self) -> Result<(), CudaError> {
        self.context.bind_to_thread().map_err(CudaError::doing("making the context current"))?;
        // SAFETY: the stream lives as long as `self`.
        unsafe { result::stream::synchronize(self.handle) }.map_err(CudaError::doing("decoding"))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.context.record_err(self.context.bind_to_thread());
        // SAFETY: made by `new` and destroyed only here.
        self.context.record_err(unsafe { result::stream::destroy(self.handle) });
    }
}
