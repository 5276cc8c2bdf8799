//! `condprog inspect`

use condprog_cpu::Access;
use condprog_table::{SegmentSummary, TableFile, TableSummary, inspect};
use serde_json::json;

use crate::Outcome;
use crate::arguments::Inspect;
use crate::error::Error;
use crate::text::{bytes, columns, count, figure, name, plural};
use crate::ui::Ui;

pub(crate) fn run(arguments: &Inspect, ui: &Ui) -> Result<Outcome, Error> {
    let file = TableFile::open_for(&arguments.table, Access::Sequential)?;
    let tables = inspect(&file);
    let object = json!({ "table": arguments.table, "file_bytes": file.file_bytes(), "tables": tables });
    ui.print("inspect", object, || {
        let head = format!(
            "{}: {}, {}\n",
            arguments.table.display(),
            plural(tables.len() as u64, "table"),
            bytes(file.file_bytes())
        );
        head + &tables.iter().map(table).collect::<String>()
    })?;
    Ok(Outcome::Done)
}

fn table(table: &TableSummary) -> String {
    let line = |name: &str, value: String| format!("  {name:<15}{value}\n");
    let mut text = format!("\n{}\n", name(&table.name));
    let part = if table.rows == table.table_rows {
        String::new()
    } else {
        let last = table.first_row + table.rows - 1;
        format!(" (rows {} to {} of {})", count(table.first_row), count(last), count(table.table_rows))
    };
    text += &line("rows", format!("{}{part} of {} values", count(table.rows), count(table.dim.into())));
    text += &line(
        "bytes per row",
        format!(
            "{} ({} in the source)",
            figure(table.bytes_per_row),
            figure(table.source_bytes as f64 / table.rows as f64)
        ),
    );
    text += &line(
        "size",
        format!(
            "{}, {} in the source as {}: {}x",
            bytes(table.table_bytes),
            bytes(table.source_bytes),
            table.source.dtype,
            figure(table.ratio)
        ),
    );
    text += &line("encoder", format!("effort {}, scale rule {}", table.effort, table.scale_rule));
    text += &line(
        "zero rows",
        format!(
            "{} in the source, {} too small, {} not finite or too large",
            count(table.zero_rows),
            count(table.underflow_rows),
            count(table.non_finite_rows)
        ),
    );
    for part in &table.segments {
        text += &segment(part, table.segments.len() > 1);
    }
    text
}

fn segment(segment: &SegmentSummary, several: bool) -> String {
    let line = |name: &str, value: String| format!("  {name:<15}{value}\n");
    let mut text = String::new();
    if several {
        let last = segment.first_row + segment.rows - 1;
        text += &line(
            "segment",
            format!("rows {} to {}, tensor {:?}", count(segment.first_row), count(last), segment.tensor),
        );
    }
    text += &line("rate", format!("{} bits per value, records of {} bytes", segment.rate, segment.record_bytes));
    text += &line(
        "scales",
        match segment.scales {
            Some(scales) => format!("{} to {}", figure(scales.min), figure(scales.max)),
            None => "none: all rows are zero".into(),
        },
    );
    let used: Vec<_> = (0u64..).zip(segment.variants).filter(|(_, rows)| *rows > 0).collect();
    let coded: u64 = segment.variants.iter().sum();
    let share = |rows: u64| format!("{:.1} %", 100.0 * rows as f64 / coded as f64);
    match used.as_slice() {
        [] => {}
        [(variant, _)] => text += &line("variants", format!("all rows have variant {variant}")),
        _ => {
            let lines: Vec<_> =
                used.iter().map(|(v, rows)| vec![format!("    {v:>2}"), count(*rows), share(*rows)]).collect();
            text += &line("variants", "rows that have each".into());
            text += &columns(&lines);
        }
    }
    text
}
