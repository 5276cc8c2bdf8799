//! The header of a safetensors file: read whole and piece by piece, both say the same, and what is read contradicts
//! neither itself nor the file.

#![no_main]

use condprog_table::header::Header;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let length = bytes.len() as u64;
    let whole = Header::from_bytes(bytes);
    let pieces = Header::read(&mut &bytes[..], length).expect("bytes in memory can be read");
    match (&whole, &pieces) {
        (Ok(whole), Ok(pieces)) => assert_eq!(whole, pieces),
        (Err(whole), Err(pieces)) => assert_eq!(whole.to_string(), pieces.to_string()),
        _ => panic!("{whole:?}, but piece by piece {pieces:?}"),
    }
    match whole {
        Ok(header) => {
            let mut end = 0;
            for (place, tensor) in header.tensors.iter().enumerate() {
                assert_eq!(tensor.start, end);
                end += tensor.bytes();
                assert_eq!(header.place(&tensor.name), Some(place));
            }
            assert_eq!(header.data_start + end, length);
        }
        Err(error) => assert!(!error.to_string().is_empty() && !error.code().is_empty()),
    }
});
