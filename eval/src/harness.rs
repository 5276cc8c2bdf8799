//! Runs over methods, and the CSV files that they leave.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::allocate;
use crate::error::Error;
use crate::language_model::{Divergence, Evaluation, LanguageModel, Tokens, WindowDivergence};
use crate::measure::Measures;
use crate::method::{Allocation, Method, Origin, Subject};
use crate::noise;
use crate::rows::Rows;
use crate::table::{SourceTable, trace_counts, trace_ids};

/// Rows that codebooks and components are fitted on; and of the samples that numbers of a whole table are of.
pub const FIT_ROWS: u64 = 20_000;
/// Seed of the rows to fit on.
const FIT_SEED: u64 = 17;

/// Where the language model, its table and its text are.
#[derive(Clone, Debug)]
pub struct LanguageModelFiles {
    /// Weights.
    pub model: PathBuf,
    /// Held-out windows.
    pub tokens: PathBuf,
    /// The file of the table.
    pub table: PathBuf,
    /// The table's tensor.
    pub tensor: String,
    /// A trace of row ids.
    pub trace: PathBuf,
}

impl LanguageModelFiles {
    /// The files of a folder under their usual names.
    pub fn in_folder(folder: &Path) -> LanguageModelFiles {
        LanguageModelFiles {
            model: folder.join("ngram-lm.safetensors"),
            tokens: folder.join("tokens.safetensors"),
            table: folder.join("engram-fp8.safetensors"),
            tensor: "layers.1.engram.embed.weight".into(),
            trace: folder.join("trace.safetensors"),
        }
    }
}

/// The language model with everything that methods are run on.
pub struct LanguageModelHarness {
    evaluation: Evaluation,
    rows: Rows,
    fit: Rows,
    /// Root mean square and largest magnitude of a sample of the table.
    scale: (f64, f32),
    row_bytes: f64,
    table_rows: u64,
    files: LanguageModelFiles,
}

/// One window under one method: a line of `kl-windows.csv`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowLine {
    /// The method.
    pub method: String,
    /// Bytes per row.
    pub row_bytes: f64,
    /// Mean relative MSE of the rows that the text asks for.
    pub relative_mse: f64,
    /// Domain of the text.
    pub domain: String,
    /// Window in the domain.
    pub window: usize,
    /// KL per token.
    pub kl: f64,
    /// Loss per token with the reference table.
    pub reference_loss: f64,
    /// Loss per token with the method's.
    pub loss: f64,
}

/// One method on the language model.
#[derive(Clone, Debug, PartialEq)]
pub struct MethodDivergence {
    /// The method.
    pub method: String,
    /// Bytes per row.
    pub row_bytes: f64,
    /// Mean relative MSE of the rows that the text asks for.
    pub relative_mse: f64,
    /// What it does to the output.
    pub divergence: Divergence,
}

impl LanguageModelHarness {
    /// Reads the model and so many windows per domain, and runs it with the reference table.
    ///
    /// # Errors
    /// [`Error`] when a file cannot be read or is not what it should be.
    pub fn open(files: LanguageModelFiles, windows: usize) -> Result<LanguageModelHarness, Error> {
        let tokens = Tokens::read(&files.tokens, windows)?;
        let mut table = SourceTable::open(&files.table, &files.tensor)?;
        let ids = tokens.rows();
        let rows = table.read(&ids)?;
        let fit = table.read(&noise::sample_beside(table.len(), &ids, FIT_ROWS, FIT_SEED))?;
        let any = table.read(&noise::sample(table.len(), FIT_ROWS, FIT_SEED))?;
        let evaluation = Evaluation::new(LanguageModel::read(&files.model)?, &tokens, &rows);
        let (row_bytes, table_rows) = (table.row_bytes() as f64, table.len());
        Ok(LanguageModelHarness {
            evaluation,
            rows,
            fit,
            scale: (any.rms(), any.largest()),
            row_bytes,
            table_rows,
            files,
        })
    }

    /// The evaluation itself.
    pub fn evaluation(&self) -> &Evaluation {
        &self.evaluation
    }

