//! A checkpoint of one safetensors file: every tensor is listed as something, and what is taken for a table can be read
//! and turned into numbers, with scales of every kind.

#![no_main]

use std::fs;

use condprog_checkpoint::{Checkpoint, RowSource};
use condprog_testkit::Folder;
use libfuzzer_sys::fuzz_target;

thread_local!(static FOLDER: Folder = Folder::new());

fuzz_target!(|bytes: &[u8]| {
    let path = FOLDER.with(|folder| folder.path("model.safetensors"));
    fs::write(&path, bytes).expect("a temporary file can be written");
    let checkpoint = match Checkpoint::open(&path) {
        Ok(checkpoint) => checkpoint,
        Err(error) => return assert!(!error.to_string().is_empty() && !error.code().is_empty()),
    };
    let _ = (checkpoint.select(&[]), checkpoint.select(&["*".into()]), checkpoint.family());
    let (_, _) = (checkpoint.candidates(), checkpoint.passed_over());
    if let Ok(listed) = checkpoint.list(&[]) {
        assert_eq!(listed.len(), checkpoint.names().count());
    }
    let _ = checkpoint.join_matching("joined", "*.[0-9]*", None);
    for name in checkpoint.names() {
        let _ = checkpoint.companion(name);
        let Ok(info) = checkpoint.info(name) else { continue };
        assert!(info.bytes() <= bytes.len() as u64);
        let mut table = checkpoint.rows(info).expect("what is described can be opened");
        let (all, dim) = (table.info().rows, table.info().dim as usize);
        let rows = all.min(3) as usize;
        for first in [0, all - rows as u64] {
            let raw = table.read(first, rows).expect("the rows are there");
            assert_eq!((raw.rows(), raw.dim), (rows, dim));
            let mut values = vec![0.0; rows * dim];
            raw.to_f32(0..rows, &mut values);
            let _ = raw.digest(0..rows, first);
        }
        let _ = table.identity();
    }
});
