//! Ctrl-C and other requests to end: the first stops a job after its current step, the second at once.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU8, Ordering};

use indicatif::ProgressBar;

/// Exit status of a stopped job: 128 plus the number of SIGINT, as in shells.
pub(crate) const STATUS: u8 = 130;

/// No job is running: the process ends at once.
const IDLE: u8 = 0;
/// A job is running, which can be stopped between two steps.
const RUNNING: u8 = 1;
/// The job has been asked to stop.
const ASKED: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(IDLE);

/// Whether the user wants the job to stop.
pub(crate) fn is_asked() -> bool {
    STATE.load(Ordering::Relaxed) == ASKED
}

/// While this lives, the first Ctrl-C asks for a stop; further ones end the process.
pub(crate) struct Watch(());

impl Watch {
    /// Messages go beside the bar.
    pub(crate) fn new(bar: &ProgressBar) -> Watch {
        STATE.store(RUNNING, Ordering::Relaxed);
        listen(bar.clone());
        Watch(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // What was asked for stays so.
        let _ = STATE.compare_exchange(RUNNING, IDLE, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Waits for signals in a thread of its own, for the rest of the process. Where it cannot, they end the process, as they
/// do by default.
///
/// SIGHUP is left alone: `nohup` sets it to be ignored.
#[cfg(unix)]
fn listen(bar: ProgressBar) {
    use std::sync::{Once, mpsc};
    use std::{process, thread};

    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;

    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let (ready, listens) = mpsc::channel::<()>();
        let wait = move || {
            let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else { return };
            drop(ready);
            for _ in signals.forever() {
                if STATE.compare_exchange(RUNNING, ASKED, Ordering::Relaxed, Ordering::Relaxed).is_err() {
                    process::exit(STATUS.into());
                }
                // Stderr may be closed.
                let message = "stopping after this step; press Ctrl-C again to stop at once";
                let _ = bar.suspend(|| writeln!(io::stderr(), "{message}"));
            }
        };
        let spawned = thread::Builder::new().name("signals".into()).spawn(wait);
        // The other end goes when the thread listens, or when it does not come to that.
        if spawned.is_ok() {
            let _ = listens.recv();
        }
    });
}

#[cfg(not(unix))]
fn listen(_: ProgressBar) {}
