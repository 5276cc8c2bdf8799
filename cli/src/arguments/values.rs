//! Values of options that have a form of their own: outputs, numbers and ranges of rows, ids, sizes, rates, names.

use std::num::NonZeroU64;
use std::ops::Range;
use std::path::{Path, PathBuf, is_separator};

use condprog_checkpoint::family::Family;
use condprog_convert::PartOf;
use condprog_core::Rate;
use condprog_cpu::Isa;

use crate::error::Error;
use crate::ids;
use crate::number::whole;

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
    let expected = || format!("{text:?}: expected A..B, rows from A to before B, A below B, such as 0..1000 or 0..1e9");
    let (start, end) = text.split_once("..").ok_or_else(expected)?;
    let range = whole(start).ok_or_else(expected)?..whole(end).ok_or_else(expected)?;
    if range.is_empty() { Err(expected()) } else { Ok(range) }
}

/// A count, such as of rows: at least 1.
pub(super) fn number(text: &str) -> Result<NonZeroU64, String> {
    let expected = || "expected a whole number of at least 1, below 2^64, such as 1000, 1_000_000 or 1e9".to_string();
    whole(text).and_then(NonZeroU64::new).ok_or_else(expected)
}

/// A count, such as of rows: at least 1 and below 2^32.
pub(super) fn number_u32(text: &str) -> Result<u32, String> {
    u32::try_from(number(text)?.get()).map_err(|_| format!("expected at most {}", u32::MAX))
}

/// The file or folder that a command writes. It gets its name when it is complete, which a pipe cannot.
pub(super) fn output(path: PathBuf) -> Result<PathBuf, String> {
    if path.as_os_str() == "-" {
        return Err(
            "stdout cannot be the output, which gets its name when it is complete; expected the name of a file".into(),
        );
    }
    if path.file_name().is_none() {
        return Err("expected a path that ends in a name, such as folder/out.safetensors".into());
    }
    Ok(path)
}

/// An output that is always a file, whatever the other options say.
pub(super) fn output_file(path: PathBuf) -> Result<PathBuf, String> {
    let path = output(path)?;
    if ends_as_folder(&path) {
        return Err("expected the name of a file: this is the name of a folder".into());
    }
    Ok(path)
}

/// Whether a path can only be that of a folder.
fn ends_as_folder(path: &Path) -> bool {
    let mut pieces = path.as_os_str().as_encoded_bytes().rsplit(|&byte| is_separator(byte.into()));
    matches!(pieces.next(), Some(b"" | b"."))
}

/// Refuses the name of a folder for the output of a command that makes one only with `--whole`.
pub(crate) fn refuse_folder(output: &Path) -> Result<(), Error> {
    if ends_as_folder(output) {
        let output = output.display();
        return Err(Error::Usage(format!(
            "output is {output}, the name of a folder; expected that of a file, or --whole"
        )));
    }
    Ok(())
}

/// Catches the name that other programs have for `--rate`.
pub(super) fn bits(text: &str) -> Result<Rate, String> {
    Err(format!("the option for bits per value is --rate, such as --rate {text}"))
}

/// Ids of rows, as [`ids::list`] reads them.
#[derive(Clone, Debug)]
pub(crate) struct IdList(pub(crate) Vec<i64>);

pub(super) fn id_list(text: &str) -> Result<IdList, String> {
    let mut ids = Vec::new();
    ids::list(text, &mut ids)?;
    Ok(IdList(ids))
}

pub(super) fn share(text: &str) -> Result<PartOf, String> {
    let expected = || format!("{text:?}: expected K/N, K from 0 to N - 1, such as 0/16");
    let (index, of) = text.split_once('/').ok_or_else(expected)?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| expected());
    let (index, of) = (number(index)?, number(of)?);
    if index < of { Ok(PartOf::Share { index, of }) } else { Err(expected()) }
}

pub(super) fn join_tensors(text: &str) -> Result<(String, String), String> {
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

pub(super) fn level() -> impl clap::builder::TypedValueParser<Value = Isa> {
    use clap::builder::{PossibleValuesParser, TypedValueParser as _};
    PossibleValuesParser::new(Isa::ALL.map(Isa::name)).try_map(|name| name.parse::<Isa>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_may_have_underscores_and_powers_of_ten() {
        let cases = [
            ("7", 7),
            ("1_000_000", 1_000_000),
            ("1e9", 1_000_000_000),
            ("1E+3", 1000),
            ("384.0061680e6", 384_006_168),
            ("5e0", 5),
            ("1.50e1", 15),
            ("18446744073709551615", u64::MAX),
            ("1e19", 10u64.pow(19)),
        ];
        for (text, expected) in cases {
            assert_eq!(number(text).map(NonZeroU64::get), Ok(expected), "{text}");
        }
        let faults = [
            "",
            "_",
            "0",
            "0e5",
            "-1",
            "+1",
            "1.5",
            "1.0",
            "1.",
            ".5e1",
            "1e",
            "e9",
            "1e-1",
            "1.55e1",
            "1e20",
            "2e19",
            "1e9e",
            "1e99999999999999999999",
            "10M",
            "1 000",
            "1,000",
            "0x10",
            "٣",
            "18446744073709551616",
        ];
        for text in faults {
            assert!(number(text).unwrap_err().contains("such as 1000, 1_000_000 or 1e9"), "{text}");
        }
        assert_eq!((number_u32("4294967295"), number_u32("4e9")), (Ok(u32::MAX), Ok(4_000_000_000)));
        assert_eq!(number_u32("1e10").unwrap_err(), "expected at most 4294967295");
        assert_eq!(row_range("1_000..1e6"), Ok(1000..1_000_000));
        for text in ["5", "5..5", "6..5", "1.5..2", "..5", "5..", "-1..5", "1..2..3"] {
            assert!(row_range(text).unwrap_err().contains("expected A..B"), "{text}");
        }
        let RateRows { table, rows, rate } = rate_rows("a:b:0..1e3=3").unwrap();
        assert_eq!((table.as_deref(), rows, rate.quarters()), (Some("a:b"), 0..1000, 12));
    }

    #[test]
    fn outputs_are_paths_that_end_in_a_name() {
        for path in ["out", "./-", "--", "/a/b", "a/b/", "a/.", "...", "~"] {
            assert_eq!(output(path.into()), Ok(path.into()));
        }
        for path in ["", "/", "//", ".", "./", "..", "../", "a/..", "/.."] {
            assert!(output(path.into()).unwrap_err().contains("a path that ends in a name"), "{path:?}");
        }
        for check in [output, output_file] {
            assert!(check("-".into()).unwrap_err().contains("stdout cannot be the output"));
        }
        assert!(output_file("a/b".into()).is_ok());
        for path in ["a/b/", "a/.", "a//"] {
            assert!(output_file(path.into()).unwrap_err().contains("the name of a folder"), "{path}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn outputs_need_not_be_utf_8() {
        use std::os::unix::ffi::OsStringExt;
        let path = PathBuf::from(std::ffi::OsString::from_vec(b"\xff/\xfe.npy".to_vec()));
        assert_eq!(output_file(path.clone()), Ok(path));
    }

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
