//! The report on a table: every method on a sample of its rows, as a page, CSV files and plots.

mod folder;
mod page;
mod plot;
mod sample;

use std::path::{Path, PathBuf};

use condprog_core::Rate;
use condprog_core::encoder::ScaleRule;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::harness::{self, MethodDivergence};
use crate::interval::{Interval, Ratio};
use crate::measure::{Gaussianity, Measures, row_errors};
use crate::method::{Method, Subject};
use crate::rows::{Rows, energy};

pub use folder::{Folder, PAGE};
pub use sample::Sample;

/// The fewest rows that a slow method is run on, where the sample has them.
const LEAST_ROWS: usize = 512;

/// What is evaluated, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Methods; [`Method::catalogue`] is usual.
    pub methods: Vec<Method>,
    /// Rows to sample. A method that is slow takes only the first part of the sample, and says how many rows.
    pub sample: u64,
    /// Seed of the sample.
    pub seed: u64,
    /// Row ids, to weigh rows by how often they are asked for.
    pub trace: Option<Vec<i64>>,
    /// Only the first so many values of each row.
    pub columns: Option<usize>,
    /// A CSV file of the language-model harness, to be shown with the rest.
    pub kl: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options { methods: Method::catalogue(), sample: 20_000, seed: 1, trace: None, columns: None, kl: None }
    }
}

/// One method on a sample: a line of `methods.csv`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MethodLine {
    /// The method.
    pub method: String,
    /// Bytes per row, its share of `shared_bytes` among the rows of the table included.
    pub row_bytes: f64,
    /// Bits per value: those bytes over the row's values.
    pub bits: f64,
    /// Bytes of codebooks and the like, once per table.
    pub shared_bytes: u64,
    /// Rows measured.
    pub rows: usize,
    /// Mean relative MSE.
    pub relative_mse: f64,
    /// Half of its 95 % interval.
    pub half: f64,
    /// Median.
    pub median: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Worst.
    pub worst: f64,
    /// Row id of the worst row.
    pub worst_row: u64,
    /// Mean relative MSE weighted by the trace.
    pub traced_mse: f64,
    /// Mean cosine.
    pub cosine: f64,
    /// Mean cosine weighted by the trace.
    pub traced_cosine: f64,
    /// Mean norm ratio.
    pub norm_ratio: f64,
    /// Mean norm ratio weighted by the trace.
    pub traced_norm_ratio: f64,
    /// Slope of random readouts.
    pub readout_slope: f64,
    /// Relative error of random readouts.
    pub readout_error: f64,
    /// Relative error of random readouts weighted by the trace.
    pub traced_readout_error: f64,
}

/// Mean relative MSE of one method over that of another on the same rows, a line of `comparisons.csv`; or mean KL on the
/// same windows, a line of `kl-comparisons.csv`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparisonLine {
    /// The method.
    pub method: String,
    /// What it is compared with.
    pub baseline: String,
    /// Rows, or windows, that both were run on.
    pub rows: usize,
    /// Error over error; below 1, the method is better.
    pub ratio: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// A row that suffers most from a method: a line of `worst-rows.csv`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorstLine {
    /// The method.
    pub method: String,
    /// Id of the row.
    pub row: u64,
    /// Its relative MSE.
    pub relative_mse: f64,
    /// Its length.
    pub norm: f64,
    /// Its largest magnitude, in root mean squares of the row: large where a few values carry the row.
    pub peak: f64,
}

/// Methods whose worst rows are reported.
const WORST_OF: [&str; 2] = ["cp-2-e0-norm", "cp-2-e4-norm"];
/// How many rows of each.
const WORST_ROWS: usize = 20;

/// Methods that could not be measured on a sample.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Their names.
    pub methods: Vec<String>,
    /// Why.
    pub reason: String,
}

/// A method is about to be run.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The method.
    pub method: Method,
    /// Rows of all methods before it.
    pub rows_done: u64,
    /// Rows of all methods.
    pub rows_total: u64,
}

/// What was found.
pub struct Report {
    sample: Sample,
    gaussianity: Gaussianity,
    /// A line per method.
    pub methods: Vec<MethodLine>,
    /// The methods that were asked for and have no line.
    pub left_out: Vec<LeftOut>,
    /// CP against the paper's code at the same bytes.
    pub comparisons: Vec<ComparisonLine>,
    /// Relative MSE of each row, per method.
    errors: Vec<Vec<f64>>,
    /// Base-2 logarithms of the scales at 2 bits, effort 0.
    scales: Vec<f64>,
    /// How many rows chose each of the sixteen variants at 2 bits, effort 4.
    variants: Vec<usize>,
    kl: Vec<MethodDivergence>,
}

