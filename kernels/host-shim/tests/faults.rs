//! Faults planted in the kernel's text are found: by wrong rows, by a check of the model, or by a sanitizer.

mod common;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use common::{ORDERS, exercise, exercise_far, not_run};
use condprog_core::{BackendError, ErrorKind};
use condprog_cuda_host::{HostError, Order, Program};
use condprog_kernels::cuda;

/// What finds a fault.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    /// Rows that differ, or a rule of the model that is broken.
    Rows,
    /// The same, with offsets beyond 32 bits.
    FarRows,
    /// The address sanitizer.
    Addresses,
    /// The thread sanitizer.
    Threads,
}

struct Fault {
    name: &'static str,
    /// Text of the kernel; each occurrence is replaced.
    from: &'static str,
    to: &'static str,
    by: By,
}

const fn fault(name: &'static str, from: &'static str, to: &'static str, by: By) -> Fault {
    Fault { name, from, to, by }
}

#[rustfmt::skip]
const FAULTS: &[Fault] = &[
    fault("missing barrier after the table", "    fill_table(table);\n    __syncthreads();\n", "    fill_table(table);\n", By::Rows),
    fault("missing barrier after the records", "order + turn);\n    }\n    __syncwarp();", "order + turn);\n    }", By::Rows),
    fault("missing barrier after the scales, rows", "scale_word(*scale);\n    }\n    __syncwarp();", "scale_word(*scale);\n    }", By::Rows),
    fault("missing barrier after the scales, race", "scale_word(*scale);\n    }\n    __syncwarp();", "scale_word(*scale);\n    }", By::Threads),
    fault("barrier after an exit", "    fill_table(table);\n    __syncthreads();\n    if (rows == 0) return;", "    fill_table(table);\n    if (rows == 0) return;\n    __syncthreads();", By::Rows),
    fault("tail one row long", "if (row >= rows) return;", "if (row > rows) return;", By::Rows),
    fault("last chunk one row long", "(u32)(request.count - first) : 0", "(u32)(request.count - first) + 1 : 0", By::Rows),
    fault("last row of the table missing", "(u64)id >= request.rows", "(u64)id + 1 >= request.rows", By::Rows),
    fault("tail of a row one value long", "u32 left = request.dim - group * GROUP;", "u32 left = request.dim - group * GROUP + 1;", By::Rows),
    fault("record read one word long", "4 * lane < RECORD ? 0 :", "4 * lane < RECORD + 4 ? 0 :", By::Addresses),
    fault("code read beyond its record", "at < record + code_bytes ?", "at < record + code_bytes + 8 ?", By::Addresses),
    fault("ids read one too far", "return lane < rows ? read_id", "return lane <= rows ? read_id", By::Addresses),
    fault("no wrap-around", "word + 1 == WORDS ? 0 : word + 1", "word + 1", By::Rows),
    fault("wrap-around one word early", "word + 1 == WORDS ? 0", "word + 2 == WORDS ? 0", By::Rows),
    fault("wrap-around one bit off", "| head >> left;", "| head >> left + 1;", By::Rows),
    fault("what follows the code taken for it", "first_bits(bits, left) |", "bits |", By::Rows),
    fault("window one bit off", "at <= STATE_BITS ? high >> (STATE_BITS - at)", "at <= STATE_BITS ? high >> (STATE_BITS - at) << 1", By::Rows),
    fault("bad sign", "(entry & 128) << 24", "(entry & 64) << 25", By::Rows),
    fault("signs exchanged", "permute(first, second, 0x7632)", "permute(first, second, 0x7632) ^ 0x80008000", By::Rows),
    fault("a level off by one", " 93, 97, 103, 111, 127,", " 93, 97, 103, 110, 127,", By::Rows),
    fault("variant one bit short", "field >> 1 & 0x7800", "field >> 1 & 0x3800", By::Rows),
    fault("variant misplaced", "field >> 1 & 0x7800", "field >> 2 & 0x7800", By::Rows),
    fault("scale exponent off by one", "(127 - EXPONENT_BIAS)", "(126 - EXPONENT_BIAS)", By::Rows),
    fault("scale mantissa one bit short", "field & 0xfff;", "field & 0xffe;", By::Rows),
    fault("bf16 truncated", "fma_bf16x2(alpha, permute(first, second, 0x7632), 0)", "permute(__float_as_uint(__uint_as_float(alpha) * __uint_as_float(first)), __float_as_uint(__uint_as_float(alpha) * __uint_as_float(second)), 0x7632)", By::Rows),
    fault("f16 rounded twice", "pack_f16x2(__fmaf_rn(alpha, __uint_as_float(second), 0.0f)", "pack_f16x2(__uint_as_float(round_to_bf16(__fmaf_rn(alpha, __uint_as_float(second), 0.0f)) << 16)", By::Rows),
    fault("negative zeros", "__fmaf_rn(alpha, __uint_as_float(first), 0.0f)", "__fmaf_rn(alpha, __uint_as_float(first), -0.0f)", By::Rows),
    fault("scale of zero ignored", "(exponent_and_mantissa ? alpha : 0)", "alpha", By::Rows),
    fault("segment one early", "first) <= (u64)id)", "first) < (u64)id)", By::Rows),
    fault("row not counted from its segment", "u64 row = (u64)id - __ldg(&segment->first);", "u64 row = (u64)id;", By::Addresses),
    fault("missing position of whoever is last", "atomicMin(request.missing, position);", "*request.missing = position;", By::Rows),
    fault("missing id not reported", "if (request.missing) atomicMin(request.missing, position);", "", By::Rows),
    fault("ids of 4 bytes without their sign", "(const i32*)request.ids", "(const u32*)request.ids", By::FarRows),
    fault("32-bit record offset", "row * __ldg(&segment->record_bytes)", "(u32)row * __ldg(&segment->record_bytes)", By::FarRows),
    fault("32-bit output offset", "first * (DIM * OUT::SIZE)", "(u32)first * (DIM * OUT::SIZE)", By::FarRows),
    fault("32-bit output offset, any layout", "(first + done + j) * row_bytes", "(u32)((first + done + j) * row_bytes)", By::FarRows),
    fault("alignment of the record ignored", "order + turn);", "order);", By::Rows),
];

