//! Text for people: aligned columns, and numbers as they read them.

use std::path::Path;

use indicatif::{BinaryBytes, DecimalBytes, HumanCount};

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
        assert_eq!((figure(0.068_31), figure(1.0), figure(0.0)), ("0.06831".into(), "1.000".into(), "0".into()));
        assert_eq!(
            (figure(1234.5), figure(1e-30), figure(-0.5)),
            ("1234".into(), "1.000e-30".into(), "-0.5000".into())
        );
        assert_eq!((plural(1, "row"), plural(2, "row")), ("1 row".into(), "2 rows".into()));
    }

    #[test]
    fn columns_align() {
        let line = |cells: &[&str]| cells.iter().map(|cell| cell.to_string()).collect();
        let lines = [line(&["a", "1"]), line(&["a longer line of one cell"]), line(&["long", "22", ""])];
        assert_eq!(columns(&lines), "a      1\na longer line of one cell\nlong  22\n");
    }
}
