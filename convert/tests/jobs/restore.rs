//! Restored files: names, types, values, and that others can load them.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;

use crate::common::{Cpu, Folder, Tensor, compress, f32_bytes, f32_table, options, rows, write};
use condprog_checkpoint::fp8;
use condprog_checkpoint::{Checkpoint, RowSource};
use condprog_convert::{
    CompressOptions, DecompressOptions, Error, RestoredDtype, VerifyOptions, decompress, quiet, verify,
};
use condprog_core::encoder::ScaleRule;
use condprog_core::reference;
use condprog_core::{Rate, Segment};
use condprog_table::source::SourceDtype;
use condprog_table::{SegmentPlan, Tables, inspect};
use half::{bf16, f16};
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;

/// Three tables of three formats.
fn tensors() -> Vec<Tensor> {
    let values = rows(20, 64, 5);
    let half = values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect();
    let mut elements = vec![0; 20 * 64];
    let groups = values.chunks_exact(32).zip(elements.chunks_exact_mut(32));
    let scales = groups.map(|(values, elements)| fp8::encode_group(values, elements)).collect();
    let brain = values.iter().flat_map(|&value| bf16::from_f32(value).to_le_bytes()).collect();
    vec![
        ("f32", Dtype::F32, vec![20, 64], f32_bytes(&values)),
        ("f16", Dtype::F16, vec![20, 64], half),
        ("bf16", Dtype::BF16, vec![20, 64], brain),
        ("fp8.weight", Dtype::F8_E4M3, vec![20, 64], elements),
        ("fp8.scale", Dtype::F8_E8M0, vec![20, 2], scales),
    ]
}

fn table_of(folder: &Folder, tensors: &[Tensor]) -> Tables {
    write(&folder.path("in"), tensors);
    let plan =
        vec![SegmentPlan { rows: 7, rate: Rate::from_quarters(6).unwrap() }, SegmentPlan { rows: 13, rate: Rate::TWO }];
    let segments = [("f16".to_string(), plan)].into();
    compress(&folder.path("in"), &folder.path("table"), &CompressOptions { segments, ..options(6) }).unwrap();
    Tables::open(folder.path("table")).unwrap()
}

/// The literal decoder's rows.
fn expected(segments: &[Segment<'_>]) -> Vec<f32> {
    let mut out = Vec::new();
    for segment in segments {
        for row in 0..segment.rows {
            let mut values = vec![0.0; segment.layout.dim() as usize];
            reference::decode_f32(segment.layout, segment.record(row), &mut values);
            out.extend(values);
        }
    }
    out
}

fn restored(file: &Tables, output: &Path, dtype: RestoredDtype) -> Vec<u8> {
    let options = DecompressOptions { dtype, force: true, ..Default::default() };
    let bytes = decompress(file, output, &options, &Cpu, &quiet).unwrap();
    let read = fs::read(output).unwrap();
    assert_eq!(read.len() as u64, bytes);
    read
}

#[test]
fn rows_come_back_under_their_names_in_every_format() {
    let folder = Folder::new();
    let file = table_of(&folder, &tensors());
    let names = ["f32", "f16", "bf16", "fp8.weight"];
    for (dtype, theirs) in
        [(RestoredDtype::F32, Dtype::F32), (RestoredDtype::F16, Dtype::F16), (RestoredDtype::Bf16, Dtype::BF16)]
    {
        let bytes = restored(&file, &folder.path("restored"), dtype);
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(tensors.len(), 4);
        for name in names {
            let tensor = tensors.tensor(name).unwrap();
            assert_eq!((tensor.dtype(), tensor.shape()), (theirs, &[20, 64][..]));
            let expected = expected(&file.load(name).unwrap().segments());
            let expected: Vec<u8> = match dtype {
                RestoredDtype::F32 => f32_bytes(&expected),
                RestoredDtype::F16 => expected.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect(),
                _ => expected.iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()).collect(),
            };
            assert_eq!(tensor.data(), expected, "{name} {dtype:?}");
        }
    }
}

