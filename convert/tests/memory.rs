//! Memory of a run, by the system's count, so in a process of its own.
//!
//! The large case is run by name: `cargo test --release -p condprog-table --test memory -- --ignored`.
#![cfg(target_os = "linux")]

mod common;

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};

use common::{Folder, compress, f32_bytes, options, rows};
use condprog_convert::CompressOptions;

/// Most memory that this process has had, in KiB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A table of so many rows of 256 values, 4 KiB of them written for every 16 MiB: the rest are zeros.
fn compress_sparse(count: u64) {
    let folder = Folder::new();
    let input = folder.path("in");
    let bytes = count * 1024;
    let json = format!("{{\"t\":{{\"dtype\":\"F32\",\"shape\":[{count},256],\"data_offsets\":[0,{bytes}]}}}}");
    let mut file = File::create(&input).unwrap();
    file.write_all(&(json.len() as u64).to_le_bytes()).unwrap();
    file.write_all(json.as_bytes()).unwrap();
    let data = 8 + json.len() as u64;
    let some = f32_bytes(&rows(4, 256, 1));
    for row in (0..count).step_by(16_384) {
        file.seek(SeekFrom::Start(data + row * 1024)).unwrap();
        file.write_all(&some).unwrap();
    }
    file.set_len(data + bytes).unwrap();
    let options = CompressOptions { block_rows: None, ..options(1) };
    let report = compress(&input, &folder.path("out"), &options).unwrap();
    assert_eq!(report.tables[0].zero_rows, count - count / 16_384 * 4);
}

#[test]
fn memory_does_not_grow_with_the_table() {
    // Sixteen blocks: more than are ever under way at once, however threads are held up.
    compress_sparse(1 << 18);
    let before = peak();
    compress_sparse(1 << 19);
    // Twice the rows, half a GiB of them: no more memory than a block or two that came to lie elsewhere.
    assert!(peak() < before + (64 << 10), "{before} KiB, then {} KiB", peak());
}

#[test]
#[ignore = "writes and reads 4 GiB"]
fn a_file_of_4_gib_takes_less_than_1_gib() {
    let before = peak();
    compress_sparse(1 << 22);
    println!("peak {} KiB, {} KiB before", peak(), before);
    assert!(peak() - before < 1 << 20, "{before} KiB, then {} KiB", peak());
}
