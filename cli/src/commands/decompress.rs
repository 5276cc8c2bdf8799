//! `condprog decompress`

use clap::ValueEnum;
use condprog_cpu::Access;
use condprog_table::{DecompressOptions, TableFile, decompress};
use serde_json::json;

use crate::Outcome;
use crate::arguments::Decompress;
use crate::error::Error;
use crate::text::{bytes, count, plural};
use crate::ui::Ui;

pub(crate) fn run(arguments: &Decompress, ui: &Ui) -> Result<Outcome, Error> {
    let file = TableFile::open_for(&arguments.table, Access::Sequential)?;
    let options = DecompressOptions {
        dtype: arguments.dtype.into(),
        threads: arguments.threads.count,
        force: arguments.force.on,
    };
    let progress = ui.progress();
    let written = decompress(&file, &arguments.output, &options, &|update| progress.step(update))?;
    drop(progress);
    let dtype = arguments.dtype.to_possible_value().map_or_else(String::new, |value| value.get_name().into());
    let tables =
        file.tables().iter().map(|table| json!({ "name": table.source.name, "rows": table.rows, "dim": table.dim }));
    let object = json!({
        "table": arguments.table,
        "output": arguments.output,
        "file_bytes": written,
        "dtype": dtype,
        "tables": tables.collect::<Vec<_>>(),
    });
    ui.print("decompress", object, || {
        let mut text = String::new();
        for table in file.tables() {
            let (rows, dim) = (plural(table.rows, "row"), count(table.dim.into()));
            text += &format!("{}: {rows} of {dim} values\n", table.source.name);
        }
        text + &format!("wrote {}, {}", arguments.output.display(), bytes(written))
    })?;
    Ok(Outcome::Done)
}
