//! Streams and slices of cudarc: the same requests for those who use it, checked instead of promised.

use std::sync::Arc;

use condprog_core::{BatchError, Dtype};
use cudarc::driver::{CudaContext, CudaStream, CudaView, CudaViewMut, DevicePtr, DeviceSlice};

use crate::context::Context;
use crate::decoder::{CudaDecoder, IdWidth, RawRequest};
use crate::device::{Code, Device};
use crate::error::CudaError;

/// Ids in device memory. Those that are negative or not below the row count give rows of zeros.
#[derive(Debug)]
#[non_exhaustive]
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
#[non_exhaustive]
pub enum DeviceOutput<'a> {
    /// Bits of bf16 numbers.
    Bf16(CudaViewMut<'a, u16>),
    /// Bits of f16 numbers.
    F16(CudaViewMut<'a, u16>),
    /// Binary32 numbers.
    F32(CudaViewMut<'a, f32>),
}

impl Device {
    /// [`Device::open_with`] in a context that cudarc keeps.
    ///
    /// # Errors
    /// As [`Device::open_with`].
    pub fn from_context(context: Arc<CudaContext>, code: Code) -> Result<Device, CudaError> {
        Device::load(Context::of_cudarc(context), code)
    }

    /// The context as cudarc has it, to make streams and slices in.
    ///
    /// cudarc sets the context that is current on a thread and leaves it so; this crate does not.
    ///
    /// # Errors
    /// [`CudaError::Driver`].
    pub fn cudarc_context(&self) -> Result<Arc<CudaContext>, CudaError> {
        let known = self.cudarc_handle();
        if let Some(context) = known.get() {
            return Ok(context.clone());
        }
        // Where two threads come first, one of the handles is used by neither later.
        let context = self.context().to_cudarc()?;
        Ok(known.get_or_init(|| context).clone())
    }
}

/// Whether a context of cudarc is the device's.
pub(crate) fn check_context(device: &Device, context: &CudaContext) -> Result<(), CudaError> {
    if context.cu_ctx().cast() == device.raw_context() { Ok(()) } else { Err(CudaError::Context) }
}

impl CudaDecoder {
    /// Enqueues a request on a stream: rows in request order, zeros where an id names no row.
    ///
    /// One kernel launch. Allocates nothing, waits for nothing, and can be captured in a CUDA graph. If `missing` is
    /// given, its one value is lowered to the first position whose id names no row; the caller sets it to
    /// [`NONE_MISSING`](crate::NONE_MISSING) before.
    ///
    /// Between streams, cudarc orders the work by the events that it keeps for its slices. It does not know of graphs:
    /// for capturing, make the slices while event tracking is off
    /// ([`CudaContext::disable_event_tracking`](cudarc::driver::CudaContext::disable_event_tracking)), and keep slices
    /// and decoder alive as long as the graph may be launched.
    ///
    /// # Errors
    /// [`CudaError::Request`] when the output does not hold `ids * dim` values, [`CudaError::Context`] when the stream
    /// or a slice is of another context, [`CudaError::Driver`] when the launch is refused. Nothing was enqueued then.
    pub fn enqueue(
        &self,
        stream: &CudaStream,
        ids: DeviceIds<'_>,
        output: DeviceOutput<'_>,
        missing: Option<CudaViewMut<'_, u64>>,
    ) -> Result<(), CudaError> {
        let ids_from = match &ids {
            DeviceIds::I32(ids) => ids.stream(),
            DeviceIds::I64(ids) => ids.stream(),
        };
        let out_from = match &output {
            DeviceOutput::Bf16(out) | DeviceOutput::F16(out) => out.stream(),
            DeviceOutput::F32(out) => out.stream(),
        };
        let missing_from = missing.as_ref().map(|word| word.stream());
        for context in [stream.context(), ids_from.context(), out_from.context()]
            .into_iter()
            .chain(missing_from.map(|stream| stream.context()))
        {
            check_context(self.device(), context)?;
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
        let expected = count as u128 * u128::from(self.table_shape().dim);
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
        unsafe { self.enqueue_raw(stream.cu_stream().cast(), &request) }
    }
}
