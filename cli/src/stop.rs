//! Ctrl-C, and what asks a process to end: a job stops at the end of its block, and the second time at once.

use std::sync::atomic::{AtomicU8, Ordering};

use indicatif::ProgressBar;

/// Exit status of what was stopped: 128 and the number of SIGINT, as shells have it.
pub(crate) const STATUS: u8 = 130;

/// No job is running: the process ends at once.
const IDLE: u8 = 0;
/// A job is running, which can be stopped between two blocks.
const RUNNING: u8 = 1;
/// It has been asked to.
const ASKED: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(IDLE);

/// Whether the user wants the job to stop.
pub(crate) fn is_asked() -> bool {
    STATE.load(Ordering::Relaxed) == ASKED
}

/// As long as this lives, the first Ctrl-C asks for a stop; other ones end the process.
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

/// Waits for signals, for the rest of the process. Where it cannot, they end the process, as they do by default.
///
/// SIGHUP is left alone: `nohup` sets it to be ignored.
#[cfg(unix)]
fn listen(bar: ProgressBar) {
    use std::sync::Once;
    use std::{process, thread};

    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;

    static ONCE: Once = Once::new();
    let wait = move || {
        let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else { return };
        for _ in signals.forever() {
            if STATE.compare_exchange(RUNNING, ASKED, Ordering::Relaxed, Ordering::Relaxed).is_err() {
                process::exit(STATUS.into());
            }
            bar.suspend(|| eprint!("stopping at the end of this block; Ctrl-C once more stops at once\n"));
        }
    };
    ONCE.call_once(|| {
        // Without the thread nothing has changed.
        let _ = thread::Builder::new().name("signals".into()).spawn(wait);
    });
}

#[cfg(not(unix))]
fn listen(_: ProgressBar) {}
