//! Memory that the kernels read and write: on the device, and page-locked on the host.
//!
//! All of it is given back only once its context has no work left. Where the driver does not say so, it is leaked: a
//! kernel or a copy that is still under way would go on in memory that belongs to somebody else by then. What refuses to
//! wait is mostly a context that is lost, and with the process its memory goes as well.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use condprog_memory::{HUGE_PAGE, HugeBuffer};
use cudarc::driver::result;
use cudarc::driver::sys::{self, CUresult};

use crate::context::Context;
use crate::device::Device;
use crate::error::CudaError;

/// Bytes that kernels may read of a word that a record only begins: allocations end at a multiple of this.
const WORD: usize = 4;

/// Device memory, freed with this value.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    context: Arc<Context>,
    address: u64,
    bytes: usize,
}

impl DeviceMemory {
    /// At least `bytes` bytes, contents undefined, at a multiple of 256.
    pub(crate) fn new(context: &Arc<Context>, bytes: usize) -> Result<DeviceMemory, CudaError> {
        let bytes = bytes.max(1).next_multiple_of(WORD);
        let _entered = context.enter()?;
        // SAFETY: the context is current; nothing reads the memory before it is written, which is each caller's duty.
        let address = unsafe { result::malloc_sync(bytes) }.map_err(|error| match error.0 {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => CudaError::OutOfMemory {
                what: "device memory",
                bytes: bytes as u64,
                free: result::mem_get_info().ok().map(|(free, _)| free as u64),
            },
            _ => CudaError::doing("allocating device memory")(error),
        })?;
        Ok(DeviceMemory { context: context.clone(), address, bytes })
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies `source` to the byte offset `at`, and waits until it is there for every stream.
    pub(crate) fn upload(&mut self, at: usize, source: &[u8]) -> Result<(), CudaError> {
        assert!(at <= self.bytes && source.len() <= self.bytes - at, "upload within the allocation");
        let _entered = self.context.enter()?;
        // SAFETY: the range lies within this allocation (asserted above), which is alive and exclusively borrowed.
        unsafe { result::memcpy_htod_sync(self.address + at as u64, source) }
            .map_err(CudaError::doing("copying to the device"))?;
        // From pageable memory the call returns when the source is staged. The bytes are still on their way then, on the
        // default stream, which the streams of requests need not wait for.
        // SAFETY: null is the default stream of the context, which is current.
        unsafe { result::stream::synchronize(std::ptr::null_mut()) }
            .map_err(CudaError::doing("waiting for a copy to the device"))
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // Work on the memory may be in flight on streams that only their owners know.
        self.context.when_idle(|| {
            // SAFETY: allocated by `new` and freed only here; the context is current and has no work left. What the
            // driver refuses to free is leaked.
            let _ = unsafe { result::free_sync(self.address) };
        });
    }
}

/// Memory that is page-locked and mapped into the device as long as this value lives.
#[derive(Debug)]
struct Locked<M> {
    context: Arc<Context>,
    start: *mut std::ffi::c_void,
    device_address: u64,
    /// Dropped after it is unlocked; kept for good where it could not be.
    memory: ManuallyDrop<M>,
}

// SAFETY: the pointer is only handed back to the driver, which takes it from any thread.
unsafe impl<M: Send> Send for Locked<M> {}
// SAFETY: as above; there is no method that changes anything through a shared reference.
unsafe impl<M: Sync> Sync for Locked<M> {}

impl<M> Locked<M> {
    /// # Safety
    /// `start..start + bytes` must stay mapped as long as `memory` is not dropped.
    unsafe fn new(context: &Arc<Context>, start: *const u8, bytes: usize, memory: M) -> Result<Locked<M>, CudaError> {
        let _entered = context.enter()?;
        // A mapping of a file opened for reading can only be registered read-only, where the device knows that.
        let read_only = context
            .attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED)
            .is_ok_and(|supported| supported > 0);
        let flags = sys::CU_MEMHOSTREGISTER_DEVICEMAP
            | sys::CU_MEMHOSTREGISTER_PORTABLE
            | if read_only { sys::CU_MEMHOSTREGISTER_READ_ONLY } else { 0 };
        let start = start.cast_mut().cast();
        // SAFETY: the range is mapped (the caller's promise) and the context is current.
        unsafe { sys::cuMemHostRegister_v2(start, bytes, flags) }.result().map_err(|error| match error.0 {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                CudaError::OutOfMemory { what: "page-locked host memory", bytes: bytes as u64, free: None }
            }
            _ => CudaError::doing("page-locking host memory")(error),
        })?;
        let mut locked =
            Locked { context: context.clone(), start, device_address: 0, memory: ManuallyDrop::new(memory) };
        // SAFETY: `start` was registered just now, with a mapping into the device.
        unsafe { sys::cuMemHostGetDevicePointer_v2(&mut locked.device_address, start, 0) }
            .result()
            .map_err(CudaError::doing("mapping host memory into the device"))?;
        Ok(locked)
    }
}

