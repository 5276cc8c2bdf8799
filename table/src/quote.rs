//! Values from files as messages show them: quoted, control characters escaped, long ones cut. A header may hold a name
//! or a shape of a hundred megabytes, which nobody should have to scroll past.

use std::fmt::{self, Display, Write};

/// Characters of a value that are shown.
const SHOWN: usize = 200;
/// Elements of a list that are shown.
const LISTED: usize = 8;

/// A name, in quotes.
pub fn quoted(text: &str) -> impl Display {
    fmt::from_fn(move |f| match text.char_indices().nth(SHOWN) {
        None => write!(f, "{text:?}"),
        Some((end, _)) => write!(f, "{:?}... ({} characters in all)", &text[..end], text.chars().count()),
    })
}

/// A word such as a data type: as it is if it is a single word, else in quotes.
pub fn word(text: &str) -> impl Display {
    fmt::from_fn(move |f| {
        let is_word = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !text.is_empty() && text.len() <= 32 && is_word(text) { f.write_str(text) } else { quoted(text).fmt(f) }
    })
}

/// A shape.
pub fn sizes(shape: &[u64]) -> impl Display {
    fmt::from_fn(move |f| {
        let shown = &shape[..shape.len().min(LISTED)];
        match shape.len() - shown.len() {
            0 => write!(f, "{shown:?}"),
            _ => write!(f, "{shown:?}... ({} dimensions in all)", shape.len()),
        }
    })
}

/// Names with a word such as `or` before the last.
pub fn listed<T: AsRef<str>>(names: &[T], word: &str) -> impl Display {
    fmt::from_fn(move |f| {
        let shown = names.len().min(LISTED);
        for (place, name) in names[..shown].iter().enumerate() {
            match place {
                0 => {}
                _ if place + 1 == names.len() => write!(f, " {word} ")?,
                _ => f.write_str(", ")?,
            }
            quoted(name.as_ref()).fmt(f)?;
        }
        if shown < names.len() { write!(f, " {word} {} more", names.len() - shown) } else { Ok(()) }
    })
}

/// Another error's message, which may have a value of any length in it.
pub fn cut(message: &impl Display) -> impl Display {
    fmt::from_fn(move |f| {
        let mut shown = Shown { out: f, left: 2 * SHOWN };
        match write!(shown, "{message}") {
            // What is left out is not even made.
            Err(fmt::Error) if shown.left == 0 => f.write_str("..."),
            result => result,
        }
    })
}

/// Passes on a limited number of characters, control characters escaped, and fails at the next.
struct Shown<'a, 'b> {
    out: &'a mut fmt::Formatter<'b>,
    left: usize,
}

impl Write for Shown<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            self.left = self.left.checked_sub(1).ok_or(fmt::Error)?;
            if c.is_control() { Display::fmt(&c.escape_debug(), self.out)? } else { self.out.write_char(c)? }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_values_are_whole_and_long_ones_are_cut() {
        assert_eq!(quoted("a\u{1b}[2J\n\u{202e}b").to_string(), r#""a\u{1b}[2J\n\u{202e}b""#);
        let long = "é".repeat(1_000_000);
        assert_eq!(quoted(&long).to_string(), format!("{:?}... (1000000 characters in all)", "é".repeat(SHOWN)));
        assert_eq!((word("BF16").to_string(), word("a b").to_string()), ("BF16".into(), "\"a b\"".into()));
        assert_eq!((word("").to_string(), word("\u{1b}").to_string()), ("\"\"".into(), "\"\\u{1b}\"".into()));
        assert_eq!(sizes(&[1, 2]).to_string(), "[1, 2]");
        assert_eq!(sizes(&[1; 9]).to_string(), "[1, 1, 1, 1, 1, 1, 1, 1]... (9 dimensions in all)");
        assert_eq!(listed(&["a", "b", "c"], "or").to_string(), r#""a", "b" or "c""#);
        assert_eq!(listed(&["a"; 10], "and").to_string(), r#""a", "a", "a", "a", "a", "a", "a", "a" and 2 more"#);
        assert_eq!(cut(&"short\u{7}").to_string(), "short\\u{7}");
        assert_eq!(cut(&"x".repeat(2 * SHOWN)).to_string(), "x".repeat(2 * SHOWN));
        assert_eq!(cut(&long).to_string(), format!("{}...", "é".repeat(2 * SHOWN)));
    }
}
