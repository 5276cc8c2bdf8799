//! Arrays in NumPy's file format: a header that is a Python literal, then the elements.
//!
//! No crate is used for this. `npyz` 0.9 and `ndarray-npy` 0.10 both read the header with `py_literal`, which brings a
//! parser generator, big integers and a build step in C; `npyz` multiplies a hostile shape without a check, which gives
//! an array of no ids where the product is 2^64, and does not look for bytes after the data.

use std::io::{self, Write};

use condprog_core::Dtype;

/// What every file begins with.
pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";

/// Writes the header of a row-major array. Values in bf16 are declared as what they are to NumPy without extensions:
/// 16-bit patterns.
pub(crate) fn write_header(out: &mut impl Write, dtype: Dtype, shape: &[u64]) -> io::Result<()> {
    let descr = match dtype {
        Dtype::Bf16 => "<u2",
        Dtype::F16 => "<f2",
        Dtype::F32 => "<f4",
    };
    let sizes = shape.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    // A tuple of one has a comma, too.
    let comma = if shape.len() == 1 { "," } else { "" };
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({sizes}{comma}), }}");
    // Elements start at a multiple of 64 bytes, after magic, version, length and header.
    let unpadded = MAGIC.len() + 4 + text.len() + 1;
    text += &" ".repeat(unpadded.next_multiple_of(64) - unpadded);
    text.push('\n');
    let length = u16::try_from(text.len()).map_err(|_| io::Error::other("the shape has too many dimensions"))?;
    out.write_all(MAGIC)?;
    out.write_all(&[1, 0])?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(text.as_bytes())
}

/// Ids in row order, and the shape they were given in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ids {
    pub(crate) ids: Vec<i64>,
    pub(crate) shape: Vec<u64>,
}

/// Reads a whole file of integers.
pub(crate) fn read(file: &[u8]) -> Result<Ids, String> {
    let not_npy = || "is not a whole .npy file, expected an array of integers".to_string();
    let (start, length): (usize, usize) = match *file.strip_prefix(MAGIC).ok_or_else(not_npy)? {
        [1, _, a, b, ..] => (10, u16::from_le_bytes([a, b]).into()),
        [2 | 3, _, a, b, c, d, ..] => (12, u32::from_le_bytes([a, b, c, d]) as usize),
        [version, ..] if version > 3 => return Err(format!("has version {version} of .npy, expected 1, 2 or 3")),
        _ => return Err(not_npy()),
    };
    let header = file.get(start..start.saturating_add(length)).ok_or_else(not_npy)?;
    let Header { descr, fortran_order, shape } = Literal(header).header()?;
    let integers = Integers::of_npy(&descr)
        .ok_or_else(|| format!("has elements of type {:?}, expected integers", String::from_utf8_lossy(&descr)))?;
    let data = &file[start + length..];
    // A product beyond 2^64 is the size of no array, unless another size is 0.
    let product = |product: u64, &size: &u64| product.checked_mul(size);
    let elements = if shape.contains(&0) { Some(0) } else { shape.iter().try_fold(1, product) };
    let expected = elements.and_then(|elements| elements.checked_mul(integers.bytes as u64));
    if expected != Some(data.len() as u64) {
        let (got, expected) = (data.len(), expected.map_or("2^64 or more".into(), |bytes| bytes.to_string()));
        return Err(format!("has {got} bytes of elements, expected {expected} for an array of shape {shape:?}"));
    }
    let ids = integers.read(data)?;
    Ok(Ids { ids: if fortran_order { to_row_order(&ids, &shape) } else { ids }, shape })
}

/// Elements that lie in column order, in row order.
fn to_row_order(elements: &[i64], shape: &[u64]) -> Vec<i64> {
    let mut index = vec![0; shape.len()];
    let mut ordered = Vec::with_capacity(elements.len());
    for _ in elements {
        // Of column order the first index is the fastest.
        let place = index.iter().zip(shape).rev().fold(0, |place, (index, size)| place * size + index);
        ordered.push(elements[place as usize]);
        for (index, &size) in index.iter_mut().zip(shape).rev() {
            *index += 1;
            if *index < size {
                break;
            }
            *index = 0;
        }
    }
    ordered
}

