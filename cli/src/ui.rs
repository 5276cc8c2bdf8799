//! Where output goes: results to stdout, as text or as one JSON object; progress and errors to stderr.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use crate::error::{Again, Error};
use crate::progress::Progress;
use crate::stop::Watch;
use crate::text::{harmless, message};

/// Version of the form of `--json`: changes when keys change their meaning or go.
const SCHEMA: u32 = 1;

/// How to talk to the user.
pub(crate) struct Ui {
    json: bool,
    quiet: bool,
}

impl Ui {
    pub(crate) fn new(json: bool, quiet: bool) -> Ui {
        Ui { json, quiet }
    }

    /// Whether results are JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Prints a result: the text, or the object with the schema and the name of the command before its own keys.
    pub(crate) fn print(&self, command: &str, object: Value, text: impl FnOnce() -> String) -> Result<(), Error> {
        let text = if self.json { envelope(command, object).to_string() } else { harmless(&text()) };
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{}", text.trim_end()).and_then(|()| stdout.flush()).map_err(Error::Stdout)
    }

    /// Says why a command failed.
    pub(crate) fn fail(&self, command: &str, error: &Error) {
        if let Error::Stdout(source) = error
            && source.kind() == io::ErrorKind::BrokenPipe
        {
            return;
        }
        self.complain(error);
        let object = json!({ "error": describe(error) });
        if self.json {
            // Nothing is left to tell it to.
            let _ = writeln!(io::stdout(), "{}", envelope(command, object));
        }
    }

    /// Says on stderr what went wrong, without ending the command.
    pub(crate) fn complain(&self, error: &Error) {
        let message = message(error);
        let mut stderr = io::stderr().lock();
        let _ = writeln!(stderr, "error: {message}");
        if let Some(hint) = error.hint() {
            let _ = writeln!(stderr, "hint: {hint}");
        }
    }

    /// Says on stderr what the user should know though nothing is wrong.
    pub(crate) fn note(&self, note: &str) {
        if !self.quiet {
            let _ = writeln!(io::stderr().lock(), "note: {}", message(&note));
        }
    }

    /// Progress on stderr.
    pub(crate) fn progress(&self) -> Progress {
        Progress::new(self.quiet)
    }

    /// Runs a job of the table crate, with progress. Ctrl-C stops it between two steps.
    pub(crate) fn job<T>(
        &self,
        again: Again,
        job: impl FnOnce(&condprog_convert::Progress<'_>) -> Result<T, condprog_convert::Error>,
    ) -> Result<T, Error> {
        let progress = self.progress();
        let _watch = Watch::new(progress.bar());
        job(&|update| progress.step(update)).map_err(|error| match error {
            condprog_convert::Error::Cancelled => Error::Stopped(again),
            error => error.into(),
        })
    }
}

fn envelope(command: &str, object: Value) -> Value {
    let mut all = Map::new();
    all.insert("schema".into(), SCHEMA.into());
    all.insert("command".into(), command.into());
    match object {
        Value::Object(keys) => all.extend(keys),
        other => unreachable!("results are objects, not {other}"),
    }
    Value::Object(all)
}

/// An error as JSON.
pub(crate) fn describe(error: &Error) -> Value {
    json!({ "code": error.code(), "message": message(error), "hint": error.hint() })
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{self, Command, Stdio};
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use condprog_convert::{Stage, Update};

    use super::*;

    #[test]
    fn a_job_stops_at_the_first_step_after_a_signal() {
        let (start, mut steps) = (Instant::now(), 0);
        let stopped = Ui::new(false, true).job(Again::Restarts, |progress| {
            let step = || progress(&Update { stage: Stage::Check, table: "t", rows_done: 1, rows_total: 2 });
            assert!(step().is_continue());
            assert!(Command::new("kill").args(["-TERM", &process::id().to_string()]).status().unwrap().success());
            while step().is_continue() {
                assert!(start.elapsed() < Duration::from_secs(60), "the signal does not arrive");
                steps += 1;
                sleep(Duration::from_millis(1));
            }
            Err::<(), _>(condprog_convert::Error::Cancelled)
        });
        let error = stopped.unwrap_err();
        assert_eq!(
            (error.code(), error.to_string().as_str()),
            ("cancelled", "stopped before the end"),
            "{steps} steps"
        );
        assert_eq!(error.hint(), Some("the same command starts over: nothing is kept"));
    }
    #[test]
    #[ignore = "a job without an end, for the next test to stop"]
    fn a_job_that_makes_no_step() {
        let stopped = Ui::new(false, true).job(Again::Restarts, |_| {
            println!("\nit runs");
            // If nobody stops it.
            sleep(Duration::from_secs(120));
            Ok(())
        });
        assert!(stopped.is_err(), "nobody has stopped it");
    }

    #[test]
    fn the_second_signal_ends_a_job_that_makes_no_step() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "ui::tests::a_job_that_makes_no_step", "--ignored", "--nocapture"]);
        let mut job = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(job.stdout.take().unwrap()).lines();
        let mut stderr = BufReader::new(job.stderr.take().unwrap()).lines();
        let signal = || {
            assert!(Command::new("kill").args(["-INT", &job.id().to_string()]).status().unwrap().success());
        };
        assert!(stdout.any(|line| line.unwrap() == "it runs"));
        signal();
        let says = "stopping after this step; press Ctrl-C again to stop at once";
        assert!(stderr.any(|line| line.unwrap() == says));
        signal();
        assert_eq!(job.wait().unwrap().code(), Some(130));
    }
}
