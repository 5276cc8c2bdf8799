//! Values of options that have a form of their own: sizes, ranges of rows, rates, names.

use std::num::NonZeroU64;
use std::ops::Range;

use condprog_core::Rate;
use condprog_cpu::Level;
use condprog_table::PartOf;
use condprog_table::family::Family;

/// A range of rows with a rate of its own.
#[derive(Clone, Debug)]
pub(crate) struct RateRows {
    /// Of this table; of all if `None`.
    pub(crate) table: Option<String>,
    pub(crate) rows: Range<u64>,
    pub(crate) rate: Rate,
}

pub(super) fn rate_rows(text: &str) -> Result<RateRows, String> {
    let (place, rate) = text.rsplit_once('=').ok_or("expected rows and a rate, such as 0..1000=3")?;
    let (table, rows) = match place.rsplit_once(':') {
        Some((table, rows)) => (Some(table.to_string()), rows),
        None => (None, place),
    };
    let rate = rate.parse().map_err(|error| format!("{rate:?} is {error}"))?;
    Ok(RateRows { table, rows: row_range(rows)?, rate })
}

/// Rows from the first to before the second.
pub(super) fn row_range(text: &str) -> Result<Range<u64>, String> {
    let expected = || format!("{text:?}: expected A..B, rows from A to before B, A below B, such as 0..1000");
    let (start, end) = text.split_once("..").ok_or_else(expected)?;
    let number = |text: &str| text.replace('_', "").parse::<u64>().map_err(|_| expected());
    let range = number(start)?..number(end)?;
    if range.is_empty() { Err(expected()) } else { Ok(range) }
}

pub(super) fn share(text: &str) -> Result<PartOf, String> {
    let expected = || format!("{text:?}: expected K/N, K from 0 to N - 1, such as 0/16");
    let (index, of) = text.split_once('/').ok_or_else(expected)?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| expected());
    let (index, of) = (number(index)?, number(of)?);
    if index < of { Ok(PartOf::Share { index, of }) } else { Err(expected()) }
}

pub(super) fn segments(text: &str) -> Result<(String, String), String> {
    let (table, pattern) = text.split_once('=').ok_or("expected a name and a pattern, such as table=shard_*.weight")?;
    if table.is_empty() {
        return Err("the name of the table is empty".into());
    }
    Ok((table.into(), pattern.into()))
}

pub(super) fn order_rate(text: &str) -> Result<(u32, Rate), String> {
    let (order, rate) = text.split_once('=').ok_or("expected an order and a rate, such as 2=3")?;
    let order = order.parse().map_err(|_| format!("order is {order:?}, expected a number such as 2"))?;
    Ok((order, rate.parse().map_err(|error| format!("{rate:?} is {error}"))?))
}

pub(super) fn family() -> impl clap::builder::TypedValueParser<Value = Family> {
    use clap::builder::{PossibleValuesParser, TypedValueParser as _};
    PossibleValuesParser::new(Family::ALL.map(Family::name)).try_map(|name| name.parse::<Family>())
}

/// A number of bytes, with a unit of powers of 1000 or of 1024.
pub(super) fn size(text: &str) -> Result<NonZeroU64, String> {
    let expected = || "expected a size of at least 1 byte, below 2^64, such as 141GB, 80GiB or 70272".to_string();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start().to_ascii_lowercase();
    let units = ["", "b", "kb", "mb", "gb", "tb", "kib", "mib", "gib", "tib"];
    let place = units.iter().position(|known| *known == unit).ok_or_else(expected)? as u32;
    let unit: u128 = match place {
        0 | 1 => 1,
        2..6 => 1000u128.pow(place - 1),
        _ => 1024u128.pow(place - 5),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // Digits after the point past a byte are cut off.
    let all: u128 = format!("{whole}{fraction}").parse().map_err(|_| expected())?;
    let bytes = all.checked_mul(unit).zip(10u128.checked_pow(fraction.len() as u32)).map(|(all, tens)| all / tens);
    let bytes = bytes.and_then(|bytes| u64::try_from(bytes).ok()).and_then(NonZeroU64::new);
    bytes.filter(|_| !whole.is_empty()).ok_or_else(expected)
}

pub(super) fn level() -> impl clap::builder::TypedValueParser<Value = Level> {
    use clap::builder::{PossibleValuesParser, TypedValueParser as _};
    PossibleValuesParser::new(Level::ALL.map(Level::name)).try_map(|name| name.parse::<Level>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_decimal_and_binary_units() {
        let cases = [
            ("141GB", 141_000_000_000),
            ("141 gb", 141_000_000_000),
            ("80GiB", 80 << 30),
            ("1.5KiB", 1536),
            ("0.5kB", 500),
            ("1.0001kB", 1000),
            ("70272", 70272),
            ("7b", 7),
            ("2TiB", 2 << 40),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, bytes) in cases {
            assert_eq!(size(text).map(NonZeroU64::get), Ok(bytes), "{text}");
        }
        let zeros = format!("1.{}1GB", "0".repeat(60));
        for text in
            ["", "GB", ".5GB", "1..5GB", "1.5.5", "-1", "0", "0.1", "1e9", "141G", "18446744073709551616", &zeros]
        {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
