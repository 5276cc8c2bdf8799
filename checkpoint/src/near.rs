//! Names that may have been meant by one that is not there.

/// Names that are suggested.
const SUGGESTED: usize = 3;
/// Longer names are not compared letter by letter.
const COMPARED: usize = 256;

/// The names nearest to one that is not among them, or to a pattern that matches none.
pub(super) fn near<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    // Of a pattern, its longest piece without a wildcard.
    let piece = wanted.split(['*', '?', '[', ']', '{', '}']).max_by_key(|piece| piece.len()).unwrap_or_default();
    let is_pattern = piece.len() < wanted.len();
    let mut found: Vec<(usize, &str)> = names
        .filter_map(|name| {
            let contains = piece.len() > 2 && (name.contains(piece) || !is_pattern && piece.contains(name));
            let letters =
                || (!is_pattern && name.len() < COMPARED && wanted.len() < COMPARED).then(|| changes(wanted, name));
            let close = || letters().filter(|&changes| changes <= 1 + wanted.chars().count() / 5);
            let far = if contains { Some(name.len().abs_diff(piece.len())) } else { close() };
            Some((far?, name))
        })
        .collect();
    found.sort();
    found.into_iter().take(SUGGESTED).map(|(_, name)| name.into()).collect()
}

/// Letters to put in, take out or change to make one text of the other.
fn changes(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, a) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for (column, &b) in to.iter().enumerate() {
            let change = diagonal + usize::from(a != b);
            diagonal = row[column + 1];
            row[column + 1] = change.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_and_forgotten_wrappers_are_found() {
        let names = ["model.layers.1.engram.embed.weight", "model.layers.14.engram.embed.weight", "head.weight"];
        let near = |wanted| near(wanted, names.into_iter());
        assert_eq!(near("layers.1.engram.embed.weight"), [names[0]]);
        assert_eq!(near("model.layers.1.engam.embed.weight"), [names[0], names[1]]);
        assert_eq!(near("layers.*.engram.embed.w"), [names[0], names[1]]);
        assert_eq!(near("head"), [names[2]]);
        assert!(near("nothing.like.it").is_empty() && near("*").is_empty() && near("").is_empty());
        assert_eq!((changes("kitten", "sitting"), changes("", "ab"), changes("ab", "ab")), (3, 2, 0));
    }
}
