//! `condprog compress`

use std::time::Instant;

use condprog_core::Layout;
use condprog_table::format::TableInfo;
use condprog_table::source::{Checkpoint, RowSource, SourceInfo};
use condprog_table::{CompressOptions, Error as TableError, compress};
use serde_json::{Value, json};

use crate::Outcome;
use crate::arguments::Compress;
use crate::error::Error;
use crate::text::{bytes, count, figure, plural, speed};
use crate::ui::{self, Ui};

/// Compresses what can be compressed, and reports what cannot at the end.
pub(crate) fn run(arguments: &Compress, ui: &Ui) -> Result<Outcome, Error> {
    let start = Instant::now();
    let file = Checkpoint::open(&arguments.input)?;
    let (tables, mut left_out) = select(&file, arguments)?;
    if tables.is_empty() {
        if left_out.len() == 1 {
            return Err(left_out.remove(0));
        }
        left_out.iter().for_each(|error| ui.complain(error));
        return Err(Error::NothingLeft(left_out.len()));
    }
    let mut sources: Vec<Box<dyn RowSource>> = Vec::new();
    for table in &tables {
        sources.push(Box::new(file.table(&table.name)?));
    }
    let options = CompressOptions {
        rate: arguments.rate,
        effort: arguments.effort,
        scale: arguments.scale.into(),
        non_finite: arguments.non_finite.into(),
        threads: arguments.threads.count,
        block_rows: arguments.block_rows,
        force: arguments.force.on,
        ..CompressOptions::default()
    };
    let progress = ui.progress();
    let report = compress(&mut sources, &arguments.output, &options, &|update| progress.step(update))?;
    drop(progress);
    let seconds = start.elapsed().as_secs_f64();
    let object = json!({
        "input": arguments.input,
        "output": arguments.output,
        "file_bytes": report.file_bytes,
        "resumed_rows": report.resumed_rows,
        "seconds": seconds,
        "tables": report.tables.iter().map(object).collect::<Vec<_>>(),
        "left_out": left_out.iter().map(ui::describe).collect::<Vec<_>>(),
    });
    ui.print("compress", object, || {
        let mut text = String::new();
        for table in &report.tables {
            text += &line(table);
        }
        let rows: u64 = report.tables.iter().map(|table| table.rows).sum();
        text +=
            &format!("wrote {}, {}, in {} s", arguments.output.display(), bytes(report.file_bytes), figure(seconds));
        if report.resumed_rows > 0 {
            text += &format!("; {} were done before", plural(report.resumed_rows, "row"));
        } else {
            text += &format!(": {} rows/s", speed(rows as f64 / seconds));
        }
        text
    })?;
    left_out.iter().for_each(|error| ui.complain(error));
    Ok(if left_out.is_empty() { Outcome::Done } else { Outcome::Failed })
}

/// The tables that were asked for and can be compressed, and why the others cannot.
fn select(file: &Checkpoint, arguments: &Compress) -> Result<(Vec<SourceInfo>, Vec<Error>), Error> {
    let mut found: Vec<SourceInfo> = Vec::new();
    let mut left_out: Vec<Error> = Vec::new();
    if arguments.tensors.is_empty() {
        found = file.select(&[])?;
    }
    for pattern in &arguments.tensors {
        match file.select(std::slice::from_ref(pattern)) {
            Ok(tables) => {
                for table in tables {
                    if found.iter().all(|other| other.name != table.name) {
                        found.push(table);
                    }
                }
            }
            Err(error) => left_out.push(error.into()),
        }
    }
    let mut tables = Vec::new();
    for table in found {
        match u32::try_from(table.dim).map(|dim| Layout::new(dim, arguments.rate)) {
            Ok(Err(source)) => left_out.push(TableError::Width { tensor: table.name, source }.into()),
            // A width beyond u32 is left for the table crate to refuse.
            _ => tables.push(table),
        }
    }
    Ok((tables, left_out))
}

fn object(table: &TableInfo) -> Value {
    json!({
        "name": table.name,
        "rows": table.rows,
        "dim": table.dim,
        "rate": table.mean_rate(),
        "record_bytes": table.segments[0].record_bytes,
        "source_dtype": table.source.dtype,
        "source_bytes": table.source_bytes(),
        "table_bytes": table.record_bytes(),
        "scale_rule": table.scale_rule,
        "effort": table.effort,
        "zero_rows": table.zero_rows,
        "underflow_rows": table.underflow_rows,
        "non_finite_rows": table.non_finite_rows,
    })
}

fn line(table: &TableInfo) -> String {
    let (source, records) = (table.source_bytes(), table.record_bytes());
    let mut text = format!(
        "{}: {} of {} {} values, {} to {} bytes per row, {} to {} ({}x)\n",
        table.name,
        plural(table.rows, "row"),
        count(table.dim.into()),
        table.source.dtype,
        figure_bytes(source, table.rows),
        figure_bytes(records, table.rows),
        bytes(source),
        bytes(records),
        figure(source as f64 / records as f64),
    );
    let zeros = [
        (table.zero_rows, "zero in the source"),
        (table.underflow_rows, "too small for the smallest scale, now zero"),
        (table.non_finite_rows, "not finite or too large, now zero"),
    ];
    for (rows, what) in zeros.into_iter().filter(|(rows, _)| *rows > 0) {
        text += &format!("  {}: {what}\n", plural(rows, "row"));
    }
    text
}

fn figure_bytes(bytes: u64, rows: u64) -> String {
    if bytes.is_multiple_of(rows) { count(bytes / rows) } else { figure(bytes as f64 / rows as f64) }
}
