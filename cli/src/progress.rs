//! How far a job over rows is: a bar on a terminal, lines in a log.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use condprog_convert::{Stage, Update};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::stop;
use crate::text::{count, duration, rate};

/// Time between lines. A stage that takes less has none.
const EVERY: Duration = Duration::from_secs(30);
/// The environment variable with another time, in seconds. Tests of what is printed must not depend on how fast the
/// machine is.
const EVERY_VARIABLE: &str = "CONDPROG_PROGRESS_SECONDS";

/// Progress of a job over rows. The bar goes when this is dropped.
pub(crate) struct Progress {
    bar: ProgressBar,
    stage: Mutex<Option<&'static str>>,
    start: Instant,
    /// Where there is no terminal.
    log: Option<Mutex<Log>>,
}

impl Progress {
    pub(crate) fn new(quiet: bool) -> Progress {
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let style =
            ProgressStyle::with_template("{msg:>10} [{bar:30}] {human_pos} of {human_len} rows, {rate}, {left} left")
                .expect("the template is well-formed")
                .with_key("rate", |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                    // A bar has no way to fail.
                    let _ = out.write_str(&rate(state.per_sec()));
                })
                .with_key("left", |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                    let _ = out.write_str(&duration(state.eta()));
                });
        bar.set_style(style.progress_chars("=> "));
        let every = std::env::var(EVERY_VARIABLE).ok().and_then(|seconds| seconds.parse().ok());
        let every = every.map_or(EVERY, Duration::from_secs);
        let log = (!quiet && bar.is_hidden()).then(|| Mutex::new(Log::new(every)));
        Progress { bar, stage: Mutex::new(None), start: Instant::now(), log }
    }

    /// The bar, to print beside it.
    pub(crate) fn bar(&self) -> &ProgressBar {
        &self.bar
    }

    /// Takes a step of a job of the table crate. Stops it when the user has asked for that.
    pub(crate) fn step(&self, update: &Update<'_>) -> ControlFlow<()> {
        let what = match update.stage {
            Stage::Measure => "measuring",
            Stage::Encode => "encoding",
            Stage::Join => "joining",
            Stage::Restore => "restoring",
            Stage::Check => "checking",
            Stage::Compare => "comparing",
        };
        self.advance(what, update.rows_total, update.rows_done);
        if stop::is_asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Takes a step of a stage, and starts it where it is another than before.
    pub(crate) fn advance(&self, what: &'static str, total: u64, done: u64) {
        let before = self.stage.lock().unwrap_or_else(PoisonError::into_inner).replace(what);
        if before != Some(what) {
            self.start(what, total, done);
        }
        self.bar.set_position(done);
        if let Some(log) = &self.log {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(line) = log.step(self.start.elapsed(), what, total, done) {
                // A log that cannot be written to must not end the job.
                let _ = writeln!(io::stderr(), "{line}");
            }
        }
    }

    /// Starts a stage.
    pub(crate) fn start(&self, what: &'static str, total: u64, done: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done);
        self.bar.reset_eta();
        self.bar.set_message(what);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Which steps are worth a line.
struct Log {
    every: Duration,
    stage: Option<LoggedStage>,
    /// When the last step was, of whatever stage. The first step of a stage comes when its first rows are done, and by
    /// then it has taken the time since.
    last_step: Duration,
}

struct LoggedStage {
    what: &'static str,
    start: Duration,
    last_line: Duration,
    /// Time and rows done at the first step: the rows before it may have been done by an earlier run.
    first: (Duration, u64),
}

impl Log {
    fn new(every: Duration) -> Log {
        Log { every, stage: None, last_step: Duration::ZERO }
    }

    /// The line for a step, if it is time for one: some time after the last, or at the end of a stage that took so long.
    fn step(&mut self, now: Duration, what: &'static str, total: u64, done: u64) -> Option<String> {
        let start = std::mem::replace(&mut self.last_step, now);
        let same = self.stage.take().filter(|stage| stage.what == what);
        let stage =
            self.stage.insert(same.unwrap_or(LoggedStage { what, start, last_line: start, first: (now, done) }));
        let since = |then: Duration| now.saturating_sub(then);
        let ends = done >= total;
        if since(if ends { stage.start } else { stage.last_line }) < self.every {
            return None;
        }
        stage.last_line = now;
        // Rounded down: 100 % is for what is done.
        let tenths = (u128::from(done) * 1000).checked_div(total.into()).unwrap_or(1000);
        let mut line = format!("{what}: {} of {} rows ({}.{} %)", count(done), count(total), tenths / 10, tenths % 10);
        let (first_step, first_done) = stage.first;
        let speed = done.saturating_sub(first_done) as f64 / since(first_step).as_secs_f64();
        let is_known = speed.is_finite() && speed > 0.0;
        if is_known {
            line += &format!(", {}", rate(speed));
        }
        if ends {
            line += &format!(", took {}", duration(since(stage.start)));
        } else if is_known {
            let left = Duration::try_from_secs_f64((total - done) as f64 / speed).unwrap_or(Duration::MAX);
            line += &format!(", {} left", duration(left));
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of steps `(seconds, stage, rows of 1000 done)`.
    fn lines(every: u64, steps: &[(u64, &'static str, u64)]) -> Vec<String> {
        let mut log = Log::new(Duration::from_secs(every));
        steps
            .iter()
            .filter_map(|&(at, what, done)| {
                log.step(Duration::from_secs(at), what, 1000, done).map(|line| format!("{at} s: {line}"))
            })
            .collect()
    }

    #[test]
    fn a_log_has_a_line_for_every_interval_and_for_the_end_of_a_stage() {
        let steps: Vec<_> = (1..=100).map(|step| (step, "encoding", step * 10)).collect();
        assert_eq!(
            lines(30, &steps),
            [
                "30 s: encoding: 300 of 1,000 rows (30.0 %), 10 rows/s, 1 min 10 s left",
                "60 s: encoding: 600 of 1,000 rows (60.0 %), 10 rows/s, 40 s left",
                "90 s: encoding: 900 of 1,000 rows (90.0 %), 10 rows/s, 10 s left",
                "100 s: encoding: 1,000 of 1,000 rows (100.0 %), 10 rows/s, took 1 min 40 s",
            ]
        );
        // The interval is counted from the last line, not from the start.
        let slow = lines(30, &[(20, "checking", 1), (50, "checking", 31), (75, "checking", 56), (85, "checking", 66)]);
        assert_eq!(slow.iter().map(|line| &line[..2]).collect::<Vec<_>>(), ["50", "85"]);
        // One step that takes long is a stage's whole line.
        assert_eq!(lines(30, &[(40, "joining", 1000)]), ["40 s: joining: 1,000 of 1,000 rows (100.0 %), took 40 s"]);
    }

    #[test]
    fn what_takes_less_than_the_interval_is_not_worth_a_line() {
        let steps = [(10, "measuring", 500), (20, "measuring", 1000), (35, "encoding", 500), (49, "encoding", 1000)];
        assert_eq!(lines(30, &steps), [""; 0]);
        assert_eq!(lines(0, &steps).len(), 4);
    }

    #[test]
    fn rows_of_an_earlier_run_make_no_rate() {
        let resumed = lines(30, &[(1, "encoding", 900), (31, "encoding", 930), (32, "encoding", 931)]);
        assert_eq!(resumed, ["31 s: encoding: 930 of 1,000 rows (93.0 %), 1.00 rows/s, 1 min 10 s left"]);
        // Nothing but the first step is known, or nothing went on since.
        let stuck = lines(30, &[(40, "encoding", 900), (80, "encoding", 900)]);
        assert_eq!(stuck, ["40 s: encoding: 900 of 1,000 rows (90.0 %)", "80 s: encoding: 900 of 1,000 rows (90.0 %)"]);
        // Nearly all is not all.
        let mut log = Log::new(Duration::ZERO);
        assert_eq!(
            log.step(Duration::ZERO, "checking", u64::MAX, u64::MAX - 1).unwrap().split('(').nth(1),
            Some("99.9 %)")
        );
        assert!(log.step(Duration::ZERO, "checking", 0, 0).unwrap().contains("(100.0 %)"));
    }
}
