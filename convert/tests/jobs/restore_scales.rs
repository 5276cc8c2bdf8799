//! FP8 and INT8 tables restored in their own format: names, types and shapes of the source, and each number the nearest
//! there is under a scale that is the smallest there is.

use std::fs;

use crate::common::{Cpu, Folder, Named, Seeded, bf16_bytes, decode, options, rows, write};
use condprog_checkpoint::{Checkpoint, RowSource};
use condprog_convert::{CompressOptions, DecompressOptions, NonFinite, RestoredDtype, compress, decompress, quiet};
use condprog_core::Rate;
use condprog_table::{SegmentPlan, Tables};
use half::{bf16, f16};
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;

fn number_bytes(dtype: Dtype, value: f32) -> Vec<u8> {
    match dtype {
        Dtype::F32 => value.to_le_bytes().into(),
        Dtype::F16 => f16::from_f32(value).to_le_bytes().into(),
        _ => bf16::from_f32(value).to_le_bytes().into(),
    }
}

/// The numbers of a scale tensor, and of each the next smaller one.
fn numbers(dtype: Dtype, bytes: &[u8]) -> Vec<(f64, f64)> {
    let size = dtype.bitsize() / 8;
    let number = |bits: u32| -> f64 {
        match dtype {
            Dtype::F32 => f32::from_bits(bits).into(),
            Dtype::F16 => f16::from_bits(bits as u16).to_f64(),
            Dtype::BF16 => bf16::from_bits(bits as u16).to_f64(),
            _ => 2f64.powi(bits as i32 - 127),
        }
    };
    bytes
        .chunks(size)
        .map(|bytes| {
            let bits = bytes.iter().rev().fold(0, |bits, &byte| bits << 8 | u32::from(byte));
            (number(bits), number(bits - 1))
        })
        .collect()
}

/// The positive numbers of an 8-bit type, ascending.
fn positive(dtype: Dtype) -> Vec<f64> {
    if dtype == Dtype::I8 {
        return (0..=127).map(f64::from).collect();
    }
    let number = |byte: i32| {
        let (exponent, mantissa) = (byte / 8, f64::from(byte % 8));
        if exponent == 0 { mantissa / 512.0 } else { (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7) }
    };
    (0..127).map(number).collect()
}

/// The byte of the number nearest to `value`, ties to even, the largest beyond it.
fn nearest(dtype: Dtype, numbers: &[f64], value: f64) -> u8 {
    let above = numbers.partition_point(|number| *number < value.abs()).min(numbers.len() - 1);
    let below = above.saturating_sub(1);
    let (low, high) = (value.abs() - numbers[below], numbers[above] - value.abs());
    let magnitude = match low.partial_cmp(&high).unwrap() {
        std::cmp::Ordering::Less => below,
        std::cmp::Ordering::Greater => above,
        std::cmp::Ordering::Equal => below + below % 2,
    } as u8;
    match (value.is_sign_negative(), dtype) {
        (false, _) => magnitude,
        (true, Dtype::I8) => magnitude.wrapping_neg(),
        (true, _) => magnitude | 0x80,
    }
}

/// Checks restored elements against the decoded rows: `groups` values share a scale.
fn assert_restored(dtype: Dtype, elements: &[u8], scales: &[(f64, f64)], decoded: &[f64], group: usize, is_own: bool) {
    let numbers = positive(dtype);
    let largest = *numbers.last().unwrap();
    for (at, (values, bytes)) in decoded.chunks(group).zip(elements.chunks(group)).enumerate() {
        let (scale, smaller) = scales[if is_own { at } else { 0 }];
        let most = values.iter().fold(0f64, |most, value| most.max(value.abs()));
        if is_own && most == 0.0 {
            assert_eq!((scale, bytes), (1.0, &vec![0; bytes.len()][..]));
        } else if is_own {
            assert!(scale * largest >= most && smaller * largest < most, "{at}: {most} by {scale}");
        }
        for (&value, &byte) in values.iter().zip(bytes) {
            let expected = nearest(dtype, &numbers, value / scale);
            // Zeros of either sign are one number.
            let is_zero = |byte: u8| byte & 0x7f == 0 && dtype != Dtype::I8;
            assert!(byte == expected || is_zero(byte) && is_zero(expected), "{at}: {value} by {scale} is {byte:#x}");
        }
    }
}

