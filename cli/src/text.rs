//! Text for people: aligned columns, and numbers as they read them.

use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{BinaryBytes, DecimalBytes, HumanCount};
use serde_json::Value;

/// A path, for JSON: what is not UTF-8 in it is replaced.
pub(crate) fn path_text(path: impl AsRef<Path>) -> String {
    path.as_ref().to_string_lossy().into_owned()
}

/// A whole number with separators.
pub(crate) fn count(number: u64) -> String {
    HumanCount(number).to_string()
}

/// A size in bytes, with a unit.
pub(crate) fn bytes(size: u64) -> String {
    BinaryBytes(size).to_string()
}

/// A size in bytes with a unit that is a power of 1000, as memory of GPUs is told.
pub(crate) fn decimal_bytes(size: u64) -> String {
    DecimalBytes(size).to_string()
}

/// Rows per second, three digits of which mean something.
pub(crate) fn speed(rows: f64) -> String {
    let step = 10f64.powi((rows.max(1.0).log10().floor() as i32 - 2).max(0));
    count(((rows / step).round() * step) as u64)
}

/// Rows per second with the unit, as people read them.
pub(crate) fn rate(rows: f64) -> String {
    match rows {
        99_950_000.0.. => format!("{:.0} M rows/s", rows / 1e6),
        999_500.0.. => format!("{:.1} M rows/s", rows / 1e6),
        10.0.. => format!("{} rows/s", speed(rows)),
        _ => format!("{rows:.2} rows/s"),
    }
}

/// A time in its two largest units.
pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    let (large, small, of) = match seconds {
        0..60 => return format!("{seconds} s"),
        60..3600 => (("min", 60), ("s", 1), 60),
        3600..86_400 => (("h", 3600), ("min", 60), 60),
        _ => (("d", 86_400), ("h", 3600), 24),
    };
    format!("{} {} {} {}", count(seconds / large.1), large.0, seconds / small.1 % of, small.0)
}

/// A number with four digits that mean something.
pub(crate) fn figure(number: f64) -> String {
    match number.abs() {
        0.0 => "0".into(),
        1e-4..1e4 => {
            let digits = (3 - number.abs().log10().floor() as i32).clamp(0, 8) as usize;
            format!("{number:.digits$}")
        }
        _ => format!("{number:.3e}"),
    }
}

/// Characters of a name from a file that are shown.
const NAME: usize = 200;
/// Characters of a message that are shown, whatever values it has in it.
const MESSAGE: usize = 4000;

/// A name from a file on a line of its own or within one: control characters as escapes, cut where it is long.
pub(crate) fn name(name: &str) -> String {
    let shown: String = name.chars().take(NAME).flat_map(|c| escaped(c, c.is_control())).collect();
    if shown.len() < name.len() && name.chars().nth(NAME).is_some() { shown + "..." } else { shown }
}

/// Text that is safe for a terminal: what it would obey in names and paths becomes escapes.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().flat_map(|c| escaped(c, c.is_control() && c != '\n')).collect()
}

/// What something says, cut where it is long. What is cut is not even made.
pub(crate) fn message(of: &impl Display) -> String {
    struct Shown(String, usize);
    impl fmt::Write for Shown {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            for c in text.chars() {
                self.1 = self.1.checked_sub(1).ok_or(fmt::Error)?;
                self.0.push(c);
            }
            Ok(())
        }
    }
    let mut shown = Shown(String::new(), MESSAGE);
    let is_whole = fmt::write(&mut shown, format_args!("{of}")).is_ok();
    harmless(&shown.0) + if is_whole { "" } else { "..." }
}

fn escaped(c: char, is_escaped: bool) -> impl Iterator<Item = char> {
    let escape = is_escaped.then(|| c.escape_debug());
    let plain = (!is_escaped).then_some(c);
    plain.into_iter().chain(escape.into_iter().flatten())
}

