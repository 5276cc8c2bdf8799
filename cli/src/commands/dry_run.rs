//! `condprog compress --dry-run`

use std::path::PathBuf;

use condprog_checkpoint::RowSource;
use condprog_convert::{Preview, RewritePreview};
use serde_json::{Value, json};

use crate::Outcome;
use crate::error::Error;
use crate::text::{bytes, columns, count, path_text, plural};
use crate::ui::{self, Ui};

/// Says what a run would write, and what it would leave out.
pub(super) fn report(
    sources: &[Box<dyn RowSource>],
    seen: &Preview,
    whole: Option<&RewritePreview>,
    left_out: &[Error],
    ui: &Ui,
) -> Result<Outcome, Error> {
    let tables = sources.iter().map(|source| {
        let info = source.info();
        json!({ "name": info.name, "rows": info.rows, "dim": info.dim, "source_dtype": info.dtype.name() })
    });
    let object = json!({
        "dry_run": true,
        "tables": tables.collect::<Vec<_>>(),
        "files": list(&seen.files),
        "index": seen.index.as_ref().map(path_text),
        "working": seen.working.iter().map(path_text).collect::<Vec<_>>(),
        "file_bytes": seen.file_bytes,
        "free_bytes": seen.free_bytes,
        "resumes": seen.resumes,
        "whole": whole.map(|whole| json!({
            "linked": list(&whole.linked),
            "copied": list(&whole.copied),
            "written": list(&whole.written),
            "dropped": whole.dropped.iter().map(path_text).collect::<Vec<_>>(),
        })),
        "left_out": left_out.iter().map(ui::describe).collect::<Vec<_>>(),
    });
    ui.print("compress", object, || text(sources, seen, whole))?;
    left_out.iter().for_each(|error| ui.complain(error));
    Ok(if left_out.is_empty() { Outcome::Done } else { Outcome::Failed })
}

fn text(sources: &[Box<dyn RowSource>], seen: &Preview, whole: Option<&RewritePreview>) -> String {
    let mut text = String::new();
    for info in sources.iter().map(|source| source.info()) {
        let (rows, dim) = (plural(info.rows, "row"), count(info.dim));
        text += &format!("{}: {rows} of {dim} {} values\n", info.name, info.dtype.name());
    }
    let line = |what: &str, path: &PathBuf, size: String| vec![format!("  {what:<10} {}", path.display()), size];
    let mut lines = Vec::new();
    lines.extend(seen.files.iter().map(|(path, size)| line("write", path, bytes(*size))));
    lines.extend(seen.index.iter().map(|path| line("write", path, "the index".into())));
    if let Some(whole) = whole {
        lines.extend(whole.written.iter().map(|(path, size)| line("write", path, bytes(*size))));
        lines.extend(whole.copied.iter().map(|(path, size)| line("copy", path, bytes(*size))));
        lines.extend(whole.linked.iter().map(|(path, size)| line("link", path, bytes(*size))));
        lines.extend(whole.dropped.iter().map(|path| line("leave out", path, String::new())));
    }
    lines.extend(seen.working.iter().map(|path| line("until then", path, String::new())));
    text += &columns(&lines);
    let free = seen.free_bytes.map_or("not known".into(), bytes);
    text += &format!("nothing was written; {} are needed for tables, {free} free", bytes(seen.file_bytes));
    if seen.resumes {
        text += "; an interrupted run would be resumed";
    }
    text
}

fn list(files: &[(PathBuf, u64)]) -> Value {
    files.iter().map(|(path, bytes)| json!({ "path": path_text(path), "bytes": bytes })).collect()
}
