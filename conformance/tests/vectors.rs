//! The vectors are what core's reference gives.

use std::path::Path;

use condprog_conformance::vectors;

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/v1").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn decode_vectors_are_what_the_reference_gives() {
    assert!(
        file("decode.json") == vectors::to_json(&vectors::generate()),
        "decode.json differs from what the reference decoder gives: decoded bits have changed"
    );
    assert_eq!(vectors::load().unwrap(), vectors::generate());
}
