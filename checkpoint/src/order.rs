//! Names with numbers in them, in the order that people expect, and whether they form one run.

use std::collections::BTreeMap;

/// Most names that numbers in braces may stand for.
const MAX_LISTED: u128 = 1 << 16;

/// A name in pieces that sort as people expect: numbers by their value.
pub(super) type Pieces<'a> = Vec<(&'a str, Option<u128>)>;

pub(super) fn natural(name: &str) -> Pieces<'_> {
    let mut pieces = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let text = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let digits = rest[text..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |digits| text + digits);
        let number = &rest[text..digits];
        // Numbers past the largest there is are the same: two such names are refused.
        let value = (!number.is_empty()).then(|| number.parse().unwrap_or(u128::MAX));
        pieces.push((&rest[..text], value));
        rest = &rest[digits..];
    }
    pieces
}

/// Why names are not one run of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Disorder<'a> {
    /// Two have the same numbers, in another spelling.
    Same([&'a str; 2]),
    /// Numbers between two are missing.
    Gap([&'a str; 2]),
    /// The first does not have number 0; how a pattern is written that names the numbers.
    First(&'a str, String),
}

/// Names in natural order. Of those that differ in numbers alone, the last number that differs must be 0, 1, 2 and so
/// on, wherever the others are the same; any may be the first where `from_any` says so.
pub(super) fn order<'a>(names: &mut [&'a str], from_any: bool) -> Result<(), Disorder<'a>> {
    names.sort_by_cached_key(|name| (natural(name), name.len()));
    let pieces: Vec<_> = names.iter().map(|name| natural(name)).collect();
    if let Some(at) = pieces.windows(2).position(|pair| pair[0] == pair[1]) {
        return Err(Disorder::Same([names[at], names[at + 1]]));
    }
    let mut forms: BTreeMap<Vec<&str>, Vec<usize>> = BTreeMap::new();
    for (at, pieces) in pieces.iter().enumerate() {
        forms.entry(pieces.iter().map(|piece| piece.0).collect()).or_default().push(at);
    }
    for places in forms.values() {
        let Some(number) = last_that_differs(&pieces, places) else { continue };
        for run in places.chunk_by(|&a, &b| pieces[a][..number] == pieces[b][..number]) {
            let value = |at: usize| pieces[at][number].1.unwrap_or(0);
            if let Some(pair) = run.windows(2).find(|pair| value(pair[1]) - value(pair[0]) > 1) {
                return Err(Disorder::Gap([names[pair[0]], names[pair[1]]]));
            }
            if value(run[0]) != 0 && !from_any {
                let last = run[run.len() - 1];
                let pattern = in_braces(names[run[0]], number, &format!("{}..{}", value(run[0]), value(last)));
                return Err(Disorder::First(names[run[0]], pattern));
            }
        }
    }
    Ok(())
}

/// What is wrong with the only name that a pattern matches: that its wildcard stands for a number which is not 0.
pub(super) fn single<'a>(pattern: &str, name: &'a str) -> Option<Disorder<'a>> {
    let before = pattern.find(['*', '?', '['])?;
    let behind = pattern.len() - pattern.rfind(['*', '?', ']'])? - 1;
    let digits = name.get(before..name.len().checked_sub(behind)?)?;
    let is_other =
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) && digits.parse() != Ok(0u128);
    is_other.then(|| {
        let (start, end) = (&name[..before], &name[name.len() - behind..]);
        Disorder::First(name, format!("{start}{{{digits}..{digits}}}{end}"))
    })
}

/// The place of the last number in which names of one form differ.
fn last_that_differs(pieces: &[Pieces<'_>], places: &[usize]) -> Option<usize> {
    let first = &pieces[places[0]];
    (0..first.len()).rev().find(|&number| places.iter().any(|&at| pieces[at][number].1 != first[number].1))
}

/// A name with something in braces in place of one of its numbers.
fn in_braces(name: &str, number: usize, text: &str) -> String {
    let mut rest = name;
    for _ in 0..=number {
        let digits = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        rest = rest[digits..].trim_start_matches(|c: char| !c.is_ascii_digit());
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest = &rest[end..];
    }
    let before = &name[..name.len() - rest.len()];
    format!("{}{{{text}}}{rest}", before.trim_end_matches(|c: char| c.is_ascii_digit()))
}

/// The numbers of names that differ in one alone.
pub(super) fn numbers<T: AsRef<str>>(names: &[T]) -> Option<Vec<u128>> {
    let pieces: Vec<_> = names.iter().map(|name| natural(name.as_ref())).collect();
    let places: Vec<_> = (0..pieces.len()).collect();
    let first = pieces.first()?;
    let number =
        pieces.iter().all(|other| other.len() == first.len()).then(|| last_that_differs(&pieces, &places))??;
    let others = |pieces: &Pieces<'_>| {
        let mut pairs = pieces.iter().zip(first).enumerate();
        pairs.all(|(at, (piece, first))| piece.0 == first.0 && (at == number || piece.1 == first.1))
    };
    let values = pieces.iter().map(|pieces| pieces[number].1.filter(|_| others(pieces)));
    values.collect()
}

