//! Every defect of a table file is refused, by the error that names it.

#[path = "../examples/reject_files/cases.rs"]
mod cases;
mod common;

use std::fs;

use cases::{Stage, cases};
use common::{Folder, compress};
use condprog_table::{TableFile, VerifyOptions, quiet, verify};

fn sound() -> Vec<u8> {
    let folder = Folder::new();
    let (input, output) = (folder.path("in"), folder.path("out"));
    fs::write(&input, cases::input()).unwrap();
    compress(&input, &output, &cases::options()).unwrap();
    fs::read(output).unwrap()
}

/// What a reader says: the code of the error or of the only damage.
fn verdict(bytes: Vec<u8>) -> Option<(Stage, &'static str)> {
    let file = match TableFile::from_bytes("case", bytes) {
        Ok(file) => file,
        Err(error) => {
            assert!(error.to_string().starts_with("case: "), "{error}");
            return Some((Stage::Open, error.code()));
        }
    };
    let report = verify(&file, None, &VerifyOptions::default(), &quiet).unwrap();
    let damage: Vec<_> = report.tables.iter().flat_map(|table| &table.damage).collect();
    assert!(damage.len() <= 1, "{damage:?}");
    damage.first().map(|damage| (Stage::Verify, damage.fault.code()))
}

#[test]
fn the_sound_file_is_sound() {
    assert_eq!(verdict(sound()), None);
}

#[test]
fn every_defect_is_refused_by_its_name() {
    let cases = cases(&sound());
    assert_eq!(cases.len(), 42);
    for case in cases {
        assert_eq!(verdict(case.bytes), Some((case.stage, case.code)), "{}", case.name);
    }
}
