//! `condprog-eval`: what methods cost in quality.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use condprog_eval::harness::{self, LanguageModelFiles, LanguageModelHarness};
use condprog_eval::report::{Folder, Options, Report, Sample, kl_comparisons, kl_lines, write_csv};
use condprog_eval::table::{SourceTable, trace_ids};
use condprog_eval::{Error, Method};

/// What methods cost in quality: tables of figures for docs/results.md
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run every method on a sample of a table's rows: index.html, CSV files and plots in a folder
    Table {
        /// A safetensors file
        file: PathBuf,
        /// The table
        #[arg(long, value_name = "NAME")]
        tensor: String,
        /// A safetensors file with an I32 or I64 tensor of row ids
        #[arg(long, value_name = "FILE")]
        trace: Option<PathBuf>,
        /// Only the first N values of each row
        #[arg(long, value_name = "N")]
        columns: Option<NonZeroUsize>,
        /// What kl has written, to be shown with the rest
        #[arg(long, value_name = "FILE.csv")]
        kl: Option<PathBuf>,
        #[command(flatten)]
        rows: Rows,
    },
    /// The same on standard normal rows
    Gaussian {
        /// Values per row
        dim: NonZeroUsize,
        #[command(flatten)]
        rows: Rows,
    },
    /// Run a language model with every method's rows, and append KL and loss per window to a file; methods that it has
    /// already are left out
    Kl {
        /// The folder of the model
        folder: PathBuf,
        /// The file
        #[arg(short, long, value_name = "FILE.csv")]
        output: PathBuf,
        /// Windows per domain
        #[arg(long, value_name = "N", default_value = "8")]
        windows: NonZeroUsize,
        #[command(flatten)]
        methods: Methods,
    },
    /// Means and 95 % intervals of such a file, over all domains and in each, and ratios: kl.csv and kl-comparisons.csv
    KlSummary {
        /// What kl has written
        file: PathBuf,
        /// Where they go
        #[arg(short, long, value_name = "FOLDER")]
        output: PathBuf,
    },
}

#[derive(Debug, Args)]
struct Rows {
    /// Where the report goes
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
    /// Rows of the sample
    #[arg(long, value_name = "N", default_value = "20000")]
    sample: NonZeroUsize,
    /// Seed of the sample
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Overwrite an earlier report
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    methods: Methods,
}

#[derive(Debug, Args)]
struct Methods {
    /// Names or patterns; without them, every method of the catalogue
    #[arg(long, value_name = "PATTERN,...", value_delimiter = ',')]
    methods: Vec<String>,
}

impl Methods {
    fn list(&self) -> Result<Vec<Method>, Error> {
        match self.methods.as_slice() {
            [] => Ok(Options::default().methods),
            patterns => Method::matching(patterns.iter().map(String::as_str)),
        }
    }
}

impl Rows {
    fn options(&self) -> Result<Options, Error> {
        let (methods, sample) = (self.methods.list()?, self.sample.get() as u64);
        Ok(Options { methods, sample, seed: self.seed, ..Options::default() })
    }
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("condprog-eval: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), Error> {
    match command {
        Command::Table { file, tensor, trace, columns, kl, rows } => {
            let trace = trace.map(|path| trace_ids(&path)).transpose()?;
            let options = Options { trace, columns: columns.map(NonZeroUsize::get), kl, ..rows.options()? };
            let inputs: Vec<&Path> = [file.as_path()].into_iter().chain(options.kl.as_deref()).collect();
            let folder = Folder::claim(&rows.output, rows.force, &inputs)?;
            report(Sample::of_table(SourceTable::open(&file, &tensor)?, &options)?, &options, &folder)
        }
        Command::Gaussian { dim, rows } => {
            let options = rows.options()?;
            let folder = Folder::claim(&rows.output, rows.force, &[])?;
            report(Sample::gaussian(options.sample as usize, dim.get(), options.seed), &options, &folder)
        }
        Command::Kl { folder, output, windows, methods } => kl(&folder, &output, windows.get(), &methods.list()?),
        Command::KlSummary { file, output } => {
            let found = harness::read(&file)?;
            write_csv(&output.join("kl.csv"), &kl_lines(&found))?;
            write_csv(&output.join("kl-comparisons.csv"), &kl_comparisons(&found))
        }
    }
}

fn report(sample: Sample, options: &Options, folder: &Folder) -> Result<(), Error> {
    let report = Report::of(sample, options, |step| eprintln!("{}", step.method))?;
    for group in &report.left_out {
        eprintln!("not measured: {}: {}", group.methods.join(", "), group.reason);
    }
    report.write(folder)?;
    Ok(())
}

fn kl(folder: &Path, out: &Path, windows: usize, methods: &[Method]) -> Result<(), Error> {
    let harness = LanguageModelHarness::open(LanguageModelFiles::in_folder(folder), windows)?;
    eprintln!("{} rows", harness.rows().len());
    harness.run(methods, out, |found| {
        let (kl, loss) = (found.divergence.kl(), found.divergence.loss_change());
        println!(
            "{:32} {:7.2} bytes  relative MSE {:.5}  KL {:.6} +- {:.6}  loss {:+.5} +- {:.5}",
            found.method, found.row_bytes, found.relative_mse, kl.mean, kl.half, loss.mean, loss.half
        );
    })?;
    Ok(())
}
