//! The header reader and writer against the `safetensors` crate's.

use condprog_table::header::{ForeignFile, Header, HeaderError, MAX_DIMENSIONS, MAX_HEADER_BYTES};
use condprog_testkit::{Folder, write};
use proptest::prelude::*;
use safetensors::tensor::Dtype;

const DTYPES: [Dtype; 6] = [Dtype::U8, Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::I64, Dtype::F8_E4M3];

/// Length field, JSON and data.
fn file(json: &str, data: usize) -> Vec<u8> {
    [&(json.len() as u64).to_le_bytes(), json.as_bytes(), &vec![0; data]].concat()
}

fn refusal(json: &str, data: usize) -> HeaderError {
    let bytes = file(json, data);
    let error = Header::from_bytes(&bytes).unwrap_err();
    // From a file that is read piece by piece, the same is said.
    let read = Header::read(&mut &bytes[..], bytes.len() as u64).unwrap().unwrap_err();
    assert_eq!(read.to_string(), error.to_string());
    error
}

#[test]
fn what_is_no_safetensors_file_is_refused() {
    for bytes in [&b""[..], b"1234567"] {
        assert!(matches!(Header::from_bytes(bytes), Err(HeaderError::Short { .. })));
    }
    // A JPEG, a zip, a text: their first eight bytes make an absurd length.
    for bytes in [&b"\xff\xd8\xff\xe0\0\x10JFIF"[..], b"PK\x03\x04\x14\0\0\0\x08\0", b"# A text file\n"] {
        let error = Header::from_bytes(bytes).unwrap_err();
        let is_refused =
            matches!(error, HeaderError::TooLarge { .. } | HeaderError::Foreign { kind: ForeignFile::Zip });
        assert!(is_refused, "{error}");
    }
    let large = [(MAX_HEADER_BYTES + 1).to_le_bytes(), [0; 8]].concat();
    assert!(matches!(Header::from_bytes(&large), Err(HeaderError::TooLarge { .. })));
    for json in ["", "[]", "{", "{}x", "null", "{\"a\":1}", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", "\u{feff}{}"] {
        assert!(matches!(refusal(json, 0), HeaderError::Json(_)), "{json}");
    }
    let deep = format!("{{\"a\":{}", "[".repeat(100_000));
    assert!(matches!(refusal(&deep, 0), HeaderError::Json(_)));
}

#[test]
fn what_contradicts_itself_is_refused_by_name() {
    let tensor = |name: &str, dtype: &str, shape: &str, start: u64, end: u64| {
        format!("\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape},\"data_offsets\":[{start},{end}]}}")
    };
    let a = tensor("a", "U8", "[4]", 0, 4);
    let says = |tensors: &[&str], data: usize, expected: &str| {
        let message = refusal(&format!("{{{}}}", tensors.join(",")), data).to_string();
        assert!(message.contains(expected), "{message}");
    };
    says(&[&a, &tensor("a", "U8", "[4]", 4, 8)], 8, "tensor \"a\" is in the header twice");
    says(&[&a, &a], 4, "tensor \"a\" is in the header twice");
    says(&[&a, &tensor("b", "U8", "[4]", 3, 7)], 7, "tensor \"b\" starts at data byte 3, expected 4: it overlaps");
    says(&[&a, &tensor("b", "U8", "[4]", 5, 9)], 9, "tensor \"b\" starts at data byte 5, expected 4: bytes before it");
    says(&[&tensor("b", "U8", "[2]", 6, 4)], 8, "data from byte 6 to 4");
    says(&[&tensor("b", "F32", "[2]", 0, 4)], 4, "type F32 and shape [2] has 4 bytes of data, expected 8");
    says(&[&tensor("b", "U8", "[4294967296,4294967296]", 0, 4)], 4, "expected a whole number of bytes below 2^64");
    says(&[&tensor("b", "F4", "[3]", 0, 1)], 1, "expected a whole number of bytes");
    says(&[&a], 3, "file is 64 bytes, expected 65: truncated");
    says(&[&a], 5, "bytes at its end belong to no tensor");
    let end = u64::MAX;
    says(&[&tensor("b", "U8", &format!("[{end}]"), 0, end)], 4, "truncated");
    says(&["\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}"], 0, "metadata key \"k\" is there twice");
    says(&["\"__metadata__\":{}", "\"__metadata__\":{}"], 0, "__metadata__ is there twice");
    says(&["\"__metadata__\":{\"k\":1}"], 0, "expected a string");
}

