//! A part of a table, joined with the other: refused, or the whole can be opened.

#![no_main]

use std::fs;
use std::path::PathBuf;

use condprog_convert::{CompressOptions, JoinOptions, PartOf, compress_file, join, quiet};
use condprog_fuzz::{Cpu, small_table};
use condprog_table::Tables;
use condprog_testkit::Folder;
use libfuzzer_sys::fuzz_target;

thread_local!(static PARTS: Folder = {
    let folder = Folder::new();
    let input = small_table(&folder);
    for index in 0..2 {
        let options = CompressOptions { part: Some(PartOf::Share { index, of: 2 }), ..condprog_fuzz::options() };
        compress_file(&input, &[], folder.path(&format!("part{index}")), &options, &Cpu, &quiet).expect("a part is coded");
    }
    folder
});

fuzz_target!(|bytes: &[u8]| {
    PARTS.with(|folder| {
        // An empty input stands for the sound part, so that a corpus can start from it.
        let part = folder.path("changed");
        match bytes {
            [] => fs::copy(folder.path("part1"), &part).map(drop),
            _ => fs::write(&part, bytes),
        }
        .expect("a temporary file can be written");
        let parts: [PathBuf; 2] = [folder.path("part0"), part];
        match join(&parts, folder.path("joined"), &JoinOptions { force: true }, &quiet) {
            Ok(report) => report.files.iter().for_each(|path| drop(Tables::open(path).expect("what was joined opens"))),
            Err(error) => assert!(!bytes.is_empty() && !error.code().is_empty(), "{error}"),
        }
    });
});
