//! Launching and timing for the benchmark.

use std::ffi::c_void;

use condprog_kernels::cuda::{BENCH_BLOCK, BENCH_PTX};
use cudarc::driver::sys::{self, CUevent_flags, CUgraphInstantiate_flags, CUstream, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, result};

use super::report::{Measurement, summary};
use crate::device::{Device, Module};
use crate::error::CudaError;
use crate::host::Stream;
use crate::memory::{DeviceMemory, PinnedMemory};

/// Runs before the timed ones.
const WARM_UP: usize = 5;

pub(super) struct Kit {
    stream: Stream,
    fill: sys::CUfunction,
    gather_256: sys::CUfunction,
    gather_512: sys::CUfunction,
    // After the functions' last use.
    _module: Module,
    device: Device,
}

impl Kit {
    pub(super) fn new(device: &Device) -> Result<Kit, CudaError> {
        let module = Module::load(device.context().clone(), BENCH_PTX)?;
        Ok(Kit {
            stream: Stream::new(device.context())?,
            fill: module.function("fill")?,
            gather_256: module.function("gather_256")?,
            gather_512: module.function("gather_512")?,
            _module: module,
            device: device.clone(),
        })
    }

    pub(super) fn stream(&self) -> CUstream {
        self.stream.handle()
    }

    /// Enough blocks to fill the device.
    fn blocks(&self, threads: u64) -> u32 {
        let most = u64::from(self.device.processors() * 2048 / BENCH_BLOCK);
        threads.div_ceil(u64::from(BENCH_BLOCK)).clamp(1, most) as u32
    }

    /// # Safety
    /// `parameters` must be those of `function`, and what they point to must live until the stream is waited for.
    unsafe fn launch(
        &self,
        function: sys::CUfunction,
        threads: u64,
        parameters: &mut [*mut c_void],
    ) -> Result<(), CudaError> {
        let (grid, block) = ((self.blocks(threads), 1, 1), (BENCH_BLOCK, 1, 1));
        self.bind()?;
        // SAFETY: the function is of a module that `self` keeps loaded; the rest is the caller's promise.
        unsafe { result::launch_kernel(function, grid, block, 0, self.stream(), parameters) }
            .map_err(CudaError::doing("launching a kernel of the benchmark"))
    }

    fn bind(&self) -> Result<(), CudaError> {
        self.device.context().bind_to_thread().map_err(CudaError::doing("making the context current"))
    }

    /// Fills memory with the contents, from word 0 on, and waits.
    pub(super) fn fill(&self, memory: &DeviceMemory) -> Result<(), CudaError> {
        // Allocations end at a multiple of 4 bytes.
        let (mut out, mut first, mut count) = (memory.address(), 0u64, memory.bytes() as u64 / 4);
        let mut parameters = [(&raw mut out).cast(), (&raw mut first).cast(), (&raw mut count).cast()];
        // SAFETY: `fill` takes an address and two numbers, and writes `count` words, which the memory has.
        unsafe { self.launch(self.fill, count, &mut parameters) }?;
        self.stream.synchronize()
    }

    /// Enqueues a gather of rows of 256 or 512 bytes.
    ///
    /// # Safety
    /// `ids` must be the address of `count` ids of rows of the table, which must live until the stream is waited for.
    pub(super) unsafe fn gather(
        &self,
        table: &DeviceMemory,
        row_bytes: u64,
        ids: u64,
        out: &DeviceMemory,
        count: u64,
    ) -> Result<(), CudaError> {
        assert!(count * row_bytes <= out.bytes() as u64, "room for {count} rows of {row_bytes} bytes");
        let function = if row_bytes == 512 { self.gather_512 } else { self.gather_256 };
        let (mut table, mut ids, mut out, mut count) = (table.address(), ids, out.address(), count);
        let threads = count * row_bytes / 16;
        let mut parameters =
            [(&raw mut table).cast(), (&raw mut ids).cast(), (&raw mut out).cast(), (&raw mut count).cast()];
        // SAFETY: a gather takes three addresses and a number; the caller vouches for the ids, and memory waits for the
        // context before it is freed.
        unsafe { self.launch(function, threads, &mut parameters) }
    }

    pub(super) fn copy_on_device(&self, from: &DeviceMemory, to: &DeviceMemory, bytes: usize) -> Result<(), CudaError> {
        assert!(bytes <= from.bytes() && bytes <= to.bytes(), "{bytes} bytes on both sides");
        self.bind()?;
        // SAFETY: both allocations are that long, and wait for the context before they are freed.
        unsafe { result::memcpy_dtod_async(to.address(), from.address(), bytes, self.stream()) }
            .map_err(CudaError::doing("copying on the device"))
    }

