//! `condprog compress`

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Instant;

use condprog::Cpu;
use condprog_checkpoint::family::{Family, FamilyTable};
use condprog_checkpoint::{Checkpoint, RowSource};
use condprog_convert::{
    CompressOptions, CompressReport, Error as TableError, PartOf, Rewrite, RewriteOptions, compress, finished,
    is_begun, preview, rate_segments,
};
use condprog_core::{Layout, Rate};
use condprog_table::SegmentPlan;
use condprog_table::format::TableInfo;
use condprog_table::source::{SourceInfo, SourcePart};
use serde_json::{Value, json};

use super::dry_run;
use crate::Outcome;
use crate::arguments::{Compress, RateRows, Tables, refuse_folder};
use crate::error::{Again, Error};
use crate::text::{bytes, count, figure, name, one_or_all, path_text, plural, rate};
use crate::ui::{self, Ui};

/// Table files of a whole checkpoint.
const WHOLE_TABLES: &str = "condprog.safetensors";
/// Their size, that of Hugging Face's own shards.
const WHOLE_SHARD_BYTES: u64 = 5_000_000_000;

/// Tensors that a note lists.
const PASSED_OVER: usize = 5;

/// Compresses what can be compressed, and reports what cannot at the end.
pub(crate) fn run(arguments: &Compress, ui: &Ui) -> Result<Outcome, Error> {
    let start = Instant::now();
    if !arguments.whole {
        refuse_folder(&arguments.output)?;
    }
    let checkpoint = Checkpoint::open_all(&arguments.inputs)?;
    let mut selected = select(&checkpoint, arguments)?;
    selected.notes.iter().for_each(|note| ui.note(note));
    if selected.tables.is_empty() {
        if selected.left_out.len() == 1 {
            return Err(selected.left_out.remove(0));
        }
        selected.left_out.iter().for_each(|error| ui.complain(error));
        return Err(Error::NothingLeft(selected.left_out.len()));
    }
    let segments = rates(&selected, arguments)?;
    let parts = selected.tables.iter().flat_map(|table| &table.parts);
    let replaced = parts.flat_map(SourcePart::tensors).map(String::from).collect();
    let mut sources: Vec<Box<dyn RowSource>> = Vec::new();
    for table in selected.tables {
        sources.push(Box::new(checkpoint.rows(table)?));
    }
    // Said at once, not after hours of measuring.
    let codec = Cpu::detect()?;
    let options = CompressOptions {
        rate: arguments.rate,
        segments,
        effort: arguments.effort,
        scale: arguments.scale,
        non_finite: arguments.non_finite.into(),
        threads: arguments.threads.count,
        block_rows: arguments.block_rows,
        shard_bytes: arguments.shard_size.map(NonZeroU64::get).or(arguments.whole.then_some(WHOLE_SHARD_BYTES)),
        part: arguments.part.clone().or_else(|| arguments.rows.clone().map(PartOf::Rows)),
        force: arguments.force.on,
    };
    let output = if arguments.whole { arguments.output.join(WHOLE_TABLES) } else { arguments.output.clone() };
    let rewriting = RewriteOptions { copy: arguments.copy, force: arguments.force.on };
    if arguments.dry_run {
        let seen = preview(&mut sources, &output, &options)?;
        let whole = match arguments.whole {
            true => {
                let input = one_folder(&arguments.inputs)?;
                Some(Rewrite::preview(input, &arguments.output, replaced, rewriting)?)
            }
            false => None,
        };
        return dry_run::report(&sources, &seen, whole.as_ref(), &selected.left_out, ui);
    }
    // Says at once what is wrong with the rest of the checkpoint, before hours of work.
    let mut rewrite = match arguments.whole {
        true => Some(Rewrite::begin(one_folder(&arguments.inputs)?, &arguments.output, replaced, rewriting)?),
        false => None,
    };
    // A run that was interrupted after its last table file resumes after it.
    let earlier = match &rewrite {
        Some(rewrite) if rewrite.is_resumed() => finished(&mut sources, &output, &options)?,
        _ => None,
    };
    let report = match earlier {
        Some(report) => CompressReport { resumed_rows: report.tables.iter().map(|table| table.rows).sum(), ..report },
        None => {
            let made = ui.job(Again::Resumes, |progress| compress(&mut sources, &output, &options, &codec, progress));
            match (made, rewrite) {
                (Ok(report), kept) => {
                    rewrite = kept;
                    report
                }
                (Err(error), begun) => {
                    // A run that was refused leaves nothing.
                    begun.filter(|_| !is_begun(&output)).into_iter().for_each(Rewrite::abandon);
                    return Err(error);
                }
            }
        }
    };
    let rewritten = rewrite.map(|rewrite| rewrite.finish(&report.tables, &report.files)).transpose()?;
    let left_out = selected.left_out;
    let seconds = start.elapsed().as_secs_f64();
    let mut object = written(&report);
    object["input"] = one_or_all(&arguments.inputs);
    object["output"] = path_text(&arguments.output).into();
    object["resumed_rows"] = json!(report.resumed_rows);
    object["seconds"] = json!(seconds);
    if let Some(rewritten) = &rewritten {
        object["whole"] = json!({
            "index": path_text(&rewritten.index),
            "total_size": rewritten.total_size,
            "linked": rewritten.linked,
            "copied": rewritten.copied,
            "written": rewritten.written,
            "dropped": rewritten.dropped,
        });
    }
    object["notes"] = json!(selected.notes);
    object["left_out"] = left_out.iter().map(ui::describe).collect();
    ui.print("compress", object, || {
        let mut text = lines(&report, &output);
        let rows: u64 = report.tables.iter().map(|table| table.rows).sum();
        text += &format!(", in {} s", figure(seconds));
        if report.resumed_rows > 0 {
            text += &format!("; {} were done before", plural(report.resumed_rows, "row"));
        } else {
            text += &format!(": {}", rate(rows as f64 / seconds));
        }
        if let Some(whole) = &rewritten {
            text += &format!(
                "\nmade {} whole: {} linked, {} copied, {} without its tables, {} left out",
                arguments.output.display(),
                plural(whole.linked, "file"),
                whole.copied,
                whole.written.len(),
                whole.dropped.len()
            );
        }
        text
    })?;
    left_out.iter().for_each(|error| ui.complain(error));
    Ok(if left_out.is_empty() { Outcome::Done } else { Outcome::Failed })
}

