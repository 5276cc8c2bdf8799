//! Finding a device and loading the kernels onto it.

use std::ffi::CString;
use std::sync::{Arc, OnceLock};

use condprog_kernels::cuda::{self, BLOCK, Grid, Kernel, Request};
use cudarc::driver::sys::{self, CUdevice_attribute, CUfunction_attribute};
use cudarc::driver::{CudaContext, result};

use crate::error::CudaError;
use crate::memory::is_idle;
use crate::nvrtc;

/// Percentage of a multiprocessor's memory that is shared memory, as a hint: on Hopper 164 of 228 KiB, the smallest
/// division that holds three blocks of 48 KiB and what the system adds to each. The rest is cache, in which loads that
/// are in flight have their place.
const CARVEOUT: i32 = 72;

/// Number of CUDA devices.
///
/// # Errors
/// [`CudaError::NoDriver`] without libcuda, [`CudaError::Driver`] when the driver does not start. No device is 0.
pub fn device_count() -> Result<usize, CudaError> {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: opens the driver's library and closes it again; its constructors, which run then, are NVIDIA's.
    // Everything else of cudarc panics without the library, so every way to a driver call leads through here.
    if !*PRESENT.get_or_init(|| unsafe { sys::is_culib_present() }) {
        return Err(CudaError::NoDriver);
    }
    match result::init() {
        Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NO_DEVICE => return Ok(0),
        other => other.map_err(CudaError::doing("starting the driver"))?,
    }
    let count = result::device::get_count().map_err(CudaError::doing("counting devices"))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// A device with the kernels loaded. Cheap to clone; tables keep what they need of it. Dropping the last clone waits for
/// all work of the context and unloads the kernels.
#[derive(Clone, Debug)]
pub struct Device {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    module: Module,
    functions: Vec<Function>,
    name: String,
    compute_capability: (u32, u32),
    processors: u32,
}

#[derive(Clone, Copy, Debug)]
struct Function {
    handle: sys::CUfunction,
    blocks_per_processor: u32,
}

// SAFETY: function handles are names that the driver takes from any thread; they live as long as their module, which
// `Inner` keeps.
unsafe impl Send for Function {}
// SAFETY: as above; nothing changes through a shared reference.
unsafe impl Sync for Function {}

impl Device {
    /// Opens a device with its primary context, which the CUDA runtime and PyTorch use too, and loads the PTX that
    /// this crate carries: only the driver is needed.
    ///
    /// # Errors
    /// Of kind [`Unavailable`](condprog_core::ErrorKind::Unavailable) when there is no driver, no such device, the
    /// device is older than compute capability 9.0 or the driver older than 520; [`CudaError::Driver`] otherwise.
    pub fn open(ordinal: usize) -> Result<Device, CudaError> {
        Device::from_context(primary_context(ordinal)?)
    }

    /// The same in a context that is there already.
    ///
    /// # Errors
    /// As [`Device::open`].
    pub fn from_context(context: Arc<CudaContext>) -> Result<Device, CudaError> {
        Device::with_ptx(context, cuda::DECODE_PTX, cuda::COMPUTE_CAPABILITY)
    }

    /// The same with kernels that NVRTC compiles now, for exactly this architecture, 8.0 or later.
    ///
    /// # Errors
    /// As [`Device::open`], and [`CudaError::NoNvrtc`] and [`CudaError::Compile`].
    pub fn from_context_with_nvrtc(context: Arc<CudaContext>) -> Result<Device, CudaError> {
        const OLDEST: (u32, u32) = (8, 0);
        let (name, got) = describe(&context)?;
        let architecture = match got {
            got if got < OLDEST => return Err(CudaError::Architecture { name, got, expected: OLDEST }),
            (8, 0..=5) => "compute_80",
            (8, _) => "compute_86",
            _ => cuda::ARCHITECTURE,
        };
        let ptx = nvrtc::compile(cuda::DECODE, architecture)?;
        Device::with_ptx(context, &ptx, OLDEST)
    }

    fn with_ptx(context: Arc<CudaContext>, ptx: &str, oldest: (u32, u32)) -> Result<Device, CudaError> {
        let (name, compute_capability) = describe(&context)?;
        if compute_capability < oldest {
            return Err(CudaError::Architecture { name, got: compute_capability, expected: oldest });
        }
        let processors = context
            .attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
            .map_err(CudaError::doing("counting multiprocessors"))?;
        let module = Module::load(context, ptx)?;
        let functions = Kernel::ALL
            .iter()
            .map(|kernel| {
                let handle = module.function(kernel.name)?;
                // SAFETY: the handle is of the module just loaded.
                unsafe {
                    result::function::set_function_attribute(
                        handle,
                        CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                        CARVEOUT,
                    )
                }
                .map_err(CudaError::doing("dividing the memory of a multiprocessor"))?;
                // SAFETY: as above.
                let blocks = unsafe { result::occupancy::max_active_block_per_multiprocessor(handle, BLOCK as i32, 0) }
                    .map_err(CudaError::doing("asking for the occupancy of a kernel"))?;
                Ok(Function { handle, blocks_per_processor: u32::try_from(blocks).unwrap_or(0).max(1) })
            })
            .collect::<Result<_, CudaError>>()?;
        let processors = u32::try_from(processors).unwrap_or(0).max(1);
        Ok(Device { inner: Arc::new(Inner { module, functions, name, compute_capability, processors }) })
    }

    /// The context, to make streams and memory in.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.inner.module.context
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Major and minor number of its compute capability.
    pub fn compute_capability(&self) -> (u32, u32) {
        self.inner.compute_capability
    }

    /// Multiprocessors.
    pub fn processors(&self) -> u32 {
        self.inner.processors
    }

    /// The launch that a request of `count` ids gets.
    pub(crate) fn grid(&self, kernel: &Kernel, count: u64) -> Grid {
        let function = self.inner.functions[kernel.index()];
        Grid::new(count, self.inner.processors, function.blocks_per_processor)
    }

    /// Enqueues a kernel. Allocates nothing and waits for nothing.
    ///
    /// # Safety
    /// What `request` points to must be as [`Request`] says, with room for `count` ids and rows, and stay so until the
    /// kernel has run; `stream` must be a stream of this context.
    pub(crate) unsafe fn launch(
        &self,
        kernel: &Kernel,
        grid: Grid,
        stream: sys::CUstream,
        mut request: Request,
    ) -> Result<(), CudaError> {
        let function = self.inner.functions[kernel.index()];
        let context = self.context();
        context.bind_to_thread().map_err(CudaError::doing("making the context current"))?;
        // SAFETY: the function is of a module that `self` keeps loaded; its only parameter is a `Request`, which the
        // driver copies before it returns; the rest is the caller's promise.
        unsafe {
            result::launch_kernel(
                function.handle,
                (grid.blocks, 1, 1),
                (grid.threads, 1, 1),
                0,
                stream,
                &mut [(&raw mut request).cast()],
            )
        }
        .map_err(CudaError::doing("launching the decoder"))
    }
}

/// The primary context of a device.
fn primary_context(ordinal: usize) -> Result<Arc<CudaContext>, CudaError> {
    let count = device_count()?;
    if ordinal >= count {
        return Err(CudaError::NoDevice { ordinal, count });
    }
    CudaContext::new(ordinal).map_err(CudaError::doing("opening the device's context"))
}

fn describe(context: &Arc<CudaContext>) -> Result<(String, (u32, u32)), CudaError> {
    let name = context.name().map_err(CudaError::doing("asking for the device's name"))?;
    let (major, minor) =
        context.compute_capability().map_err(CudaError::doing("asking for the device's compute capability"))?;
    Ok((name, (u32::try_from(major).unwrap_or(0), u32::try_from(minor).unwrap_or(0))))
}

/// A loaded module, unloaded with this value.
#[derive(Debug)]
pub(crate) struct Module {
    context: Arc<CudaContext>,
    handle: sys::CUmodule,
}

// SAFETY: the handle is a name that the driver takes from any thread.
unsafe impl Send for Module {}
// SAFETY: as above; nothing changes through a shared reference.
unsafe impl Sync for Module {}

impl Module {
    pub(crate) fn load(context: Arc<CudaContext>, ptx: &str) -> Result<Module, CudaError> {
        let image = CString::new(ptx).map_err(|_| CudaError::Compile("the PTX has a zero byte".into()))?;
        context.bind_to_thread().map_err(CudaError::doing("making the context current"))?;
        // SAFETY: the image is text that ends in a zero byte, alive during the call.
        let handle = unsafe { result::module::load_data(image.as_ptr().cast()) }
            .map_err(CudaError::doing("loading the kernels"))?;
        Ok(Module { context, handle })
    }

    pub(crate) fn function(&self, name: &str) -> Result<sys::CUfunction, CudaError> {
        let name = CString::new(name).map_err(|_| CudaError::Compile("a kernel's name has a zero byte".into()))?;
        // SAFETY: the module is loaded as long as `self` lives.
        unsafe { result::module::get_function(self.handle, name) }.map_err(CudaError::doing("looking up a kernel"))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // Kernels may be running on streams that only their owners know. As for memory, code is leaked where the driver
        // does not say that they have ended.
        if is_idle(&self.context) {
            // SAFETY: loaded by `load` and unloaded only here; the context is current and has no work left.
            self.context.record_err(unsafe { result::module::unload(self.handle) });
        }
    }
}