/// Two rates, so that rows of one tensor lie in two segments.
fn compressed(folder: &Folder, checkpoint: &Checkpoint, tensors: &[&str], rows: u64, name: &str) -> Tables {
    let tensors: Vec<_> = tensors.iter().map(|name| name.to_string()).collect();
    let info = checkpoint.join(name, &tensors, None).unwrap();
    let mut sources: Vec<Box<dyn RowSource>> = vec![Box::new(checkpoint.rows(info).unwrap())];
    let plan = |rows, quarters| SegmentPlan { rows, rate: Rate::from_quarters(quarters).unwrap() };
    let options = CompressOptions {
        segments: [(name.to_string(), vec![plan(7, 6), plan(rows - 7, 10)])].into(),
        non_finite: NonFinite::Zero,
        force: true,
        ..options(5)
    };
    compress(&mut sources, folder.path("table"), &options, &Cpu, &quiet).unwrap();
    Tables::open(folder.path("table")).unwrap()
}

fn restored(folder: &Folder, file: &Tables) -> Vec<u8> {
    let options = DecompressOptions { dtype: RestoredDtype::Source, force: true, ..Default::default() };
    decompress(file, folder.path("restored"), &options, &Cpu, &quiet).unwrap();
    fs::read(folder.path("restored")).unwrap()
}

fn decoded(file: &Tables, table: &str) -> Vec<f64> {
    let ids: Vec<_> = (0..file.table(table).unwrap().rows as i64).collect();
    decode(file, table, &ids).into_iter().map(|bits| f32::from_bits(bits).into()).collect()
}

/// Bytes that are numbers, rows of different lengths and a row of zeros among them.
fn elements(rows: usize, dim: usize, seed: u64) -> Vec<u8> {
    let mut random = Seeded(seed);
    let mut row = |row| (0..dim).map(|_| if row == 3 { 0 } else { (random.next() % 0x70) as u8 }).collect::<Vec<_>>();
    (0..rows).flat_map(&mut row).collect()
}

#[test]
fn tables_with_one_scale_or_scales_of_rows_come_back_as_they_were() {
    const ROWS: usize = 21;
    for dtype in [Dtype::F8_E4M3, Dtype::I8] {
        for scale_dtype in [Dtype::F32, Dtype::BF16, Dtype::F16] {
            for shape in [vec![], vec![1], vec![1, 1], vec![ROWS], vec![ROWS, 1]] {
                let is_own = shape.first() == Some(&ROWS);
                let count = if is_own { ROWS } else { 1 };
                let scales = (0..count).flat_map(|row| number_bytes(scale_dtype, 0.0002 * (1 + row % 9) as f32));
                let scale = ("x.weight_scale", scale_dtype, shape.clone(), scales.collect::<Vec<_>>());
                let folder = Folder::new();
                let source = scale.3.clone();
                write(&folder.path("in"), &[("x.weight", dtype, vec![ROWS, 32], elements(ROWS, 32, 7)), scale]);
                let checkpoint = Checkpoint::open(folder.path("in")).unwrap();
                let file = compressed(&folder, &checkpoint, &["x.weight"], ROWS as u64, "x.weight");
                let bytes = restored(&folder, &file);
                let tensors = SafeTensors::deserialize(&bytes).unwrap();
                assert_eq!(tensors.len(), 2);
                let (weight, scale) = (tensors.tensor("x.weight").unwrap(), tensors.tensor("x.weight_scale").unwrap());
                assert_eq!((weight.dtype(), weight.shape()), (dtype, &[ROWS, 32][..]));
                assert_eq!((scale.dtype(), scale.shape()), (scale_dtype, &shape[..]));
                assert!(is_own || scale.data() == source);
                let scales = numbers(scale_dtype, scale.data());
                assert_restored(dtype, weight.data(), &scales, &decoded(&file, "x.weight"), 32, is_own);
                // What comes back is a source again, of the same kind.
                let again = Checkpoint::open(folder.path("restored")).unwrap().info("x.weight").unwrap();
                assert_eq!(again, checkpoint.info("x.weight").unwrap());
            }
        }
    }
}

