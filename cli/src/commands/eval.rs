//! `condprog eval`

use std::time::Instant;

use condprog_eval::Method;
use condprog_eval::report::{MethodLine, Options, PAGE, Report, Sample};
use condprog_table::Error as TableError;
use rayon::ThreadPoolBuilder;
use serde_json::json;

use crate::Outcome;
use crate::arguments::Eval;
use crate::error::Error;
use crate::ids;
use crate::text::{columns, count, figure, path_text};
use crate::ui::Ui;

/// Methods that the summary shows, where they were run: about 2 bits, then what is larger. The report has all.
const SHOWN: [&str; 12] = [
    "rtn-2-asym-range",
    "rtn-2-sym-clip",
    "hyb-2-norm",
    "cp-2-e0-norm",
    "cp-2-e0-projection",
    "cp-2-e4-norm",
    "cp-2.5-e0-norm",
    "cp-3-e0-norm",
    "rtn-3-asym-range",
    "mxfp4",
    "nvfp4",
    "cp-4-e0-norm",
];

pub(crate) fn run(arguments: &Eval, ui: &Ui) -> Result<Outcome, Error> {
    let start = Instant::now();
    let page = arguments.output.join(PAGE);
    if page.exists() && !arguments.force.on {
        return Err(TableError::OutputExists { path: page }.into());
    }
    let mut options = Options { sample: arguments.sample.get(), seed: arguments.seed, ..Options::default() };
    if !arguments.methods.is_empty() {
        options.methods = Method::matching(arguments.methods.iter().map(String::as_str))?;
    }
    options.trace = arguments.trace.as_deref().map(ids::read).transpose()?.map(|trace| trace.ids);
    let threads = arguments.threads.count.map_or(0, usize::from);
    let report = ThreadPoolBuilder::new().num_threads(threads).build()?.install(|| {
        let sample = Sample::of_table(&arguments.input, &arguments.tensor, &options)?;
        let progress = ui.progress();
        Report::of(sample, &options, |step| progress.advance("measuring", step.rows_total, step.rows_done))
    })?;
    let files = report.write(&arguments.output)?;
    let seconds = start.elapsed().as_secs_f64();
    let object = json!({
        "input": path_text(&arguments.input),
        "tensor": arguments.tensor,
        "files": files.iter().map(path_text).collect::<Vec<_>>(),
        "seconds": seconds,
        "methods": report.methods,
        "comparisons": report.comparisons,
    });
    ui.print("eval", object, || {
        let rows = report.methods.iter().map(|line| line.rows).max().unwrap_or(0);
        summary(&report.methods)
            + &format!(
                "wrote {} and {} more files: {} methods on up to {} rows, in {} s",
                page.display(),
                files.len() - 1,
                report.methods.len(),
                count(rows as u64),
                figure(seconds)
            )
    })?;
    Ok(Outcome::Done)
}

fn summary(methods: &[MethodLine]) -> String {
    let cells = |cells: [&str; 6]| cells.map(String::from).to_vec();
    let mut lines = vec![cells(["method", "bytes per row", "relative MSE", "99 %", "worst", "rows"])];
    for line in SHOWN.iter().filter_map(|name| methods.iter().find(|line| line.method == *name)) {
        let mut cells = vec![line.method.clone(), figure(line.row_bytes)];
        cells.extend([line.relative_mse, line.p99, line.worst].map(figure));
        cells.push(count(line.rows as u64));
        lines.push(cells);
    }
    if lines.len() > 1 { columns(&lines) } else { String::new() }
}
