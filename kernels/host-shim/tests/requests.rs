//! The common layouts and the edges of requests, in every order of threads.

mod common;

use std::path::Path;

use common::{ORDERS, Owned, common_layouts, compare, exercise, exercise_far};
use condprog_conformance::input::Stream;
use condprog_core::{BackendError, ErrorKind, Table};
use condprog_cuda_host::{Order, Program, Shape};

/// The kernels as they are, or `None` where there is no C++ compiler; `conformance.rs` counts that.
fn program() -> Option<Program> {
    match Program::new(Path::new(env!("CARGO_TARGET_TMPDIR"))) {
        Ok(program) => Some(program),
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            eprintln!("not run: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn requests_of_every_length() {
    let Some(program) = program() else { return };
    // Around a chunk, a warp's share, all warps' shares, several rounds.
    exercise(&program, &[1, 7, 8, 9, 33, 100, 257], &ORDERS).unwrap();
}

#[test]
fn offsets_beyond_32_bits() {
    let Some(program) = program() else { return };
    exercise_far(&program).unwrap();
}

#[test]
fn blocks_of_a_whole_device() {
    let Some(program) = program() else { return };
    let mut stream = Stream::new(5);
    for layout in common_layouts() {
        let owned = Owned::new(&[layout], 130, &mut stream);
        let segments = owned.segments();
        let table = Table::new(&segments).unwrap();
        let ids: Vec<i64> = (0..1500).map(|_| i64::from(stream.below(table.shape().rows as u32))).collect();
        compare(&program, Order::Shuffled, Shape::FULL, table, &ids).unwrap();
    }
}

#[test]
fn small_request_for_the_thread_sanitizer() {
    let Some(program) = program() else { return };
    exercise(&program, &[40], &[Order::Forward]).unwrap();
}
