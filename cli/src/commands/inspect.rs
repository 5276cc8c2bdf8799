//! `condprog inspect`

use condprog_table::{SegmentSummary, TableSummary, Tables, inspect};
use serde_json::json;

use crate::Outcome;
use crate::arguments::Inspect;
use crate::error::Error;
use crate::text::{bytes, columns, count, figure, name, path_text, plural};
use crate::ui::Ui;

pub(crate) fn run(arguments: &Inspect, ui: &Ui) -> Result<Outcome, Error> {
    let file = Tables::open(&arguments.table)?;
    let tables = inspect(&file)?;
    let object = json!({ "table": path_text(&arguments.table), "file_bytes": file.file_bytes(), "tables": tables });
    ui.print("inspect", object, || {
        let head = format!(
            "{}: {}, {}\n",
            arguments.table.display(),
            plural(tables.len() as u64, "table"),
            bytes(file.file_bytes())
        );
        head + &tables.iter().map(|summary| table(summary, arguments.all)).collect::<String>()
    })?;
    Ok(Outcome::Done)
}

fn table(table: &TableSummary, all: bool) -> String {
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
    let alone = table.segments.len() == 1;
    for group in table.segments.chunk_by(|one, next| !all && is_next(one, next)) {
        text += &segments(group, alone);
    }
    text
}

/// Whether a segment continues where another ends, with the same layout and the next number in its name.
fn is_next(one: &SegmentSummary, next: &SegmentSummary) -> bool {
    let layout = |segment: &SegmentSummary| (segment.rate.to_bits(), segment.record_bytes);
    layout(one) == layout(next) && one.first_row + one.rows == next.first_row && is_next_name(&one.tensor, &next.tensor)
}

/// Whether two names are the same but for a number, and the second name has the next one.
fn is_next_name(one: &str, next: &str) -> bool {
    let digits = |c: char| c.is_ascii_digit();
    let same = one.bytes().zip(next.bytes()).take_while(|(a, b)| a == b).count();
    // Where the numbers begin, of which the first digits may be the same.
    let start = one[..one.floor_char_boundary(same)].trim_end_matches(digits).len();
    let split = |name: &str| {
        let rest = &name[start..];
        let end = rest.find(|c| !digits(c)).unwrap_or(rest.len());
        Some((rest[..end].parse::<u64>().ok()?, rest[end..].to_string()))
    };
    match (split(one), split(next)) {
        (Some((number, end)), Some((next, next_end))) => number.checked_add(1) == Some(next) && end == next_end,
        _ => false,
    }
}

/// Neighbours of one layout, as one.
fn segments(group: &[SegmentSummary], alone: bool) -> String {
    let line = |name: &str, value: String| format!("  {name:<15}{value}\n");
    let [first, ..] = group else { return String::new() };
    let last = &group[group.len() - 1];
    let mut text = String::new();
    if !alone {
        let rows = format!("rows {} to {}", count(first.first_row), count(last.first_row + last.rows - 1));
        text += &match group {
            [_] => line("segment", format!("{rows}, tensor {:?}", first.tensor)),
            _ => {
                let each = || group.iter().map(|segment| segment.rows);
                let (least, most) = (each().min().unwrap_or(0), each().max().unwrap_or(0));
                let each = if least == most { count(least) } else { format!("{} to {}", count(least), count(most)) };
                let many = format!("{rows}, {} of {each} rows, tensors", plural(group.len() as u64, "segment"));
                line("segments", format!("{many} {:?} to {:?}", first.tensor, last.tensor))
            }
        };
    }
    text += &line("rate", format!("{} bits per value, records of {} bytes", first.rate, first.record_bytes));
    let scales = group.iter().filter_map(|segment| segment.scales);
    let least = scales.clone().map(|scales| scales.min).reduce(f64::min);
    let most = scales.map(|scales| scales.max).reduce(f64::max);
    text += &line(
        "scales",
        match least.zip(most) {
            Some((least, most)) => format!("{} to {}", figure(least), figure(most)),
            None => "none: all rows are zero".into(),
        },
    );
    let rows = |variant: usize| group.iter().map(|segment| segment.variants[variant]).sum::<u64>();
    let all = (0..first.variants.len()).map(|variant| (variant, rows(variant)));
    let used: Vec<_> = all.filter(|(_, rows)| *rows > 0).collect();
    let coded: u64 = used.iter().map(|(_, rows)| rows).sum();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_the_next_number_are_neighbours() {
        for (one, next) in [
            ("t.0", "t.1"),
            ("t.9", "t.10"),
            ("t.09", "t.10"),
            ("t.199", "t.200"),
            ("a1.b7.c", "a1.b8.c"),
            ("7", "8"),
            ("é9", "é10"),
        ] {
            assert!(is_next_name(one, next), "{one} {next}");
            assert!(!is_next_name(next, one), "{next} {one}");
        }
        for (one, next) in [
            ("t.0", "t.2"),
            ("t.0", "t.0"),
            ("t", "t.0"),
            ("a", "b"),
            ("a1.b7", "a2.b8"),
            ("a1.b7", "a2.c7"),
            ("", ""),
            ("é", "è"),
            ("t.18446744073709551615", "t.0"),
        ] {
            assert!(!is_next_name(one, next), "{one} {next}");
        }
    }
}