impl Report {
    /// Runs the methods on a sample. Methods that the row width rules out, or that have too few rows to be fitted on, are
    /// left out, and the report says so. `progress` hears of each method before it starts.
    ///
    /// # Errors
    /// [`Error`] when all rows are zero or cannot be coded, every method is ruled out, or the KL file cannot be read.
    pub fn of(sample: Sample, options: &Options, mut progress: impl FnMut(Step)) -> Result<Report, Error> {
        let sample = sample.without_zero_rows()?;
        let dim = sample.rows.dim();
        let kl = options.kl.as_deref().map(harness::read).transpose()?.unwrap_or_default();
        // Subjects by number of rows: methods with the same part of the sample share what they code.
        let mut sizes: Vec<usize> = options.methods.iter().map(|method| part(*method, sample.rows.len())).collect();
        let (mut rows_done, rows_total) = (0, sizes.iter().map(|&size| size as u64).sum());
        sizes.extend([sample.rows.len(), part(Method::cp(Rate::TWO, 4, ScaleRule::Norm), sample.rows.len())]);
        sizes.sort_unstable();
        sizes.dedup();
        let heads: Vec<Rows> = sizes.iter().map(|&size| sample.rows.head(size)).collect();
        let mut subjects: Vec<_> = heads.iter().map(|rows| Subject::new(rows, sample.origin())).collect();
        let place = |size: usize| sizes.binary_search(&size).expect("a size of the list");
        let (mut methods, mut errors) = (Vec::new(), Vec::new());
        let (mut left_out, mut ruled_out) = (Vec::new(), None);
        for &method in &options.methods {
            progress(Step { method, rows_done, rows_total });
            let size = part(method, sample.rows.len());
            rows_done += size as u64;
            let subject = &mut subjects[place(size)];
            let restored = match subject.restore(method) {
                Err(error @ (Error::Layout(_) | Error::Need { .. })) => {
                    leave_out(&mut left_out, method, &error);
                    ruled_out.get_or_insert(error);
                    continue;
                }
                other => other.map_err(|error| error.of_ids(&sample.ids))?,
            };
            let rows = subject.rows();
            let weights = sample.weights.as_ref().map(|weights| &weights[..rows.len()]);
            let found = Measures::of(rows, &restored.rows, weights);
            methods.push(MethodLine {
                method: method.to_string(),
                row_bytes: restored.row_bytes,
                bits: restored.row_bytes * 8.0 / dim as f64,
                shared_bytes: restored.shared_bytes,
                rows: found.rows,
                relative_mse: found.relative_mse.mean,
                half: found.relative_mse.half,
                median: found.median,
                p99: found.p99,
                worst: found.worst,
                worst_row: sample.ids[found.worst_row],
                traced_mse: found.traced_mse,
                cosine: found.cosine,
                traced_cosine: found.traced_cosine,
                norm_ratio: found.norm_ratio,
                traced_norm_ratio: found.traced_norm_ratio,
                readout_slope: found.readout_slope,
                readout_error: found.readout_error,
                traced_readout_error: found.traced_readout_error,
            });
            let of_row = |error: Option<crate::measure::RowError>| error.map_or(0.0, |error| error.relative_mse);
            errors.push(row_errors(rows, &restored.rows).into_iter().map(of_row).collect());
        }
        if let (true, Some(error)) = (methods.is_empty(), ruled_out) {
            return Err(error);
        }
        let (mut scales, mut variants) = (Vec::new(), vec![0; 16]);
        let all = place(sample.rows.len());
        let slow = place(part(Method::cp(Rate::TWO, 4, ScaleRule::Norm), sample.rows.len()));
        let was_run = |method: Method| methods.iter().any(|line: &MethodLine| line.method == method.to_string());
        if was_run(Method::cp(Rate::TWO, 0, ScaleRule::Norm)) {
            let found = subjects[all].scales(Rate::TWO, 0)?;
            scales = found.iter().filter(|scale| !scale.is_zero()).map(|scale| libm::log2(scale.alpha())).collect();
        }
        if was_run(Method::cp(Rate::TWO, 4, ScaleRule::Norm)) {
            for scale in subjects[slow].scales(Rate::TWO, 4)? {
                variants[usize::from(scale.variant())] += usize::from(!scale.is_zero());
            }
        }
        drop(subjects);
        let gaussianity = Gaussianity::of(&sample.rows.head(20_000));
        let comparisons = compare(&methods, &errors);
        Ok(Report { sample, gaussianity, methods, left_out, comparisons, errors, scales, variants, kl })
    }

