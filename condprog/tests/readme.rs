//! The README's example is the one on this crate's page, which runs as a doctest.

const README: &str = include_str!("../../README.md");
const PAGE: &str = include_str!("../src/lib.rs");

/// The lines between the first line that is `start` and the next that is three backticks.
fn block<'a>(lines: impl Iterator<Item = &'a str>, start: &str) -> Vec<&'a str> {
    lines.skip_while(|line| *line != start).skip(1).take_while(|line| *line != "```").collect()
}

#[test]
fn the_readme_shows_the_example_that_runs() {
    let page =
        PAGE.lines().filter_map(|line| line.strip_prefix("//!")).map(|line| line.strip_prefix(' ').unwrap_or(line));
    let shown: Vec<_> = block(page, "```").into_iter().filter(|line| !line.starts_with("# ")).collect();
    assert!(!shown.is_empty());
    assert_eq!(block(README.lines(), "```rust"), shown);
}
