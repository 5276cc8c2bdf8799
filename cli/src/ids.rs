//! Ids of rows, from the command line and from files.

use std::fs;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use condprog_table::header::Header;

use crate::error::Error;
use crate::npy::{self, Ids, Integers};
use crate::number::whole;
use crate::text::count;

/// Most ids that the ranges of one list may give. A request is held in memory; for more, decompress the whole table.
const MOST_OF_RANGES: u64 = 100_000_000;
/// Most dimensions of ids: with one more for the values of a row it is the most that every version of NumPy takes.
const MOST_DIMENSIONS: usize = 31;

impl Ids {
    /// Ids in one dimension.
    pub(crate) fn line(ids: Vec<i64>) -> Ids {
        Ids { shape: vec![ids.len() as u64], ids }
    }
}

/// Reads the ids of a file, by its first bytes and by what its name ends in; `-` is stdin.
pub(crate) fn read(path: &Path) -> Result<Ids, Error> {
    let io = |source| Error::Io { action: "read", path: path.into(), source };
    let bytes = if path == Path::new("-") {
        let mut bytes = Vec::new();
        io::stdin().read_to_end(&mut bytes).map_err(io)?;
        bytes
    } else {
        condprog_table::regular_file(path)?;
        fs::read(path).map_err(io)?
    };
    let ids = match path.extension().and_then(|extension| extension.to_str()) {
        Some("npy") => npy::read(&bytes),
        Some("safetensors") => from_safetensors(&bytes),
        _ if bytes.starts_with(npy::MAGIC) => npy::read(&bytes),
        _ if is_safetensors(&bytes) => from_safetensors(&bytes),
        _ => from_text(&bytes).map(Ids::line),
    };
    let ids = ids.and_then(|ids| match ids.shape.len() {
        0..=MOST_DIMENSIONS => Ok(ids),
        more => Err(format!("has ids of {more} dimensions, expected at most {MOST_DIMENSIONS}")),
    });
    ids.map_err(|message| Error::Ids { path: path.into(), message })
}

/// Whether a file without a telling name is a safetensors file: after eight bytes, of which no text has the last ones,
/// comes JSON.
fn is_safetensors(bytes: &[u8]) -> bool {
    matches!(bytes, [_, _, _, _, 0, 0, 0, 0, b'{', ..])
}

fn from_text(bytes: &[u8]) -> Result<Vec<i64>, String> {
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err("is text in UTF-16, expected UTF-8".into());
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|_| "is not text, expected ids as text, as an .npy of integers, or as a .safetensors")?;
    let mut ids = Vec::new();
    // Some programs begin text with a byte order mark.
    for (line, text) in (1..).zip(text.strip_prefix('\u{feff}').unwrap_or(text).lines()) {
        list(text, &mut ids).map_err(|message| format!("line {line} has {message}"))?;
    }
    Ok(ids)
}

/// Adds the ids of a list to others: whole numbers and ranges `A..B`, from A to before B, with commas or white space
/// between them.
pub(crate) fn list(text: &str, ids: &mut Vec<i64>) -> Result<(), String> {
    for word in text.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty()) {
        let Some((start, end)) = word.split_once("..") else {
            ids.push(word.parse().map_err(|_| format!("{word:?}, expected an id: a whole number"))?);
            continue;
        };
        let expected = || format!("{word:?}, expected A..B, ids from A to before B, A below B, such as 0..1000");
        let range: Range<i64> = end_of_range(start).ok_or_else(expected)?..end_of_range(end).ok_or_else(expected)?;
        if range.is_empty() {
            return Err(expected());
        }
        let all = range.end.abs_diff(range.start).saturating_add(ids.len() as u64);
        if all > MOST_OF_RANGES {
            let (all, most) = (count(all), count(MOST_OF_RANGES));
            return Err(format!(
                "{word:?}, which makes {all} ids, expected at most {most} where a range is given; decompress restores \
                 whole tables"
            ));
        }
        ids.extend(range);
    }
    Ok(())
}

