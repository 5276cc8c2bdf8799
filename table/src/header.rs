//! The safetensors header: read with every check that needs no data, and written byte for byte the same every time.
//!
//! The `safetensors` crate is not used for this: it reads a duplicated name as one tensor, says "invalid shape, data
//! type, or offset for tensor" without saying which, refuses a whole checkpoint for one data type it does not know,
//! and writes `__metadata__` in random order. The tests hold this module against it.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{self, Read};
use std::path::Path;

use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::foreign::FIRST_BYTES;
pub use crate::foreign::ForeignFile;
use crate::names::{KEY_CHECKSUM, LENGTH_BYTES, METADATA_KEY, PARTIAL_SUFFIX};
use crate::quote::{cut, quoted, sizes, word};
use crate::seal::Seal;

/// Largest header: the limit that other readers of safetensors have.
pub const MAX_HEADER_BYTES: u64 = 100_000_000;
/// Most dimensions of a tensor: as many as PyTorch and NumPy have.
pub const MAX_DIMENSIONS: u64 = 64;

/// One tensor of a safetensors file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorEntry {
    /// Name.
    pub name: String,
    /// Data type as the header spells it, such as `BF16`.
    pub dtype: String,
    /// Shape, outermost dimension first.
    pub shape: Vec<u64>,
    /// First byte, counted from the start of the data.
    pub start: u64,
    /// One beyond the last byte, counted from the start of the data.
    pub end: u64,
}

impl TensorEntry {
    /// Bytes of data.
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }
}

/// A checked safetensors header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The string map, in file order.
    pub metadata: Vec<(String, String)>,
    /// The tensors, in order of their data: each starts where the one before ends, the first at 0.
    pub tensors: Vec<TensorEntry>,
    /// Where the data starts in the file.
    pub data_start: u64,
    /// Where in `tensors` a name is: checkpoints have tens of thousands.
    places: HashMap<String, usize>,
    /// The checksum that the header has of itself, of a table file.
    pub seal: Option<Seal>,
}

/// A file that is not the safetensors file it should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// Fewer bytes than the length field has.
    #[error("file is {got} bytes, expected a safetensors file of at least 8")]
    Short {
        /// Got.
        got: u64,
    },
    /// A file of another kind.
    #[error("file {kind}")]
    Foreign {
        /// Of which.
        kind: ForeignFile,
    },
    /// The length field is larger than any header.
    #[error("header length is {got}, expected at most {MAX_HEADER_BYTES}: not a safetensors file")]
    TooLarge {
        /// Got.
        got: u64,
    },
    /// The file ends within its header.
    #[error("header ends at byte {expected} but the file is {got} bytes: truncated, or not a safetensors file")]
    Cut {
        /// File length.
        got: u64,
        /// Where the header would end.
        expected: u64,
    },
    /// The header is no JSON of the right form.
    #[error("header is not that of a safetensors file: {}", cut(.0))]
    Json(#[source] serde_json::Error),
    /// Two tensors have one name.
    #[error("tensor {} is in the header twice, expected once", quoted(.tensor))]
    Duplicate {
        /// Name.
        tensor: String,
    },
    /// A tensor has more dimensions than any program makes.
    #[error("tensor {} has {got} dimensions, expected at most {MAX_DIMENSIONS}", quoted(.tensor))]
    Dimensions {
        /// Name.
        tensor: String,
        /// Got.
        got: u64,
    },
    /// The data range of a tensor ends before it starts.
    #[error(
        "tensor {} has data from byte {start} to {end}, expected an end that is not before the start",
        quoted(.tensor)
    )]
    Range {
        /// Name.
        tensor: String,
        /// Got.
        start: u64,
        /// Got.
        end: u64,
    },
    /// Shape and data type ask for another number of bytes than the data range has, or for more than 2^64.
    #[error(
        "tensor {} of type {} and shape {} has {got} bytes of data, expected {}",
        quoted(.tensor),
        word(.dtype),
        sizes(.shape),
        or_overflow(.expected)
    )]
    Size {
        /// Name.
        tensor: String,
        /// Data type.
        dtype: String,
        /// Shape.
        shape: Vec<u64>,
        /// Got.
        got: u64,
        /// Expected; `None` when that is 2^64 or more, or no whole number.
        expected: Option<u64>,
    },
    /// Two tensors share bytes.
    #[error(
        "tensor {} starts at data byte {got}, expected {expected}: it overlaps the tensor before it",
        quoted(.tensor)
    )]
    Overlap {
        /// Name.
        tensor: String,
        /// Got.
        got: u64,
        /// Expected.
        expected: u64,
    },
    /// Bytes between two tensors belong to neither.
    #[error(
        "tensor {} starts at data byte {got}, expected {expected}: bytes before it belong to no tensor",
        quoted(.tensor)
    )]
    Gap {
        /// Name.
        tensor: String,
        /// Got.
        got: u64,
        /// Expected.
        expected: u64,
    },
    /// The file ends before its data does.
    #[error("file is {got} bytes, expected {expected}: truncated")]
    Truncated {
        /// File length.
        got: u64,
        /// Length the header asks for.
        expected: u128,
    },
    /// The file continues after its data.
    #[error("file is {got} bytes, expected {expected}: bytes at its end belong to no tensor")]
    Trailing {
        /// File length.
        got: u64,
        /// Length the header asks for.
        expected: u64,
    },
    /// The header to be written is larger than any reader takes.
    #[error("header would be {got} bytes, expected at most {MAX_HEADER_BYTES}: too many tensors for one file")]
    WriteTooLarge {
        /// Got.
        got: u64,
    },
}

