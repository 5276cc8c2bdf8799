//! An open GPU: its device and queue, the compiled kernel, and the handling of what the driver reports.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};

use condprog_core::{Dtype, trellis};
use condprog_kernels::wgsl;
use futures_channel::oneshot;

use crate::adapter::{self, Adapter};
use crate::error::Error;
use crate::slot::Pool;

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

/// Groups per thread that make a thread per row, whatever the width.
const WHOLE_ROW: u32 = trellis::MAX_DIM / wgsl::GROUP;

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
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    faults: Arc<Faults>,
    pub(crate) kernel: Kernel,
    pub(crate) bounds: Bounds,
    pub(crate) pool: Pool,
    buffers: AtomicU64,
    poller: OnceLock<mpsc::Sender<Poll>>,
}

/// Sizes within WebGPU's default limits, or below as [`Options`] ask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) table_bytes: u64,
    pub(crate) binding_bytes: usize,
    pub(crate) dispatch_bytes: usize,
    pub(crate) dispatch_threads: u64,
    pub(crate) groups_per_thread: u32,
}

/// Pipelines and the layouts of their two bind groups.
pub(crate) struct Kernel {
    pub(crate) part: wgpu::BindGroupLayout,
    pub(crate) request: wgpu::BindGroupLayout,
    bf16: wgpu::ComputePipeline,
    f16: wgpu::ComputePipeline,
    f32: wgpu::ComputePipeline,
}

impl Kernel {
    pub(crate) fn pipeline(&self, dtype: Dtype) -> &wgpu::ComputePipeline {
        match dtype {
            Dtype::Bf16 => &self.bf16,
            Dtype::F16 => &self.f16,
            Dtype::F32 => &self.f32,
        }
    }
}

/// What the driver reported outside of a call.
#[derive(Default)]
struct Faults {
    lost: OnceLock<String>,
    uncaptured: Mutex<Option<Error>>,
}

/// Who waits for the device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    /// The calling thread.
    Here,
    /// A thread of the GPU's own, so that a future never blocks its executor.
    Aside,
}

