//! Table files that must be refused, `conformance/vectors/v1/reject/`: each by the error that its defect must raise.
//!
//! The files are written by `cargo run -p condprog-convert --example reject_files`.

#[path = "common/cpu.rs"]
mod cpu;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use condprog_convert::{VerifyOptions, quiet, verify};
use condprog_table::Tables;
use cpu::Cpu;
use serde::Deserialize;

/// Files of the set, without the sound one.
const CASES: usize = 44;

#[derive(Deserialize)]
struct Case {
    /// Named by its defect.
    file: String,
    /// Where the defect shows: `open`, or `verify` when only the records are damaged.
    stage: String,
    /// The error that it must raise.
    code: String,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/vectors/v1/reject")
}

/// Stage and code of the refusal.
fn refusal(file: &str) -> Option<(&'static str, &'static str)> {
    let file = match Tables::open(folder().join(file)) {
        Ok(file) => file,
        Err(error) => return Some(("open", error.code())),
    };
    let report =
        verify(&file, None, &VerifyOptions::default(), &Cpu, &quiet).expect("a file that opens can be verified");
    let damage = report.tables.iter().flat_map(|table| &table.damage).next();
    damage.map(|damage| ("verify", damage.fault.code()))
}

#[test]
fn every_file_is_refused_by_its_defect() {
    let index = fs::read(folder().join("cases.json")).expect("the index is there");
    let cases: Vec<Case> = serde_json::from_slice(&index).expect("the index is a list of cases");
    assert_eq!(cases.len(), CASES);
    for case in &cases {
        assert_eq!(refusal(&case.file), Some((&*case.stage, &*case.code)), "{}", case.file);
    }
    println!("{} table files refused", cases.len());

    let listed: BTreeSet<&str> = cases.iter().map(|case| &*case.file).collect();
    let names = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let there: BTreeSet<String> = names.filter(|name| name.ends_with(".safetensors")).collect();
    let there: BTreeSet<&str> = there.iter().map(String::as_str).filter(|&name| name != "sound.safetensors").collect();
    assert_eq!(listed, there, "the index lists exactly the files of the folder");
}

#[test]
fn the_file_they_were_made_from_is_sound() {
    assert_eq!(refusal("sound.safetensors"), None);
}
