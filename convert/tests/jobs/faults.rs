//! Bad input to a compression, and what the caller is told.

use std::fs;
use std::ops::ControlFlow;

use crate::common::{Cpu, Folder, compress, f32_bytes, f32_table, options, rows, write};
use condprog_checkpoint::Checkpoint;
use condprog_convert::{
    CompressOptions, DecompressOptions, Error, NonFinite, Update, VerifyOptions, compress_file, decompress, quiet,
    verify,
};
use condprog_core::Rate;
use condprog_core::encoder::ScaleRule;
use condprog_table::{SegmentPlan, Tables};
use safetensors::tensor::Dtype;

/// Compresses rows of 16 values in blocks of four rows.
fn run(values: &[f32], options: &CompressOptions) -> Result<(Folder, Tables), Error> {
    let folder = Folder::new();
    let (input, output) = (folder.path("in"), folder.path("out"));
    f32_table(&input, "t", 16, values);
    let result = compress(&input, &output, options);
    if result.is_err() {
        assert_eq!(folder.list().iter().filter(|name| *name == "out").count(), 0);
    }
    result.map(|_| (folder, Tables::open(output).unwrap()))
}

fn message(values: &[f32], options: &CompressOptions) -> String {
    run(values, options).unwrap_err().to_string()
}

#[test]
fn a_value_that_is_not_finite_is_named_by_tensor_row_column_and_value() {
    for (value, spelled) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (f32::NEG_INFINITY, "-inf")] {
        for scale in ScaleRule::ALL {
            let mut values = rows(10, 16, 1);
            // The first in row order is named, not the one that a thread found first.
            values[9 * 16] = value;
            values[6 * 16 + 11] = value;
            let message = message(&values, &CompressOptions { scale, ..options(4) });
            assert_eq!(
                message,
                format!("tensor \"t\", row 6: value in column 11 is {spelled}, expected a finite number")
            );
        }
    }
}

#[test]
fn a_row_too_large_is_named_with_its_largest_value() {
    let mut values = rows(10, 16, 1);
    values[5 * 16..6 * 16].iter_mut().for_each(|value| *value *= 1e30);
    values[5 * 16 + 3] = -1e31;
    let message = message(&values, &options(4));
    assert!(message.starts_with("tensor \"t\", row 5: row scale is above 65024"), "{message}");
    assert!(message.contains("-1e31 in column 3"), "{message}");
}

#[test]
fn rows_that_cannot_be_coded_become_zeros_and_are_counted_if_asked() {
    for scale in ScaleRule::ALL {
        let mut values = rows(12, 16, 1);
        values[16] = f32::NAN;
        values[5 * 16] = f32::INFINITY;
        if scale != ScaleRule::Global(()) {
            values[7 * 16..8 * 16].fill(3e38);
        }
        let options = CompressOptions { non_finite: NonFinite::Zero, scale, ..options(4) };
        let (folder, file) = run(&values, &options).unwrap();
        let expected = if scale == ScaleRule::Global(()) { 2 } else { 3 };
        assert_eq!(file.tables()[0].non_finite_rows, expected, "{scale:?}");
        let source = Checkpoint::open(folder.path("in")).unwrap();
        let report = verify(&file, Some(&source), &VerifyOptions::default(), &Cpu, &quiet).unwrap();
        assert!(report.is_whole());
        assert_eq!((report.tables[0].zero_rows, report.tables[0].non_finite_rows), (expected, expected));
        assert!(report.tables[0].relative_mse.unwrap().is_finite());
    }
}

#[test]
fn zero_rows_and_rows_below_the_smallest_scale_are_counted_apart() {
    let mut values = rows(12, 16, 1);
    values[..16].fill(0.0);
    values[32..48].fill(-0.0);
    values[5 * 16..6 * 16].iter_mut().for_each(|value| *value *= 1e-30);
    values[6 * 16..7 * 16].fill(f32::from_bits(1));
    let (folder, file) = run(&values, &options(4)).unwrap();
    let table = &file.tables()[0];
    assert_eq!((table.zero_rows, table.underflow_rows, table.non_finite_rows), (2, 2, 0));
    let source = Checkpoint::open(folder.path("in")).unwrap();
    let report = verify(&file, Some(&source), &VerifyOptions::default(), &Cpu, &quiet).unwrap();
    let found = &report.tables[0];
    assert_eq!((found.zero_rows, found.underflow_rows), (4, 2));
    assert_eq!((found.worst_row, found.worst_relative_mse), (Some(5), Some(1.0)));
}

