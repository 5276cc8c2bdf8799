//! Reading source tables: what is a table, and what its values are.

use std::fs;

use condprog_checkpoint::fp8;
use condprog_checkpoint::{Checkpoint, Error, RowSource, SourceError};
use condprog_table::source::{ScaleKind, SourceDtype};
use condprog_testkit::{Folder, Tensor, f32_bytes, rows, write};
use half::f16;
use proptest::prelude::*;
use safetensors::tensor::Dtype;

fn open(tensors: &[Tensor]) -> (Folder, Checkpoint) {
    let folder = Folder::new();
    let path = folder.path("in.safetensors");
    write(&path, tensors);
    let file = Checkpoint::open(path).unwrap();
    (folder, file)
}

fn source_error<T: std::fmt::Debug>(result: Result<T, Error>) -> SourceError {
    match result {
        Err(Error::Source { source, .. }) => *source,
        other => panic!("{other:?}"),
    }
}

fn names(file: &Checkpoint, patterns: &[&str]) -> Vec<String> {
    let patterns: Vec<_> = patterns.iter().map(|pattern| pattern.to_string()).collect();
    file.select(&patterns).unwrap().into_iter().map(|info| info.name).collect()
}

/// A file with a bit of everything.
fn mixed() -> Vec<Tensor> {
    vec![
        ("a.weight", Dtype::F32, vec![2, 8], vec![0; 64]),
        ("a.bias", Dtype::F32, vec![8], vec![0; 32]),
        ("b[0].weight", Dtype::F16, vec![2, 8], vec![0; 32]),
        ("c.weight", Dtype::BF16, vec![2, 8], vec![0; 32]),
        ("d.weight", Dtype::F8_E4M3, vec![2, 64], vec![0; 128]),
        ("d.scale", Dtype::F8_E8M0, vec![2, 2], vec![127; 4]),
        ("ids", Dtype::I32, vec![2, 8], vec![0; 64]),
        ("cube", Dtype::F32, vec![2, 2, 2], vec![0; 32]),
        ("none", Dtype::F32, vec![0, 8], vec![]),
        ("thin", Dtype::F32, vec![8, 0], vec![]),
    ]
}

#[test]
fn without_patterns_every_matrix_of_a_known_format_is_a_table() {
    let (_folder, file) = open(&mixed());
    let mut all = names(&file, &[]);
    all.sort();
    assert_eq!(all, ["a.weight", "b[0].weight", "c.weight", "d.weight"]);
    let info = file.info("d.weight").unwrap();
    assert_eq!((info.dtype, info.rows, info.dim), (SourceDtype::F8E4m3, 2, 64));
    let scale = info.parts[0].scale.as_ref().unwrap();
    assert_eq!(
        (scale.name.as_str(), scale.shape.as_slice(), scale.kind()),
        ("d.scale", &[2, 2][..], ScaleKind::Groups)
    );
    assert_eq!((info.row_bytes(), info.bytes()), (66, 132));
}

#[test]
fn patterns_select_tables_and_leave_what_comes_with_them() {
    let (_folder, file) = open(&mixed());
    assert_eq!(names(&file, &["a.*"]), ["a.weight"]);
    assert_eq!(names(&file, &["d.*"]), ["d.weight"]);
    assert_eq!(names(&file, &["b[0].weight"]), ["b[0].weight"]);
    assert_eq!(names(&file, &["?.weight", "a.weight"]).len(), 3);
    let select = |pattern: &str| source_error(file.select(&[pattern.to_string()]));
    assert!(matches!(select("x*"), SourceError::NoMatch { .. }));
    assert!(matches!(select("a.weigh"), SourceError::Missing { .. }));
    assert!(matches!(select("[z"), SourceError::Pattern { .. }));
    // What a pattern matches alone, and cannot be compressed, says why.
    assert!(matches!(select("ids*"), SourceError::Dtype { .. }));
    let (_folder, empty) = open(&mixed()[6..]);
    assert!(matches!(source_error(empty.select(&[])), SourceError::NoTables { .. }));
}