    /// The rows of the sample that suffer most under CP at 2 bits, worst first.
    pub fn worst_rows(&self) -> Vec<WorstLine> {
        let mut lines = Vec::new();
        for method in WORST_OF {
            let Some(index) = self.methods.iter().position(|line| line.method == method) else { continue };
            let errors = &self.errors[index];
            let mut order: Vec<usize> = (0..errors.len()).collect();
            order.sort_by(|&a, &b| errors[b].total_cmp(&errors[a]).then(a.cmp(&b)));
            lines.extend(order.into_iter().take(WORST_ROWS).filter(|&row| errors[row] > 0.0).map(|row| {
                let values = self.sample.rows.row(row);
                let norm = energy(values).sqrt();
                let largest = values.iter().fold(0.0, |largest, &value| f64::from(value).abs().max(largest));
                let peak = largest * (values.len() as f64).sqrt() / norm;
                WorstLine { method: method.into(), row: self.sample.ids[row], relative_mse: errors[row], norm, peak }
            }));
        }
        lines
    }

    /// Writes `index.html`, `methods.csv`, `comparisons.csv`, `worst-rows.csv`, with a KL file `kl.csv` and
    /// `kl-comparisons.csv`, and the plots as SVG and PNG into a folder, which is made when it is not there. Each file is
    /// there whole or not at all.
    ///
    /// Gives the paths of all files, the page first.
    ///
    /// # Errors
    /// As [`Folder::claim`], where files have come since; [`Error::Io`] when something cannot be written.
    pub fn write(&self, folder: &Folder) -> Result<Vec<PathBuf>, Error> {
        let plots = plot::all(self);
        let mut files = vec![
            (PAGE.into(), page::page(self, &plots).into_bytes()),
            ("methods.csv".into(), csv_bytes(&self.methods)),
            ("comparisons.csv".into(), csv_bytes(&self.comparisons)),
            ("worst-rows.csv".into(), csv_bytes(&self.worst_rows())),
        ];
        if !self.kl.is_empty() {
            files.push(("kl.csv".into(), csv_bytes(&kl_lines(&self.kl))));
            files.push(("kl-comparisons.csv".into(), csv_bytes(&kl_comparisons(&self.kl))));
        }
        for plot in plots {
            files.push((format!("{}.svg", plot.name), plot.svg.into_bytes()));
            files.push((format!("{}.png", plot.name), plot.png));
        }
        folder.write(&files)
    }
}

/// Adds a method to those that are left out, beside others with the same reason.
fn leave_out(left_out: &mut Vec<LeftOut>, method: Method, error: &Error) {
    let reason = match error {
        Error::Need { need, .. } => format!("needs {need}"),
        other => other.to_string(),
    };
    match left_out.iter_mut().find(|other| other.reason == reason) {
        Some(other) => other.methods.push(method.to_string()),
        None => left_out.push(LeftOut { methods: vec![method.to_string()], reason }),
    }
}

/// Rows of the sample that a method is run on.
fn part(method: Method, rows: usize) -> usize {
    (rows / method.cost()).max(LEAST_ROWS).min(rows)
}

/// CP at efforts 0 and 4 against the paper's code at each rate that all were run at.
fn compare(methods: &[MethodLine], errors: &[Vec<f64>]) -> Vec<ComparisonLine> {
    let mut lines = Vec::new();
    for rate in ["1", "1.5", "2", "2.5", "3", "4"] {
        let find = |name: String| methods.iter().position(|line| line.method == name);
        let Some(baseline) = find(format!("hyb-{rate}-norm")) else { continue };
        for effort in [0, 4] {
            let Some(method) = find(format!("cp-{rate}-e{effort}-norm")) else { continue };
            let pairs: Vec<_> = errors[method].iter().copied().zip(errors[baseline].iter().copied()).collect();
            let rows = pairs.len();
            let Ratio { ratio, low, high } = Ratio::of(&[pairs], 1);
            let (method, baseline) = (methods[method].method.clone(), methods[baseline].method.clone());
            lines.push(ComparisonLine { method, baseline, rows, ratio, low, high });
        }
    }
    lines
}

/// One method on the language model over all domains, or in one: a line of `kl.csv`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KlLine {
    /// The method.
    pub method: String,
    /// Bytes per row.
    pub row_bytes: f64,
    /// Mean relative MSE of the rows that the text asks for.
    pub relative_mse: f64,
    /// The domain, or `all`.
    pub domain: String,
    /// Mean KL per token, in nats.
    pub kl: f64,
    /// Half of its 95 % interval.
    pub kl_half: f64,
    /// Change of the mean loss per token.
    pub loss_change: f64,
    /// Half of its 95 % interval.
    pub loss_half: f64,
}

/// The lines of `kl.csv`: per method, all domains together and each alone.
pub fn kl_lines(methods: &[MethodDivergence]) -> Vec<KlLine> {
    let mut lines = Vec::new();
    for found in methods {
        let line = |domain: &str, kl: Interval, loss: Interval| KlLine {
            method: found.method.clone(),
            row_bytes: found.row_bytes,
            relative_mse: found.relative_mse,
            domain: domain.into(),
            kl: kl.mean,
            kl_half: kl.half,
            loss_change: loss.mean,
            loss_half: loss.half,
        };
        lines.push(line("all", found.divergence.kl(), found.divergence.loss_change()));
        lines.extend(found.divergence.per_domain().into_iter().map(|(domain, kl, loss)| line(domain, kl, loss)));
    }
    lines
}