impl HeaderError {
    /// A short, stable name: reject files are tied to it, and programs may compare it.
    pub fn code(&self) -> &'static str {
        match self {
            HeaderError::Short { .. } => "header-short",
            HeaderError::Foreign { .. } => "header-foreign",
            HeaderError::TooLarge { .. } => "header-too-large",
            HeaderError::Cut { .. } => "header-cut",
            HeaderError::Json(_) => "header-json",
            HeaderError::Duplicate { .. } => "header-duplicate",
            HeaderError::Dimensions { .. } => "header-dimensions",
            HeaderError::Range { .. } => "header-range",
            HeaderError::Size { .. } => "header-size",
            HeaderError::Overlap { .. } => "header-overlap",
            HeaderError::Gap { .. } => "header-gap",
            HeaderError::Truncated { .. } => "header-truncated",
            HeaderError::Trailing { .. } => "header-trailing",
            HeaderError::WriteTooLarge { .. } => "header-write-too-large",
        }
    }

    /// Says what the file is where these first bytes of it tell. Only a file whose start cannot be a length of a header
    /// is looked at: any other that is wrong is a safetensors file with a fault.
    fn of_file(self, first: &[u8]) -> HeaderError {
        let is_none = match self {
            HeaderError::TooLarge { .. } => true,
            HeaderError::Json(_) => first.iter().all(|&byte| byte == 0),
            _ => false,
        };
        match ForeignFile::recognise(first).filter(|_| is_none) {
            Some(kind) => HeaderError::Foreign { kind },
            None => self,
        }
    }

    /// Says more where the name of the file does.
    pub fn at(self, path: &Path) -> HeaderError {
        let is_partial = path.as_os_str().to_string_lossy().ends_with(PARTIAL_SUFFIX);
        if is_partial { HeaderError::Foreign { kind: ForeignFile::Partial } } else { self }
    }
}

fn or_overflow(bytes: &Option<u64>) -> String {
    bytes.map_or_else(|| "a whole number of bytes below 2^64".into(), |bytes| bytes.to_string())
}

impl Header {
    /// Reads and checks the header of a file of `length` bytes, from its start.
    ///
    /// # Errors
    /// [`HeaderError`] inside the outer `Ok` for a file that is not right, [`io::Error`] when it cannot be read.
    pub fn read(file: &mut impl Read, length: u64) -> io::Result<Result<Header, HeaderError>> {
        if length < LENGTH_BYTES {
            return Ok(Err(HeaderError::Short { got: length }));
        }
        let mut field = [0; LENGTH_BYTES as usize];
        file.read_exact(&mut field)?;
        let mut refused = |error: HeaderError| {
            let mut first = field.to_vec();
            file.take(FIRST_BYTES as u64 - LENGTH_BYTES).read_to_end(&mut first)?;
            Ok(Err(error.of_file(&first)))
        };
        let bytes = match Header::check_length(u64::from_le_bytes(field), length) {
            Ok(0) => return refused(HeaderError::Json(no_json())),
            Ok(bytes) => bytes,
            Err(error) => return refused(error),
        };
        let mut json = vec![0; bytes];
        file.read_exact(&mut json)?;
        Ok(Header::parse(&json, length - LENGTH_BYTES - bytes as u64))
    }

