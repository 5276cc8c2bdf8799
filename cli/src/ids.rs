//! Ids from files.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use condprog_table::header::Header;

use crate::error::Error;
use crate::npy;

/// Reads the ids of a file, by what its name ends in; `-` is text from stdin.
pub(crate) fn read(path: &Path) -> Result<Vec<i64>, Error> {
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
        Some("npy") => npy::read_integers(&bytes),
        Some("safetensors") => from_safetensors(&bytes),
        _ => from_text(&bytes),
    };
    ids.map_err(|message| Error::Ids { path: path.into(), message })
}

fn from_text(bytes: &[u8]) -> Result<Vec<i64>, String> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| "is not text, expected ids: names of other files end in .npy or .safetensors")?;
    let mut ids = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        for word in text.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty()) {
            ids.push(word.parse().map_err(|_| format!("line {line} has {word:?}, expected an id: a whole number"))?);
        }
    }
    Ok(ids)
}

fn from_safetensors(bytes: &[u8]) -> Result<Vec<i64>, String> {
    let header = Header::from_bytes(bytes).map_err(|error| error.to_string())?;
    let [tensor] = header.tensors.as_slice() else {
        return Err(format!("has {} tensors, expected one of ids", header.tensors.len()));
    };
    let range = (header.data_start + tensor.start) as usize..(header.data_start + tensor.end) as usize;
    npy::integers(&tensor.dtype, &bytes[range]).map_err(|message| format!("tensor {:?} {message}", tensor.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_may_have_lines_commas_and_spaces() {
        assert_eq!(from_text(b"5, 7\n-1\r\n\n9,\t10,"), Ok(vec![5, 7, -1, 9, 10]));
        assert_eq!(from_text(b""), Ok(vec![]));
        assert_eq!(from_text(b"5\n7.5").unwrap_err(), "line 2 has \"7.5\", expected an id: a whole number");
        assert!(from_text(b"\xff\xfe").unwrap_err().contains("is not text"));
    }

    #[test]
    fn safetensors_hold_one_tensor_of_integers() {
        let file = |json: &str, data: &[u8]| [&(json.len() as u64).to_le_bytes(), json.as_bytes(), data].concat();
        let ids: Vec<u8> = [3i64, -1].iter().flat_map(|id| id.to_le_bytes()).collect();
        let one = r#"{"ids":{"dtype":"I64","shape":[2],"data_offsets":[0,16]}}"#;
        assert_eq!(from_safetensors(&file(one, &ids)), Ok(vec![3, -1]));
        let float = one.replace("I64", "F64");
        assert!(from_safetensors(&file(&float, &ids)).unwrap_err().contains("tensor \"ids\" has elements of type"));
        assert_eq!(from_safetensors(&file("{}", &[])).unwrap_err(), "has 0 tensors, expected one of ids");
    }
}