fn build(fault: &Fault) -> Result<Program, HostError> {
    assert!(cuda::DECODE.contains(fault.from), "{}: the text it changes is gone", fault.name);
    let kernel = cuda::DECODE.replace(fault.from, fault.to);
    let flags: &[&str] = match fault.by {
        By::Rows | By::FarRows => &["-O0", "-g0", "-w"],
        By::Addresses => &["-O0", "-g0", "-w", "-fsanitize=address"],
        By::Threads => &["-O0", "-g0", "-w", "-fsanitize=thread", "-DCONDPROG_THREADS"],
    };
    Program::build(Path::new(env!("CARGO_TARGET_TMPDIR")), &kernel, flags)
}

/// What was found, if anything.
fn find(fault: &Fault) -> Result<Option<String>, HostError> {
    let program = build(fault)?;
    let counts = [1, 9, 100];
    let result = match fault.by {
        By::FarRows => exercise_far(&program),
        By::Threads => exercise(&program, &[40], &[Order::Forward]),
        By::Rows | By::Addresses => exercise(&program, &counts, &ORDERS),
    };
    let _ = std::fs::remove_file(program.path());
    Ok(result.err())
}

#[test]
#[ignore = "compiles 37 kernels, which takes minutes: kernels/check-cuda.sh runs it"]
fn every_fault_is_found() {
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(fault) = FAULTS.get(next.fetch_add(1, Ordering::Relaxed)) {
            match find(fault) {
                Ok(Some(found)) => println!("{}: {}", fault.name, found.lines().next().unwrap_or_default()),
                Ok(None) => missed.lock().unwrap().push(fault.name),
                Err(error) if error.kind() == ErrorKind::Unavailable => return not_run(&error),
                Err(error) => panic!("{}: {error}", fault.name),
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, |n| n.get()) {
            scope.spawn(work);
        }
    });
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "not found: {missed:?}");
}
