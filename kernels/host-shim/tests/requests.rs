//! The common layouts and the edges of requests, in every order of threads.

mod common;

use std::path::Path;

use common::{ORDERS, Owned, common_layouts, compare, exercise, exercise_far, not_run};
use condprog_conformance::input::Stream;
use condprog_core::{BackendError, ErrorKind, Table};
use condprog_cuda_host::{Order, Program, Shape, gather};
use condprog_kernels::cuda;

/// The kernels as they are, or `None` where there is no C++ compiler; unless that is required.
fn program() -> Option<Program> {
    match Program::new(Path::new(env!("CARGO_TARGET_TMPDIR"))) {
        Ok(program) => Some(program),
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            not_run(&error);
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

#[test]
fn the_benchmark_gathers_what_it_wrote() {
    let Some(program) = program() else { return };
    for (row_bytes, count) in [(512, 70), (256, 1), (256, 333)] {
        let ids: Vec<i64> = (0..count).map(|i| i * 7 % 41).collect();
        let word = |id: i64, at: u32| cuda::content(id as u64 * u64::from(row_bytes / 4) + u64::from(at)).to_le_bytes();
        let expected: Vec<u8> =
            ids.iter().flat_map(|&id| (0..row_bytes / 4).flat_map(move |at| word(id, at))).collect();
        assert!(gather(&program, row_bytes, 41, &ids).unwrap() == expected, "{row_bytes} {count}");
    }
}
