//! The context that everything lies in: who keeps it, and how a call works in it.
//!
//! A call that needs the context current pushes it and pops it again, so that it leaves its thread as it found it: in a
//! serving stack the current context is somebody else's business.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUcontext, CUdevice, CUdevice_attribute};
use cudarc::driver::{DriverError, result};

use crate::error::CudaError;

/// Number of CUDA devices.
///
/// # Errors
/// [`CudaError::NoDriver`] without libcuda, [`CudaError::Driver`] when the driver does not start. No device is 0.
pub fn device_count() -> Result<usize, CudaError> {
    if !start()? {
        return Ok(0);
    }
    let count = result::device::get_count().map_err(CudaError::doing("counting devices"))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Loads and starts the driver, which any number of calls may do, and says whether it has a device.
fn start() -> Result<bool, CudaError> {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: opens the driver's library and closes it again; its constructors, which run then, are NVIDIA's.
    // Everything else of cudarc panics without the library, so every way to a driver call leads through here.
    if !*PRESENT.get_or_init(|| unsafe { sys::is_culib_present() }) {
        return Err(CudaError::NoDriver);
    }
    match result::init() {
        Ok(()) => Ok(true),
        Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NO_DEVICE => Ok(false),
        Err(error) => Err(CudaError::doing("starting the driver")(error)),
    }
}

/// A context of a device.
#[derive(Debug)]
pub(crate) struct Context {
    raw: CUcontext,
    device: CUdevice,
    owner: Owner,
}

/// Who gives the context up.
#[derive(Debug)]
enum Owner {
    /// This value: it retained the primary context of the device with this number.
    #[cfg_attr(not(feature = "cudarc"), expect(dead_code, reason = "only cudarc asks for the number again"))]
    Primary { ordinal: usize },
    /// The caller, who promised to keep it longer than this value.
    Caller,
    /// cudarc, when the last of its handles is dropped.
    #[cfg(feature = "cudarc")]
    Cudarc(std::sync::Arc<cudarc::driver::CudaContext>),
}

// SAFETY: the handle is a name that the driver takes from any thread.
unsafe impl Send for Context {}
// SAFETY: as above; nothing changes through a shared reference.
unsafe impl Sync for Context {}

impl Context {
    /// The primary context of a device.
    pub(crate) fn primary(ordinal: usize) -> Result<Context, CudaError> {
        let count = device_count()?;
        let none = CudaError::NoDevice { ordinal, count };
        let Ok(number) = c_int::try_from(ordinal) else { return Err(none) };
        if ordinal >= count {
            return Err(none);
        }
        let doing = CudaError::doing("opening the device's context");
        let device = result::device::get(number).map_err(&doing)?;
        // SAFETY: the device is one that the driver has just named.
        let raw = unsafe { result::primary_ctx::retain(device) }.map_err(&doing)?;
        Ok(Context { raw, device, owner: Owner::Primary { ordinal } })
    }

    /// A context that the caller keeps.
    ///
    /// # Safety
    /// `raw` must be a live context, and stay one until this value is dropped.
    pub(crate) unsafe fn of_caller(raw: CUcontext) -> Result<Context, CudaError> {
        if !start()? {
            return Err(CudaError::NoDevice { ordinal: 0, count: 0 });
        }
        let mut context = Context { raw, device: 0, owner: Owner::Caller };
        let entered = context.enter()?;
        let mut device = 0;
        // SAFETY: the place is writable, and a context is current.
        unsafe { sys::cuCtxGetDevice(&mut device) }
            .result()
            .map_err(CudaError::doing("asking for the device of a context"))?;
        drop(entered);
        context.device = device;
        Ok(context)
    }

    /// A context that cudarc keeps.
    #[cfg(feature = "cudarc")]
    pub(crate) fn of_cudarc(context: std::sync::Arc<cudarc::driver::CudaContext>) -> Context {
        Context { raw: context.cu_ctx(), device: context.cu_device(), owner: Owner::Cudarc(context) }
    }

    /// The same context as cudarc has it.
    #[cfg(feature = "cudarc")]
    pub(crate) fn to_cudarc(&self) -> Result<std::sync::Arc<cudarc::driver::CudaContext>, CudaError> {
        use cudarc::driver::CudaContext;

        let doing = CudaError::doing("opening the device's context");
        // cudarc makes the context current while it opens it, unless it is so already.
        let _entered = self.enter()?;
        match &self.owner {
            Owner::Cudarc(context) => Ok(context.clone()),
            Owner::Primary { ordinal } => CudaContext::new(*ordinal).map_err(doing),
            Owner::Caller => {
                // What cudarc calls this device in its answers; the handle is what it works with.
                let ordinal = usize::try_from(self.device).unwrap_or(0);
                // SAFETY: a live context of this device. The value would destroy it when its last handle is dropped;
                // one handle is never dropped, so the caller remains its owner.
                let context =
                    unsafe { CudaContext::from_raw_context(ordinal, self.device, self.raw) }.map_err(doing)?;
                std::mem::forget(context.clone());
                Ok(context)
            }
        }
    }

    pub(crate) fn raw(&self) -> CUcontext {
        self.raw
    }

    /// Makes the context current on this thread until the value that is returned is dropped.
    pub(crate) fn enter(&self) -> Result<Entered, CudaError> {
        let doing = CudaError::doing("making the context current");
        if result::ctx::get_current().map_err(&doing)? == Some(self.raw) {
            return Ok(Entered { pushed: false, of_this_thread: PhantomData });
        }
        // SAFETY: the context lives as long as `self`, or as its owner promised.
        unsafe { sys::cuCtxPushCurrent_v2(self.raw) }.result().map_err(doing)?;
        Ok(Entered { pushed: true, of_this_thread: PhantomData })
    }

    /// An attribute of the device.
    pub(crate) fn attribute(&self, attribute: CUdevice_attribute) -> Result<u32, DriverError> {
        // SAFETY: the device is that of the context.
        let value = unsafe { result::device::get_attribute(self.device, attribute) }?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// The device's name.
    pub(crate) fn name(&self) -> Result<String, DriverError> {
        result::device::get_name(self.device)
    }

    /// Waits until the context has no work left, and runs `then`, with the context current, if that is so.
    pub(crate) fn when_idle(&self, then: impl FnOnce()) -> bool {
        let Ok(_entered) = self.enter() else { return false };
        let idle = result::ctx::synchronize().is_ok();
        if idle {
            then();
        }
        idle
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if matches!(self.owner, Owner::Primary { .. }) {
            // SAFETY: retained by `primary` and released only here. There is nobody to tell of a failure, which keeps
            // the context for the rest of the process.
            let _ = unsafe { result::primary_ctx::release(self.device) };
        }
    }
}

/// While this lives, a context is current on the thread that entered it.
#[must_use]
pub(crate) struct Entered {
    pushed: bool,
    /// Not `Send`: each thread has a stack of its own.
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = std::ptr::null_mut();
            // SAFETY: pops what `enter` pushed on this thread; guards are dropped in the reverse order of their making.
            let _ = unsafe { sys::cuCtxPopCurrent_v2(&mut popped) };
        }
    }
}
