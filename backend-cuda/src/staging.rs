//! What requests from host slices pass through: a stream, and device memory for ids and rows.

use std::sync::Arc;

use cudarc::driver::result;
use cudarc::driver::sys::CUstream;

use crate::context::Context;
use crate::error::CudaError;
use crate::memory::DeviceMemory;

/// A stream and device memory for ids and rows, kept between requests and made larger when one needs it.
#[derive(Debug)]
pub(crate) struct Staging {
    pub(crate) ids: DeviceMemory,
    pub(crate) rows: DeviceMemory,
    pub(crate) stream: Stream,
}

impl Staging {
    pub(crate) fn new(context: &Arc<Context>, ids: usize, rows: usize) -> Result<Staging, CudaError> {
        Ok(Staging {
            ids: DeviceMemory::new(context, ids)?,
            rows: DeviceMemory::new(context, rows)?,
            stream: Stream::new(context)?,
        })
    }

    pub(crate) fn reserve(&mut self, context: &Arc<Context>, ids: usize, rows: usize) -> Result<(), CudaError> {
        for (memory, bytes) in [(&mut self.ids, ids), (&mut self.rows, rows)] {
            if memory.bytes() < bytes {
                *memory = DeviceMemory::new(context, bytes)?;
            }
        }
        Ok(())
    }
}

/// A stream of this crate's own. Not cudarc's, the first of which makes it track the events of every slice.
#[derive(Debug)]
pub(crate) struct Stream {
    context: Arc<Context>,
    handle: CUstream,
}

// SAFETY: the handle is a name that the driver takes from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    fn new(context: &Arc<Context>) -> Result<Stream, CudaError> {
        let _entered = context.enter()?;
        let handle = result::stream::create(result::stream::StreamKind::NonBlocking)
            .map_err(CudaError::doing("making a stream"))?;
        Ok(Stream { context: context.clone(), handle })
    }

    pub(crate) fn handle(&self) -> CUstream {
        self.handle
    }

    pub(crate) fn synchronize(&self) -> Result<(), CudaError> {
        let _entered = self.context.enter()?;
        // SAFETY: the stream lives as long as `self`.
        unsafe { result::stream::synchronize(self.handle) }.map_err(CudaError::doing("decoding"))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _entered = self.context.enter();
        // SAFETY: made by `new` and destroyed only here. The driver keeps what it needs of a stream that has work left,
        // and what it refuses to destroy is leaked.
        let _ = unsafe { result::stream::destroy(self.handle) };
    }
}
