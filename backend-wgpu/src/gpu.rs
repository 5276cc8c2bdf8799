//! An open GPU: its device, the compiled kernel, and the buffers that requests pass through.

use std::sync::Arc;

use condprog_kernels::wgsl;

use crate::adapter::{self, Adapter};
use crate::device::Device;
use crate::error::Error;
use crate::kernel::{self, Bounds, Kernel, WHOLE_ROW};
use crate::slot::{Pool, Slot};

/// How to open a GPU. The default suits any.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// Part of the adapter's name, in any case. Without it the environment variable `WGPU_ADAPTER_NAME` is taken, and
    /// without that the first adapter of [`crate::adapters`] that works.
    pub adapter: Option<String>,
    /// Most device memory that one table may take, in bytes. Without it, what the driver gives.
    pub table_bytes: Option<u64>,
    /// Longest binding, in bytes: where tables are split. At most, and without it, the 128 MiB of WebGPU's default
    /// limits.
    pub binding_bytes: Option<u32>,
    /// Most output of one dispatch, in bytes: where requests are split. At most 128 MiB, 8 MiB without it.
    pub dispatch_bytes: Option<u32>,
    /// Consecutive groups of eight values that one thread decodes. Without it, all of a row on a software adapter,
    /// and one on others.
    pub groups_per_thread: Option<u32>,
}

/// Output of a dispatch: large enough to hide what a submission costs, small enough that the readback of one overlaps
/// the kernel of the next in a request of some ten thousand rows.
const DISPATCH_BYTES: u32 = 8 << 20;

/// A software adapter runs threads one after the other, in SIMD lanes, and pays for each. 196,608 random rows of d = 256
/// at 2 bits from a table of 69 MB to bf16, on lavapipe (Mesa 22.3.6, two cores of a shared machine, median of five),
/// whole requests and the kernel alone, in M rows/s:
///
/// | shape | request | kernel |
/// |---|---|---|
/// | a thread per group of 8 values | 1.00 | 1.16 |
/// | a thread per 4 groups | 1.43 | 1.68 |
/// | a thread per row | 1.87 | 2.38 |
///
/// With a thread per row, taken one after the other, upload is 3 %, the kernel 72 % and readback 25 % of a request. The
/// CPU backend in the same run: 11.06. `cargo run --release -p condprog-wgpu --example speed` measures it again.
///
/// On hardware, of which none was at hand to measure, a thread per group lets neighbouring threads write neighbouring
/// words, and gives a request of 48 rows enough threads to hide the latency of its loads.
fn default_groups_per_thread(software: bool) -> u32 {
    if software { WHOLE_ROW } else { 1 }
}

/// An open GPU. Cloning is cheap; decoders keep it open.
#[derive(Clone)]
pub struct Gpu(Arc<Shared>);

pub(crate) struct Shared {
    adapter: Adapter,
    pub(crate) device: Device,
    pub(crate) kernel: Kernel,
    pub(crate) bounds: Bounds,
    pub(crate) pool: Pool,
}

impl Gpu {
    /// Opens a GPU with WebGPU's default limits and no optional feature, and compiles the kernel.
    ///
    /// # Errors
    /// Of kind `Unavailable` when there is no adapter, none of the name asked for, or none that gives a device.
    pub fn open(options: &Options) -> Result<Gpu, Error> {
        pollster::block_on(Gpu::open_async(options))
    }