/// A submission to wait for, and where to say that it is done.
type Poll = (wgpu::SubmissionIndex, oneshot::Sender<Result<(), Error>>);

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
        let limits = device.limits();
        let bounds = Bounds {
            table_bytes: options.table_bytes.unwrap_or(u64::MAX),
            binding_bytes: bounded(options.binding_bytes, limits.max_storage_buffer_binding_size),
            dispatch_bytes: bounded(
                options.dispatch_bytes.or(Some(DISPATCH_BYTES)),
                limits.max_storage_buffer_binding_size,
            ),
            dispatch_threads: u64::from(limits.max_compute_workgroups_per_dimension) * u64::from(wgsl::WORKGROUP),
            groups_per_thread: options
                .groups_per_thread
                .unwrap_or_else(|| default_groups_per_thread(adapter.software))
                .clamp(1, WHOLE_ROW),
        };

        let faults = Arc::new(Faults::default());
        let seen = Arc::clone(&faults);
        device.on_uncaptured_error(Arc::new(move |error| {
            lock(&seen.uncaptured).get_or_insert_with(|| refusal("an earlier call", error));
        }));
        let seen = Arc::clone(&faults);
        device.set_device_lost_callback(move |reason, message| {
            // The first reason counts.
            let _ = seen.lost.set(format!("{reason:?}: {message}"));
        });

        let kernel =
            guarded(&device, &faults, "compiling the kernel", || compile(&device, source, bounds.groups_per_thread))?;
        Ok(Gpu(Arc::new(Shared {
            adapter,
            device,
            queue,
            faults,
            kernel,
            bounds,
            pool: Pool::default(),
            buffers: AtomicU64::new(0),
            poller: OnceLock::new(),
        })))
    }

    /// The adapter in use.
    pub fn adapter(&self) -> &Adapter {
        &self.0.adapter
    }

    /// Buffers created on the device so far. Requests stop adding to it once the largest has been seen: ids and rows
    /// pass through buffers that are used again.
    pub fn buffers_created(&self) -> u64 {
        self.0.buffers.load(Ordering::Relaxed)
    }

    /// wgpu's own counts of what lives on the device, where its `counters` feature is on.
    #[doc(hidden)]
    pub fn counters(&self) -> wgpu::InternalCounters {
        self.0.device.get_internal_counters()
    }

    /// Gives the device back now, whoever still holds it: every later use is a [`Error::DeviceLost`].
    pub fn destroy(&self) {
        let _ = self.0.faults.lost.set("destroyed by its owner".to_owned());
        self.0.device.destroy();
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
    /// Makes a buffer and counts it. Errors go to the scope of the caller's [`Shared::guarded`].
    pub(crate) fn buffer(&self, usage: wgpu::BufferUsages, size: usize, mapped: bool) -> wgpu::Buffer {
        self.buffers.fetch_add(1, Ordering::Relaxed);
        let descriptor = wgpu::BufferDescriptor { label: None, size: size as u64, usage, mapped_at_creation: mapped };
        self.device.create_buffer(&descriptor)
    }

    /// Runs calls that the driver may refuse, and gives what it reports.
    pub(crate) fn guarded<T>(&self, what: &'static str, calls: impl FnOnce() -> T) -> Result<T, Error> {
        guarded(&self.device, &self.faults, what, calls)
    }

    /// The error of a mapping that the driver did not grant.
    pub(crate) fn unmapped(&self, what: &'static str) -> Error {
        match self.faults.check() {
            Err(error) => error,
            Ok(()) => Error::Refused { what, message: "buffer was not mapped".to_owned() },
        }
    }

    /// Waits until a submission is done and its callbacks have been called or are being called.
    pub(crate) async fn finish(&self, index: wgpu::SubmissionIndex, wait: Wait) -> Result<(), Error> {
        match wait {
            Wait::Here => poll(&self.device, &self.faults, index),
            Wait::Aside => {
                let (sender, done) = oneshot::channel();
                let poller = self.poller.get_or_init(|| {
                    let (sender, polls) = mpsc::channel::<Poll>();
                    let (device, faults) = (self.device.clone(), Arc::clone(&self.faults));
                    // Ends when the GPU is dropped, and with it the sender. Where no thread can be had the receiver is
                    // dropped, and sending fails.
                    let _ = std::thread::Builder::new().name("condprog-wgpu".to_owned()).spawn(move || {
                        for (index, done) in polls {
                            // The future may have been dropped.
                            let _ = done.send(poll(&device, &faults, index));
                        }
                    });
                    sender
                });
                let stopped = || Error::Refused {
                    what: "waiting for the device",
                    message: "there is no thread for it".to_owned(),
                };
                poller.send((index, sender)).map_err(|_| stopped())?;
                done.await.map_err(|_| stopped())?
            }
        }
    }
}

impl Faults {
    fn check(&self) -> Result<(), Error> {
        if let Some(reason) = self.lost.get() {
            return Err(Error::DeviceLost { reason: reason.clone() });
        }
        match lock(&self.uncaptured).take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// A lock whatever became of the thread that held it: all that is kept behind locks here is whole at any time.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

fn compile(device: &wgpu::Device, source: &str, groups_per_thread: u32) -> Kernel {
    let entry = |binding, ty| wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
        count: None,
    };
    let layout = |entries: &[wgpu::BindGroupLayoutEntry]| {
        device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries })
    };
    let read = wgpu::BufferBindingType::Storage { read_only: true };
    let write = wgpu::BufferBindingType::Storage { read_only: false };
    let part = layout(&[entry(0, read), entry(1, wgpu::BufferBindingType::Uniform)]);
    let request = layout(&[entry(0, read), entry(1, write)]);
    let pipelines = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        bind_group_layouts: &[Some(&part), Some(&request)],
        ..Default::default()
    });
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: Some("decode.wgsl"),
        source: wgpu::ShaderSource::Wgsl(Cow::Borrowed(source)),
    });
    let pipeline = |entry_point| {
        device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(entry_point),
            layout: Some(&pipelines),
            module: &module,
            entry_point: Some(entry_point),
            compilation_options: wgpu::PipelineCompilationOptions {
                constants: &[(wgsl::GROUPS_PER_THREAD, f64::from(groups_per_thread))],
                ..Default::default()
            },
            cache: None,
        })
    };
    let (bf16, f16, f32) = (pipeline(wgsl::DECODE_BF16), pipeline(wgsl::DECODE_F16), pipeline(wgsl::DECODE_F32));
    Kernel { part, request, bf16, f16, f32 }
}

