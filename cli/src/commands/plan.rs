//! `condprog plan`

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::Path;

use condprog_checkpoint::Checkpoint;
use condprog_checkpoint::family::Family;
use condprog_convert::{Footprint, OnGpus};
use condprog_core::{Layout, Rate};
use condprog_table::SegmentPlan;
use condprog_table::source::SourceInfo;
use serde_json::{Value, json};

use super::compress::{family, row_rates};
use crate::Outcome;
use crate::arguments::Plan;
use crate::error::Error;
use crate::text::{columns, count, decimal_bytes, name, plural};
use crate::ui::Ui;

pub(crate) fn run(arguments: &Plan, ui: &Ui) -> Result<Outcome, Error> {
    let (family, mut drafts) = drafts(arguments)?;
    let names: Vec<_> = drafts.iter().map(|draft| (draft.name.as_str(), rows_of(&draft.runs))).collect();
    let mut own_rates = row_rates(&names, arguments.rate, &arguments.rate_rows)?;
    for draft in &mut drafts {
        if let Some(runs) = own_rates.remove(&draft.name) {
            draft.runs = runs;
        }
    }
    let tables = drafts.into_iter().map(Table::new).collect::<Result<Vec<_>, _>>()?;
    let all = Footprint::sum(tables.iter().map(|table| table.footprint))?;
    let places = places(all, arguments)?;
    let object = json!({
        "model": family.map(Family::name),
        "gpus": arguments.gpus,
        "memory_bytes": arguments.memory,
        "kv_bytes_per_token": arguments.kv_bytes_per_token,
        "source_bytes": all.before,
        "table_bytes": all.after,
        "tables": tables.iter().map(Table::object).collect::<Vec<_>>(),
        "places": places.iter().map(Place::object).collect::<Vec<_>>(),
    });
    ui.print("plan", object, || {
        tables.iter().map(Table::text).collect::<String>() + "\n" + &places_text(&places, arguments)
    })?;
    Ok(Outcome::Done)
}

/// A table as it is, and the rates it would have.
struct Draft {
    name: String,
    dim: u32,
    row_bytes: u64,
    runs: Vec<SegmentPlan>,
}

/// A table as it is and as it would be.
struct Table {
    draft: Draft,
    footprint: Footprint,
}

fn rows_of(runs: &[SegmentPlan]) -> u64 {
    runs.iter().map(|run| run.rows).sum()
}

/// The tables meant, and the model they are of, if it is a known one.
fn drafts(arguments: &Plan) -> Result<(Option<Family>, Vec<Draft>), Error> {
    let by_order = arguments.rate_order.rates()?;
    let rate = arguments.rate;
    if let Some(path) = &arguments.checkpoint {
        return of_checkpoint(path, arguments, &by_order);
    }
    if let Some(family) = arguments.model {
        let row_bytes = arguments.source_bytes.map(NonZeroU64::get);
        let mut drafts = Vec::new();
        for published in family.published() {
            let runs = family.rates(&published.table, &published.part_rows, rate, &by_order);
            drafts.push(Draft {
                name: published.table.name,
                dim: published.dim,
                row_bytes: row_bytes.unwrap_or(published.row_bytes),
                runs: runs?,
            });
        }
        return Ok((Some(family), drafts));
    }
    refuse_orders(&by_order)?;
    let given = arguments.rows.zip(arguments.dim).zip(arguments.source_bytes);
    let Some(((rows, dim), row_bytes)) = given else {
        return Err(Error::Usage("expected CHECKPOINT, --model, or --rows with --dim and --source-bytes".into()));
    };
    let runs = vec![SegmentPlan { rows: rows.get(), rate }];
    Ok((None, vec![Draft { name: "table".into(), dim, row_bytes: row_bytes.get(), runs }]))
}