/// A type of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Integers {
    bytes: usize,
    signed: bool,
    big_endian: bool,
}

impl Integers {
    /// By its NumPy name, such as `<i8`.
    fn of_npy(descr: &[u8]) -> Option<Integers> {
        let (order, kind, bytes) = match *descr {
            [order @ (b'<' | b'>'), kind, bytes @ (b'1' | b'2' | b'4' | b'8')] => (order, kind, bytes),
            [b'|', kind, b'1'] => (b'|', kind, b'1'),
            _ => return None,
        };
        let signed = match kind {
            b'i' => true,
            b'u' => false,
            _ => return None,
        };
        Some(Integers { bytes: usize::from(bytes - b'0'), signed, big_endian: order == b'>' })
    }

    /// By its safetensors name, such as `I64`.
    pub(crate) fn of_safetensors(dtype: &str) -> Option<Integers> {
        let signed = dtype.starts_with('I');
        let bytes = match dtype.strip_prefix(['I', 'U'])? {
            "8" => 1,
            "16" => 2,
            "32" => 4,
            "64" => 8,
            _ => return None,
        };
        Some(Integers { bytes, signed, big_endian: false })
    }

    /// The numbers of this type in a whole number of elements.
    pub(crate) fn read(self, data: &[u8]) -> Result<Vec<i64>, String> {
        let id = |bytes: &[u8]| {
            // The sign goes on to the left of a number of fewer bytes.
            let most = if self.big_endian { bytes.first() } else { bytes.last() };
            let fill = if self.signed && most.is_some_and(|byte| byte >> 7 == 1) { 0xff } else { 0 };
            let mut wide = [fill; 8];
            for (place, &byte) in bytes.iter().enumerate() {
                wide[if self.big_endian { bytes.len() - 1 - place } else { place }] = byte;
            }
            let id = i64::from_le_bytes(wide);
            // Of a number without a sign, the highest bit is no sign.
            if self.signed || id >= 0 { Ok(id) } else { Err("an id is above 2^63 - 1, the largest there is") }
        };
        data.chunks_exact(self.bytes).map(id).collect::<Result<_, _>>().map_err(Into::into)
    }
}

/// What the header says.
#[derive(Debug, PartialEq, Eq)]
struct Header {
    descr: Vec<u8>,
    fortran_order: bool,
    shape: Vec<u64>,
}

/// The rest of a header: a Python dictionary of a string, a truth value and a tuple of numbers.
struct Literal<'a>(&'a [u8]);

impl<'a> Literal<'a> {
    fn header(mut self) -> Result<Header, String> {
        self.dictionary().ok_or_else(|| "has a header that is not that of an array of numbers".into())
    }

    fn dictionary(&mut self) -> Option<Header> {
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        self.take(b"{").then_some(())?;
        while !self.take(b"}") {
            let key = self.string()?;
            self.take(b":").then_some(())?;
            // Each key once.
            let again = match key {
                b"descr" => descr.replace(self.string()?.to_vec()).is_some(),
                b"fortran_order" => fortran_order.replace(self.truth()?).is_some(),
                b"shape" => shape.replace(self.tuple()?).is_some(),
                _ => return None,
            };
            if again || !self.take(b",") && !self.0.trim_ascii_start().starts_with(b"}") {
                return None;
            }
        }
        self.0.trim_ascii().is_empty().then_some(Header { descr: descr?, fortran_order: fortran_order?, shape: shape? })
    }