impl<M> Drop for Locked<M> {
    fn drop(&mut self) {
        let (start, memory) = (self.start, &mut self.memory);
        // As for device memory.
        self.context.when_idle(|| {
            // SAFETY: registered by `new`, unregistered only here, and still mapped (the promise of `new`'s caller).
            let unlocked = unsafe { sys::cuMemHostUnregister(start) }.result();
            // What the driver still holds must not be mapped anew under it.
            if unlocked.is_ok() {
                // SAFETY: nothing uses the memory any more, and it is dropped only here.
                unsafe { ManuallyDrop::drop(memory) }
            }
        });
    }
}

/// Host memory that the device reads: allocated in huge pages where the system gives them, and page-locked.
#[derive(Debug)]
pub(crate) struct PinnedMemory {
    pages: Locked<HugeBuffer<u8>>,
}

impl PinnedMemory {
    /// `bytes` bytes, which `fill` writes before they are page-locked.
    pub(crate) fn new<E: From<CudaError>>(
        context: &Arc<Context>,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<PinnedMemory, E> {
        // What is locked is whole huge pages, and so ends with a whole word.
        let whole = bytes.max(1).checked_next_multiple_of(HUGE_PAGE);
        let pages = whole.and_then(|whole| HugeBuffer::<u8>::from_reserve(whole).ok());
        let mut pages =
            pages.ok_or(CudaError::OutOfMemory { what: "page-locked host memory", bytes: bytes as u64, free: None })?;
        fill(&mut pages[..bytes])?;
        // SAFETY: the range is that of the mapping, which moves with the value but stays where it is.
        let pages = unsafe { Locked::new(context, pages.as_ptr(), pages.len(), pages) }?;
        Ok(PinnedMemory { pages })
    }

    /// Where the device sees the first byte.
    pub(crate) fn address(&self) -> u64 {
        self.pages.device_address
    }

    /// All of it: what `fill` wrote, and zeros up to whole pages.
    #[cfg(feature = "cudarc")]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.pages.memory
    }
}

/// Host memory of the caller, such as a mapped table file, that the device reads.
///
/// Page-locking 50 GB takes a while; do it once and share this value between tables. What it costs: the pages stay in
/// memory, and file mappings come in ordinary pages of 4 KiB unless the file system has larger ones, which makes
/// random rows slower than from memory that was allocated by [`Placement::Host`](crate::Placement::Host).
#[derive(Debug)]
pub struct PinnedMapping {
    memory: Locked<Box<dyn std::fmt::Debug + Send + Sync>>,
    bytes: usize,
}

impl PinnedMapping {
    /// Page-locks what `memory` refers to and maps it into the device. `memory` is dropped with this value, when the
    /// context has no work left; it is kept for good where the driver refuses to wait or to unlock it.
    ///
    /// # Errors
    /// [`CudaError::OutOfMemory`] when the system does not lock so many pages (see `ulimit -l`), and
    /// [`CudaError::Driver`]. An empty range is refused by the driver.
    ///
    /// # Safety
    /// `memory.as_ref()` must give the same bytes, at the same place, each time and until this value is dropped, as a
    /// memory map or a vector does, and nobody may change them while a request is in flight: the device reads them
    /// unseen by the compiler.
    pub unsafe fn new<M>(device: &Device, memory: M) -> Result<PinnedMapping, CudaError>
    where
        M: AsRef<[u8]> + std::fmt::Debug + Send + Sync + 'static,
    {
        // Boxed first, so that a value that holds its bytes inline has its final place.
        let memory = Box::new(memory);
        let slice = (*memory).as_ref();
        let (start, bytes) = (slice.as_ptr(), slice.len());
        // SAFETY: the bytes stay where they are as long as `memory` lives (the caller's promise).
        let memory =
            unsafe { Locked::<Box<dyn std::fmt::Debug + Send + Sync>>::new(device.context(), start, bytes, memory) }?;
        Ok(PinnedMapping { memory, bytes })
    }

    /// Where the device sees the first byte.
    pub fn address(&self) -> u64 {
        self.memory.device_address
    }

    /// Length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
