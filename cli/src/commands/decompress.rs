//! `condprog decompress`

use clap::ValueEnum;
use condprog_cpu::Access;
use condprog_table::source::SourcePart;
use condprog_table::{DecompressOptions, Rewrite, TableFile, decompress};
use serde_json::json;

use crate::Outcome;
use crate::arguments::Decompress;
use crate::error::Error;
use crate::text::{bytes, count, name, plural};
use crate::ui::Ui;

/// The file of restored tables in a whole checkpoint.
const WHOLE_TABLES: &str = "condprog-restored.safetensors";

pub(crate) fn run(arguments: &Decompress, ui: &Ui) -> Result<Outcome, Error> {
    let file = TableFile::open_for(&arguments.table, Access::Sequential)?;
    let options = DecompressOptions {
        dtype: arguments.dtype.into(),
        threads: arguments.threads.count,
        force: arguments.force.on,
    };
    let rewrite = match &arguments.whole {
        Some(checkpoint) => {
            let parts: Vec<_> = file.tables().iter().flat_map(|table| table.source.tensors()).collect();
            let replaced = parts.iter().flat_map(SourcePart::tensors).map(String::from).collect();
            Some(Rewrite::begin(checkpoint, &arguments.output, replaced, arguments.force.on)?)
        }
        None => None,
    };
    let output = match rewrite {
        Some(_) => arguments.output.join(WHOLE_TABLES),
        None => arguments.output.clone(),
    };
    // What a run before this has restored is not known to be of the same table: it is done again.
    let options =
        DecompressOptions { force: options.force || rewrite.as_ref().is_some_and(Rewrite::is_resumed), ..options };
    let progress = ui.progress();
    let written = decompress(&file, &output, &options, &|update| progress.step(update))?;
    drop(progress);
    if let Some(rewrite) = rewrite {
        rewrite.finish(&[], std::slice::from_ref(&output))?;
    }
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
            text += &format!("{}: {rows} of {dim} values\n", name(&table.source.name));
        }
        text + &format!("wrote {}, {}", arguments.output.display(), bytes(written))
    })?;
    Ok(Outcome::Done)
}
