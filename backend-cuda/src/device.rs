//! Finding a device and loading the kernels onto it.

use std::ffi::{CString, c_void};
use std::sync::Arc;

use condprog_kernels::cuda::{self, BLOCK, Grid, Kernel, Request};
use cudarc::driver::result;
use cudarc::driver::sys::{self, CUdevice_attribute, CUfunction_attribute};

use crate::context::Context;
use crate::error::CudaError;
use crate::nvrtc;

/// Percentage of a multiprocessor's memory that is shared memory, as a hint: on Hopper 164 of 228 KiB, the smallest
/// division that holds three blocks of 48 KiB and what the system adds to each. The rest is cache, in which loads that
/// are in flight have their place.
const CARVEOUT: i32 = 72;

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
    /// The context as cudarc has it, once it was asked for.
    #[cfg(feature = "cudarc")]
    cudarc: std::sync::OnceLock<Arc<cudarc::driver::CudaContext>>,
}

/// Where the kernels' code comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Code {
    /// The PTX that this crate carries, which the driver compiles: for compute capability 9.0 and later.
    #[default]
    Carried,
    /// NVRTC compiles the kernels' source, for exactly the architecture of the device: 8.0 or later.
    Compiled,
}

impl Code {
    /// The oldest compute capability that takes it.
    const fn oldest(self) -> (u32, u32) {
        match self {
            Code::Carried => cuda::COMPUTE_CAPABILITY,
            Code::Compiled => (8, 0),
        }
    }
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
        Device::open_with(ordinal, Code::Carried)
    }

    /// The same with a choice of the kernels.
    ///
    /// # Errors
    /// As [`Device::open`]; for [`Code::Compiled`] also [`CudaError::NoNvrtc`] and [`CudaError::Compile`].
    pub fn open_with(ordinal: usize, code: Code) -> Result<Device, CudaError> {
        Device::load(Context::primary(ordinal)?, code)
    }

    /// The same in a context that is there already, given as the driver's `CUcontext`.
    ///
    /// # Errors
    /// As [`Device::open_with`].
    ///
    /// # Safety
    /// `context` must be a live context, and stay one until this value, its clones, and all decoders and mappings that
    /// were made with it are dropped. It remains the caller's.
    pub unsafe fn from_raw_context(context: *mut c_void, code: Code) -> Result<Device, CudaError> {
        // SAFETY: the caller's promise.
        Device::load(unsafe { Context::of_caller(context.cast()) }?, code)
    }

    pub(crate) fn load(context: Context, code: Code) -> Result<Device, CudaError> {
        let (name, compute_capability) = describe(&context)?;
        let oldest = code.oldest();
        if compute_capability < oldest {
            return Err(CudaError::Architecture { name, got: compute_capability, expected: oldest });
        }
        let processors = context
            .attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
            .map_err(CudaError::doing("counting multiprocessors"))?
            .max(1);
        let module = match code {
            Code::Carried => Module::load(Arc::new(context), cuda::DECODE_PTX)?,
            Code::Compiled => {
                let architecture = match compute_capability {
                    (8, 0..=5) => "compute_80",
                    (8, _) => "compute_86",
                    _ => cuda::ARCHITECTURE,
                };
                Module::load(Arc::new(context), &nvrtc::compile(cuda::DECODE, architecture)?)?
            }
        };
        let entered = module.context.enter()?;
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
        drop(entered);
        Ok(Device {
            inner: Arc::new(Inner {
                module,
                functions,
                name,
                compute_capability,
                processors,
                #[cfg(feature = "cudarc")]
                cudarc: std::sync::OnceLock::new(),
            }),
        })
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.inner.module.context
    }

    #[cfg(feature = "cudarc")]
    pub(crate) fn cudarc_handle(&self) -> &std::sync::OnceLock<Arc<cudarc::driver::CudaContext>> {
        &self.inner.cudarc
    }

    /// The context as the driver's `CUcontext`. It lives as long as this value.
    pub fn raw_context(&self) -> *mut c_void {
        self.context().raw().cast()
    }

    /// Bytes of device memory that are free now.
    ///
    /// # Errors
    /// [`CudaError::Driver`].
    pub fn free_bytes(&self) -> Result<u64, CudaError> {
        let _entered = self.context().enter()?;
        let (free, _) = result::mem_get_info().map_err(CudaError::doing("asking for the free memory"))?;
        Ok(free as u64)
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
        let _entered = self.context().enter()?;
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

fn describe(context: &Context) -> Result<(String, (u32, u32)), CudaError> {
    use CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
    };
    let name = context.name().map_err(CudaError::doing("asking for the device's name"))?;
    let doing = CudaError::doing("asking for the device's compute capability");
    let capability = (context.attribute(MAJOR).map_err(&doing)?, context.attribute(MINOR).map_err(&doing)?);
    Ok((name, capability))
}

/// A loaded module, unloaded with this value.
#[derive(Debug)]
pub(crate) struct Module {
    context: Arc<Context>,
    handle: sys::CUmodule,
}

// SAFETY: the handle is a name that the driver takes from any thread.
unsafe impl Send for Module {}
// SAFETY: as above; nothing changes through a shared reference.
unsafe impl Sync for Module {}

impl Module {
    pub(crate) fn load(context: Arc<Context>, ptx: &str) -> Result<Module, CudaError> {
        let image = CString::new(ptx).map_err(|_| CudaError::Compile("the PTX has a zero byte".into()))?;
        let entered = context.enter()?;
        // SAFETY: the image is text that ends in a zero byte, alive during the call.
        let handle = unsafe { result::module::load_data(image.as_ptr().cast()) }
            .map_err(CudaError::doing("loading the kernels"))?;
        drop(entered);
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
        self.context.when_idle(|| {
            // SAFETY: loaded by `load` and unloaded only here; the context is current and has no work left. What the
            // driver refuses to unload stays.
            let _ = unsafe { result::module::unload(self.handle) };
        });
    }
}