#[test]
fn scales_of_groups_are_the_smallest_powers_of_two() {
    let folder = Folder::new();
    let scales = (0..42).map(|i| 110 + (i * 5 % 23) as u8).collect();
    let tensors = [
        ("x.weight", Dtype::F8_E4M3, vec![21, 64], elements(21, 64, 3)),
        ("x.scale", Dtype::F8_E8M0, vec![21, 2], scales),
    ];
    write(&folder.path("in"), &tensors);
    let checkpoint = Checkpoint::open(folder.path("in")).unwrap();
    let file = compressed(&folder, &checkpoint, &["x.weight"], 21, "x.weight");
    let bytes = restored(&folder, &file);
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let (weight, scale) = (tensors.tensor("x.weight").unwrap(), tensors.tensor("x.scale").unwrap());
    assert_eq!((scale.dtype(), scale.shape()), (Dtype::F8_E8M0, &[21, 2][..]));
    let scales = numbers(Dtype::F8_E8M0, scale.data());
    assert_restored(Dtype::F8_E4M3, weight.data(), &scales, &decoded(&file, "x.weight"), 32, true);
}

#[test]
fn values_beyond_one_scale_become_the_largest_there_is() {
    let folder = Folder::new();
    // All elements are the largest, so that some decoded values are beyond them.
    for (dtype, byte) in [(Dtype::F8_E4M3, 0x7e), (Dtype::I8, 0x7f)] {
        let data = (0..320).map(|i| if i % 3 == 0 { byte } else { byte / 2 }).collect();
        let scale = ("x.scale", Dtype::F32, vec![1], 0.25f32.to_le_bytes().to_vec());
        write(&folder.path("in"), &[("x", dtype, vec![10, 32], data), scale]);
        let checkpoint = Checkpoint::open(folder.path("in")).unwrap();
        let file = compressed(&folder, &checkpoint, &["x"], 10, "x");
        let bytes = restored(&folder, &file);
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let (weight, values) = (tensors.tensor("x").unwrap(), decoded(&file, "x"));
        let beyond = values.iter().filter(|value| value.abs() / 0.25 > positive(dtype)[126] * 1.01).count();
        assert!(beyond > 0);
        assert_restored(dtype, weight.data(), &[(0.25, 0.0)], &values, 32, false);
    }
}

/// Three tensors of different rows, and their scales: one for all, or of rows, or none.
fn three(kind: &str) -> Vec<Named> {
    let counts = [9, 1, 14];
    let mut tensors = Vec::new();
    for (part, rows) in counts.into_iter().enumerate() {
        let name = format!("t.shard_{part}");
        if kind == "none" {
            let values = crate::common::rows(rows, 32, part as u64);
            tensors.push((format!("{name}.weight"), Dtype::BF16, vec![rows, 32], bf16_bytes(&values)));
            continue;
        }
        tensors.push((format!("{name}.weight"), Dtype::F8_E4M3, vec![rows, 32], elements(rows, 32, part as u64)));
        if kind == "rows" {
            let scales: Vec<f32> = (0..rows).map(|row| 0.001 * (row + 1) as f32).collect();
            tensors.push((format!("{name}.weight_scale"), Dtype::BF16, vec![rows, 1], bf16_bytes(&scales)));
        }
    }
    if kind == "one" {
        tensors.push(("t.weight_scale".into(), Dtype::BF16, vec![1], bf16_bytes(&[0.0002])));
    }
    tensors
}

