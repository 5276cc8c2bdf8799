//! Where output goes: results to stdout, as text or as one JSON object; progress and errors to stderr.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use condprog_table::{Stage, Update};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Map, Value, json};

use crate::error::Error;
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

    /// A progress bar on stderr, which shows only on a terminal.
    pub(crate) fn progress(&self) -> Progress {
        let target = if self.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let style = "{msg:>10} [{bar:30}] {human_pos} of {human_len} rows, {per_sec:>}, {eta} left";
        bar.set_style(ProgressStyle::with_template(style).expect("the template is well-formed").progress_chars("=> "));
        Progress { bar, stage: Mutex::new(None) }
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

/// Progress of a job over rows. The bar goes when this is dropped.
pub(crate) struct Progress {
    bar: ProgressBar,
    stage: Mutex<Option<Stage>>,
}

impl Progress {
    /// Takes a step of a job of the table crate.
    pub(crate) fn step(&self, update: &Update<'_>) -> ControlFlow<()> {
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        if *stage != Some(update.stage) {
            *stage = Some(update.stage);
            self.start(
                match update.stage {
                    Stage::Measure => "measuring",
                    Stage::Encode => "encoding",
                    Stage::Join => "joining",
                    Stage::Restore => "restoring",
                    Stage::Check => "checking",
                    Stage::Compare => "comparing",
                },
                update.rows_total,
                update.rows_done,
            );
        }
        self.bar.set_position(update.rows_done);
        ControlFlow::Continue(())
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