/// The tables of a checkpoint: those of the family it is of, or those that are named.
fn of_checkpoint(
    path: &Path,
    arguments: &Plan,
    by_order: &BTreeMap<u32, Rate>,
) -> Result<(Option<Family>, Vec<Draft>), Error> {
    let checkpoint = Checkpoint::open(path)?;
    let (joined, scale) = (&arguments.join_tensors, arguments.scale_tensor.as_deref());
    let by_name = !arguments.tensors.is_empty() || !joined.is_empty();
    let family = family(&checkpoint, arguments.model, by_name, "--tensor or --join-tensors")?;
    let mut drafts = Vec::new();
    let mut add = |info: SourceInfo, runs| {
        let dim = u32::try_from(info.dim).unwrap_or(u32::MAX);
        drafts.push(Draft { dim, row_bytes: info.row_bytes(), name: info.name, runs });
    };
    if let Some(family) = family {
        for (parts, info) in checkpoint.family_tables(family)? {
            let runs = family.rates(&parts, &info.part_rows(), arguments.rate, by_order);
            add(info, runs?);
        }
    } else {
        refuse_orders(by_order)?;
        let one_rate = |info: &SourceInfo| vec![SegmentPlan { rows: info.rows, rate: arguments.rate }];
        for (table, pattern) in joined {
            let info = checkpoint.join_matching(table, pattern, scale)?;
            let runs = one_rate(&info);
            add(info, runs);
        }
        // Without a name, every table there is.
        let names = if by_name && arguments.tensors.is_empty() {
            Vec::new()
        } else {
            checkpoint.select_names(&arguments.tensors)?
        };
        for name in names {
            let info = checkpoint.join(&name, std::slice::from_ref(&name), scale)?;
            let runs = one_rate(&info);
            add(info, runs);
        }
    }
    Ok((family, drafts))
}

fn refuse_orders(by_order: &BTreeMap<u32, Rate>) -> Result<(), Error> {
    if by_order.is_empty() {
        return Ok(());
    }
    Err(Error::Usage("--rate-order is for tables of a known model: orders of others are not known".into()))
}

impl Table {
    fn new(draft: Draft) -> Result<Table, Error> {
        let footprint = Footprint::of_table(&draft.name, draft.dim, &draft.runs, draft.row_bytes)?;
        Ok(Table { draft, footprint })
    }

    fn rows(&self) -> u64 {
        rows_of(&self.draft.runs)
    }

    fn record_bytes(&self, rate: Rate) -> usize {
        Layout::new(self.draft.dim, rate).expect("the footprint has been computed with it").record_bytes()
    }

    fn object(&self) -> Value {
        let mut first_row = 0;
        let mut segments = Vec::new();
        for &SegmentPlan { rows, rate } in &self.draft.runs {
            let (bits, bytes) = (f64::from(rate.quarters()) / 4.0, self.record_bytes(rate));
            segments.push(json!({ "first_row": first_row, "rows": rows, "rate": bits, "record_bytes": bytes }));
            first_row += rows;
        }
        json!({
            "name": self.draft.name,
            "rows": self.rows(),
            "dim": self.draft.dim,
            "source_row_bytes": self.draft.row_bytes,
            "source_bytes": self.footprint.before,
            "table_bytes": self.footprint.after,
            "segments": segments,
        })
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{}: {} of {} values, {} to {}\n",
            name(&self.draft.name),
            plural(self.rows(), "row"),
            count(self.draft.dim.into()),
            decimal_bytes(self.footprint.before),
            decimal_bytes(self.footprint.after)
        );
        for &SegmentPlan { rows, rate } in &self.draft.runs {
            let rows = if self.draft.runs.len() == 1 { String::new() } else { format!("{}: ", plural(rows, "row")) };
            let (from, to) = (count(self.draft.row_bytes), self.record_bytes(rate));
            text += &format!("  {rows}{rate} bits per value, {from} to {to} bytes per row\n");
        }
        text
    }
}

/// Where the tables may lie, and what compression changes there.
struct Place {
    name: &'static str,
    text: String,
    /// `None` where they are not on the GPUs.
    per_gpu: Option<Change>,
    in_all: Change,
}

