//! Requests from host slices: [`Decoder`] for those who do not keep ids and rows on the device.

use std::sync::PoisonError;

use condprog_core::{BackendError, Batch, Decoder, Dtype, ErrorKind, Output, ShapeMismatch, TableShape};
use cudarc::driver::result;

use crate::decoder::{CudaDecoder, IdWidth, RawRequest};
use crate::error::CudaError;
use crate::staging::{Staging, Stream};

/// Bytes of rows that are decoded and copied back at a time.
const PIECE: usize = 64 << 20;

/// A number format of rows, and what its bits are on the host.
///
/// # Safety
/// A `Value` has the size that `DTYPE` says and no padding, and any bits are one.
unsafe trait Format {
    type Value;
    const DTYPE: Dtype;
}

struct Bf16;
struct F16;
struct F32;

// SAFETY: two bytes, of which any are a u16.
unsafe impl Format for Bf16 {
    type Value = u16;
    const DTYPE: Dtype = Dtype::Bf16;
}
// SAFETY: as above.
unsafe impl Format for F16 {
    type Value = u16;
    const DTYPE: Dtype = Dtype::F16;
}
// SAFETY: four bytes, of which any are an f32.
unsafe impl Format for F32 {
    type Value = f32;
    const DTYPE: Dtype = Dtype::F32;
}

impl Decoder for CudaDecoder {
    type Error = CudaError;

    fn shape(&self) -> TableShape {
        self.table_shape()
    }

    /// Copies ids in and rows out, and waits. One request at a time; others wait for their turn.
    ///
    /// Ends the process in one case: when the driver neither says that the copies have ended nor that the device is lost.
    /// They may go on then in memory that is the caller's again.
    fn decode_batch(&self, batch: Batch<'_>) -> Result<(), CudaError> {
        ShapeMismatch::check(&batch, self.table_shape()).map_err(CudaError::Shape)?;
        let (ids, output) = batch.into_parts();
        match output {
            Output::Bf16(out) => self.decode_pieces::<Bf16>(ids, out),
            Output::F16(out) => self.decode_pieces::<F16>(ids, out),
            Output::F32(out) => self.decode_pieces::<F32>(ids, out),
        }
    }
}

impl CudaDecoder {
    fn decode_pieces<F: Format>(&self, ids: &[i64], out: &mut [F::Value]) -> Result<(), CudaError> {
        const { assert!(size_of::<F::Value>() == F::DTYPE.size(), "a value has the size of its format") }
        let (context, dim) = (self.device().context(), self.table_shape().dim as usize);
        let rows_at_once = (PIECE / (dim * F::DTYPE.size())).max(1);
        // A request that failed left nothing in the staging that the next one relies on.
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        for (ids, out) in ids.chunks(rows_at_once).zip(out.chunks_mut(rows_at_once * dim)) {
            let staging = match &mut *staging {
                Some(staging) => {
                    staging.reserve(context, size_of_val(ids), size_of_val(out))?;
                    staging
                }
                none => none.insert(Staging::new(context, size_of_val(ids), size_of_val(out))?),
            };
            // SAFETY: there is room for both, and `finish` below comes before their borrows end.
            let enqueued = unsafe { self.enqueue_piece::<F>(staging, ids, out) };
            // On errors too: a part may have been enqueued.
            enqueued.and(self.finish(&staging.stream))?;
        }
        Ok(())
    }

    /// Enqueues copying ids in, decoding, and copying rows out.
    ///
    /// # Safety
    /// The staging must have room for `ids` and `out`, which must be `ids.len()` rows of this table and stay borrowed
    /// until the staging's stream has been waited for, also when this fails.
    unsafe fn enqueue_piece<F: Format>(
        &self,
        staging: &Staging,
        ids: &[i64],
        out: &mut [F::Value],
    ) -> Result<(), CudaError> {
        let stream = staging.stream.handle();
        let _entered = self.device().context().enter()?;
        let request = RawRequest {
            ids: staging.ids.address(),
            id_width: IdWidth::I64,
            count: ids.len() as u64,
            out: staging.rows.address(),
            dtype: F::DTYPE,
            missing: 0,
        };
        // SAFETY: the caller vouches for room and borrows; any bits that are copied into a `Value` are one.
        unsafe {
            result::memcpy_htod_async(staging.ids.address(), ids, stream).map_err(CudaError::doing("copying ids"))?;
            self.enqueue_raw(stream.cast(), &request)?;
            result::memcpy_dtoh_async(out, staging.rows.address(), stream).map_err(CudaError::doing("copying rows"))
        }
    }

    /// Waits until nothing of what was enqueued on the staging's stream is under way.
    fn finish(&self, stream: &Stream) -> Result<(), CudaError> {
        let finished = stream.synchronize();
        if let Err(error) = &finished
            && error.kind() != ErrorKind::DeviceLost
            && !self.device().context().when_idle(|| ())
        {
            // Memory of this crate's own would be leaked here; the slices are the caller's.
            eprintln!("condprog: {error}; rows may still be written to memory that is in use again, so this ends here");
            std::process::abort();
        }
        finished
    }
}