    /// Takes a token, if it is the next.
    fn take(&mut self, token: &[u8]) -> bool {
        let rest = self.0.trim_ascii_start().strip_prefix(token);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn string(&mut self) -> Option<&'a [u8]> {
        let quote = if self.take(b"'") { b'\'' } else { self.take(b"\"").then_some(b'"')? };
        let end = self.0.iter().position(|&byte| byte == quote)?;
        let (string, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Some(string)
    }

    fn truth(&mut self) -> Option<bool> {
        if self.take(b"True") { Some(true) } else { self.take(b"False").then_some(false) }
    }

    fn tuple(&mut self) -> Option<Vec<u64>> {
        let mut numbers = Vec::new();
        self.take(b"(").then_some(())?;
        while !self.take(b")") {
            let text = self.0.trim_ascii_start();
            let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
            numbers.push(std::str::from_utf8(&text[..digits]).ok()?.parse().ok()?);
            self.0 = &text[digits..];
            // Python 2 wrote long numbers with an L.
            self.take(b"L");
            if !self.take(b",") && !self.0.trim_ascii_start().starts_with(b")") {
                return None;
            }
        }
        Some(numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(descr: &str, order: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n");
        [MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes(), data].concat()
    }

    fn bytes(ids: &[i32]) -> Vec<u8> {
        ids.iter().flat_map(|id| id.to_le_bytes()).collect()
    }

    #[test]
    fn headers_are_padded_and_say_what_follows() {
        for (dtype, descr) in [(Dtype::Bf16, "<u2"), (Dtype::F16, "<f2"), (Dtype::F32, "<f4")] {
            for shape in [&[][..], &[256], &[3, 256], &[0, 3, 256], &[u64::MAX; 32]] {
                let mut file = Vec::new();
                write_header(&mut file, dtype, shape).unwrap();
                assert!(file.len().is_multiple_of(64) && file.ends_with(b"\n"));
                assert_eq!(file[..8], [MAGIC, &[1, 0]].concat());
                assert_eq!(usize::from(u16::from_le_bytes([file[8], file[9]])), file.len() - 10);
                let header = Literal(&file[10..]).header().unwrap();
                assert_eq!(header, Header { descr: descr.into(), fortran_order: false, shape: shape.into() });
            }
        }
        let mut file = Vec::new();
        write_header(&mut file, Dtype::F32, &[7]).unwrap();
        assert!(file[10..].starts_with(b"{'descr': '<f4', 'fortran_order': False, 'shape': (7,), }"));
        assert!(write_header(&mut file, Dtype::F32, &[1; 1 << 15]).is_err(), "longer than its length field can say");
    }

    #[test]
    fn integers_of_every_type_are_read() {
        for (descr, dtype, data, expected) in [
            ("'|i1'", "I8", &[0x80, 7][..], [-128, 7]),
            ("'|u1'", "U8", &[0x80, 7], [128, 7]),
            ("'<i2'", "I16", &[0xfe, 0xff, 7, 0], [-2, 7]),
            ("'<u2'", "U16", &[0xfe, 0xff, 7, 0], [0xfffe, 7]),
            ("'<u4'", "U32", &[0, 0, 0, 0x80, 7, 0, 0, 0], [1 << 31, 7]),
            ("'<i4'", "I32", &[0, 0, 0, 0x80, 7, 0, 0, 0], [-(1 << 31), 7]),
            ("'<i8'", "I64", &[0, 0, 0, 0, 0, 0, 0, 0x80, 7, 0, 0, 0, 0, 0, 0, 0], [i64::MIN, 7]),
            ("'<u8'", "U64", &[0, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0], [1 << 32, 7]),
        ] {
            let expected = Ids { ids: expected.into(), shape: vec![2] };
            assert_eq!(read(&file(descr, "False", "(2,)", data)).as_ref(), Ok(&expected), "{descr}");
            assert_eq!(Integers::of_safetensors(dtype).unwrap().read(data).as_ref(), Ok(&expected.ids), "{dtype}");
            // The same numbers with their bytes in the other order.
            let size = data.len() / 2;
            let swapped: Vec<u8> = data.chunks(size).flat_map(|bytes| bytes.iter().rev()).copied().collect();
            let big = file(&descr.replace(['<', '|'], ">"), "False", "(2,)", &swapped);
            assert_eq!(read(&big).as_ref(), Ok(&expected), "{descr}, big-endian");
        }
        for dtype in ["F64", "BOOL", "I4", "I128", "", "I", "64"] {
            assert_eq!(Integers::of_safetensors(dtype), None, "{dtype}");
        }
    }

    #[test]
    fn shapes_and_orders_count() {
        let data = bytes(&[5, -1, 7, 9, 11, 13]);
        for (order, shape, ids, sizes) in [
            ("False", "(6,)", [5, -1, 7, 9, 11, 13], &[6][..]),
            ("True", "(6,)", [5, -1, 7, 9, 11, 13], &[6]),
            ("False", "(2, 3)", [5, -1, 7, 9, 11, 13], &[2, 3]),
            ("True", "(2, 3)", [5, 7, 11, -1, 9, 13], &[2, 3]),
            ("True", "(1, 6L,)", [5, -1, 7, 9, 11, 13], &[1, 6]),
            ("True", "(3, 1, 2)", [5, 9, -1, 11, 7, 13], &[3, 1, 2]),
        ] {
            let expected = Ids { ids: ids.into(), shape: sizes.into() };
            assert_eq!(read(&file("'<i4'", order, shape, &data)), Ok(expected), "{order} {shape}");
        }
        assert_eq!(read(&file("'<i4'", "False", "()", &data[..4])), Ok(Ids { ids: vec![5], shape: vec![] }));
        for order in ["False", "True"] {
            let empty = read(&file("'<i4'", order, "(4611686018427387904, 0, 8)", &[]));
            assert_eq!(empty, Ok(Ids { ids: vec![], shape: vec![1 << 62, 0, 8] }));
        }
        // Version 3, keys in another order, double quotes, no space.
        let header = br#"{"shape":(2,3),"fortran_order":False,"descr":"<i4"}"#;
        let file = [MAGIC, &[3, 0], &(header.len() as u32).to_le_bytes(), header, &data].concat();
        assert_eq!(read(&file).unwrap().shape, [2, 3]);
    }

    #[test]
    fn what_is_not_a_whole_array_of_integers_is_named() {
        let data = bytes(&[5, -1, 7]);
        let whole = file("'<i4'", "False", "(3,)", &data);
        let header = "a header that is not that of an array of numbers";
        let faults = [
            (file("'<f4'", "False", "(3,)", &data), "has elements of type \"<f4\", expected integers"),
            (file("'|b1'", "False", "(12,)", &data), "has elements of type \"|b1\""),
            (file("'|O'", "False", "(3,)", &data), "has elements of type \"|O\""),
            (file("'<i3'", "False", "(4,)", &data), "has elements of type \"<i3\""),
            (file("[('id', '<i4')]", "False", "(3,)", &data), header),
            (file("'<i8'", "False", "(3,)", &data), "has 12 bytes of elements, expected 24 for an array of shape [3]"),
            (file("'<i4'", "False", "(2,)", &data), "has 12 bytes of elements, expected 8 for an array of shape [2]"),
            (file("'<i4'", "False", "(4, 1)", &data), "expected 16 for an array of shape [4, 1]"),
            (file("'<i4'", "False", "(4611686018427387904, 4)", &[]), "expected 2^64 or more for an array"),
            (file("'<i4'", "False", "(4611686018427387904,)", &[]), "expected 2^64 or more for an array"),
            (file("'<u8'", "False", "(1,)", &[0xff; 8]), "an id is above 2^63 - 1"),
            (file("'<i4'", "False", "(-3,)", &data), header),
            (file("'<i4'", "False", "(18446744073709551616,)", &data), header),
            (file("'<i4'", "False", "3", &data), header),
            (file("'<i4'", "false", "(3,)", &data), header),
            (file("'<i4'", "False", "(3,), 'shape': (3,)", &data), header),
            (file("'<i4'", "False", "(3,), 'more': (3,)", &data), header),
            (file("'<i4'", "False", &"(".repeat(60_000), &data), header),
            (whole[..20].to_vec(), "is not a whole .npy file"),
            (whole[..8].to_vec(), "is not a whole .npy file"),
            ([MAGIC, &[4, 0, 0, 0, 0, 0]].concat(), "has version 4 of .npy, expected 1, 2 or 3"),
            (b"PK".to_vec(), "is not a whole .npy file"),
        ];
        for (file, fault) in faults {
            let got = read(&file).unwrap_err();
            assert!(got.contains(fault), "{got:?} says {fault:?}");
        }
        // Cut anywhere, and with a byte more, it is no array.
        for end in 0..whole.len() {
            assert!(read(&whole[..end]).is_err(), "{end}");
        }
        assert!(read(&[&whole[..], &[0]].concat()).is_err());
    }
}