#[test]
fn the_source_format_comes_back_with_its_scales() {
    let folder = Folder::new();
    let file = table_of(&folder, &tensors());
    let bytes = restored(&file, &folder.path("restored"), RestoredDtype::Source);
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let theirs = |name: &str| tensors.tensor(name).unwrap().dtype();
    assert_eq!([theirs("f32"), theirs("f16"), theirs("bf16")], [Dtype::F32, Dtype::F16, Dtype::BF16]);
    assert_eq!([theirs("fp8.weight"), theirs("fp8.scale")], [Dtype::F8_E4M3, Dtype::F8_E8M0]);
    assert_eq!(tensors.len(), 5);
    // Every value is the decoded one, but for its rounding to four bits of significand.
    let decoded = expected(&file.load("fp8.weight").unwrap().segments());
    let mut source = Checkpoint::open(folder.path("restored")).unwrap().table("fp8.weight").unwrap();
    assert_eq!(source.info().dtype, SourceDtype::F8E4m3);
    let mut values = vec![0.0; 20 * 64];
    source.read(0, 20).unwrap().to_f32(0..20, &mut values);
    for (group, decoded) in values.chunks(32).zip(decoded.chunks(32)) {
        let largest = decoded.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        for (&value, &decoded) in group.iter().zip(decoded) {
            let tolerance = (decoded.abs() / 16.0).max(largest / 448.0 * 2.0 * 0.001);
            assert!((value - decoded).abs() <= tolerance, "{value} {decoded} {largest}");
        }
    }
}

#[test]
fn a_restored_file_compresses_and_verifies_again() {
    let folder = Folder::new();
    let file = table_of(&folder, &tensors());
    for dtype in [RestoredDtype::Bf16, RestoredDtype::Source] {
        restored(&file, &folder.path("restored"), dtype);
        let again = folder.path("again");
        compress(&folder.path("restored"), &again, &CompressOptions { force: true, ..options(6) }).unwrap();
        assert_eq!(Tables::open(again).unwrap().tables().len(), 4);
    }
}

#[test]
fn an_output_is_not_overwritten_unless_forced() {
    let folder = Folder::new();
    let file = table_of(&folder, &tensors());
    let output = folder.path("restored");
    fs::write(&output, "precious").unwrap();
    let error = decompress(&file, &output, &DecompressOptions::default(), &Cpu, &quiet).unwrap_err();
    assert!(matches!(error, Error::OutputExists { .. }));
    assert_eq!(fs::read(&output).unwrap(), b"precious");
    assert_eq!(folder.list(), ["in", "restored", "table"]);
}

#[test]
fn table_files_load_elsewhere_with_one_u8_tensor_per_segment() {
    let folder = Folder::new();
    let file = table_of(&folder, &tensors());
    let bytes = fs::read(folder.path("table")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut records: Vec<_> = tensors
        .iter()
        .filter(|(_, tensor)| tensor.dtype() == Dtype::U8)
        .map(|(name, tensor)| (name.to_string(), tensor.shape().to_vec()))
        .collect();
    records.sort();
    let at_two = |name: &str| (name.to_string(), vec![20, 18]);
    let halves = [("f16#0".to_string(), vec![7, 14]), ("f16#1".to_string(), vec![13, 18])];
    assert_eq!(records, [at_two("bf16"), halves[0].clone(), halves[1].clone(), at_two("f32"), at_two("fp8.weight")]);
    assert_eq!(tensors.len(), 10);
    assert_eq!(tensors.tensor("f32").unwrap().data(), file.load("f32").unwrap().segments()[0].records);
}

#[test]
fn every_way_to_open_a_file_gives_the_same_table() {
    let folder = Folder::new();
    let opened = table_of(&folder, &tensors());
    let path = folder.path("table");
    let bytes = fs::read(&path).unwrap();
    let given = Tables::from_bytes(&path, bytes.clone()).unwrap();
    assert_eq!(given.tables(), opened.tables());
    assert_eq!((given.file_bytes(), opened.file_bytes()), (bytes.len() as u64, bytes.len() as u64));
    for table in opened.tables() {
        let owned = |segments: Vec<Segment<'_>>| -> Vec<_> {
            segments.iter().map(|segment| (segment.rows, segment.layout, segment.records.to_vec())).collect()
        };
        let expected = owned(opened.segments_in(&table.name, &[&bytes]).unwrap());
        assert_eq!(owned(opened.load(&table.name).unwrap().segments()), expected);
        assert_eq!(owned(given.load(&table.name).unwrap().segments()), expected);
        let all: Vec<i64> = (0..table.rows as i64).collect();
        for file in [&opened, &given] {
            let picked = file.pick(&table.name, &all).unwrap();
            assert_eq!((owned(picked.segments()), picked.ids()), (expected.clone(), &*all));
        }
    }
    let error = opened.segments_in("f32", &[&bytes[1..]]).unwrap_err();
    assert_eq!((error.code(), opened.segments_in("f32", &[]).unwrap_err().code()), ("file-bytes", "file-bytes"));
    let error = opened.load("f64").unwrap_err().to_string();
    assert!(error.contains("table: table \"f64\" is not in the file, expected one of \""), "{error}");
}