    /// Reads and checks the header of a file that lies in memory.
    ///
    /// # Errors
    /// [`HeaderError`].
    pub fn from_bytes(file: &[u8]) -> Result<Header, HeaderError> {
        let length = file.len() as u64;
        let (field, rest) = file.split_first_chunk().ok_or(HeaderError::Short { got: length })?;
        let refused = |error: HeaderError| error.of_file(&file[..file.len().min(FIRST_BYTES)]);
        let (json, data) = match Header::check_length(u64::from_le_bytes(*field), length).map_err(refused)? {
            0 => return Err(refused(HeaderError::Json(no_json()))),
            bytes => rest.split_at(bytes),
        };
        Header::parse(json, data.len() as u64)
    }

    /// The length field against the file's length.
    fn check_length(got: u64, file: u64) -> Result<usize, HeaderError> {
        if got > MAX_HEADER_BYTES {
            return Err(HeaderError::TooLarge { got });
        }
        let expected = LENGTH_BYTES + got;
        if expected > file {
            return Err(HeaderError::Cut { got: file, expected });
        }
        Ok(got as usize)
    }

    /// The JSON against the bytes of data that follow it.
    fn parse(json: &[u8], data: u64) -> Result<Header, HeaderError> {
        let raw: RawHeader = serde_json::from_slice(json).map_err(HeaderError::Json)?;
        let data_start = LENGTH_BYTES + json.len() as u64;
        if let Some((tensor, got)) = raw.too_deep {
            return Err(HeaderError::Dimensions { tensor, got });
        }
        let mut tensors = raw.tensors;
        let mut names = HashSet::with_capacity(tensors.len());
        for tensor in &tensors {
            if !names.insert(tensor.name.as_str()) {
                return Err(HeaderError::Duplicate { tensor: tensor.name.clone() });
            }
            if tensor.start > tensor.end {
                let (start, end) = (tensor.start, tensor.end);
                return Err(HeaderError::Range { tensor: tensor.name.clone(), start, end });
            }
            // A data type from the future is somebody else's tensor: its range is all that can be checked.
            if let Some(bits) = dtype_bits(&tensor.dtype) {
                let expected = data_bytes(bits, &tensor.shape);
                if expected != Some(tensor.bytes()) {
                    return Err(HeaderError::Size {
                        tensor: tensor.name.clone(),
                        dtype: tensor.dtype.clone(),
                        shape: tensor.shape.clone(),
                        got: tensor.bytes(),
                        expected,
                    });
                }
            }
        }
        tensors.sort_by_key(|tensor| (tensor.start, tensor.end));
        let mut expected = 0;
        for tensor in &tensors {
            let (name, got) = (&tensor.name, tensor.start);
            if got < expected {
                return Err(HeaderError::Overlap { tensor: name.clone(), got, expected });
            }
            if got > expected {
                return Err(HeaderError::Gap { tensor: name.clone(), got, expected });
            }
            expected = tensor.end;
        }
        let (got, expected) = (data_start + data, u128::from(data_start) + u128::from(expected));
        if expected > u128::from(got) {
            return Err(HeaderError::Truncated { got, expected });
        }
        if expected < u128::from(got) {
            return Err(HeaderError::Trailing { got, expected: expected as u64 });
        }
        let places = tensors.iter().enumerate().map(|(place, tensor)| (tensor.name.clone(), place)).collect();
        let is_sealed = raw.metadata.iter().any(|(key, _)| key == KEY_CHECKSUM);
        let seal = if is_sealed { Seal::of(json) } else { None };
        Ok(Header { metadata: raw.metadata, tensors, data_start, places, seal })
    }

    /// A tensor by its name.
    pub fn tensor(&self, name: &str) -> Option<&TensorEntry> {
        self.place(name).map(|place| &self.tensors[place])
    }

    /// Where in [`Header::tensors`] a tensor is.
    pub fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// A string of the metadata.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.metadata.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }

    /// Length field and header as bytes, the header padded with spaces to a multiple of 8 and at least to
    /// `least` bytes in all.
    ///
    /// # Errors
    /// [`HeaderError::WriteTooLarge`].
    pub fn to_bytes(
        metadata: &[(String, String)],
        tensors: &[TensorEntry],
        least: u64,
    ) -> Result<Vec<u8>, HeaderError> {
        let json = serde_json::to_vec(&WriteHeader { metadata, tensors }).map_err(HeaderError::Json)?;
        let all = (LENGTH_BYTES + json.len() as u64).next_multiple_of(8).max(least);
        if all - LENGTH_BYTES > MAX_HEADER_BYTES {
            return Err(HeaderError::WriteTooLarge { got: all - LENGTH_BYTES });
        }
        let mut bytes = Vec::with_capacity(all as usize);
        bytes.extend((all - LENGTH_BYTES).to_le_bytes());
        bytes.extend(json);
        bytes.resize(all as usize, b' ');
        Ok(bytes)
    }
}