    /// Rows that the text asks for.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// What methods may know of the table.
    pub fn origin(&self) -> Origin<'_> {
        let ((rms, largest), table_rows) = (self.scale, Some(self.table_rows));
        Origin { fit: &self.fit, rms, largest, source_bytes: self.row_bytes, table_rows }
    }

    /// Runs methods and appends their windows to a CSV file; methods that the file has already are left out, so that a
    /// run that was cut short goes on. `done` is told of each.
    ///
    /// # Errors
    /// [`Error`] when a method cannot code the rows or the file cannot be written.
    pub fn run(&self, methods: &[Method], csv: &Path, mut done: impl FnMut(&MethodDivergence)) -> Result<(), Error> {
        let had: BTreeSet<String> = match csv.exists() {
            true => read(csv)?.into_iter().map(|found| found.method).collect(),
            false => BTreeSet::new(),
        };
        let mut subject = Subject::new(&self.rows, self.origin());
        for &method in methods.iter().filter(|method| !had.contains(&method.to_string())) {
            if let Method::Allocated { rate, .. } = method {
                subject.allocate(self.allocation(rate)?);
            }
            let restored = subject.restore(method).map_err(|error| error.of_ids(self.evaluation.ids()))?;
            let found = MethodDivergence {
                method: method.to_string(),
                row_bytes: restored.row_bytes,
                relative_mse: Measures::of(&self.rows, &restored.rows, None).relative_mse.mean,
                divergence: self.evaluation.divergence(&restored.rows),
            };
            append(csv, &found)?;
            done(&found);
        }
        Ok(())
    }

    /// Rates for the rows under test, from the trace and the energies of the whole table.
    fn allocation(&self, rate: condprog_core::Rate) -> Result<Allocation, Error> {
        let mut table = SourceTable::open(&self.files.table, &self.files.tensor)?;
        let counts = trace_counts(&trace_ids(&self.files.trace)?, table.len())?;
        let mut weights = Vec::with_capacity(counts.len());
        let all: Vec<u64> = (0..table.len()).collect();
        for ids in all.chunks(1 << 14) {
            let counts: Vec<u32> = ids.iter().map(|id| counts.get(id).copied().unwrap_or(0)).collect();
            weights.extend(allocate::weights(&table.read(ids)?, &counts));
        }
        let found = allocate::rates(&weights, table.dim(), rate)?;
        let rates = self.evaluation.ids().iter().map(|&id| found.rates[id as usize]).collect();
        Ok(Allocation { rates, row_bytes: found.row_bytes })
    }
}

fn append(path: &Path, found: &MethodDivergence) -> Result<(), Error> {
    let header = !path.exists();
    let file = OpenOptions::new().create(true).append(true).open(path).map_err(|source| Error::io(path, source))?;
    let mut out = csv::WriterBuilder::new().has_headers(header).from_writer(file);
    for window in &found.divergence.windows {
        let WindowDivergence { domain, window, kl, reference_loss, loss } = window.clone();
        let (method, row_bytes, relative_mse) = (found.method.clone(), found.row_bytes, found.relative_mse);
        let line = WindowLine { method, row_bytes, relative_mse, domain, window, kl, reference_loss, loss };
        out.serialize(line).map_err(|source| Error::io(path, source))?;
    }
    out.flush().map_err(|source| Error::io(path, source))
}

/// The methods of a `kl-windows.csv`, in its order.
///
/// # Errors
/// [`Error::Io`] when it cannot be read or a line is malformed.
pub fn read(path: &Path) -> Result<Vec<MethodDivergence>, Error> {
    let mut file = csv::Reader::from_path(path).map_err(|source| Error::io(path, source))?;
    let mut found: Vec<MethodDivergence> = Vec::new();
    for line in file.deserialize() {
        let WindowLine { method, row_bytes, relative_mse, domain, window, kl, reference_loss, loss } =
            line.map_err(|source| Error::io(path, source))?;
        let window = WindowDivergence { domain, window, kl, reference_loss, loss };
        match found.last_mut().filter(|last| last.method == method) {
            Some(last) => last.divergence.windows.push(window),
            None => {
                let divergence = Divergence { windows: vec![window] };
                found.push(MethodDivergence { method, row_bytes, relative_mse, divergence });
            }
        }
    }
    Ok(found)
}