    /// [`Gpu::open`] as a future.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub async fn open_async(options: &Options) -> Result<Gpu, Error> {
        Gpu::with_kernel(options, wgsl::DECODE).await
    }

    /// Opens a GPU with another kernel source than [`wgsl::DECODE`]: how the mutation check proves that the suite sees
    /// a wrong kernel.
    #[doc(hidden)]
    pub async fn with_kernel(options: &Options, source: &str) -> Result<Gpu, Error> {
        let (adapter, device, queue) = open_device(options).await?;
        Gpu::assemble(adapter, Device::new(device, queue), options, source)
    }

    /// Decodes on a device and queue that are there already, such as those of a renderer or of another library, and
    /// compiles the kernel for them. Clones of both are cheap, and share what they stand for.
    ///
    /// The device needs no feature, and at most WebGPU's default limits. It keeps its handlers of errors and of its loss:
    /// errors of this crate's calls are caught in scopes, and a loss shows in failing requests, or at once where the
    /// device's owner passes it on ([`Gpu::report_lost`]). [`Options::adapter`] has no meaning here. Without
    /// [`Options::table_bytes`], a table may take what the driver gives, which is the memory of others on the device too.
    ///
    /// The version of wgpu is the one that this crate exports, `condprog_wgpu::wgpu`.
    ///
    /// ```no_run
    /// use condprog_wgpu::{Gpu, Options, wgpu};
    ///
    /// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
    /// let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle_from_env());
    /// let adapter = instance.request_adapter(&wgpu::RequestAdapterOptions::default()).await?;
    /// let (device, queue) = adapter.request_device(&wgpu::DeviceDescriptor::default()).await?;
    /// let gpu = Gpu::from_device(&device, &queue, &Options::default())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Limit`] when a limit of the device is below what the kernel needs, else what the device reports.
    pub fn from_device(device: &wgpu::Device, queue: &wgpu::Queue, options: &Options) -> Result<Gpu, Error> {
        let adapter = device.adapter_info().into();
        Gpu::assemble(adapter, Device::of_caller(device.clone(), queue.clone()), options, wgsl::DECODE)
    }

    fn assemble(adapter: Adapter, device: Device, options: &Options, source: &str) -> Result<Gpu, Error> {
        let limits = device.raw.limits();
        kernel::check(&limits)?;
        let longest = kernel::longest_binding(&limits);
        let bounds = Bounds {
            table_bytes: options.table_bytes.unwrap_or(u64::MAX),
            binding_bytes: bounded(options.binding_bytes, longest),
            dispatch_bytes: bounded(options.dispatch_bytes.or(Some(DISPATCH_BYTES)), longest),
            dispatch_threads: u64::from(limits.max_compute_workgroups_per_dimension) * u64::from(wgsl::WORKGROUP),
            groups_per_thread: options
                .groups_per_thread
                .unwrap_or_else(|| default_groups_per_thread(adapter.software))
                .clamp(1, WHOLE_ROW),
        };
        let compile = || Kernel::compile(&device.raw, source, bounds.groups_per_thread);
        let kernel = device.guarded("compiling the kernel", compile)?;
        Ok(Gpu(Arc::new(Shared { adapter, device, kernel, bounds, pool: Pool::default() })))
    }

    /// The adapter in use.
    pub fn adapter(&self) -> &Adapter {
        &self.0.adapter
    }

    /// Buffers created on the device so far. Requests stop adding to it once the largest has been seen: ids and rows
    /// pass through buffers that are used again.
    pub fn buffers_created(&self) -> u64 {
        self.0.device.buffers()
    }

    /// wgpu's own counts of what lives on the device, where its `counters` feature is on.
    #[doc(hidden)]
    pub fn counters(&self) -> wgpu::InternalCounters {
        self.0.device.raw.get_internal_counters()
    }

    /// Gives the device back now, whoever still holds it: every later use is a [`Error::DeviceLost`].
    pub fn destroy(&self) {
        self.0.device.lose("destroyed by its owner".to_owned());
        self.0.device.raw.destroy();
    }

    /// Says that the device is lost, for the handler that its owner has set: every later use is a
    /// [`Error::DeviceLost`] with this reason. Of a device that was opened here this is known without it.
    pub fn report_lost(&self, reason: impl Into<String>) {
        self.0.device.lose(reason.into());
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gpu").field("adapter", &self.0.adapter).field("bounds", &self.0.bounds).finish_non_exhaustive()
    }
}

impl Shared {
    /// Buffers for a dispatch with so many entries and so much output.
    pub(crate) fn slot(&self, entries: usize, output_bytes: usize) -> Result<Slot, Error> {
        self.pool.take(&self.device, &self.kernel, &self.bounds, [entries, output_bytes])
    }
}

/// A size that was asked for, at most `limit`.
fn bounded(asked: Option<u32>, limit: u64) -> usize {
    asked.map_or(limit, |asked| u64::from(asked).min(limit)) as usize
}

async fn open_device(options: &Options) -> Result<(Adapter, wgpu::Device, wgpu::Queue), Error> {
    let asked = options.adapter.clone().or_else(|| std::env::var("WGPU_ADAPTER_NAME").ok());
    let all = adapter::list().await;
    let found = all.iter().map(|(_, adapter)| adapter.name.clone()).collect();
    let wanted = asked.as_deref().unwrap_or("").to_lowercase();
    let mut last = Error::NoAdapter { asked, found };
    for (handle, adapter) in all.into_iter().filter(|(_, adapter)| adapter.name.to_lowercase().contains(&wanted)) {
        let descriptor = wgpu::DeviceDescriptor {
            required_features: wgpu::Features::empty(),
            required_limits: wgpu::Limits::default(),
            ..Default::default()
        };
        match handle.request_device(&descriptor).await {
            Ok((device, queue)) => return Ok((adapter, device, queue)),
            Err(error) => last = Error::NoDevice { adapter: adapter.name, reason: error.to_string() },
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Needs a device; the tests in `tests/` see to it that there is one where it is required.
    #[test]
    fn errors_inside_and_outside_of_calls_are_reported_once() {
        let Ok(gpu) = Gpu::open(&Options::default()) else { return };
        let gpu = &gpu.shared().device;
        // A buffer for nothing is against the rules.
        let refused = || gpu.buffer(wgpu::BufferUsages::empty(), 16, false);
        for _ in 0..2 {
            let error = gpu.guarded("testing", refused).unwrap_err();
            assert!(matches!(&error, Error::Refused { what: "testing", .. }), "{error}");
            assert_eq!(gpu.guarded("testing", || 1), Ok(1));
        }
        refused();
        let error = gpu.guarded("testing", || 1).unwrap_err();
        assert!(matches!(&error, Error::Refused { what: "an earlier call", .. }), "{error}");
        assert_eq!(gpu.guarded("testing", || 1), Ok(1));
    }

    #[test]
    fn sizes_asked_for_stay_within_the_limits() {
        assert_eq!(bounded(None, 100), 100);
        assert_eq!(bounded(Some(7), 100), 7);
        assert_eq!(bounded(Some(700), 100), 100);
    }
}