#[test]
fn tables_of_zeros_of_tiny_and_of_large_rows_have_a_global_scale() {
    let global = CompressOptions { scale: ScaleRule::Global(()), ..options(4) };
    let (_folder, file) = run(&[0.0; 64], &global).unwrap();
    assert_eq!((file.tables()[0].zero_rows, file.tables()[0].segments[0].global_scale), (4, Some(0)));
    let (_folder, file) = run(&[1e-30; 64], &global).unwrap();
    assert_eq!((file.tables()[0].underflow_rows, file.tables()[0].segments[0].global_scale), (4, Some(0)));
    assert!(message(&[1e30; 64], &global).starts_with("tensor \"t\": its global scale 2."));
}

#[test]
fn one_hot_and_heavy_tailed_rows_keep_their_direction() {
    let mut values = vec![0.0; 10 * 64];
    for row in 0..5 {
        values[row * 64 + 7 * row] = 0.5;
    }
    let tail = rows(5, 64, 2).into_iter().map(|value| value.powi(5));
    values.splice(5 * 64.., tail);
    let folder = Folder::new();
    let (input, output) = (folder.path("in"), folder.path("out"));
    f32_table(&input, "t", 64, &values);
    compress(&input, &output, &options(4)).unwrap();
    let (file, source) = (Tables::open(&output).unwrap(), Checkpoint::open(&input).unwrap());
    let report = verify(&file, Some(&source), &VerifyOptions::default(), &Cpu, &quiet).unwrap();
    let table = &report.tables[0];
    // A search that loses its way on an outlier has a cosine near zero.
    assert!(table.mean_cosine.unwrap() > 0.8 && table.worst_relative_mse.unwrap() < 0.9, "{table:?}");
}

#[test]
fn widths_and_options_out_of_range_are_named() {
    let folder = Folder::new();
    let (input, output) = (folder.path("in"), folder.path("out"));
    write(
        &input,
        &[
            ("odd", Dtype::F32, vec![2, 33], vec![0; 264]),
            ("thin", Dtype::F32, vec![2, 4], vec![0; 32]),
            ("wide", Dtype::BF16, vec![1, 65_537], vec![0; 131_074]),
        ],
    );
    let run = |name: &str, options: &CompressOptions| {
        compress_file(&input, &[name.into()], &output, options, &Cpu, &quiet).unwrap_err().to_string()
    };
    let rate = Rate::from_quarters(5).unwrap();
    let message = run("odd", &CompressOptions { rate, ..options(1) });
    assert_eq!(
        message,
        "tensor \"odd\": row width 33 at 1.25 bits per value makes 165/4 bits, expected a whole number of bits"
    );
    assert!(run("thin", &options(1)).contains("\"thin\": row width 4 at 2 bits per value makes a code of 8 bits"));
    assert!(run("wide", &options(1)).contains("\"wide\": row width is 65537, expected 1 to 65536"));
    assert_eq!(run("odd", &CompressOptions { effort: 5, ..options(1) }), "effort is 5, expected 0 to 4");
    assert!(run("odd", &options(0)).starts_with("rows per block is 0, expected 1 to"));
    assert!(run("odd", &options(u32::MAX)).starts_with("rows per block is 4294967295, expected 1 to"));
    assert_eq!(folder.list(), ["in"]);
}

#[test]
fn segments_must_cover_their_table() {
    let plan = |name: &str, rows: &[u64]| {
        let segments = rows.iter().map(|&rows| SegmentPlan { rows, rate: Rate::TWO }).collect();
        CompressOptions { segments: [(name.to_string(), segments)].into(), ..options(4) }
    };
    let values = rows(10, 16, 1);
    for bad in [&[4, 5][..], &[4, 7], &[0, 10], &[], &[u64::MAX, 11]] {
        let message = message(&values, &plan("t", bad));
        assert!(message.starts_with("segments of tensor \"t\" have ") && message.contains("expected 10"), "{message}");
    }
    assert!(message(&values, &plan("u", &[10])).contains("segments of tensor \"u\" have 10 rows, expected 0"));
    assert!(run(&values, &plan("t", &[4, 6])).is_ok());
}