/// Paths as JSON: a text where there is one, else a list.
pub(crate) fn one_or_all(paths: &[PathBuf]) -> Value {
    if let [only] = paths { path_text(only).into() } else { paths.iter().map(path_text).collect() }
}

/// One of a thing, or several.
pub(crate) fn plural(number: u64, one: &str) -> String {
    format!("{} {one}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Lines of cells in columns: the first to the left, the others to the right. A line of one cell spans all.
pub(crate) fn columns(lines: &[Vec<String>]) -> String {
    let width = |cell: &String| cell.chars().count();
    let mut widths = vec![0; lines.iter().map(Vec::len).max().unwrap_or(0)];
    for line in lines.iter().filter(|line| line.len() > 1) {
        for (widest, cell) in widths.iter_mut().zip(line) {
            *widest = (*widest).max(width(cell));
        }
    }
    let mut text = String::new();
    for line in lines {
        if let [only] = line.as_slice() {
            text += only;
        } else {
            let mut out = String::new();
            for (column, (cell, &widest)) in line.iter().zip(&widths).enumerate() {
                let room = " ".repeat(widest - width(cell));
                out += &if column == 0 { format!("{cell}{room}") } else { format!("  {room}{cell}") };
            }
            text += out.trim_end();
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(speed(1_234_567.0), "1,230,000");
        assert_eq!((speed(0.4), speed(12.0), speed(999.6)), ("0".into(), "12".into(), "1,000".into()));
        for (rows, text) in [
            (565.7213, "566 rows/s"),
            (0.0, "0.00 rows/s"),
            (4.268, "4.27 rows/s"),
            (14_349.0, "14,300 rows/s"),
            (999_499.0, "999,000 rows/s"),
            (999_500.0, "1.0 M rows/s"),
            (1_437_000.0, "1.4 M rows/s"),
            (99_949_999.0, "99.9 M rows/s"),
            (123_456_789.0, "123 M rows/s"),
        ] {
            assert_eq!(rate(rows), text);
        }
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min 0 s"),
            (3599, "59 min 59 s"),
            (7505, "2 h 5 min"),
            (86_399, "23 h 59 min"),
            (356_400, "4 d 3 h"),
            (u64::MAX, "213,503,982,334,601 d 7 h"),
        ] {
            assert_eq!(duration(Duration::from_secs(seconds)), text);
        }
        assert_eq!((figure(0.068_31), figure(1.0), figure(0.0)), ("0.06831".into(), "1.000".into(), "0".into()));
        assert_eq!(
            (figure(1234.5), figure(1e-30), figure(-0.5)),
            ("1234".into(), "1.000e-30".into(), "-0.5000".into())
        );
        assert_eq!((plural(1, "row"), plural(2, "row")), ("1 row".into(), "2 rows".into()));
    }

    #[test]
    fn what_a_terminal_would_obey_is_escaped_and_what_is_long_is_cut() {
        assert_eq!((name("a\u{1b}[2J\nb"), name("plain")), ("a\\u{1b}[2J\\nb".into(), "plain".into()));
        assert_eq!(name(&"é".repeat(NAME)), "é".repeat(NAME));
        assert_eq!(name(&"é".repeat(NAME + 1)), "é".repeat(NAME) + "...");
        assert_eq!(harmless("a\nb\u{9b}31m\r"), "a\nb\\u{9b}31m\\r");
        assert_eq!(message(&"x".repeat(10_000)), "x".repeat(MESSAGE) + "...");
        assert_eq!(message(&"x\u{7}"), "x\\u{7}");
    }

    #[test]
    fn columns_align() {
        let line = |cells: &[&str]| cells.iter().map(|cell| cell.to_string()).collect();
        let lines = [line(&["a", "1"]), line(&["a longer line of one cell"]), line(&["long", "22", ""])];
        assert_eq!(columns(&lines), "a      1\na longer line of one cell\nlong  22\n");
    }
}
