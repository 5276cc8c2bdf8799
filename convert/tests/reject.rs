//! Every defect of a table file is refused, by the error that names it.

#[path = "../examples/reject_files/cases.rs"]
mod cases;
mod common;

use std::fs;

use cases::{Stage, cases};
use common::{Cpu, Folder, compress};
use condprog_convert::{VerifyOptions, quiet, verify};
use condprog_table::Tables;

fn sound() -> Vec<u8> {
    let folder = Folder::new();
    let (input, output) = (folder.path("in"), folder.path("out"));
    fs::write(&input, cases::input()).unwrap();
    compress(&input, &output, &cases::options()).unwrap();
    fs::read(output).unwrap()
}

/// What a reader says: the code of the error or of the only damage.
fn verdict(bytes: Vec<u8>) -> Option<(Stage, &'static str)> {
    let file = match Tables::from_bytes("case", bytes) {
        Ok(file) => file,
        Err(error) => {
            assert!(error.to_string().starts_with("case: "), "{error}");
            return Some((Stage::Open, error.code()));
        }
    };
    let report = verify(&file, None, &VerifyOptions::default(), &Cpu, &quiet).unwrap();
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
    assert_eq!(cases.len(), 46);
    for case in cases {
        assert_eq!(verdict(case.bytes), Some((case.stage, case.code)), "{}", case.name);
    }
}

/// The example of the format's page, its line breaks taken out, is the header of the sound file; only the checksums
/// may be those of another encoder.
#[test]
fn the_example_of_the_page_is_a_real_header() {
    let page = include_str!("../../table/FORMAT.md").split("## 6. Example").nth(1).unwrap();
    let example: String = page.split("```").nth(1).unwrap().lines().map(str::trim_start).collect();
    let bytes = sound();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header = |json: &str| {
        let mut header: serde_json::Value = serde_json::from_str(json).unwrap();
        let tables = header["__metadata__"]["condprog.tables"].take();
        let mut tables: serde_json::Value = serde_json::from_str(tables.as_str().unwrap()).unwrap();
        // The run depends on the version, the checksum of the header on those of the records.
        for (key, start, digits) in [("condprog.run", "", 16), ("condprog.checksum", "xxh3-64:", 24)] {
            let value = header["__metadata__"][key].take();
            assert!(value.as_str().unwrap().starts_with(start) && value.as_str().unwrap().len() == digits);
        }
        for segment in tables[0]["segments"].as_array_mut().unwrap() {
            let checksum = segment["checksums"]["xxh3_64"].take();
            assert_eq!(checksum.as_str().unwrap().len(), 16);
        }
        (header, tables)
    };
    assert_eq!(header(&example), header(std::str::from_utf8(&bytes[8..8 + length]).unwrap()));
}
