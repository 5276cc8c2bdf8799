//! Arrays in NumPy's file format, version 1.0: a header that is a Python literal, then the elements.

use std::io::{self, Write};

use condprog_core::Dtype;

const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";

/// Writes the header of a row-major array `[rows, dim]`. Values in bf16 are declared as what they are to NumPy without
/// extensions: 16-bit patterns.
pub(crate) fn write_header(out: &mut impl Write, dtype: Dtype, rows: usize, dim: u32) -> io::Result<()> {
    let descr = match dtype {
        Dtype::Bf16 => "<u2",
        Dtype::F16 => "<f2",
        Dtype::F32 => "<f4",
    };
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({rows}, {dim}), }}");
    // Elements start at a multiple of 64 bytes.
    let unpadded = MAGIC.len() + 2 + text.len() + 1;
    text += &" ".repeat(unpadded.next_multiple_of(64) - unpadded);
    text.push('\n');
    out.write_all(MAGIC)?;
    out.write_all(&(text.len() as u16).to_le_bytes())?;
    out.write_all(text.as_bytes())
}

/// The elements of an array of integers, in the order they lie in.
pub(crate) fn read_integers(file: &[u8]) -> Result<Vec<i64>, String> {
    let not_npy = || "not a whole .npy file, expected an array of integers".to_string();
    let major = *file.strip_prefix(b"\x93NUMPY").and_then(|rest| rest.first()).ok_or_else(not_npy)?;
    let (start, length) = match (major, file) {
        (1, &[_, _, _, _, _, _, _, _, a, b, ..]) => (10, usize::from(u16::from_le_bytes([a, b]))),
        (2 | 3, &[_, _, _, _, _, _, _, _, a, b, c, d, ..]) => (12, u32::from_le_bytes([a, b, c, d]) as usize),
        _ => return Err(not_npy()),
    };
    let header = file.get(start..start + length).ok_or_else(not_npy)?;
    let header = std::str::from_utf8(header).map_err(|_| not_npy())?;
    let descr = value(header, "descr").unwrap_or_default().trim_matches(['\'', '"']);
    if value(header, "fortran_order") == Some("True") && value(header, "shape").is_some_and(|s| s.contains(", ")) {
        return Err("array is in column order, expected row order: numpy.ascontiguousarray makes it so".into());
    }
    integers(descr, &file[start + length..])
}

/// The value of a key in the header's literal, up to the next key.
fn value<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = header.split_once(&format!("'{key}'"))?;
    let rest = rest.trim_start().strip_prefix(':')?.trim_start();
    let end = if rest.starts_with('(') { rest.find(')')? + 1 } else { rest.find([',', '}'])? };
    Some(rest[..end].trim())
}

/// Little-endian integers of a type as NumPy or safetensors spell it.
pub(crate) fn integers(dtype: &str, data: &[u8]) -> Result<Vec<i64>, String> {
    fn each<const N: usize>(data: &[u8], number: impl Fn([u8; N]) -> Option<i64>) -> Result<Vec<i64>, String> {
        let (whole, rest) = data.as_chunks::<N>();
        if !rest.is_empty() {
            return Err(format!("has {} bytes of data, expected a multiple of {N}", data.len()));
        }
        let numbers = whole.iter().map(|bytes| number(*bytes).ok_or("an id is above 2^63 - 1, the largest there is"));
        numbers.collect::<Result<_, _>>().map_err(Into::into)
    }
    match dtype {
        "<i8" | "I64" => each(data, |bytes| Some(i64::from_le_bytes(bytes))),
        "<u8" | "U64" => each(data, |bytes| i64::try_from(u64::from_le_bytes(bytes)).ok()),
        "<i4" | "I32" => each(data, |bytes| Some(i32::from_le_bytes(bytes).into())),
        "<u4" | "U32" => each(data, |bytes| Some(u32::from_le_bytes(bytes).into())),
        "<i2" | "I16" => each(data, |bytes| Some(i16::from_le_bytes(bytes).into())),
        "<u2" | "U16" => each(data, |bytes| Some(u16::from_le_bytes(bytes).into())),
        _ => Err(format!("has elements of type {dtype:?}, expected integers of 16, 32 or 64 bits, little-endian")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_padded_and_say_what_follows() {
        for (dtype, descr) in [(Dtype::Bf16, "<u2"), (Dtype::F16, "<f2"), (Dtype::F32, "<f4")] {
            let mut file = Vec::new();
            write_header(&mut file, dtype, 3, 256).unwrap();
            assert!(file.len().is_multiple_of(64) && file.ends_with(b"\n"));
            let text = String::from_utf8_lossy(&file[10..]).into_owned();
            assert_eq!(value(&text, "descr"), Some(format!("'{descr}'").as_str()));
            assert_eq!((value(&text, "fortran_order"), value(&text, "shape")), (Some("False"), Some("(3, 256)")));
        }
    }

    #[test]
    fn integers_are_read_back() {
        let file = |descr: &str, order: &str, shape: &str, data: &[u8]| {
            let header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
            [MAGIC, &(header.len() as u16).to_le_bytes(), header.as_bytes(), data].concat()
        };
        let data: Vec<u8> = [5i32, -1, 7].iter().flat_map(|id| id.to_le_bytes()).collect();
        assert_eq!(read_integers(&file("<i4", "False", "(3,)", &data)), Ok(vec![5, -1, 7]));
        assert_eq!(read_integers(&file("<i4", "True", "(3,)", &data)), Ok(vec![5, -1, 7]));
        let faults = [
            (file("<i4", "True", "(1, 3)", &data), "column order"),
            (file("<f4", "False", "(3,)", &data), "expected integers"),
            (file(">i4", "False", "(3,)", &data), "little-endian"),
            (file("<i8", "False", "(3,)", &data), "expected a multiple of 8"),
            (file("<u8", "False", "(1,)", &[0xff; 8]), "above 2^63 - 1"),
            (file("<i4", "False", "(3,)", &data)[..20].to_vec(), "not a whole .npy"),
            (b"PK".to_vec(), "not a whole .npy"),
        ];
        for (file, fault) in faults {
            let got = read_integers(&file).unwrap_err();
            assert!(got.contains(fault), "{got:?} says {fault:?}");
        }
    }
}