/// The one path of a checkpoint that is to be rebuilt.
fn one_folder(inputs: &[PathBuf]) -> Result<&Path, Error> {
    match inputs {
        [input] => Ok(input),
        several => Err(Error::Usage(format!("--whole takes one checkpoint, a folder, got {} paths", several.len()))),
    }
}

/// The tables that were asked for and can be compressed, and why the others cannot.
struct Selected {
    /// The family they are of, with its account of each.
    family: Option<(Family, Vec<FamilyTable>)>,
    tables: Vec<SourceInfo>,
    left_out: Vec<Error>,
    /// What is worth saying though nothing is wrong.
    notes: Vec<String>,
}

/// The family whose tables are meant: the one that the user gives, or that of the checkpoint where no table is named.
/// A checkpoint of many files must have one then; `options` are those that name tables.
pub(super) fn family(
    checkpoint: &Checkpoint,
    given: Option<Family>,
    by_name: bool,
    options: &str,
) -> Result<Option<Family>, Error> {
    if given.is_some() || by_name {
        return Ok(given);
    }
    let found = checkpoint.family()?;
    if found.is_none() && checkpoint.is_indexed() {
        let (models, path) = (Family::ALL.map(Family::name).join(", "), checkpoint.path().display());
        let candidates = match checkpoint.candidates().join(", ") {
            none if none.is_empty() => "it has no matrix".into(),
            candidates => format!("it has {candidates}"),
        };
        return Err(Error::Usage(format!(
            "{path} has no table of {models}, expected {options}; {candidates}; `condprog list` shows all"
        )));
    }
    Ok(found)
}