#[test]
fn what_is_no_table_says_why() {
    let (_folder, file) = open(&mixed());
    let message = |name: &str| file.table(name).unwrap_err().to_string();
    let has = |name: &str, parts: &[&str]| {
        let message = message(name);
        assert!(message.contains("in.safetensors: ") && parts.iter().all(|part| message.contains(part)), "{message}");
    };
    has("no.weight", &["tensor \"no.weight\" is not in the checkpoint"]);
    has("a.bias", &["\"a.bias\" has shape [8]", "expected two dimensions"]);
    has("cube", &["\"cube\" has shape [2, 2, 2]", "expected two dimensions"]);
    has("ids", &["\"ids\" has type I32", "expected F32, F16, BF16, F8_E4M3 or I8"]);
    has("d.scale", &["\"d.scale\" has type F8_E8M0"]);
    has("none", &["\"none\" has shape [0, 8]", "at least one row"]);
    has("thin", &["\"thin\" has shape [8, 0]", "at least one row of at least one value"]);
}

#[test]
fn fp8_without_its_scales_is_refused_by_name_and_shape() {
    let weight: Tensor = ("x.weight", Dtype::F8_E4M3, vec![3, 64], vec![0; 192]);
    let scale = |name, dtype, shape: Vec<usize>| -> Tensor {
        let bytes = shape.iter().product::<usize>() * if dtype == Dtype::F32 { 4 } else { 1 };
        (name, dtype, shape, vec![127; bytes])
    };
    let message = |tensors: &[Tensor]| open(tensors).1.info("x.weight").unwrap_err().to_string();
    let missing = message(std::slice::from_ref(&weight));
    assert!(missing.contains("has no scales: expected a tensor \"x.scale\" or \"x.weight_scale\""), "{missing}");
    assert!(
        missing.contains("of type and shape F8_E8M0 and [3, 2], or F32, BF16 or F16 and [3, 1] or [1]"),
        "{missing}"
    );
    for wrong in [
        scale("x.scale", Dtype::F8_E8M0, vec![1]),
        scale("x.scale", Dtype::F8_E8M0, vec![2, 3]),
        scale("x.scale", Dtype::F8_E8M0, vec![3, 2, 1]),
        scale("x.scale", Dtype::F32, vec![3, 2]),
    ] {
        let message = message(&[weight.clone(), wrong]);
        assert!(message.contains("scales \"x.scale\" of tensor \"x.weight\" have type"), "{message}");
        assert!(message.contains("expected F8_E8M0 and [3, 2], or F32"), "{message}");
    }
    let odd = ("x.weight", Dtype::F8_E4M3, vec![3, 40], vec![0; 120]);
    assert!(
        message(&[odd, scale("x.scale", Dtype::F8_E8M0, vec![3, 1])])
            .contains("rows of 40 values, expected a multiple of 32")
    );
    // Beside a tensor that is not called a weight, the scales append to its name.
    let plain = ("x", Dtype::F8_E4M3, vec![3, 64], vec![0; 192]);
    let (_folder, file) = open(&[plain, scale("x.scale", Dtype::F8_E8M0, vec![3, 2])]);
    assert_eq!(file.info("x").unwrap().parts[0].scale.as_ref().unwrap().name, "x.scale");
}

fn values(file: &Checkpoint, name: &str, first: u64, rows: usize) -> Vec<f32> {
    let mut source = file.table(name).unwrap();
    let raw = source.read(first, rows).unwrap();
    assert_eq!(raw.rows(), rows);
    let mut out = vec![f32::NAN; rows * raw.dim];
    raw.to_f32(0..rows, &mut out);
    out
}

#[test]
fn blocks_of_rows_are_the_rows_of_the_tensor() {
    let all = rows(11, 8, 3);
    let (_folder, file) = open(&[
        ("pad", Dtype::U8, vec![5], vec![9; 5]),
        ("t", Dtype::F32, vec![11, 8], f32_bytes(&all)),
        ("u", Dtype::F32, vec![1, 8], vec![0; 32]),
    ]);
    for (first, count) in [(0, 11), (0, 1), (10, 1), (3, 5), (11, 0)] {
        let expected = &all[first * 8..(first + count) * 8];
        assert_eq!(values(&file, "t", first as u64, count), expected, "{first} {count}");
    }
}