fn guarded<T>(
    device: &wgpu::Device,
    faults: &Faults,
    what: &'static str,
    calls: impl FnOnce() -> T,
) -> Result<T, Error> {
    use wgpu::ErrorFilter::{Internal, OutOfMemory, Validation};
    faults.check()?;
    // Scopes belong to the thread, so none is held over an await. Natively a scope's error is there at once.
    let scopes = [OutOfMemory, Validation, Internal].map(|filter| device.push_error_scope(filter));
    let value = calls();
    let mut error = None;
    for scope in scopes.into_iter().rev() {
        error = pollster::block_on(scope.pop()).or(error);
    }
    faults.check()?;
    match error {
        Some(error) => Err(refusal(what, error)),
        None => Ok(value),
    }
}

/// What the driver reported, as an error of this crate.
fn refusal(what: &'static str, error: wgpu::Error) -> Error {
    match error {
        wgpu::Error::OutOfMemory { .. } => Error::OutOfMemory { what },
        wgpu::Error::Validation { description, .. } | wgpu::Error::Internal { description, .. } => {
            Error::Refused { what, message: description }
        }
    }
}

/// Blocks until a submission is done.
fn poll(device: &wgpu::Device, faults: &Faults, index: wgpu::SubmissionIndex) -> Result<(), Error> {
    const WHAT: &str = "waiting for the device";
    let wait = wgpu::PollType::Wait { submission_index: Some(index), timeout: None };
    // wgpu panics when the driver reports a loss or a want of memory in a wait; a caller shall get an error.
    match catch_unwind(AssertUnwindSafe(|| device.poll(wait))) {
        // Calls on a lost device do nothing and report nothing, so the wait for them looks.
        Ok(Ok(_)) => faults.check(),
        Ok(Err(error)) => {
            faults.check()?;
            Err(Error::Refused { what: WHAT, message: error.to_string() })
        }
        Err(_) => {
            let _ = faults.lost.set("the driver gave up in a wait".to_owned());
            faults.check()
        }
    }
}

#[cfg(test)]
mod tests {
    use condprog_core::{BackendError, ErrorKind};

    use super::*;

    #[test]
    fn what_the_driver_reports_has_a_kind() {
        let source = || Box::new(std::fmt::Error) as Box<dyn std::error::Error + Send + Sync>;
        let kind = |error| refusal("testing", error).kind();
        assert_eq!(kind(wgpu::Error::OutOfMemory { source: source() }), ErrorKind::OutOfMemory);
        let description = String::new();
        assert_eq!(kind(wgpu::Error::Validation { source: source(), description }), ErrorKind::Other);
        let description = String::new();
        assert_eq!(kind(wgpu::Error::Internal { source: source(), description }), ErrorKind::Other);
    }

    /// Needs a device; the tests in `tests/` see to it that there is one where it is required.
    #[test]
    fn errors_inside_and_outside_of_calls_are_reported_once() {
        let Ok(gpu) = Gpu::open(&Options::default()) else { return };
        let gpu = gpu.shared();
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