    pub(super) fn copy_from_host(&self, from: &PinnedMemory, to: &DeviceMemory, bytes: usize) -> Result<(), CudaError> {
        assert!(bytes <= to.bytes(), "room for {bytes} bytes");
        self.bind()?;
        // SAFETY: the destination is that long; both wait for the context before they are freed.
        unsafe { result::memcpy_htod_async(to.address(), &from.bytes()[..bytes], self.stream()) }
            .map_err(CudaError::doing("copying to the device"))
    }

    /// Waits, then copies the first bytes of memory to the host.
    pub(super) fn download(&self, memory: &DeviceMemory, bytes: usize) -> Result<Vec<u8>, CudaError> {
        self.stream.synchronize()?;
        let mut host = vec![0; bytes.min(memory.bytes())];
        // SAFETY: no longer than the allocation, which nothing writes now.
        unsafe { result::memcpy_dtoh_sync(&mut host, memory.address()) }
            .map_err(CudaError::doing("copying to the host"))?;
        Ok(host)
    }

    /// Times each of `runs` runs between two events; `enqueue` is given the number of the run.
    pub(super) fn time(
        &self,
        runs: usize,
        enqueue: &dyn Fn(usize) -> Result<(), CudaError>,
    ) -> Result<Measurement, CudaError> {
        for run in 0..WARM_UP {
            enqueue(run)?;
        }
        let mut spans = Vec::with_capacity(runs);
        for run in 0..runs {
            let start = Event::record(self.device.context(), self.stream())?;
            enqueue(WARM_UP + run)?;
            spans.push((start, Event::record(self.device.context(), self.stream())?));
        }
        self.stream.synchronize()?;
        let times = spans.iter().map(|(start, end)| start.microseconds_to(end)).collect::<Result<_, _>>()?;
        Ok(summary(times, 1))
    }

    /// The same with a graph of `length` launches; times are per launch.
    pub(super) fn time_graph(
        &self,
        runs: usize,
        length: usize,
        enqueue: &dyn Fn(usize) -> Result<(), CudaError>,
    ) -> Result<Measurement, CudaError> {
        // Kernels are loaded at their first launch, which a capture must not hold.
        enqueue(0)?;
        self.stream.synchronize()?;
        let graph = Graph::capture(self, length, enqueue)?;
        let times = self.time(runs, &|_| graph.launch(self.stream()))?;
        Ok(times.per_launch(length))
    }
}

/// An event that was recorded, destroyed with this value.
struct Event(sys::CUevent);

impl Event {
    fn record(context: &CudaContext, stream: CUstream) -> Result<Event, CudaError> {
        context.bind_to_thread().map_err(CudaError::doing("making the context current"))?;
        let event =
            Event(result::event::create(CUevent_flags::CU_EVENT_DEFAULT).map_err(CudaError::doing("making an event"))?);
        // SAFETY: the event was made just now, the stream is the kit's.
        unsafe { result::event::record(event.0, stream) }.map_err(CudaError::doing("recording an event"))?;
        Ok(event)
    }

    fn microseconds_to(&self, end: &Event) -> Result<f64, CudaError> {
        // SAFETY: both were recorded on one stream, which was waited for.
        let milliseconds =
            unsafe { result::event::elapsed(self.0, end.0) }.map_err(CudaError::doing("reading a time"))?;
        Ok(f64::from(milliseconds) * 1000.0)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made by `record` and destroyed only here. A failure leaks an event, nothing else.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}

/// A graph ready to be launched, destroyed with this value.
struct Graph {
    graph: sys::CUgraph,
    executable: sys::CUgraphExec,
}

impl Graph {
    fn capture(kit: &Kit, length: usize, enqueue: &dyn Fn(usize) -> Result<(), CudaError>) -> Result<Graph, CudaError> {
        let doing = CudaError::doing("capturing a graph");
        kit.bind()?;
        // SAFETY: the kit's stream, which is not capturing; the capture is ended below in any case.
        unsafe {
            result::stream::begin_capture(kit.stream(), CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
        }
        .map_err(&doing)?;
        let enqueued = (0..length).try_for_each(enqueue);
        // SAFETY: the stream is capturing.
        let graph = unsafe { result::stream::end_capture(kit.stream()) }.map_err(&doing);
        enqueued?;
        let mut graph = Graph { graph: graph?, executable: std::ptr::null_mut() };
        // SAFETY: the graph was captured just now.
        graph.executable =
            unsafe { result::graph::instantiate(graph.graph, CUgraphInstantiate_flags(0)) }.map_err(&doing)?;
        Ok(graph)
    }

    fn launch(&self, stream: CUstream) -> Result<(), CudaError> {
        // SAFETY: instantiated by `capture`; its requests live until the stream is waited for.
        unsafe { result::graph::launch(self.executable, stream) }.map_err(CudaError::doing("launching a graph"))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made by `capture` and destroyed only here, after its launches were waited for. A failure leaks them.
        unsafe {
            if !self.executable.is_null() {
                let _ = result::graph::exec_destroy(self.executable);
            }
            let _ = result::graph::destroy(self.graph);
        }
    }
}
