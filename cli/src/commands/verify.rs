//! `condprog verify`

use condprog::Cpu;
use condprog_checkpoint::Checkpoint;
use condprog_convert::{VerifyOptions, VerifyTable, verify};
use condprog_table::Tables;
use serde_json::{Value, json};

use crate::Outcome;
use crate::arguments::Verify;
use crate::error::{Again, Error};
use crate::text::{bytes, count, figure, name, one_or_all, path_text, plural};
use crate::ui::Ui;

/// Runs of rows that are shown of those in which something is wrong.
const SHOWN: usize = 20;

pub(crate) fn run(arguments: &Verify, ui: &Ui) -> Result<Outcome, Error> {
    let file = Tables::open(&arguments.table)?;
    let against = &arguments.against;
    let source = if against.is_empty() { None } else { Some(Checkpoint::open_all(against)?) };
    let options = VerifyOptions {
        threads: arguments.threads.count,
        sample: arguments.sample.unwrap_or_default(),
        max_error: arguments.max_error,
    };
    let codec = Cpu::detect()?;
    let report = ui.job(Again::Restarts, |progress| verify(&file, source.as_ref(), &options, &codec, progress))?;
    let whole = report.is_whole();
    let object = json!({
        "table": path_text(&arguments.table),
        "against": if against.is_empty() { Value::Null } else { one_or_all(against) },
        "whole": whole,
        "tables": report.tables,
    });
    ui.print("verify", object, || {
        let verdict = match (whole, report.is_mismatch()) {
            (true, _) => "sound",
            (false, true) => "NOT WHAT THIS SOURCE GIVES",
            (false, false) => "DAMAGED",
        };
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
    if let (Some(recoded), Some(mismatched)) = (table.recoded_rows, table.mismatched_rows) {
        text += &line("coded again", format!("{} of {}", plural(recoded, "row"), count(table.rows)));
        text += &line("mismatches", plural(mismatched, "row"));
    }
    if !table.damage.iter().any(|damage| !damage.fault.is_mismatch()) {
        text += &line("checksums", "all right".into());
    }
    for damage in table.damage.iter().take(SHOWN) {
        text += &line(if damage.fault.is_mismatch() { "MISMATCH" } else { "DAMAGE" }, damage.to_string());
    }
    if let Some(more) = table.damage.len().checked_sub(SHOWN).filter(|&more| more > 0) {
        text += &line("", format!("and {} more; --json has all", count(more as u64)));
    }
    text
}