/// What is compared by KL: a method and what it stands against.
const KL_PAIRS: [(&str, &str); 41] = [
    ("cp-1-e0-projection", "cp-1-e0-norm"),
    ("cp-1.5-e0-projection", "cp-1.5-e0-norm"),
    ("cp-2-e0-projection", "cp-2-e0-norm"),
    ("cp-2.5-e0-projection", "cp-2.5-e0-norm"),
    ("cp-3-e0-projection", "cp-3-e0-norm"),
    ("cp-4-e0-projection", "cp-4-e0-norm"),
    ("cp-1-e0-least-squares", "cp-1-e0-norm"),
    ("cp-1.5-e0-least-squares", "cp-1.5-e0-norm"),
    ("cp-2-e0-least-squares", "cp-2-e0-norm"),
    ("cp-2.5-e0-least-squares", "cp-2.5-e0-norm"),
    ("cp-3-e0-least-squares", "cp-3-e0-norm"),
    ("cp-2-e0-global", "cp-2-e0-norm"),
    ("cp-2-e0-least-squares", "hyb-2-least-squares"),
    ("cp-2-e0-norm", "hyb-2-norm"),
    ("cp-2-e0-projection", "hyb-2-projection"),
    ("cp-2-e0-norm", "rtn-2-sym-range"),
    ("cp-2-e0-norm", "rtn-2-asym-range"),
    ("cp-2-e0-norm", "rtn-2-sym-clip"),
    ("cp-2-e0-projection", "rtn-2-asym-range"),
    ("hyb-2-norm", "rtn-2-asym-range"),
    ("cp-2-e0-norm", "qtip-2"),
    ("cp-2-e0-projection", "qtip-2"),
    ("hyb-2-norm", "qtip-2"),
    ("hyb-2-least-squares", "qtip-2"),
    ("cp-2.5-e0-norm", "rtn-3-asym-range"),
    ("cp-2.5-e0-projection", "rtn-3-asym-range"),
    ("cp-2.5-e0-projection", "rtn-3-asym-clip"),
    ("cp-3-e0-projection", "rtn-3-asym-clip"),
    ("cp-3-e0-projection", "rtn-4-asym-range"),
    ("cp-4-e0-projection", "rtn-4-asym-range"),
    ("cp-3-e0-norm", "mxfp4"),
    ("cp-3-e0-projection", "mxfp4-search"),
    ("cp-3-e0-projection", "nvfp4"),
    ("cp-4-e0-projection", "nvfp4"),
    ("cp-4-e0-projection", "nvfp4-search"),
    ("cp-2-e1-projection", "cp-2-e0-projection"),
    ("cp-2-e2-projection", "cp-2-e0-projection"),
    ("cp-2-e3-projection", "cp-2-e0-projection"),
    ("cp-2-e4-projection", "cp-2-e0-projection"),
    ("cp-2-e4-norm", "cp-2-e0-norm"),
    ("cp-2-e0-projection-by-frequency", "cp-2-e0-projection"),
];

/// KL of methods over that of others on the same windows, for each of a list of pairs of which both are there; and of
/// every other gain of the search over the format's own.
pub fn kl_comparisons(methods: &[MethodDivergence]) -> Vec<ComparisonLine> {
    let find = |name: &str| methods.iter().find(|found| found.method == name);
    let gains = methods.iter().filter_map(|found| Some((&*found.method, found.method.split_once("-gain")?.0)));
    let pairs = KL_PAIRS.into_iter().chain(gains);
    let pairs = pairs.filter_map(|(method, baseline)| Some((find(method)?, find(baseline)?)));
    pairs
        .map(|(method, baseline)| {
            let Ratio { ratio, low, high } = method.divergence.ratio(&baseline.divergence);
            let rows = method.divergence.windows.len();
            let (method, baseline) = (method.method.clone(), baseline.method.clone());
            ComparisonLine { method, baseline, rows, ratio, low, high }
        })
        .collect()
}

/// Writes lines as CSV, whole or not at all, in the place of what is there.
///
/// # Errors
/// [`Error::Io`] when the file cannot be written.
pub fn write_csv<T: Serialize>(path: &Path, lines: &[T]) -> Result<(), Error> {
    folder::replace(path, &csv_bytes(lines))
}

fn csv_bytes<T: Serialize>(lines: &[T]) -> Vec<u8> {
    let mut out = csv::Writer::from_writer(Vec::new());
    for line in lines {
        out.serialize(line).expect("lines are flat, and memory takes all that is written");
    }
    out.into_inner().expect("memory takes all that is written")
}