#[test]
fn every_half_is_read_exactly() {
    let bits: Vec<u8> = (0..=u16::MAX).flat_map(|bits| bits.to_le_bytes()).collect();
    let (_folder, file) =
        open(&[("f16", Dtype::F16, vec![256, 256], bits.clone()), ("bf16", Dtype::BF16, vec![256, 256], bits)]);
    for (bits, value) in (0..=u16::MAX).zip(values(&file, "f16", 0, 256)) {
        let expected = f16::from_bits(bits).to_f64();
        assert!(f64::from(value) == expected || value.is_nan() && expected.is_nan(), "{bits:#x}");
    }
    for (bits, value) in (0..=u16::MAX).zip(values(&file, "bf16", 0, 256)) {
        let expected = f32::from_bits(u32::from(bits) << 16);
        assert!(value.to_bits() == expected.to_bits() || value.is_nan() && expected.is_nan(), "{bits:#x}");
    }
}

#[test]
fn every_fp8_value_under_every_scale_is_the_rounded_product() {
    // Row r has scale bytes r and 255 - r; each group has 32 elements of one of eight runs.
    for run in 0..8u8 {
        let elements: Vec<u8> = (0..256).flat_map(|_| (0..64).map(move |i| run * 32 + (i % 32) as u8)).collect();
        let scales: Vec<u8> = (0..=255u8).flat_map(|row| [row, 255 - row]).collect();
        let (_folder, file) = open(&[
            ("x.weight", Dtype::F8_E4M3, vec![256, 64], elements.clone()),
            ("x.scale", Dtype::F8_E8M0, vec![256, 2], scales.clone()),
        ]);
        let values = values(&file, "x.weight", 0, 256);
        for (i, &value) in values.iter().enumerate() {
            let (element, scale) = (elements[i], scales[i / 32]);
            let product = f64::from(fp8::e4m3_to_f32(element)) * 2f64.powi(i32::from(scale) - 127);
            if scale == 255 || element & 0x7f == 0x7f {
                assert!(value.is_nan(), "{element:#x} {scale}");
            } else if product.abs() >= 2f64.powi(128) {
                assert_eq!(f64::from(value).abs(), f64::INFINITY, "{element:#x} {scale}");
            } else {
                // To the multiple of 2^-133, or exact: e4m3 has fewer bits than bf16.
                let unit = 2f64.powi(-133);
                let expected =
                    if product.abs() < 2f64.powi(-126) { (product / unit).round_ties_even() * unit } else { product };
                assert_eq!(f64::from(value), expected, "{element:#x} {scale}");
            }
        }
    }
}

#[test]
fn a_source_that_shrinks_under_a_reader_is_an_error() {
    let (folder, file) = open(&[("t", Dtype::F32, vec![100, 16], vec![0; 6400])]);
    let mut source = file.table("t").unwrap();
    let path = folder.path("in.safetensors");
    let length = fs::metadata(&path).unwrap().len();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(length - 1).unwrap();
    assert!(source.read(0, 99).is_ok());
    assert!(matches!(source.read(99, 1), Err(Error::File(condprog_table::Error::Io { action: "read", .. }))));
}

proptest! {
    #[test]
    fn any_row_of_any_block_is_the_same(count in 1usize..40, first in 0usize..40, size in 0usize..40, seed: u64) {
        let all = rows(count, 4, seed);
        let (first, end) = (first.min(count), (first + size).min(count));
        let (_folder, file) = open(&[("t", Dtype::F32, vec![count, 4], f32_bytes(&all))]);
        let raw = file.table("t").unwrap().read(first as u64, end - first).unwrap();
        for row in first..end {
            let mut out = [0.0; 4];
            raw.to_f32(row - first..row - first + 1, &mut out);
            prop_assert_eq!(&out[..], &all[row * 4..row * 4 + 4]);
        }
    }
}
