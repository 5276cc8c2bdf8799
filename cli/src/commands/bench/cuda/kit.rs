//! Timing for the CUDA benchmark: runs between events, and graphs of many launches.

use std::sync::Arc;

use condprog_cuda::Device;
use condprog_cuda::cudarc::driver::sys::{CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode};
use condprog_cuda::cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError};

use super::report::{Measurement, summary};
use crate::backend::cuda_error;
use crate::error::Error;

/// Runs before the timed ones.
const WARM_UP: usize = 5;

/// Enqueues a run; it is given the number of the run.
pub(super) type Enqueue<'a> = dyn FnMut(usize) -> Result<(), Error> + 'a;

/// For `map_err`: what the driver was asked to do when it answered so.
pub(super) fn doing(doing: &'static str) -> impl Fn(DriverError) -> Error {
    move |error| Error::Backend { backend: "cuda".into(), message: format!("{doing}: the driver says {:?}", error.0) }
}

/// The stream that everything is put on.
///
/// It is the thread's default stream and the only one: with a second one, cudarc would order the uses of each slice by
/// events, which a capture cannot wait for.
pub(super) struct Kit {
    context: Arc<CudaContext>,
    pub(super) stream: Arc<CudaStream>,
}

impl Kit {
    pub(super) fn new(device: &Device) -> Result<Kit, Error> {
        let context = device.cudarc_context().map_err(cuda_error)?;
        Ok(Kit { stream: context.per_thread_stream(), context })
    }

    /// Waits until the device has nothing left to do, and what was freed is free.
    pub(super) fn settle(&self) -> Result<(), Error> {
        self.context.synchronize().map_err(doing("waiting for the device"))
    }

    /// Times each of `runs` runs between two events.
    pub(super) fn time(&self, runs: usize, enqueue: &mut Enqueue<'_>) -> Result<Measurement, Error> {
        for run in 0..WARM_UP {
            enqueue(run)?;
        }
        let event = || {
            let timed = Some(CUevent_flags::CU_EVENT_DEFAULT);
            self.stream.record_event(timed).map_err(doing("recording an event"))
        };
        let mut spans = Vec::with_capacity(runs);
        for run in 0..runs {
            let start = event()?;
            enqueue(WARM_UP + run)?;
            spans.push((start, event()?));
        }
        self.settle()?;
        let microseconds = |(start, end): &(CudaEvent, CudaEvent)| -> Result<f64, Error> {
            Ok(f64::from(start.elapsed_ms(end).map_err(doing("reading a time"))?) * 1000.0)
        };
        Ok(summary(spans.iter().map(microseconds).collect::<Result<_, _>>()?, 1))
    }

    /// The same with a graph of `length` launches; times are per launch.
    pub(super) fn time_graph(
        &self,
        runs: usize,
        length: usize,
        enqueue: &mut Enqueue<'_>,
    ) -> Result<Measurement, Error> {
        let capturing = || doing("capturing a graph");
        // Kernels are loaded at their first launch, which a capture must not hold.
        enqueue(0)?;
        self.settle()?;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.stream.begin_capture(mode).map_err(capturing())?;
        let enqueued = (0..length).try_for_each(enqueue);
        // In any case, for a stream that goes on capturing is of no more use.
        let graph = self.stream.end_capture(CUgraphInstantiate_flags(0)).map_err(capturing());
        enqueued?;
        let nothing = || Error::Backend { backend: "cuda".into(), message: "capturing a graph: it is empty".into() };
        let graph = graph?.ok_or_else(nothing)?;
        let times = self.time(runs, &mut |_| graph.launch().map_err(doing("launching a graph")))?;
        Ok(times.per_launch(length))
    }
}