/// Bits of one element, `None` for a data type not known here.
fn dtype_bits(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" => 8,
        "I16" | "U16" | "F16" | "BF16" => 16,
        "I32" | "U32" | "F32" => 32,
        "I64" | "U64" | "F64" | "C64" => 64,
        _ => return None,
    })
}

/// Bytes of a tensor, `None` when they are 2^64 or more, or no whole number.
fn data_bytes(bits: u64, shape: &[u64]) -> Option<u64> {
    let bits = shape.iter().try_fold(u128::from(bits), |product, &size| product.checked_mul(u128::from(size)))?;
    if bits.is_multiple_of(8) { u64::try_from(bits / 8).ok() } else { None }
}

/// What a header of no bytes says.
fn no_json() -> serde_json::Error {
    serde_json::Error::custom("it has no bytes")
}

struct RawHeader {
    metadata: Vec<(String, String)>,
    tensors: Vec<TensorEntry>,
    /// The first tensor with more dimensions than any should have, and how many.
    too_deep: Option<(String, u64)>,
}

#[derive(Serialize, Deserialize)]
struct RawTensor<S> {
    dtype: String,
    shape: S,
    data_offsets: (u64, u64),
}

/// A shape that is read: of one with too many dimensions only their number is kept.
enum RawShape {
    Whole(Vec<u64>),
    TooDeep(u64),
}

impl<'de> Deserialize<'de> for RawShape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawShape, D::Error> {
        struct Sizes;
        impl<'de> Visitor<'de> for Sizes {
            type Value = RawShape;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of whole numbers")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<RawShape, A::Error> {
                let (mut shape, mut count) = (Vec::new(), 0);
                while let Some(size) = list.next_element()? {
                    count += 1;
                    if count <= MAX_DIMENSIONS {
                        shape.push(size);
                    }
                }
                Ok(if count <= MAX_DIMENSIONS { RawShape::Whole(shape) } else { RawShape::TooDeep(count) })
            }
        }
        deserializer.deserialize_seq(Sizes)
    }
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawHeader, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = RawHeader;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from tensor names to tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
                let (mut metadata, mut tensors, mut too_deep) = (None, Vec::new(), None);
                while let Some(name) = map.next_key::<String>()? {
                    if name == METADATA_KEY {
                        // Some writers spell out that there is none.
                        let strings = map.next_value::<Option<Strings>>()?.map_or_else(Vec::new, |strings| strings.0);
                        if metadata.replace(strings).is_some() {
                            return Err(A::Error::custom("__metadata__ is there twice"));
                        }
                        continue;
                    }
                    let RawTensor { dtype, shape, data_offsets: (start, end) } = map.next_value()?;
                    match shape {
                        RawShape::Whole(shape) => tensors.push(TensorEntry { name, dtype, shape, start, end }),
                        RawShape::TooDeep(count) => too_deep = too_deep.or(Some((name, count))),
                    }
                }
                Ok(RawHeader { metadata: metadata.unwrap_or_default(), tensors, too_deep })
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// A map of strings in file order, each key once.
pub struct Strings(pub Vec<(String, String)>);

impl<'de> Deserialize<'de> for Strings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Strings, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Strings;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from strings to strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Strings, A::Error> {
                let mut entries = Vec::new();
                let mut keys = HashSet::new();
                while let Some((key, value)) = map.next_entry::<String, String>()? {
                    if !keys.insert(key.clone()) {
                        return Err(A::Error::custom(format_args!("metadata key {} is there twice", quoted(&key))));
                    }
                    entries.push((key, value));
                }
                Ok(Strings(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

struct WriteHeader<'a> {
    metadata: &'a [(String, String)],
    tensors: &'a [TensorEntry],
}

impl Serialize for WriteHeader<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Strings<'a>(&'a [(String, String)]);
        impl Serialize for Strings<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
            }
        }
        let mut map = serializer.serialize_map(None)?;
        if !self.metadata.is_empty() {
            map.serialize_entry(METADATA_KEY, &Strings(self.metadata))?;
        }
        for tensor in self.tensors {
            let TensorEntry { name, dtype, shape, start, end } = tensor.clone();
            map.serialize_entry(&name, &RawTensor { dtype, shape, data_offsets: (start, end) })?;
        }
        map.end()
    }
}
