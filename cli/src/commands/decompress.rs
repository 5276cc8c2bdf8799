//! `condprog decompress`

use clap::ValueEnum;
use condprog::Cpu;
use condprog_convert::{DecompressOptions, NewFile, Rewrite, RewriteOptions, decompress};
use condprog_table::Tables;
use condprog_table::source::SourcePart;
use serde_json::json;

use crate::Outcome;
use crate::arguments::{Decompress, refuse_folder};
use crate::error::{Again, Error};
use crate::text::{bytes, count, name, path_text, plural};
use crate::ui::Ui;

/// The file of restored tables in a whole checkpoint.
const WHOLE_TABLES: &str = "condprog-restored.safetensors";

pub(crate) fn run(arguments: &Decompress, ui: &Ui) -> Result<Outcome, Error> {
    if arguments.whole.is_none() {
        refuse_folder(&arguments.output)?;
    }
    let codec = Cpu::detect()?;
    let file = Tables::open(&arguments.table)?;
    let options = DecompressOptions {
        dtype: arguments.dtype.into(),
        threads: arguments.threads.count,
        force: arguments.force.on,
    };
    let mut rewrite = match &arguments.whole {
        Some(checkpoint) => {
            let parts: Vec<_> = file.tables().iter().flat_map(|table| table.source.tensors()).collect();
            let replaced = parts.iter().flat_map(SourcePart::tensors).map(String::from).collect();
            Rewrite::refuse_inputs(checkpoint, &arguments.output, &replaced, file.files())?;
            let options = RewriteOptions { copy: arguments.copy, force: arguments.force.on };
            Some(Rewrite::begin(checkpoint, &arguments.output, replaced, options)?)
        }
        None => None,
    };
    let output = match rewrite {
        Some(_) => arguments.output.join(WHOLE_TABLES),
        None => arguments.output.clone(),
    };
    // What stands where the tables go is looked at before anything is made of the rest.
    if let Some(begun) = rewrite.take_if(|begun| !begun.is_resumed()) {
        match NewFile::check(&output, file.files(), options.force) {
            Ok(()) => rewrite = Some(begun),
            Err(error) => {
                begun.abandon();
                return Err(error.into());
            }
        }
    }
    // What a run before this has restored is not known to be of the same table: it is done again.
    let options =
        DecompressOptions { force: options.force || rewrite.as_ref().is_some_and(Rewrite::is_resumed), ..options };
    let written =
        match (ui.job(Again::Restarts, |progress| decompress(&file, &output, &options, &codec, progress)), rewrite) {
            (Ok(written), None) => written,
            (Ok(written), Some(rewrite)) => {
                rewrite.finish(&[], std::slice::from_ref(&output))?;
                written
            }
            (Err(error), rewrite) => {
                // A run that failed leaves nothing, unless it had given the tables their name.
                rewrite.into_iter().filter(|_| !output.exists()).for_each(Rewrite::abandon);
                return Err(error);
            }
        };
    let dtype = arguments.dtype.to_possible_value().map_or_else(String::new, |value| value.get_name().into());
    let tables =
        file.tables().iter().map(|table| json!({ "name": table.source.name, "rows": table.rows, "dim": table.dim }));
    let object = json!({
        "table": path_text(&arguments.table),
        "output": path_text(&arguments.output),
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
