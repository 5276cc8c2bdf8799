//! `condprog eval`

use std::path::PathBuf;
use std::time::Instant;

use condprog_checkpoint::{Checkpoint, RowSource as _};
use condprog_eval::Method;
use condprog_eval::report::{Folder, MethodLine, Options, PAGE, Report, Sample};
use condprog_table::source::SourceInfo;
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
    let inputs = [Some(&arguments.input), arguments.trace.as_ref()].into_iter().flatten().map(PathBuf::as_path);
    let folder = Folder::claim(&arguments.output, arguments.force.on, &inputs.collect::<Vec<_>>())?;
    let mut options = Options { sample: arguments.sample.get(), seed: arguments.seed, ..Options::default() };
    if !arguments.methods.is_empty() {
        options.methods = Method::matching(arguments.methods.iter().map(String::as_str))?;
    }
    options.trace = arguments.trace.as_deref().map(ids::read).transpose()?.map(|trace| trace.ids);
    let checkpoint = Checkpoint::open(&arguments.input)?;
    let table = checkpoint.rows(choose(&checkpoint, arguments)?)?;
    let name = table.info().name.clone();
    let threads = arguments.threads.count.map_or(0, usize::from);
    let report = ThreadPoolBuilder::new().num_threads(threads).build()?.install(|| {
        let sample = Sample::of_table(table.into(), &options)?;
        let progress = ui.progress();
        Report::of(sample, &options, |step| progress.advance("measuring", step.rows_total, step.rows_done))
    })?;
    let files = report.write(&folder)?;
    let seconds = start.elapsed().as_secs_f64();
    let object = json!({
        "input": path_text(&arguments.input),
        "tensor": name,
        "files": files.iter().map(path_text).collect::<Vec<_>>(),
        "seconds": seconds,
        "methods": report.methods,
        "left_out": report.left_out,
        "comparisons": report.comparisons,
    });
    ui.print("eval", object, || {
        let rows = report.methods.iter().map(|line| line.rows).max().unwrap_or(0);
        let left_out = report.left_out.iter();
        let left_out = left_out.map(|group| format!("not measured: {}: {}\n", group.methods.join(", "), group.reason));
        summary(&report.methods)
            + &left_out.collect::<String>()
            + &format!(
                "wrote {} and {} more files: {} methods on up to {} rows, in {} s",
                folder.path().join(PAGE).display(),
                files.len() - 1,
                report.methods.len(),
                count(rows as u64),
                figure(seconds)
            )
    })?;
    Ok(Outcome::Done)
}

/// The table that is meant.
fn choose(checkpoint: &Checkpoint, arguments: &Eval) -> Result<SourceInfo, Error> {
    let scale = arguments.scale_tensor.as_deref();
    if let Some((table, pattern)) = &arguments.join_tensors {
        return Ok(checkpoint.join_matching(table, pattern, scale)?);
    }
    if let Some(name) = arguments.tensor.as_ref().filter(|name| checkpoint.names().any(|tensor| tensor == *name)) {
        return Ok(checkpoint.join(name, std::slice::from_ref(name), scale)?);
    }
    let mut tables = match checkpoint.family()? {
        Some(family) => checkpoint.family_tables(family)?.into_iter().map(|(_, info)| info).collect(),
        None if arguments.tensor.is_some() => Vec::new(),
        None => checkpoint.select(&[])?,
    };
    let names = tables.iter().map(|table| format!("{:?}", table.name)).collect::<Vec<_>>().join(", ");
    match &arguments.tensor {
        Some(name) => match tables.iter().position(|table| table.name == *name) {
            Some(place) => Ok(tables.swap_remove(place)),
            // Says that there is no such tensor.
            None => Ok(checkpoint.info(name)?),
        },
        None if tables.len() == 1 => Ok(tables.remove(0)),
        None => {
            let (path, count) = (checkpoint.path().display(), tables.len());
            Err(Error::Usage(format!("{path} has {count} tables, expected --tensor with one of {names}")))
        }
    }
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
