//! `condprog-eval`: what methods cost in quality.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use condprog_eval::harness::{self, LanguageModelFiles, LanguageModelHarness};
use condprog_eval::report::{Folder, Options, Report, Sample, kl_comparisons, kl_lines, write_csv};
use condprog_eval::table::{SourceTable, trace_ids};
use condprog_eval::{Error, Method};
use lexopt::prelude::*;

const USAGE: &str = "\
usage: condprog-eval table FILE --tensor NAME -o FOLDER [--trace FILE] [--kl FILE.csv] [--columns N] [--sample N]
                           [--seed N] [--force]
       condprog-eval gaussian DIM -o FOLDER [--sample N] [--seed N] [--force]
       condprog-eval kl FOLDER -o FILE.csv [--windows N]
       condprog-eval kl-summary FILE.csv -o FOLDER

table       runs every method on a sample of a table's rows: index.html, CSV files and plots in FOLDER
gaussian    the same on standard normal rows of DIM values
kl          runs the language model of FOLDER with every method's rows and appends KL and loss per window to FILE.csv;
            methods that the file has already are left out
kl-summary  means and 95 % intervals of such a file, over all domains and in each, and ratios: kl.csv and
            kl-comparisons.csv in FOLDER

--methods PATTERNS   names or patterns, separated by commas (every method of the catalogue)
--sample N           rows (20000)
--seed N             seed of the sample (1)
--trace FILE         safetensors file with an I32 or I64 tensor of row ids
--columns N          only the first N values of each row
--kl FILE.csv        what kl has written, to be shown with the rest
--windows N          windows per domain (8)
--force              overwrite an earlier report";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => {
            eprintln!("condprog-eval: {message}\n\n{USAGE}");
            ExitCode::from(2)
        }
        Err(Failure::Eval(error)) => {
            eprintln!("condprog-eval: {error}");
            ExitCode::from(1)
        }
    }
}

enum Failure {
    Usage(String),
    Eval(Error),
}

impl From<lexopt::Error> for Failure {
    fn from(error: lexopt::Error) -> Failure {
        Failure::Usage(error.to_string())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Eval(error)
    }
}

fn run() -> Result<(), Failure> {
    let mut parser = lexopt::Parser::from_env();
    let mut values: Vec<String> = Vec::new();
    let (mut out, mut tensor, mut windows, mut force) = (None::<PathBuf>, None::<String>, 8usize, false);
    let mut options = Options::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => {
                println!("{USAGE}");
                return Ok(());
            }
            Short('o') | Long("output") => out = Some(parser.value()?.into()),
            Long("force") => force = true,
            Long("windows") => windows = parser.value()?.parse()?,
            Long("methods") => options.methods = Method::matching(parser.value()?.string()?.split(','))?,
            Long("tensor") => tensor = Some(parser.value()?.string()?),
            Long("sample") => options.sample = parser.value()?.parse()?,
            Long("seed") => options.seed = parser.value()?.parse()?,
            Long("trace") => options.trace = Some(trace_ids(Path::new(&parser.value()?))?),
            Long("columns") => options.columns = Some(parser.value()?.parse()?),
            Long("kl") => options.kl = Some(parser.value()?.into()),
            Value(value) => values.push(value.string()?),
            _ => return Err(argument.unexpected().into()),
        }
    }
    let usage = |message: &str| Failure::Usage(message.into());
    let out = out.ok_or_else(|| usage("no output: expected -o"))?;
    if options.sample == 0 || windows == 0 {
        return Err(usage("--sample and --windows expect at least 1"));
    }
    match values.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["table", file] => {
            let tensor = tensor.ok_or_else(|| usage("no table: expected --tensor"))?;
            let inputs: Vec<&Path> = [Path::new(file)].into_iter().chain(options.kl.as_deref()).collect();
            let folder = Folder::claim(&out, force, &inputs)?;
            report(Sample::of_table(SourceTable::open(Path::new(file), &tensor)?, &options)?, &options, &folder)
        }
        ["gaussian", dim] => {
            let dim: usize = dim.parse().map_err(|_| usage("DIM is no number"))?;
            if dim == 0 {
                return Err(usage("DIM expects at least 1"));
            }
            let folder = Folder::claim(&out, force, &[])?;
            report(Sample::gaussian(options.sample as usize, dim, options.seed), &options, &folder)
        }
        ["kl", folder] => kl(Path::new(folder), &out, windows, &options.methods),
        ["kl-summary", file] => {
            let found = harness::read(Path::new(file))?;
            write_csv(&out.join("kl.csv"), &kl_lines(&found))?;
            Ok(write_csv(&out.join("kl-comparisons.csv"), &kl_comparisons(&found))?)
        }
        _ => Err(usage("expected table, gaussian, kl or kl-summary, and what it takes")),
    }
}

fn report(sample: Sample, options: &Options, folder: &Folder) -> Result<(), Failure> {
    let report = Report::of(sample, options, |step| eprintln!("{}", step.method))?;
    for group in &report.left_out {
        eprintln!("not measured: {}: {}", group.methods.join(", "), group.reason);
    }
    report.write(folder)?;
    Ok(())
}

fn kl(folder: &Path, out: &Path, windows: usize, methods: &[Method]) -> Result<(), Failure> {
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
