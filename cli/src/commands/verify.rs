//! `condprog verify`

use condprog_cpu::Access;
use condprog_table::source::Checkpoint;
use condprog_table::{TableFile, VerifyOptions, VerifyTable, verify};
use serde_json::{Value, json};

use crate::Outcome;
use crate::arguments::Verify;
use crate::error::Error;
use crate::text::{bytes, count, figure, name, one_or_all, plural};
use crate::ui::Ui;

pub(crate) fn run(arguments: &Verify, ui: &Ui) -> Result<Outcome, Error> {
    let file = TableFile::open_for(&arguments.table, Access::Sequential)?;
    let against = &arguments.against;
    let source = if against.is_empty() { None } else { Some(Checkpoint::open_all(against)?) };
    let options = VerifyOptions { threads: arguments.threads.count };
    let progress = ui.progress();
    let report = verify(&file, source.as_ref(), &options, &|update| progress.step(update))?;
    drop(progress);
    let whole = report.is_whole();
    let object = json!({
        "table": arguments.table,
        "against": if against.is_empty() { Value::Null } else { one_or_all(against) },
        "whole": whole,
        "tables": report.tables,
    });
    ui.print("verify", object, || {
        let verdict = if whole { "sound" } else { "DAMAGED" };
        report.tables.iter().map(table).collect::<String>() + &format!("{}: {verdict}", arguments.table.display())
    })?;
    Ok(if whole { Outcome::Done } else { Outcome::Failed })
}

fn table(table: &VerifyTable) -> String {
    let line = |name: &str, value: String| format!("  {name:<15}{value}\n");
    let mut text = format!(
        "{}: {} of {} values at {} bits\n",
        name(&table.name),
        plural(table.rows, "row"),
        count(table.dim.into()),
        figure(table.rate)
    );
    let ratio = table.source_bytes as f64 / table.table_bytes as f64;
    text +=
        &line("size", format!("{} from {}: {}x", bytes(table.table_bytes), bytes(table.source_bytes), figure(ratio)));
    let zeros = format!(
        "{}, {} of them too small, {} not finite or too large",
        count(table.zero_rows),
        count(table.underflow_rows),
        count(table.non_finite_rows)
    );
    text += &line("zero rows", zeros);
    let figures =
        [("relative MSE", table.relative_mse), ("mean cosine", table.mean_cosine), ("norm ratio", table.norm_ratio)];
    for (what, value) in figures {
        text += &value.map_or_else(String::new, |value| line(what, figure(value)));
    }
    if let (Some(row), Some(mse)) = (table.worst_row, table.worst_relative_mse) {
        text += &line("worst row", format!("{row}, relative MSE {}", figure(mse)));
    }
    if table.damage.is_empty() {
        text += &line("checksums", "all right".into());
    }
    for damage in &table.damage {
        text += &line("DAMAGE", damage.to_string());
    }
    text
}
