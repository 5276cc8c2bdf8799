//! The report on a table: every method on a sample of its rows, as a page, CSV files and plots.

mod page;
mod plot;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use condprog_core::Rate;

use crate::error::Error;
use crate::harness::{self, FIT_ROWS, MethodDivergence};
use crate::interval::{Interval, Ratio};
use crate::measure::{Gaussianity, Measures, row_errors};
use crate::method::{Method, Rule, Subject};
use crate::noise;
use crate::rows::{Rows, energy};
use crate::table::{SourceTable, trace_counts};

/// Name of the page in a report's folder.
pub const PAGE: &str = "index.html";

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
    /// Bytes per row.
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

/// The sample of a table, or rows that stand for one.
pub struct Sample {
    /// What the report is about.
    pub title: String,
    /// What it was made from: facts for the head of the page, name and value.
    pub facts: Vec<(String, String)>,
    /// The rows, in the order in which parts of the sample are taken.
    pub rows: Rows,
    /// Their ids.
    pub ids: Vec<u64>,
    /// Rows to fit on.
    pub fit: Rows,
    /// Bytes per row in the source.
    pub source_bytes: f64,
    /// How often the trace asks for each row.
    pub weights: Option<Vec<f64>>,
}

impl Sample {
    /// A seeded sample of a table, in random order, and other rows to fit on.
    ///
    /// # Errors
    /// [`Error`] when the table cannot be read, has values that are not finite, or the trace names none of its rows.
    pub fn of_table(path: &Path, tensor: &str, options: &Options) -> Result<Sample, Error> {
        let mut table = SourceTable::open(path, tensor)?;
        let mut ids = noise::sample(table.len(), options.sample, options.seed);
        let read = read_finite(&mut table, &ids)?;
        // A part of the sample must be a sample too.
        let mut order: Vec<usize> = (0..ids.len()).collect();
        let mut random = noise::Noise::new(options.seed ^ 0x0bde);
        for i in (1..order.len()).rev() {
            order.swap(i, random.below(i as u64 + 1) as usize);
        }
        let mut rows = read.select(&order);
        ids = order.iter().map(|&i| ids[i]).collect();
        let fit_ids = noise::sample(table.len(), FIT_ROWS, options.seed.wrapping_add(1));
        let mut fit = read_finite(&mut table, &fit_ids)?;
        let mut facts = vec![
            ("Table".into(), format!("{} rows of {} values, {}", table.len(), table.dim(), table.dtype())),
            ("Source size".into(), format!("{} bytes per row", table.row_bytes())),
            ("Sample".into(), format!("{} rows, seed {}", rows.len(), options.seed)),
        ];
        let mut source_bytes = table.row_bytes() as f64;
        if let Some(columns) = options.columns {
            if columns == 0 || columns > table.dim() {
                return Err(Error::Columns { got: columns, dim: table.dim() });
            }
            (rows, fit) = (rows.narrowed(columns), fit.narrowed(columns));
            source_bytes *= columns as f64 / table.dim() as f64;
            facts.push(("Columns".into(), format!("only the first {columns} values of each row")));
        }
        let counts = options.trace.as_deref().map(|trace| trace_counts(trace, table.len())).transpose()?;
        let weight = |counts: &HashMap<u64, u32>, id: &u64| f64::from(counts.get(id).copied().unwrap_or(0));
        let weights: Option<Vec<f64>> = counts.map(|counts| ids.iter().map(|id| weight(&counts, id)).collect());
        if let Some(weights) = &weights {
            let hit = weights.iter().filter(|&&weight| weight > 0.0).count();
            let all: f64 = weights.iter().sum();
            facts.push(("Trace".into(), format!("asks {all:.0} times for {hit} of the sampled rows")));
        }
        Ok(Sample { title: tensor.into(), facts, rows, ids, fit, source_bytes, weights })
    }

    /// Rows of zeros have no relative error and no direction: they are taken out, and counted among the facts.
    fn without_zero_rows(mut self) -> Result<Sample, Error> {
        let (all, kept) = (self.rows.len(), self.rows.nonzero());
        if kept.is_empty() {
            return Err(Error::AllZero { rows: all });
        }
        if kept.len() < all {
            self.rows = self.rows.select(&kept);
            self.ids = kept.iter().map(|&row| self.ids[row]).collect();
            self.weights = self.weights.map(|weights| kept.iter().map(|&row| weights[row]).collect());
            self.facts.push(("Rows of zeros".into(), format!("{} of the sample, left out", all - kept.len())));
        }
        self.fit = self.fit.select(&self.fit.nonzero());
        if self.fit.is_empty() {
            self.fit = self.rows.clone();
        }
        Ok(self)
    }

