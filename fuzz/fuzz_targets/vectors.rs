//! The vector files of the conformance suite, changed at will: refused, or every part of them is read or refused.

#![no_main]

use condprog_conformance::vectors::{decode, encode};
use condprog_core::Dtype;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(vectors) = decode::parse(text) {
        for vector in vectors.records {
            let _ = (vector.bytes(), Dtype::ALL.map(|dtype| vector.bits(dtype)));
        }
        for vector in vectors.scales {
            let _ = vector.records();
        }
    }
    if let Ok(vectors) = encode::parse(text) {
        for vector in vectors.rows {
            let _ = (vector.job(), vector.bytes());
        }
    }
});
