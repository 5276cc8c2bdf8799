//! Where output goes: results to stdout, as text or as one JSON object; progress and errors to stderr.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use crate::error::{Again, Error};
use crate::progress::Progress;
use crate::stop::Watch;

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
        let text = if self.json { envelope(command, object).to_string() } else { text() };
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
        let mut stderr = io::stderr().lock();
        let _ = writeln!(stderr, "error: {error}");
        if let Some(hint) = error.hint() {
            let _ = writeln!(stderr, "hint: {hint}");
        }
    }

    /// Progress on stderr.
    pub(crate) fn progress(&self) -> Progress {
        Progress::new(self.quiet)
    }

    /// Runs a job of the table crate, with progress. Ctrl-C stops it between two blocks.
    pub(crate) fn job<T>(
        &self,
        again: Again,
        job: impl FnOnce(&condprog_table::Progress<'_>) -> Result<T, condprog_table::Error>,
    ) -> Result<T, Error> {
        let progress = self.progress();
        let _watch = Watch::new(progress.bar());
        job(&|update| progress.step(update)).map_err(|error| match error {
            condprog_table::Error::Cancelled => Error::Stopped(again),
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
    json!({ "code": error.code(), "message": error.to_string(), "hint": error.hint() })
}