/// The patterns that one stands for in which `{A..B}` lists numbers; `None` where nothing is listed. With leading zeros
/// in A, all have as many digits.
pub(super) fn listed(pattern: &str) -> Option<Vec<String>> {
    let mut all = vec![String::new()];
    let (mut rest, mut any) = (pattern, false);
    while let Some(open) = rest.find('{') {
        let (before, after) = rest.split_at(open);
        let range = after[1..].split_once('}').and_then(|(inner, rest)| Some((inner.split_once("..")?, rest)));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let range = range.filter(|((first, last), _)| is_number(first) && is_number(last));
        let bounds = range.and_then(|((first, last), _)| Some((first.parse().ok()?, last.parse::<u128>().ok()?)));
        let (Some((first, last)), Some(((digits, _), behind))) = (bounds, range) else {
            all.iter_mut().for_each(|text| text.extend([before, "{"]));
            rest = &after[1..];
            continue;
        };
        let width = if digits.starts_with('0') { digits.len() } else { 0 };
        let count = last.checked_sub(first)?.checked_add(1)?;
        if count.checked_mul(all.len() as u128)? > MAX_LISTED {
            return None;
        }
        all = all.iter().flat_map(|text| (first..=last).map(move |n| format!("{text}{before}{n:0width$}"))).collect();
        (rest, any) = (behind, true);
    }
    all.iter_mut().for_each(|text| text.push_str(rest));
    any.then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_start_at_zero_and_have_no_gaps() {
        let check = |names: &[&'static str], from_any| {
            let mut names = names.to_vec();
            order(&mut names, from_any).map(|()| names)
        };
        assert_eq!(check(&["t.10", "t.9", "t.8"], true), Ok(vec!["t.8", "t.9", "t.10"]));
        assert_eq!(check(&["t.9", "t.8"], false), Err(Disorder::First("t.8", "t.{8..9}".into())));
        assert_eq!(check(&["a1.t.1.w", "a1.t.2.w"], false), Err(Disorder::First("a1.t.1.w", "a1.t.{1..2}.w".into())));
        assert_eq!(check(&["t.0", "t.2"], true), Err(Disorder::Gap(["t.0", "t.2"])));
        assert_eq!(check(&["t.0", "t.1", "t.00"], true), Err(Disorder::Same(["t.0", "t.00"])));
        // Layers may be any; shards of each are a run of their own.
        let layers = ["b.3.s_0.w", "b.3.s_1.w", "b.14.s_0.w", "b.14.s_1.w"];
        assert_eq!(check(&layers, false), Ok(layers.into()));
        let error = check(&["b.3.s_0.w", "b.3.s_1.w", "b.14.s_1.w"], false);
        assert_eq!(error, Err(Disorder::First("b.14.s_1.w", "b.14.s_{1..1}.w".into())));
        assert_eq!(check(&["t0", "t"], false), Ok(vec!["t", "t0"]));
        // Names that differ in more than numbers have no numbers to be missing.
        assert_eq!(check(&["b", "a.5", "a"], false), Ok(vec!["a", "a.5", "b"]));
        let huge = ["t.999999999999999999999999999999999999999998", "t.999999999999999999999999999999999999999999"];
        assert!(matches!(check(&huge, true), Err(Disorder::Same(_))));
    }

    #[test]
    fn the_only_name_has_number_zero() {
        assert_eq!(single("t.*.w", "t.5.w"), Some(Disorder::First("t.5.w", "t.{5..5}.w".into())));
        assert_eq!(single("t.[0-9].w", "t.00.w"), None);
        for (pattern, name) in [("t.*", "t.w5"), ("t", "t"), ("*t*", "t"), ("*", "0"), ("t.*", "t.")] {
            assert_eq!(single(pattern, name), None, "{pattern} {name}");
        }
    }

    #[test]
    fn braces_list_numbers() {
        let all = |names: &[&str]| Some(names.iter().map(|name| name.to_string()).collect::<Vec<_>>());
        assert_eq!(listed("t.{9..11}.w"), all(&["t.9.w", "t.10.w", "t.11.w"]));
        assert_eq!(listed("t.{08..10}"), all(&["t.08", "t.09", "t.10"]));
        assert_eq!(listed("{1..2}.{x}.{0..1}"), all(&["1.{x}.0", "1.{x}.1", "2.{x}.0", "2.{x}.1"]));
        for other in ["t.*", "t.{a..b}", "t.{1..", "t.{1..-2}", "t.{..2}", "t.{2..1}", "t.{0..99999999999}"] {
            assert_eq!(listed(other), None, "{other}");
        }
        assert_eq!(numbers(&["a.1.w", "a.5.w"]), Some(vec![1, 5]));
        assert_eq!(numbers(&["a.1.w", "b.5.w"]), None);
        assert_eq!(numbers(&["a.1"]), None);
    }
}