    /// Standard normal rows, stored as binary32.
    pub fn gaussian(rows: usize, dim: usize, seed: u64) -> Sample {
        let fit = Rows::gaussian(FIT_ROWS as usize, dim, seed.wrapping_add(1));
        Sample {
            title: format!("Gaussian rows of {dim} values"),
            facts: vec![("Sample".into(), format!("{rows} standard normal rows, seed {seed}"))],
            rows: Rows::gaussian(rows, dim, seed),
            ids: (0..rows as u64).collect(),
            fit,
            source_bytes: 4.0 * dim as f64,
            weights: None,
        }
    }
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
    /// Runs the methods on a sample. Methods that the row width rules out are left out. `progress` hears of each
    /// method before it starts.
    ///
    /// # Errors
    /// [`Error`] when all rows are zero or cannot be coded, the width rules out every method, or the KL file cannot be
    /// read.
    pub fn of(sample: Sample, options: &Options, mut progress: impl FnMut(Step)) -> Result<Report, Error> {
        let sample = sample.without_zero_rows()?;
        let dim = sample.rows.dim();
        let kl = options.kl.as_deref().map(harness::read).transpose()?.unwrap_or_default();
        // Subjects by number of rows: methods with the same part of the sample share what they code.
        let mut sizes: Vec<usize> = options.methods.iter().map(|method| part(*method, sample.rows.len())).collect();
        let (mut rows_done, rows_total) = (0, sizes.iter().map(|&size| size as u64).sum());
        sizes.extend([sample.rows.len(), part(Method::cp(Rate::TWO, 4, Rule::Norm), sample.rows.len())]);
        sizes.sort_unstable();
        sizes.dedup();
        let heads: Vec<Rows> = sizes.iter().map(|&size| sample.rows.head(size)).collect();
        let mut subjects: Vec<_> =
            heads.iter().map(|rows| Subject::new(rows, &sample.fit, sample.source_bytes)).collect();
        let place = |size: usize| sizes.binary_search(&size).expect("a size of the list");
        let (mut methods, mut errors, mut ruled_out) = (Vec::new(), Vec::new(), None);
        for &method in &options.methods {
            progress(Step { method, rows_done, rows_total });
            let size = part(method, sample.rows.len());
            rows_done += size as u64;
            let subject = &mut subjects[place(size)];
            let restored = match subject.restore(method) {
                Err(error @ (Error::Layout(_) | Error::Need { .. })) => {
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
        let slow = place(part(Method::cp(Rate::TWO, 4, Rule::Norm), sample.rows.len()));
        let was_run = |method: Method| methods.iter().any(|line: &MethodLine| line.method == method.to_string());
        if was_run(Method::cp(Rate::TWO, 0, Rule::Norm)) {
            let found = subjects[all].scales(Rate::TWO, 0)?;
            scales = found.iter().filter(|scale| !scale.is_zero()).map(|scale| libm::log2(scale.alpha())).collect();
        }
        if was_run(Method::cp(Rate::TWO, 4, Rule::Norm)) {
            for scale in subjects[slow].scales(Rate::TWO, 4)? {
                variants[usize::from(scale.variant())] += usize::from(!scale.is_zero());
            }
        }
        drop(subjects);
        let gaussianity = Gaussianity::of(&sample.rows.head(20_000));
        let comparisons = compare(&methods, &errors);
        Ok(Report { sample, gaussianity, methods, comparisons, errors, scales, variants, kl })
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
    /// `kl-comparisons.csv`, and the plots as SVG and PNG into a folder, which is made when it is not there.
    ///
    /// Gives the paths of all files, the page first.
    ///
    /// # Errors
    /// [`Error::Io`] when something cannot be written.
    pub fn write(&self, folder: &Path) -> Result<Vec<PathBuf>, Error> {
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
        std::fs::create_dir_all(folder).map_err(|source| Error::io(folder, source))?;
        let write = |(name, bytes): (String, Vec<u8>)| {
            let path = folder.join(name);
            std::fs::write(&path, bytes).map_err(|source| Error::io(&path, source))?;
            Ok(path)
        };
        files.into_iter().map(write).collect()
    }
}

/// Rows of a table, all of whose values must be finite.
fn read_finite(table: &mut SourceTable, ids: &[u64]) -> Result<Rows, Error> {
    let rows = table.read(ids)?;
    match rows.values().iter().position(|value| !value.is_finite()) {
        Some(at) => {
            let (row, column, value) = (ids[at / rows.dim()], at % rows.dim(), rows.values()[at]);
            Err(Error::NotFinite { row, column, value })
        }
        None => Ok(rows),
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

/// Writes lines as CSV.
///
/// # Errors
/// [`Error::Io`] when the file cannot be written.
pub fn write_csv<T: Serialize>(path: &Path, lines: &[T]) -> Result<(), Error> {
    std::fs::write(path, csv_bytes(lines)).map_err(|source| Error::io(path, source))
}

fn csv_bytes<T: Serialize>(lines: &[T]) -> Vec<u8> {
    let mut out = csv::Writer::from_writer(Vec::new());
    for line in lines {
        out.serialize(line).expect("lines are flat, and memory takes all that is written");
    }
    out.into_inner().expect("memory takes all that is written")
}