#[test]
fn a_joined_table_comes_back_as_its_tensors() {
    for kind in ["one", "rows", "none"] {
        let folder = Folder::new();
        let source = three(kind);
        write(&folder.path("in"), &source);
        let checkpoint = Checkpoint::open(folder.path("in")).unwrap();
        let names = ["t.shard_0.weight", "t.shard_1.weight", "t.shard_2.weight"];
        let file = compressed(&folder, &checkpoint, &names, 24, "t.weight");
        let bytes = restored(&folder, &file);
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let about = |name: &str| {
            let tensor = tensors.tensor(name).unwrap();
            (tensor.dtype(), tensor.shape().to_vec())
        };
        assert_eq!(tensors.len(), source.len());
        for (name, dtype, shape, _) in &source {
            assert_eq!(about(name), (*dtype, shape.clone()), "{name}");
        }
        let all = decoded(&file, "t.weight");
        for (name, range) in names.into_iter().zip([0..9, 9..10, 10..24]) {
            let (elements, own) = (tensors.tensor(name).unwrap(), &all[range.start * 32..range.end * 32]);
            if kind == "none" {
                let own: Vec<_> = own.iter().map(|&value| value as f32).collect();
                assert_eq!(elements.data(), bf16_bytes(&own));
                continue;
            }
            let scale = if kind == "one" { "t.weight_scale".into() } else { name.replace("weight", "weight_scale") };
            let scales = numbers(Dtype::BF16, tensors.tensor(&scale).unwrap().data());
            assert_restored(Dtype::F8_E4M3, elements.data(), &scales, own, 32, kind == "rows");
        }
        let again = Checkpoint::open(folder.path("restored")).unwrap();
        let names: Vec<_> = names.iter().map(|name| name.to_string()).collect();
        assert_eq!(again.join("t", &names, None).unwrap(), checkpoint.join("t", &names, None).unwrap());
    }
}

#[test]
fn one_file_of_many_comes_back_as_its_rows() {
    for kind in ["one", "rows", "none"] {
        let folder = Folder::new();
        write(&folder.path("in"), &three(kind));
        let checkpoint = Checkpoint::open(folder.path("in")).unwrap();
        let names = [0, 1, 2].map(|part| format!("t.shard_{part}.weight"));
        let info = checkpoint.join("t", &names, None).unwrap();
        let mut sources: Vec<Box<dyn RowSource>> = vec![Box::new(checkpoint.rows(info).unwrap())];
        let options = CompressOptions { shard_bytes: Some(100), ..options(3) };
        let report = compress(&mut sources, folder.path("out.safetensors"), &options, &Cpu, &quiet).unwrap();
        assert!(report.files.len() > 2);
        let whole = restored(&folder, &Tables::open(report.index.unwrap()).unwrap());
        let whole = SafeTensors::deserialize(&whole).unwrap();
        // Of each tensor, the rows of one file after another.
        let mut found: std::collections::BTreeMap<String, Vec<u8>> = Default::default();
        for path in report.files {
            let bytes = restored(&folder, &Tables::open(path).unwrap());
            for (name, tensor) in SafeTensors::deserialize(&bytes).unwrap().tensors() {
                assert_eq!(tensor.dtype(), whole.tensor(&name).unwrap().dtype());
                let all = found.entry(name.clone()).or_default();
                if name == "t.weight_scale" {
                    all.clear();
                }
                all.extend(tensor.data());
            }
        }
        let expected = whole.tensors().into_iter().map(|(name, tensor)| (name, tensor.data().to_vec())).collect();
        assert_eq!(found, expected, "{kind}");
    }
}

#[test]
fn rows_of_nearly_normal_values_lose_little_more() {
    // A check that is not by the same rule: FP8 has three bits after the first, so the square error is small.
    let folder = Folder::new();
    let all = rows(40, 32, 1);
    let mut values = Vec::new();
    for row in all.chunks(32) {
        let most = row.iter().fold(0f32, |most, value| most.max(value.abs()));
        values.extend(row.iter().map(|value| (value / most * 127.0).round() as i8 as u8));
    }
    let scales: Vec<f32> =
        all.chunks(32).map(|row| row.iter().fold(0f32, |most, value| most.max(value.abs())) / 127.0).collect();
    let scales = scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
    write(&folder.path("in"), &[("x", Dtype::I8, vec![40, 32], values), ("x.scale", Dtype::F32, vec![40], scales)]);
    let checkpoint = Checkpoint::open(folder.path("in")).unwrap();
    let file = compressed(&folder, &checkpoint, &["x"], 40, "x");
    restored(&folder, &file);
    let back = crate::common::values(&mut Checkpoint::open(folder.path("restored")).unwrap().table("x").unwrap());
    let decoded = decoded(&file, "x");
    let error: f64 = decoded.iter().zip(&back).map(|(a, &b)| (a - f64::from(b)).powi(2)).sum();
    let energy: f64 = decoded.iter().map(|value| value * value).sum();
    assert!(error < 1e-4 * energy, "{}", error / energy);
}