#[test]
fn inputs_that_are_no_safetensors_files_or_not_whole_are_refused() {
    let folder = Folder::new();
    let (input, output) = (folder.path("in"), folder.path("out"));
    let run = || compress(&input, &output, &options(4)).unwrap_err();
    assert!(matches!(run(), Error::File(condprog_table::Error::Io { action: "open", .. })));
    fs::write(&input, "id,value\n1,2\n").unwrap();
    assert!(run().to_string().contains("not a safetensors file"));
    f32_table(&input, "t", 16, &rows(10, 16, 1));
    let whole = fs::read(&input).unwrap();
    fs::write(&input, &whole[..whole.len() - 100]).unwrap();
    assert!(run().to_string().ends_with("truncated"));
    fs::write(&input, &whole[..40]).unwrap();
    assert!(run().to_string().contains("truncated, or not a safetensors file"));
    assert_eq!(folder.list(), ["in"]);
}

#[test]
fn an_output_is_not_overwritten_unless_forced() {
    let folder = Folder::new();
    let (input, output) = (folder.path("in"), folder.path("out"));
    f32_table(&input, "t", 16, &rows(10, 16, 1));
    fs::write(&output, "precious").unwrap();
    let error = compress(&input, &output, &options(4)).unwrap_err();
    assert!(matches!(error, Error::OutputExists { .. }), "{error}");
    assert_eq!(fs::read(&output).unwrap(), b"precious");
    assert_eq!(folder.list(), ["in", "out"]);
    compress(&input, &output, &CompressOptions { force: true, ..options(4) }).unwrap();
    assert!(Tables::open(&output).is_ok());
    assert_eq!(folder.list(), ["in", "out"]);
}

#[test]
fn a_file_is_not_replaced_by_what_is_made_from_it() {
    let folder = Folder::new();
    let (input, output) = (folder.path("in"), folder.path("out"));
    f32_table(&input, "t", 16, &rows(10, 16, 1));
    let before = fs::read(&input).unwrap();
    let force = CompressOptions { force: true, ..options(4) };
    assert!(matches!(compress(&input, &input, &force), Err(Error::SameFile { .. })));
    compress(&input, &output, &force).unwrap();
    let file = Tables::open(&output).unwrap();
    let options = DecompressOptions { force: true, ..Default::default() };
    assert!(matches!(decompress(&file, &output, &options, &Cpu, &quiet), Err(Error::SameFile { .. })));
    assert_eq!(fs::read(&input).unwrap(), before);
    assert!(Tables::open(&output).is_ok());
}

#[test]
fn nothing_to_compress_is_an_error() {
    let folder = Folder::new();
    let error = condprog_convert::compress(&mut [], folder.path("out"), &options(4), &Cpu, &quiet).unwrap_err();
    assert!(matches!(error, Error::NothingToDo));
    assert!(folder.list().is_empty());
}

#[test]
fn two_tensors_of_one_name_are_refused() {
    let folder = Folder::new();
    let (input, output) = (folder.path("in"), folder.path("out"));
    let data = f32_bytes(&rows(2, 16, 1));
    write(&input, &[("t", Dtype::F32, vec![2, 16], data.clone()), ("t#checksums", Dtype::F32, vec![2, 16], data)]);
    let error = compress(&input, &output, &options(4)).unwrap_err();
    assert!(matches!(&error, Error::NameTaken { tensor } if tensor == "t#checksums"), "{error}");
}