#[test]
fn what_a_file_is_of_another_program_is_said() {
    let pad = |start: &[u8]| [start, &[b'x'; 100]].concat();
    let cases: [(Vec<u8>, &str); 9] = [
        (pad(b"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 5\n"), "git lfs pull"),
        (pad(b"GGUF\x03\0\0\0"), "is a GGUF file"),
        (pad(b"PK\x03\x04\0\0\x08\x08\0\0"), "as PyTorch's .pt and .bin files are"),
        (pad(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."), "is a Python pickle"),
        (pad(b"<!DOCTYPE html>\n<html lang=\"en\">"), "is a web page"),
        (pad(b"\x93NUMPY\x01\0v\0"), "is a NumPy array"),
        (pad(b"{\"weight_map\": {\"t\": \"a\"}}"), "ends in .safetensors.index.json"),
        (pad(b"\x1f\x8b\x08\x08\x12\x34\x56\x67name"), "unpack it first"),
        (vec![0; 4096], "its download was cut short"),
    ];
    for (bytes, says) in cases {
        let error = Header::from_bytes(&bytes).unwrap_err();
        let read = Header::read(&mut &bytes[..], bytes.len() as u64).unwrap().unwrap_err();
        assert_eq!((error.code(), error.to_string()), ("header-foreign", read.to_string()));
        assert!(error.to_string().contains(says), "{error}");
    }
    // A safetensors file with a fault is none of these, whatever its length is like.
    let cut = [&0x280u64.to_le_bytes()[..], b"{"].concat();
    assert_eq!(&cut[..2], b"\x80\x02");
    assert!(matches!(Header::from_bytes(&cut), Err(HeaderError::Cut { .. })));
    assert!(matches!(Header::from_bytes(b"\0\0\0\0\0\0\0\0{}"), Err(HeaderError::Json(_))));
}

#[test]
fn values_in_messages_are_cut_and_escaped() {
    let long = "n".repeat(1 << 20);
    let tensor = |name: &str, dtype: &str, shape: &str, end: u64| {
        format!("{{{name:?}:{{\"dtype\":{dtype:?},\"shape\":{shape},\"data_offsets\":[0,{end}]}}}}")
    };
    let cases = [
        (tensor(&long, "F32", "[2]", 4), "(1048576 characters in all)"),
        (tensor("a", "F32", &format!("[{}1]", "1,".repeat(63)), 5), "(64 dimensions in all)"),
        (
            tensor("a", "F32", &format!("[{}1]", "1,".repeat(1 << 20)), 4),
            "\"a\" has 1048577 dimensions, expected at most 64",
        ),
        (tensor("a", "F32", &format!("[\"{long}\"]"), 4), "..."),
        (format!("{{\"__metadata__\":{{\"{long}\":\"\",\"{long}\":\"\"}}}}"), "..."),
    ];
    for (json, says) in cases {
        let message = refusal(&json, 4).to_string();
        assert!(message.len() < 1000 && message.contains(says), "{}", &message[..message.len().min(1000)]);
    }
    let escapes = refusal(r#"{"a\u001b[2J":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#, 4).to_string();
    assert!(escapes.contains(r#"tensor "a\u{1b}[2J" of type"#), "{escapes}");
    let json = tensor("a", "F32", &format!("[{}1]", "1,".repeat(63)), 4);
    assert_eq!(Header::from_bytes(&file(&json, 4)).unwrap().tensors[0].shape.len() as u64, MAX_DIMENSIONS);
}

#[test]
fn metadata_that_is_null_is_none() {
    let json = r#"{"__metadata__":null,"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
    let header = Header::from_bytes(&file(json, 1)).unwrap();
    assert_eq!((header.metadata.len(), header.tensors.len()), (0, 1));
    for twice in [r#"{"__metadata__":null,"__metadata__":null}"#, r#"{"__metadata__":{},"__metadata__":null}"#] {
        assert!(refusal(twice, 0).to_string().contains("__metadata__ is there twice"));
    }
}

#[test]
fn data_types_of_the_future_do_not_spoil_a_file() {
    let json = r#"{"new":{"dtype":"F2","shape":[9],"data_offsets":[0,3]},"a":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}}"#;
    let header = Header::from_bytes(&file(json, 4)).unwrap();
    assert_eq!(header.tensor("a").unwrap().start, 3);
    assert_eq!(header.tensor("new").unwrap().bytes(), 3);
}

proptest! {
    #[test]
    fn what_the_crate_writes_is_read_alike(
        shapes in prop::collection::vec((0usize..6, prop::collection::vec(0usize..5, 0..4)), 0..8),
    ) {
        const NAMES: [&str; 8] = ["a", "b.weight", "c\"quoted\"", "d\\", "e\u{1f600}", "f\n", "", " "];
        let tensors: Vec<_> = NAMES.into_iter().zip(shapes).map(|(name, (dtype, shape))| {
            let dtype = DTYPES[dtype];
            let bytes = shape.iter().product::<usize>() * dtype.bitsize() / 8;
            (name, dtype, shape, vec![0; bytes])
        }).collect();
        let folder = Folder::new();
        let path = folder.path("x");
        write(&path, &tensors);
        let bytes = std::fs::read(&path).unwrap();
        let header = Header::from_bytes(&bytes).unwrap();
        let (length, theirs) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
        prop_assert_eq!(header.data_start, length as u64 + 8);
        prop_assert_eq!(header.tensors.len(), tensors.len());
        for tensor in &header.tensors {
            let info = theirs.info(&tensor.name).unwrap();
            prop_assert_eq!(info.data_offsets, (tensor.start as usize, tensor.end as usize));
            prop_assert_eq!(info.dtype.to_string(), tensor.dtype.clone());
            prop_assert_eq!(info.shape.iter().map(|&n| n as u64).collect::<Vec<_>>(), tensor.shape.clone());
        }
    }

    #[test]
    fn any_bytes_are_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), length in 0u64..200) {
        let _ = Header::from_bytes(&bytes);
        let _ = Header::from_bytes(&[&length.to_le_bytes(), bytes.as_slice()].concat());
    }
}
