//! A device and its queue, and the handling of what the driver reports.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};

use futures_channel::oneshot;

use crate::error::Error;

/// A device and its queue.
pub(crate) struct Device {
    pub(crate) raw: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    faults: Arc<Faults>,
    buffers: AtomicU64,
    poller: OnceLock<mpsc::Sender<Poll>>,
}

/// What the driver reported outside of a call.
#[derive(Default)]
struct Faults {
    /// Whether the driver's reports go to the device's owner and not here.
    elsewhere: bool,
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

impl Device {
    /// A device opened here: what it reports outside of calls is taken down.
    pub(crate) fn new(raw: wgpu::Device, queue: wgpu::Queue) -> Device {
        let device = Device::with_faults(raw, queue, Faults::default());
        let seen = Arc::clone(&device.faults);
        device.raw.on_uncaptured_error(Arc::new(move |error| {
            lock(&seen.uncaptured).get_or_insert_with(|| refusal("an earlier call", error));
        }));
        let seen = Arc::clone(&device.faults);
        device.raw.set_device_lost_callback(move |reason, message| {
            // The first reason counts.
            let _ = seen.lost.set(format!("{reason:?}: {message}"));
        });
        device
    }

    /// A device of the caller, whose handlers stay.
    pub(crate) fn of_caller(raw: wgpu::Device, queue: wgpu::Queue) -> Device {
        Device::with_faults(raw, queue, Faults { elsewhere: true, ..Faults::default() })
    }

    fn with_faults(raw: wgpu::Device, queue: wgpu::Queue, faults: Faults) -> Device {
        Device { raw, queue, faults: Arc::new(faults), buffers: AtomicU64::new(0), poller: OnceLock::new() }
    }

    /// Every later use is an [`Error::DeviceLost`] for this reason, unless there was one before.
    pub(crate) fn lose(&self, reason: String) {
        let _ = self.faults.lost.set(reason);
    }

    /// Buffers made so far.
    pub(crate) fn buffers(&self) -> u64 {
        self.buffers.load(Ordering::Relaxed)
    }

    /// Makes a buffer and counts it. Errors go to the scope of the caller's [`Device::guarded`].
    pub(crate) fn buffer(&self, usage: wgpu::BufferUsages, size: usize, mapped: bool) -> wgpu::Buffer {
        self.buffers.fetch_add(1, Ordering::Relaxed);
        let descriptor = wgpu::BufferDescriptor { label: None, size: size as u64, usage, mapped_at_creation: mapped };
        self.raw.create_buffer(&descriptor)
    }

    /// Runs calls that the driver may refuse, and gives what it reports.
    pub(crate) fn guarded<T>(&self, what: &'static str, calls: impl FnOnce() -> T) -> Result<T, Error> {
        guarded(&self.raw, &self.faults, what, calls)
    }

    /// The error of a mapping that the driver did not grant.
    pub(crate) fn unmapped(&self, what: &'static str) -> Error {
        self.faults.refusal(what, "buffer was not mapped".to_owned())
    }

    /// Waits until a submission is done and its callbacks have been called or are being called.
    pub(crate) async fn finish(&self, index: wgpu::SubmissionIndex, wait: Wait) -> Result<(), Error> {
        match wait {
            Wait::Here => poll(&self.raw, &self.faults, index),
            Wait::Aside => {
                let (sender, done) = oneshot::channel();
                let poller = self.poller.get_or_init(|| {
                    let (sender, polls) = mpsc::channel::<Poll>();
                    let (device, faults) = (self.raw.clone(), Arc::clone(&self.faults));
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
    /// The error of a call that was refused though it was right.
    fn refusal(&self, what: &'static str, message: String) -> Error {
        match self.check() {
            Err(error) => error,
            Ok(()) if !self.elsewhere => Error::Refused { what, message },
            // That the device is lost was said to its owner. Here it shows in that nothing goes through any more.
            Ok(()) => Error::DeviceLost { reason: format!("{what}: {message}") },
        }
    }

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
        Ok(Err(error)) => Err(faults.refusal(WHAT, error.to_string())),
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
}
