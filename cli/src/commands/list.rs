//! `condprog list`

use std::collections::BTreeMap;

use condprog_checkpoint::family::{Family, FamilyTable};
use condprog_checkpoint::{Checkpoint, ListedTensor, Role};
use serde_json::{Value, json};

use crate::Outcome;
use crate::arguments::List;
use crate::error::Error;
use crate::text::{count, message, name, one_or_all, plural};
use crate::ui::{self, Ui};

pub(crate) fn run(arguments: &List, ui: &Ui) -> Result<Outcome, Error> {
    let checkpoint = Checkpoint::open_all(&arguments.inputs)?;
    let tensors = checkpoint.list(&arguments.tensors)?;
    // What compress would stop at is told with the rest, not in place of it.
    let (model, fault) = match checkpoint.family() {
        Ok(model) => (model, None),
        Err(error) => (None, Some(Error::from(error))),
    };
    let (mut tables, mut notes, mut fault) = (Vec::new(), Vec::new(), fault);
    if let Some(family) = model {
        match checkpoint.family_tables(family) {
            Ok(found) => {
                tables = found.into_iter().map(|(table, _)| table).collect();
                notes = checkpoint.family_notes(family, &tables)?;
            }
            Err(error) => fault = Some(error.into()),
        }
    }
    let object = json!({
        "input": one_or_all(&arguments.inputs),
        "model": model.map(Family::name),
        "tables": tables.iter().map(family_table).collect::<Vec<_>>(),
        "tensors": tensors.iter().map(object).collect::<Vec<_>>(),
        "notes": notes,
        "fault": fault.as_ref().map(ui::describe),
    });
    ui.print("list", object, || {
        let mut text = lines(&tensors) + &summary(&tensors);
        if let Some(family) = model {
            text += &format!("\nmodel: {family}, whose tables compress takes unless others are named");
        }
        for table in &tables {
            let tensors = plural(table.parts.len() as u64, "tensor");
            text += &format!("\n  table {} of {tensors}", name(&table.name));
        }
        text += &notes.iter().map(|note| format!("\nnote: {}", message(note))).collect::<String>();
        text + &fault.as_ref().map_or_else(String::new, |error| format!("\nfault: {}", message(error)))
    })?;
    Ok(if fault.is_none() { Outcome::Done } else { Outcome::Failed })
}

fn family_table(table: &FamilyTable) -> Value {
    json!({ "name": table.name, "tensors": table.parts.len() })
}

fn object(tensor: &ListedTensor) -> Value {
    let mut object = json!({
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": tensor.shape,
        "bytes": tensor.bytes,
        "file": tensor.file,
        "role": role(&tensor.role),
    });
    match &tensor.role {
        Role::Table { scale } => object["scale"] = json!(scale),
        Role::Family { table, part, scale, .. } => {
            (object["table"], object["part"], object["scale"]) = (json!(table), json!(part), json!(scale));
        }
        Role::Scales { of, others } => (object["of"], object["others"]) = (json!(of), json!(others)),
        Role::Companion { what, of } => (object["what"], object["of"]) = (json!(what), json!(of)),
        Role::None { code, why } => (object["code"], object["why"]) = (json!(code), json!(message(why))),
        _ => {}
    }
    object
}

/// A short, stable name.
fn role(role: &Role) -> &'static str {
    match role {
        Role::Table { .. } => "table",
        Role::Family { part: Some(_), .. } => "part",
        Role::Family { .. } => "model-table",
        Role::Scales { .. } => "scales",
        Role::Companion { .. } => "companion",
        _ => "none",
    }
}

/// What a tensor would be taken for, in words.
fn said(tensor: &ListedTensor) -> String {
    let scaled =
        |scale: &Option<String>| scale.as_ref().map_or_else(String::new, |scale| format!(", scales {}", name(scale)));
    match &tensor.role {
        Role::Table { scale } => format!("table{}", scaled(scale)),
        Role::Family { family, table, part: Some(part), scale } => {
            format!("part {part} of table {} of {family}{}", name(table), scaled(scale))
        }
        Role::Family { family, scale, .. } => format!("table of {family}{}", scaled(scale)),
        Role::Scales { of, others: 0 } => format!("scales of {}", name(of)),
        Role::Scales { of, others } => format!("scales of {} and {others} more", name(of)),
        Role::Companion { what, of: Some(of) } => format!("{what} of {}", name(of)),
        Role::Companion { what, of: None } => format!("{what}, of no quantised tensor here"),
        // The name stands before it already.
        Role::None { why, .. } => {
            let why = message(why);
            let start = format!("tensor {:?} ", tensor.name);
            format!("no table: {}", why.strip_prefix(&start).unwrap_or(&why))
        }
        _ => String::new(),
    }
}

/// A line of each tensor, its columns to the left.
fn lines(tensors: &[ListedTensor]) -> String {
    let shape = |tensor: &ListedTensor| tensor.shape.as_ref().map_or_else(String::new, |shape| format!("{shape:?}"));
    let cells: Vec<[String; 3]> = tensors
        .iter()
        .map(|tensor| [name(&tensor.name), name(tensor.dtype.as_deref().unwrap_or_default()), shape(tensor)])
        .collect();
    let width = |column: usize| cells.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    let mut text = String::new();
    for (cells, tensor) in cells.iter().zip(tensors) {
        for (cell, width) in cells.iter().zip(widths) {
            text += &format!("{cell:<width$}  ");
        }
        text += &said(tensor);
        text.push('\n');
    }
    text
}

/// How many tensors there are of each role.
fn summary(tensors: &[ListedTensor]) -> String {
    let mut counts = BTreeMap::new();
    for tensor in tensors {
        let (place, what) = match tensor.role {
            Role::Table { .. } => (0, "tables"),
            Role::Family { .. } => (1, "tensors of a model's tables"),
            Role::Scales { .. } => (2, "scales"),
            Role::Companion { .. } => (3, "others of quantised tensors"),
            _ => (4, "no tables"),
        };
        *counts.entry((place, what)).or_insert(0) += 1;
    }
    let counts: Vec<_> = counts.iter().map(|((_, what), number)| format!("{what}: {}", count(*number))).collect();
    format!("{}; {}", plural(tensors.len() as u64, "tensor"), counts.join(", "))
}
