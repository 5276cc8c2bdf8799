//! JSON as the vector files have it: one vector a line, so that a change is one line of a diff.

use serde::Serialize;

pub(crate) fn value<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("vectors hold only strings and numbers")
}

pub(crate) fn lines<T: Serialize>(items: &[T]) -> String {
    let lines: Vec<_> = items.iter().map(|item| format!("  {}", value(item))).collect();
    format!("[\n{}\n ]", lines.join(",\n"))
}

pub(crate) fn object(members: &[(&str, String)]) -> String {
    let members: Vec<_> = members.iter().map(|(name, text)| format!(" {}: {text}", value(name))).collect();
    format!("{{\n{}\n}}\n", members.join(",\n"))
}
