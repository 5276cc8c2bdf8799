//! The index of a checkpoint or a table that is cut into files: what is read is written and read again as the same.

#![no_main]

use condprog_table::index::Index;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match Index::parse(bytes) {
        Ok(index) => {
            assert!(!index.files().is_empty());
            let json = index.to_json();
            let again = Index::parse(json.as_bytes()).expect("what was written can be read");
            assert_eq!((again.weight_map, again.metadata), (index.weight_map, index.metadata));
        }
        Err(error) => assert!(!error.to_string().is_empty() && !error.code().is_empty()),
    }
});