/// Where a range starts or ends: a number of rows as elsewhere, or a number below 0.
fn end_of_range(text: &str) -> Option<i64> {
    match text.strip_prefix('-') {
        Some(text) => 0i64.checked_sub_unsigned(whole(text)?),
        None => i64::try_from(whole(text)?).ok(),
    }
}

fn from_safetensors(bytes: &[u8]) -> Result<Ids, String> {
    let header = Header::from_bytes(bytes).map_err(|error| error.to_string())?;
    let [tensor] = header.tensors.as_slice() else {
        return Err(format!("has {} tensors, expected one of ids", header.tensors.len()));
    };
    let integers = Integers::of_safetensors(&tensor.dtype).ok_or_else(|| {
        format!("tensor {:?} has elements of type {:?}, expected integers", tensor.name, tensor.dtype)
    })?;
    let range = (header.data_start + tensor.start) as usize..(header.data_start + tensor.end) as usize;
    let ids = integers.read(&bytes[range]).map_err(|message| format!("tensor {:?}: {message}", tensor.name))?;
    Ok(Ids { ids, shape: tensor.shape.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_may_have_lines_commas_spaces_ranges_and_a_byte_order_mark() {
        assert_eq!(from_text(b"5, 7\n-1\r\n\n9,\t10,"), Ok(vec![5, 7, -1, 9, 10]));
        assert_eq!(from_text(b"\xef\xbb\xbf5\n2..5 -2..1,1e3..1_002"), Ok(vec![5, 2, 3, 4, -2, -1, 0, 1000, 1001]));
        assert_eq!(from_text(b""), Ok(vec![]));
        assert_eq!(from_text(b"5\n7.5").unwrap_err(), "line 2 has \"7.5\", expected an id: a whole number");
        assert!(from_text(b"\xff\xfe5\0").unwrap_err().contains("UTF-16"));
        assert!(from_text(b"5 \xff").unwrap_err().contains("is not text"));
        let end = i64::MAX;
        assert_eq!(from_text(format!("{}..{end}", end - 1).as_bytes()), Ok(vec![end - 1]));
    }

    #[test]
    fn ranges_are_half_open_and_bounded() {
        for text in ["5..5", "7..5", "..5", "5..", "0..=5", "0..1.5", "0..9223372036854775808", "1..2..3", "--1..5"] {
            let message = list(text, &mut Vec::new()).unwrap_err();
            assert!(message.starts_with(&format!("{text:?}, expected A..B")), "{message}");
        }
        let mut ids = vec![0; 3];
        let message = list("0..1e8", &mut ids).unwrap_err();
        assert_eq!(
            message,
            "\"0..1e8\", which makes 100,000,003 ids, expected at most 100,000,000 where a range is given; decompress \
             restores whole tables"
        );
        let all = format!("-{}..{}", i64::MAX, i64::MAX);
        assert!(list(&all, &mut ids).unwrap_err().contains("makes 18,446,744,073,709,551,"), "no overflow");
        assert_eq!(ids.len(), 3);
    }

    #[test]
    fn safetensors_hold_one_tensor_of_integers_of_any_shape() {
        let file = |json: &str, data: &[u8]| [&(json.len() as u64).to_le_bytes(), json.as_bytes(), data].concat();
        let ids: Vec<u8> = [3i64, -1].iter().flat_map(|id| id.to_le_bytes()).collect();
        let one = r#"{"ids":{"dtype":"I64","shape":[2,1],"data_offsets":[0,16]}}"#;
        let whole = file(one, &ids);
        assert!(is_safetensors(&whole) && !is_safetensors(b"5 7 9 11 13"));
        assert_eq!(from_safetensors(&whole), Ok(Ids { ids: vec![3, -1], shape: vec![2, 1] }));
        let float = one.replace("I64", "F64");
        assert_eq!(
            from_safetensors(&file(&float, &ids)).unwrap_err(),
            "tensor \"ids\" has elements of type \"F64\", expected integers"
        );
        assert_eq!(from_safetensors(&file("{}", &[])).unwrap_err(), "has 0 tensors, expected one of ids");
    }
}