#[test]
fn figures_do_not_depend_on_threads_nor_files_on_them() {
    let folder = Folder::new();
    let input = folder.path("in");
    f32_table(&input, "t", 16, &rows(700, 16, 9));
    let mut files = Vec::new();
    let mut reports = Vec::new();
    for threads in [1, 2, 5] {
        let output = folder.path(&format!("out{threads}"));
        let threads = NonZeroUsize::new(threads);
        compress(&input, &output, &CompressOptions { threads, scale: ScaleRule::Global(()), ..options(100) }).unwrap();
        let (file, source) = (Tables::open(&output).unwrap(), Checkpoint::open(&input).unwrap());
        reports.push(
            verify(&file, Some(&source), &VerifyOptions { threads, ..Default::default() }, &Cpu, &quiet).unwrap(),
        );
        files.push(fs::read(&output).unwrap());
    }
    assert!(files.iter().all(|file| *file == files[0]));
    assert!(reports.iter().all(|report| *report == reports[0]));
}

#[test]
fn figures_are_what_they_say() {
    let folder = Folder::new();
    let (input, output) = (folder.path("in"), folder.path("out"));
    let mut values = rows(20, 16, 9);
    values[3 * 16..4 * 16].fill(0.0);
    values[4 * 16..5 * 16].fill(1e-30);
    f32_table(&input, "t", 16, &values);
    compress(&input, &output, &options(6)).unwrap();
    let file = Tables::open(&output).unwrap();
    let source = Checkpoint::open(&input).unwrap();
    let found = verify(&file, Some(&source), &VerifyOptions::default(), &Cpu, &quiet).unwrap();
    let table = &found.tables[0];

    let restored = expected(&file.load("t").unwrap().segments());
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    let (mut error, mut energy, mut cosines, mut ratios, mut worst) = (0.0, 0.0, 0.0, 0.0, (0, 0.0));
    for (row, (e, r)) in values.chunks(16).zip(restored.chunks(16)).enumerate() {
        let difference: Vec<f32> = e.iter().zip(r).map(|(e, r)| e - r).collect();
        if dot(e, e) > 0.0 {
            let relative = dot(&difference, &difference) / dot(e, e);
            worst = if relative > worst.1 { (row as u64, relative) } else { worst };
            ratios += (dot(r, r) / dot(e, e)).sqrt() / 19.0;
            cosines += if dot(r, r) > 0.0 { dot(e, r) / (dot(e, e) * dot(r, r)).sqrt() / 19.0 } else { 0.0 };
        }
        error += dot(&difference, &difference);
        energy += dot(e, e);
    }
    let close = |got: Option<f64>, expected: f64| {
        assert!((got.unwrap() - expected).abs() < 1e-6 * expected.abs(), "{got:?} {expected}");
    };
    close(table.relative_mse, error / energy);
    close(table.mean_cosine, cosines);
    close(table.norm_ratio, ratios);
    close(table.worst_relative_mse, worst.1);
    assert_eq!(table.worst_row, Some(worst.0));
    assert_eq!((table.rate, table.record_bytes, table.source_bytes, table.table_bytes), (2.0, Some(6), 1280, 120));
    assert_eq!((table.zero_rows, table.underflow_rows), (2, 1));

    let json = serde_json::to_value(table).unwrap();
    for key in "name rows dim rate record_bytes source_bytes table_bytes relative_mse mean_cosine norm_ratio worst_row \
                worst_relative_mse zero_rows"
        .split_whitespace()
    {
        assert!(!json[key].is_null(), "{key}");
    }

    let summary = &inspect(&file).unwrap()[0];
    let segment = &summary.segments[0];
    assert_eq!((segment.zero_records, segment.variants[0], summary.bytes_per_row), (2, 18, 6.0));
    assert!((summary.ratio - 1280.0 / 120.0).abs() < 1e-12);
    let records = file.load("t").unwrap();
    let records = records.segments()[0];
    let alphas = (0..20).map(|row| condprog_core::Record::new(records.layout, records.record(row)).scale.alpha());
    let alphas: Vec<f64> = alphas.filter(|&alpha| alpha > 0.0).collect();
    let range = segment.scales.unwrap();
    assert_eq!(range.min, alphas.iter().copied().fold(f64::INFINITY, f64::min));
    assert_eq!(range.max, alphas.iter().copied().fold(0.0, f64::max));
}