fn select(checkpoint: &Checkpoint, arguments: &Compress) -> Result<Selected, Error> {
    let Tables { model, tensors, join_tensors, scale_tensor } = &arguments.tables;
    let by_name = !tensors.is_empty() || !join_tensors.is_empty();
    if let Some(family) = family(checkpoint, *model, by_name, "--tensor or --join-tensors")? {
        if scale_tensor.is_some() {
            let message =
                format!("--scale-tensor goes with --tensor or --join-tensors: {family} tells its scales itself");
            return Err(Error::Usage(message));
        }
        let (known, tables): (Vec<_>, _) = checkpoint.family_tables(family)?.into_iter().unzip();
        let notes = checkpoint.family_notes(family, &known)?;
        return Ok(Selected { family: Some((family, known)), tables, left_out: Vec::new(), notes });
    }
    let (mut tables, mut left_out) = (Vec::new(), Vec::new());
    for (table, pattern) in join_tensors {
        tables.push(checkpoint.join_matching(table, pattern, scale_tensor.as_deref())?);
    }
    // A pattern selects several tables, of which one that cannot be compressed must not hold up the others.
    let patterns: Vec<_> = if by_name { tensors.iter().map(std::slice::from_ref).collect() } else { vec![&[][..]] };
    for pattern in patterns {
        let found = match checkpoint.select_names(pattern) {
            Ok(found) => found,
            Err(error) => {
                left_out.push(error.into());
                continue;
            }
        };
        for name in found {
            if tables.iter().any(|other| other.name == name) {
                continue;
            }
            match checkpoint.join(&name, std::slice::from_ref(&name), scale_tensor.as_deref()) {
                Ok(info) => tables.push(info),
                Err(error) => left_out.push(error.into()),
            }
        }
    }
    checkpoint.refuse_shared_scales(&tables)?;
    let passed_over = if by_name { Vec::new() } else { checkpoint.passed_over() };
    let notes = passed_over.chunks(PASSED_OVER).next().map(|first| {
        let more = match passed_over.len() - first.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("passed over, since their types are not read: {}{more}", first.join(", "))
    });
    let notes = Vec::from_iter(notes);
    tables.retain(|table| match u32::try_from(table.dim).map(|dim| Layout::new(dim, arguments.rate)) {
        Ok(Err(source)) => {
            left_out.push(TableError::Width { tensor: table.name.clone(), source }.into());
            false
        }
        // A width beyond u32 is left for the table crate to refuse.
        _ => true,
    });
    // Of a whole checkpoint, or for machines that share the work, it is all or nothing.
    let strict = checkpoint.is_indexed() || arguments.whole || arguments.part.is_some() || arguments.rows.is_some();
    match left_out.is_empty() || !strict {
        true => Ok(Selected { family: None, tables, left_out, notes }),
        false => Err(left_out.remove(0)),
    }
}

/// The segments of tables that have more than one rate.
fn rates(selected: &Selected, arguments: &Compress) -> Result<BTreeMap<String, Vec<SegmentPlan>>, Error> {
    let by_order = arguments.rate_order.rates()?;
    let mut segments = BTreeMap::new();
    match &selected.family {
        Some((family, known)) if !by_order.is_empty() => {
            for (table, info) in known.iter().zip(&selected.tables) {
                let plan = family.rates(table, &info.part_rows(), arguments.rate, &by_order)?;
                segments.insert(info.name.clone(), plan);
            }
        }
        None if !by_order.is_empty() => {
            let message = "--rate-order needs the tables of a model: orders of others are not known".to_string();
            return Err(Error::Usage(message));
        }
        _ => {}
    }
    let tables: Vec<_> = selected.tables.iter().map(|table| (table.name.as_str(), table.rows)).collect();
    segments.extend(row_rates(&tables, arguments.rate, &arguments.rate_rows)?);
    Ok(segments)
}

/// The segments of tables, given with their rows, of which some rows have a rate of their own.
pub(super) fn row_rates(
    tables: &[(&str, u64)],
    rate: Rate,
    given: &[RateRows],
) -> Result<BTreeMap<String, Vec<SegmentPlan>>, Error> {
    let is_of = |given: &RateRows, table: &str| given.table.as_deref().is_none_or(|name| name == table);
    let unknown = given.iter().find(|given| !tables.iter().any(|(name, _)| is_of(given, name)));
    if let Some(name) = unknown.and_then(|given| given.table.as_ref()) {
        let have: Vec<_> = tables.iter().map(|(name, _)| name).collect();
        return Err(Error::Usage(format!("--rate-rows names table {name:?}, expected one of {have:?}")));
    }
    let mut segments = BTreeMap::new();
    for &(name, rows) in tables.iter().filter(|_| !given.is_empty()) {
        let own = given.iter().filter(|given| is_of(given, name));
        let ranges: Vec<_> = own.map(|given| (given.rows.clone(), given.rate)).collect();
        segments.insert(name.to_string(), rate_segments(name, rows, rate, &ranges)?);
    }
    Ok(segments)
}

/// What was written, for `--json`.
pub(super) fn written(report: &CompressReport) -> Value {
    json!({
        "file_bytes": report.file_bytes,
        "files": report.files.iter().map(path_text).collect::<Vec<_>>(),
        "index": report.index.as_ref().map(path_text),
        "tables": report.tables.iter().map(object).collect::<Vec<_>>(),
    })
}

/// What was written, for people.
pub(super) fn lines(report: &CompressReport, output: &Path) -> String {
    let mut text: String = report.tables.iter().map(line).collect();
    let size = bytes(report.file_bytes);
    match &report.index {
        None => text += &format!("wrote {}, {size}", output.display()),
        Some(index) => {
            text += &format!("wrote {} and {}, {size}", plural(report.files.len() as u64, "file"), index.display());
        }
    }
    text
}

fn object(table: &TableInfo) -> Value {
    json!({
        "name": table.name,
        "rows": table.rows,
        "dim": table.dim,
        "rate": table.mean_rate(),
        "record_bytes": table.segments[0].record_bytes(),
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
        name(&table.name),
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
