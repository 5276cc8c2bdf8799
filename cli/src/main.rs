//! `condprog`: compresses the hashed n-gram tables of language models, checks the result, and decodes rows from it.
//!
//! Results go to stdout, progress and errors to stderr. Exit status: 0 done, 1 failed, 2 wrong usage, 130 stopped.
#![forbid(unsafe_code)]

mod arguments;
mod backend;
mod baseline;
mod commands;
mod error;
mod ids;
mod measure;
mod npy;
mod number;
mod progress;
mod stop;
mod suites;
mod text;
mod ui;

use std::process::ExitCode;

use arguments::{Arguments, Command};
use clap::Parser;
use error::Error;
use ui::Ui;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (name, ui) = (arguments.command.name(), Ui::new(arguments.json, arguments.quiet));
    match run(&arguments.command, &ui) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Failed) => ExitCode::FAILURE,
        Err(error) => {
            ui.fail(name, &error);
            error.exit_code()
        }
    }
}

/// What became of a command that ran to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// All was as it should be.
    Done,
    /// It found or met a fault, and has said so.
    Failed,
}

fn run(command: &Command, ui: &Ui) -> Result<Outcome, Error> {
    match command {
        Command::Compress(options) => commands::compress::run(options, ui),
        Command::Join(options) => commands::join::run(options, ui),
        Command::Decompress(options) => commands::decompress::run(options, ui),
        Command::Plan(options) => commands::plan::run(options, ui),
        Command::List(options) => commands::list::run(options, ui),
        Command::Inspect(options) => commands::inspect::run(options, ui),
        Command::Verify(options) => commands::verify::run(options, ui),
        Command::Rows(options) => commands::rows::run(options, ui),
        Command::Demo(options) => commands::demo::run(options, ui),
        Command::Bench(options) => commands::bench::run(options, ui),
        Command::Conformance => commands::conformance::run(ui),
        #[cfg(feature = "eval")]
        Command::Eval(options) => commands::eval::run(options, ui),
    }
}