#[test]
fn damage_is_found_and_named_by_its_block() {
    let folder = Folder::new();
    let (input, output) = (folder.path("in"), folder.path("out"));
    f32_table(&input, "t", 16, &rows(10, 16, 1));
    compress(&input, &output, &options(4)).unwrap();
    let whole = fs::read(&output).unwrap();
    // The records come last: ten of six bytes, in blocks of four rows.
    for (row, block, first, count) in [(0, 0, 0, 4), (3, 0, 0, 4), (4, 1, 4, 4), (9, 2, 8, 2)] {
        for byte in 0..6 {
            let mut damaged = whole.clone();
            damaged[whole.len() - 60 + row * 6 + byte] ^= 0x10;
            let file = Tables::from_bytes("t.safetensors", damaged).unwrap();
            let report = verify(&file, None, &VerifyOptions::default(), &Cpu, &quiet).unwrap();
            assert!(!report.is_whole());
            let [damage] = report.tables[0].damage.as_slice() else { panic!("{report:?}") };
            assert_eq!((damage.tensor.as_str(), damage.first_row, damage.rows), ("t", first, count));
            for other in 0..3 {
                let checked = file.check_block("t", 0, other);
                assert_eq!(checked.is_err(), other == block);
            }
            let message = file.check_block("t", 0, block).unwrap_err().to_string();
            let last = first + count - 1;
            assert!(message.starts_with(&format!("t.safetensors: tensor \"t\", rows {first} to {last}: checksum is")));
            assert!(message.ends_with(": damaged"));
        }
    }
}

#[test]
fn verifying_against_another_source_is_refused() {
    let folder = Folder::new();
    let (input, output, other) = (folder.path("in"), folder.path("out"), folder.path("other"));
    f32_table(&input, "t", 16, &rows(10, 16, 1));
    compress(&input, &output, &options(4)).unwrap();
    let file = Tables::open(&output).unwrap();
    let against = |tensors: &[crate::common::Tensor]| {
        write(&other, tensors);
        let source = Checkpoint::open(&other).unwrap();
        verify(&file, Some(&source), &VerifyOptions::default(), &Cpu, &quiet)
    };
    let error = against(&[("t", Dtype::F32, vec![11, 16], vec![0; 704])]).unwrap_err();
    assert_eq!(error.to_string(), "table \"t\" was made from shape [10, 16], got [11, 16]");
    let error = against(&[("t", Dtype::BF16, vec![10, 16], vec![0; 320])]).unwrap_err();
    assert_eq!(error.to_string(), "table \"t\" was made from type F32, got BF16");
    assert!(matches!(
        against(&[("u", Dtype::F32, vec![10, 16], vec![0; 640])]),
        Err(Error::Checkpoint(condprog_checkpoint::Error::Source { .. }))
    ));
    // The same shape with other values compares, and looks as bad as it is.
    let report = against(&[("t", Dtype::F32, vec![10, 16], f32_bytes(&rows(10, 16, 2)))]).unwrap();
    assert!(report.tables[0].relative_mse.unwrap() > 1.0 && report.tables[0].mean_cosine.unwrap() < 0.5);
}

#[test]
fn every_job_can_be_stopped() {
    let folder = Folder::new();
    let (input, output, restored) = (folder.path("in"), folder.path("out"), folder.path("restored"));
    f32_table(&input, "t", 16, &rows(10, 16, 1));
    compress(&input, &output, &options(4)).unwrap();
    let file = Tables::open(&output).unwrap();
    let source = Checkpoint::open(&input).unwrap();
    let stop = |_: &Update<'_>| ControlFlow::Break(());
    let result = decompress(&file, &restored, &DecompressOptions::default(), &Cpu, &stop);
    assert!(matches!(result, Err(Error::Cancelled)));
    let result = verify(&file, Some(&source), &VerifyOptions::default(), &Cpu, &stop);
    assert!(matches!(result, Err(Error::Cancelled)));
    assert_eq!(folder.list(), ["in", "out"]);
}

/// Of the header of a table file no bit is without a check: a flipped one is refused when the file is opened.
#[test]
fn no_flip_of_a_bit_in_a_header_is_missed() {
    let folder = Folder::new();
    let (input, output) = (folder.path("in"), folder.path("out"));
    f32_table(&input, "t", 16, &rows(10, 16, 1));
    for scale in [ScaleRule::Projection, ScaleRule::Global(())] {
        let options = CompressOptions { scale, force: true, ..options(4) };
        compress(&input, &output, &options).unwrap();
        let sound = fs::read(&output).unwrap();
        let header = 8 + u64::from_le_bytes(sound[..8].try_into().unwrap()) as usize;
        for bit in 0..8 * header {
            let mut flipped = sound.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let opened = Tables::from_bytes("flipped", flipped);
            assert!(opened.is_err(), "{scale:?}: bit {bit} of {}", 8 * header);
        }
    }
}