struct Change {
    footprint: Footprint,
    /// `None` where the tables do not fit uncompressed, so that nothing is there to free.
    freed: Option<u64>,
    /// Of the memory of one GPU, before and after; `None` where it is not known, or not a GPU's.
    share: Option<(f64, f64)>,
    /// Tokens whose keys and values fit in what is freed on GPUs.
    tokens: Option<u64>,
}

fn places(all: Footprint, arguments: &Plan) -> Result<Vec<Place>, Error> {
    let (gpus, memory) = (arguments.gpus, arguments.memory.map(NonZeroU64::get));
    let on_gpus = |name, text, OnGpus { per_gpu, in_all }: OnGpus| {
        let fits = memory.is_none_or(|memory| per_gpu.before <= memory);
        let change = |footprint: Footprint, share| {
            let freed = fits.then(|| footprint.freed());
            let tokens = arguments.kv_bytes_per_token.filter(|_| fits).map(|bytes| footprint.room_for(bytes));
            Change { footprint, freed, share, tokens }
        };
        let share = memory.map(|m| (per_gpu.before as f64 / m as f64, per_gpu.after as f64 / m as f64));
        Place { name, text, per_gpu: Some(change(per_gpu, share)), in_all: change(in_all, None) }
    };
    let mut places = Vec::new();
    if gpus.get() == 1 {
        places.push(on_gpus("gpu", "on the GPU".into(), all.split_over(gpus)));
    } else {
        let several = plural(gpus.get().into(), "GPU");
        places.push(on_gpus("split", format!("split over {several}"), all.split_over(gpus)));
        places.push(on_gpus("copies", format!("a copy on each of {several}"), all.copied_to(gpus)?));
    }
    let in_all = Change { footprint: all, freed: Some(all.freed()), share: None, tokens: None };
    places.push(Place { name: "host", text: "one copy in host memory".into(), per_gpu: None, in_all });
    Ok(places)
}

impl Place {
    fn object(&self) -> Value {
        json!({
            "place": self.name,
            "per_gpu": self.per_gpu.as_ref().map(Change::object),
            "in_all": self.in_all.object(),
        })
    }
}

impl Change {
    fn object(&self) -> Value {
        json!({
            "before_bytes": self.footprint.before,
            "after_bytes": self.footprint.after,
            "freed_bytes": self.freed,
            "memory_share_before": self.share.map(|(before, _)| before),
            "memory_share_after": self.share.map(|(_, after)| after),
            "kv_tokens": self.tokens,
        })
    }
}

fn places_text(places: &[Place], arguments: &Plan) -> String {
    let mut lines = vec![vec!["", "before", "after", "freed"].into_iter().map(String::from).collect::<Vec<_>>()];
    if arguments.memory.is_some() {
        lines[0].push("GPU memory".into());
    }
    if arguments.kv_bytes_per_token.is_some() {
        lines[0].push("KV tokens".into());
    }
    let line = |what: &str, change: &Change| {
        let Footprint { before, after } = change.footprint;
        let freed = change.freed.map_or_else(|| "too large before".into(), decimal_bytes);
        let mut cells = vec![format!("  {what}"), decimal_bytes(before), decimal_bytes(after), freed];
        if arguments.memory.is_some() {
            let percent = |(b, a): (f64, f64)| format!("{:.1} to {:.1} %", 100.0 * b, 100.0 * a);
            cells.push(change.share.map_or_else(String::new, percent));
        }
        cells.extend(change.tokens.map(count));
        cells
    };
    for place in places {
        lines.push(vec![place.text.clone()]);
        lines.extend(place.per_gpu.as_ref().map(|change| line("per GPU", change)));
        if arguments.gpus.get() > 1 || place.per_gpu.is_none() {
            lines.push(line("in all", &place.in_all));
        }
    }
    let mut text = columns(&lines);
    text += "\n1 GB is 10^9 bytes";
    if let Some(memory) = arguments.memory {
        text += &format!("; a GPU has {}", decimal_bytes(memory.get()));
    }
    if let Some(bytes) = arguments.kv_bytes_per_token {
        text += &format!("; a token's keys and values take {} bytes", count(bytes.get()));
    }
    text
}
