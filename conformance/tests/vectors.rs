//! The vectors are what core's reference gives.

use std::path::Path;

use condprog_conformance::vectors::{decode, encode};

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/v1").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn decode_vectors_are_what_the_reference_gives() {
    let vectors = decode::generate();
    assert!(
        file("decode.json") == decode::to_json(&vectors),
        "decode.json differs from what the reference decoder gives: decoded bits have changed"
    );
    assert_eq!(decode::load(), Ok(vectors));
}

#[test]
fn encode_vectors_are_what_the_reference_gives() {
    let vectors = encode::generate();
    assert!(
        file("encode.json") == encode::to_json(&vectors),
        "encode.json differs from what the reference encoder gives: after a change of the search write it again with \
         `cargo run --release -p condprog-conformance --example vectors -- encode`"
    );
    assert_eq!(encode::load(), Ok(vectors));
}
