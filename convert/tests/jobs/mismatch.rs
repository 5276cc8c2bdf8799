//! Whether `verify` tells the source that a file was made from, from any other; and takes no sound file for a wrong one.

use std::path::Path;

use crate::common::{Cpu, Folder, Seeded, Tensor, compress, f32_bytes, f32_table, options, rows, write};
use condprog_checkpoint::Checkpoint;
use condprog_checkpoint::fp8;
use condprog_convert::{
    CompressOptions, NonFinite, PartOf, Sample, VerifyOptions, VerifyReport, VerifyTable, compress_file, quiet, verify,
};
use condprog_core::Rate;
use condprog_core::encoder::ScaleRule;
use condprog_table::{Damage, Fault, SegmentPlan, Tables};
use safetensors::tensor::Dtype;

const ROWS: usize = 300;
const DIM: usize = 32;

/// No row is coded again but those in doubt.
const LIMITS_ALONE: VerifyOptions = VerifyOptions { threads: None, sample: Sample::Rows(0), max_error: None };
const ALL: VerifyOptions = VerifyOptions { threads: None, sample: Sample::All, max_error: None };

/// What is found besides the digests of the source's rows, which tell every other source: files of earlier versions have
/// none, and digests do not tell which rows are wrong.
fn check(table: &Path, source: &Path, options: &VerifyOptions) -> VerifyReport {
    let (file, source) = (Tables::open(table).unwrap(), Checkpoint::open(source).unwrap());
    let mut report = verify(&file, Some(&source), options, &Cpu, &quiet).unwrap();
    for table in &mut report.tables {
        let wrong = table.damage.iter().any(|damage| damage.fault.code() != "mismatch-error");
        let is_digest = |damage: &Damage| matches!(damage.fault, Fault::SourceDigest { .. });
        assert_eq!(table.damage.iter().any(is_digest), wrong, "{table:?}");
        table.damage.retain(|damage| !is_digest(damage));
    }
    report
}

/// However little of the source is another, and whatever its restored rows are like.
#[test]
fn one_bit_of_one_row_is_another_source() {
    let (folder, mut values) = made(&options(100));
    let place = 123 * DIM + 7;
    values[place] = f32::from_bits(values[place].to_bits() ^ 1);
    f32_table(&folder.path("other"), "t", DIM, &values);
    let (file, source) = (Tables::open(folder.path("table")).unwrap(), Checkpoint::open(folder.path("other")).unwrap());
    let report = verify(&file, Some(&source), &LIMITS_ALONE, &Cpu, &quiet).unwrap();
    assert_eq!(codes(&report.tables[0]), ["mismatch-source"]);
    assert!(report.is_mismatch());
    let says = report.tables[0].damage[0].to_string();
    assert!(says.starts_with("tensor \"t\", rows 0 to 299: the rows of the source have digest "), "{says}");
}

/// What is found of the only table when it is compared with other values.
fn against(folder: &Folder, values: &[f32], options: &VerifyOptions) -> VerifyTable {
    f32_table(&folder.path("other"), "t", DIM, values);
    let mut report = check(&folder.path("table"), &folder.path("other"), options);
    assert_eq!(report.is_mismatch(), !report.is_whole());
    report.tables.remove(0)
}

fn codes(table: &VerifyTable) -> Vec<&'static str> {
    table.damage.iter().map(|damage| damage.fault.code()).collect()
}

/// A table and its source.
fn made(options: &CompressOptions) -> (Folder, Vec<f32>) {
    let folder = Folder::new();
    let values = rows(ROWS, DIM, 1);
    f32_table(&folder.path("in"), "t", DIM, &values);
    compress(&folder.path("in"), &folder.path("table"), options).unwrap();
    (folder, values)
}

fn swapped(values: &[f32], [a, b]: [usize; 2]) -> Vec<f32> {
    let mut swapped = values.to_vec();
    swapped[a * DIM..(a + 1) * DIM].copy_from_slice(&values[b * DIM..(b + 1) * DIM]);
    swapped[b * DIM..(b + 1) * DIM].copy_from_slice(&values[a * DIM..(a + 1) * DIM]);
    swapped
}

#[test]
fn another_source_of_the_same_shape_is_found_out() {
    for scale in ScaleRule::ALL {
        let (folder, values) = made(&CompressOptions { scale, ..options(100) });
        let row = |row: usize| &values[row * DIM..(row + 1) * DIM];
        let reordered = |order: &dyn Fn(usize) -> usize| (0..ROWS).flat_map(|r| row(order(r)).to_vec()).collect();
        let wrong: [(&str, Vec<f32>); 6] = [
            ("another table", rows(ROWS, DIM, 2)),
            ("permuted", reordered(&|row| row * 7 % ROWS)),
            ("shifted by a row", reordered(&|row| (row + 1) % ROWS)),
            ("negated", values.iter().map(|value| -value).collect()),
            ("doubled", values.iter().map(|value| 2.0 * value).collect()),
            ("two rows swapped", swapped(&values, [100, 101])),
        ];
        for (what, other) in wrong {
            // Under one scale for all, a longer row is as right as any: only its bytes tell.
            let is_as_right = (scale, what) == (ScaleRule::Global(()), "doubled");
            let found = against(&folder, &other, if is_as_right { &ALL } else { &LIMITS_ALONE });
            assert!(!found.damage.is_empty(), "{what}, {scale:?}: {found:?}");
            let mismatched = found.mismatched_rows.unwrap();
            if what == "two rows swapped" {
                let [damage] = found.damage.as_slice() else { panic!("{found:?}") };
                assert_eq!((damage.first_row, damage.rows, mismatched), (100, 2, 2), "{scale:?}");
                assert!(matches!(damage.fault, Fault::SourceRows { row: 100, count: 2, .. }), "{damage}");
                assert!(damage.to_string().starts_with(
                    "tensor \"t\", rows 100 to 101: 2 rows are not those of the source; the first is row 100, with \
                     relative MSE "
                ));
                continue;
            }
            // The table is named where its rows point elsewhere, and its rows.
            assert!(mismatched > ROWS as u64 / 2, "{what}, {scale:?}: {found:?}");
            assert_eq!(codes(&found).contains(&"mismatch-cosine"), what != "doubled", "{what}, {scale:?}: {found:?}");
            let code = if is_as_right { "mismatch-records" } else { "mismatch-rows" };
            assert!(codes(&found).contains(&code), "{what}, {scale:?}: {found:?}");
        }
        for (options, recoded) in [(VerifyOptions::default(), 257), (LIMITS_ALONE, 0)] {
            let found = against(&folder, &values, &options);
            assert!(found.damage.is_empty(), "{scale:?}, {options:?}: {found:?}");
            assert_eq!((found.mismatched_rows, found.recoded_rows), (Some(0), Some(recoded)), "{scale:?}");
        }
    }
}

#[test]
fn rows_that_differ_a_little_differ_in_their_bytes() {
    let (folder, values) = made(&CompressOptions { rate: Rate::from_quarters(16).unwrap(), ..options(100) });
    // So little that every error is as it was.
    let mut other = values.clone();
    let mut random = Seeded(3);
    for row in [0, 200, ROWS - 1] {
        other[row * DIM..(row + 1) * DIM].iter_mut().for_each(|value| *value *= 1.0 + 0.02 * random.normal());
    }
    assert!(against(&folder, &other, &LIMITS_ALONE).damage.is_empty());
    // The first and the last row are in every sample.
    let found = against(&folder, &other, &VerifyOptions { sample: Sample::Rows(5), ..LIMITS_ALONE });
    let recoded = found.recoded_rows.unwrap();
    assert!((6..=7).contains(&recoded), "{found:?}");
    assert_eq!((found.damage[0].first_row, found.damage[1].first_row), (0, ROWS as u64 - 1), "{found:?}");
    assert_eq!(
        found.damage[0].to_string(),
        format!(
            "tensor \"t\", rows 0 to 0: record bytes differ from what this version codes for the source row, though every \
             error is within its limits: 1 of {recoded} rows that were coded again, the first is row 0; the source is \
             another one, or another version coded the file"
        )
    );
    // Rows that are near each other are named together.
    let found = against(&folder, &other, &ALL);
    assert_eq!((codes(&found), found.mismatched_rows), (vec!["mismatch-records"], Some(3)));
    let json = serde_json::to_value(&found).unwrap();
    assert_eq!((&json["damage"][0]["first_row"], &json["damage"][0]["rows"]), (&0.into(), &ROWS.into()));
    assert_eq!(json["damage"][0]["fault"], serde_json::json!({ "kind": "records", "row": 0, "count": 3, "of": ROWS }));
    assert_eq!((&json["recoded_rows"], &json["mismatched_rows"]), (&ROWS.into(), &3.into()));
}

#[test]
fn other_scales_of_the_same_elements_are_found_out() {
    const DIM: usize = 64;
    let folder = Folder::new();
    let values = rows(40, DIM, 5);
    let mut elements = vec![0; 40 * DIM];
    let groups = values.chunks_exact(32).zip(elements.chunks_exact_mut(32));
    let scales: Vec<u8> = groups.map(|(values, elements)| fp8::encode_group(values, elements)).collect();
    let tensors = |scales: &[u8]| -> Vec<Tensor> {
        vec![
            ("t.weight", Dtype::F8_E4M3, vec![40, DIM], elements.clone()),
            ("t.scale", Dtype::F8_E8M0, vec![40, 2], scales.into()),
        ]
    };
    write(&folder.path("in"), &tensors(&scales));
    for scale in [ScaleRule::Norm, ScaleRule::Projection, ScaleRule::LeastSquares] {
        compress(&folder.path("in"), &folder.path("table"), &CompressOptions { scale, force: true, ..options(16) })
            .unwrap();
        // One group of one row counts twice; then every row does.
        let mut one = scales.clone();
        one[2 * 17] += 1;
        let all: Vec<u8> = scales.iter().map(|scale| scale + 1).collect();
        for (other, rows) in [(one, 1), (all, 40)] {
            write(&folder.path("other"), &tensors(&other));
            let report = check(&folder.path("table"), &folder.path("other"), &LIMITS_ALONE);
            assert_eq!(report.tables[0].mismatched_rows, Some(rows), "{scale:?}: {report:?}");
        }
        assert!(check(&folder.path("table"), &folder.path("in"), &ALL).is_whole());
    }
}

/// Rows that are hard to code, or cannot be.
fn odd_rows(dim: usize, with_non_finite: bool) -> Vec<f32> {
    let mut values = rows(44, dim, 7);
    let mut random = Seeded(11);
    let mut set = |row: usize, value: &mut dyn FnMut(usize, f32) -> f32| {
        for (column, old) in values[row * dim..(row + 1) * dim].iter_mut().enumerate() {
            *old = value(column, *old);
        }
    };
    for row in 0..4 {
        let (at, sign) = (random.next() as usize % dim, if row % 2 == 0 { 1.0 } else { -0.01 });
        set(4 * row, &mut |column, _| if column == at { sign } else { 0.0 });
        set(4 * row + 1, &mut |column, old| if column == at { 100.0 * sign } else { old });
        set(4 * row + 2, &mut |_, old| (10.0 * old).powi(5 + 2 * row as i32));
    }
    set(20, &mut |_, _| 0.0);
    set(21, &mut |_, _| -0.0);
    set(22, &mut |_, old| 1e-30 * old);
    set(23, &mut |_, _| f32::from_bits(1));
    set(24, &mut |column, old| if column % 2 == 0 { old } else { 0.001 * old });
    set(25, &mut |_, _| 1.0);
    set(26, &mut |_, old| old.signum());
    // About as small as a row can be that has a scale.
    (0..8).for_each(|row| set(27 + row, &mut |_, old| old * 1e-9 / 4f32.powi(row as i32)));
    if with_non_finite {
        set(36, &mut |column, old| if column == 3 { f32::NAN } else { old });
        set(37, &mut |column, old| if column == 0 { f32::INFINITY } else { old });
        set(38, &mut |_, old| 1e34 * old);
    }
    values
}

#[test]
fn sound_files_are_sound_at_every_rate_rule_effort_and_width() {
    let rules = || ScaleRule::ALL.into_iter().cycle();
    // Rows, values per row, quarter bits, effort, scale rule: every rate, every rule, every effort.
    let mut cases: Vec<(usize, usize, u32, u8, ScaleRule<()>)> = Vec::new();
    cases.extend((4..=16).zip(rules()).map(|(quarters, scale)| (44, 64, quarters, 0, scale)));
    cases.extend(ScaleRule::ALL.map(|scale| (44, 64, 8, 0, scale)));
    cases.extend((1..=4).zip(rules().skip(1)).map(|(effort, scale)| (8, 64, 8, effort, scale)));
    cases.push((44, 160, 8, 0, ScaleRule::Projection));
    // Codes so short that ordinary rows come out with a product that is not positive.
    let short = [(16, 4), (16, 6), (8, 8)];
    let three = &ScaleRule::ALL[..3];
    cases.extend(
        short.iter().flat_map(|&(dim, quarters)| three.iter().map(move |&scale| (44, dim, quarters, 0, scale))),
    );
    cases.extend(ScaleRule::ALL.map(|scale| (1, 64, 8, 0, scale)));
    for (rows, dim, quarters, effort, scale) in cases {
        let folder = Folder::new();
        let rate = Rate::from_quarters(quarters).unwrap();
        let options = CompressOptions { rate, effort, scale, non_finite: NonFinite::Zero, ..options(9) };
        // One scale for all has no place for rows of all sizes.
        let values = odd_rows(dim, scale != ScaleRule::Global(()));
        let (input, table) = (folder.path("in"), folder.path("table"));
        f32_table(&input, "t", dim, &values[..rows * dim]);
        compress(&input, &table, &options).unwrap();
        let report = check(&table, &input, &VerifyOptions::default());
        assert!(report.is_whole(), "{rows} rows, {dim}, {quarters}, {effort}, {scale:?}: {report:?}");
        assert_eq!(report.tables[0].recoded_rows, Some(rows as u64));
    }
}

#[test]
fn ordinary_rows_are_not_coded_again_but_for_the_sample() {
    for quarters in [4, 8, 16] {
        for scale in ScaleRule::ALL {
            let rate = Rate::from_quarters(quarters).unwrap();
            let (folder, values) = made(&CompressOptions { rate, scale, ..options(100) });
            assert_eq!(against(&folder, &values, &LIMITS_ALONE).recoded_rows, Some(0), "{quarters}, {scale:?}");
        }
    }
}

#[test]
fn a_largest_error_can_be_set() {
    let (folder, values) = made(&options(100));
    let error = against(&folder, &values, &LIMITS_ALONE).relative_mse.unwrap();
    let limit = |limit| VerifyOptions { max_error: Some(limit), ..LIMITS_ALONE };
    assert!(against(&folder, &values, &limit(1.01 * error)).damage.is_empty());
    let found = against(&folder, &values, &limit(0.99 * error));
    let [damage] = found.damage.as_slice() else { panic!("{found:?}") };
    assert_eq!((damage.fault.code(), damage.first_row, damage.rows), ("mismatch-error", 0, ROWS as u64));
    assert!(damage.to_string().contains(": relative MSE is 0."), "{damage}");
    let (file, source) = (Tables::open(folder.path("table")).unwrap(), Checkpoint::open(folder.path("in")).unwrap());
    for bad in [0.0, -1.0, f64::NAN] {
        let error = verify(&file, Some(&source), &limit(bad), &Cpu, &quiet).unwrap_err();
        assert_eq!(error.code(), "max-error");
    }
}

#[test]
fn segments_shards_and_parts_are_compared_with_their_own_rows() {
    let plan = |rates: &[(u64, u32)]| -> Vec<SegmentPlan> {
        rates.iter().map(|&(rows, q)| SegmentPlan { rows, rate: Rate::from_quarters(q).unwrap() }).collect()
    };
    let segments = [("t".to_string(), plan(&[(1, 16), (99, 8), (100, 4), (99, 12), (1, 8)]))].into();
    let cut = CompressOptions { segments, shard_bytes: Some(1_000), ..options(16) };
    let folder = Folder::new();
    let values = rows(ROWS, DIM, 1);
    f32_table(&folder.path("in"), "t", DIM, &values);
    let report = compress(&folder.path("in"), &folder.path("out.safetensors"), &cut).unwrap();
    assert!(report.files.len() > 2, "{report:?}");
    let index = report.index.unwrap();
    let sample = VerifyOptions { sample: Sample::Rows(7), ..LIMITS_ALONE };
    for options in [sample, ALL] {
        assert!(check(&index, &folder.path("in"), &options).is_whole());
    }
    // Of each segment the first and the last row are in the sample: they are seen where nothing else is.
    let (mut other, mut random) = (values.clone(), Seeded(3));
    for row in [0, 1, 99, 100, 199, 200, 298, 299] {
        other[row * DIM..(row + 1) * DIM].iter_mut().for_each(|value| *value *= 1.0 + 0.2 * random.normal());
    }
    f32_table(&folder.path("other"), "t", DIM, &other);
    let found = check(&index, &folder.path("other"), &sample).tables.remove(0);
    assert_eq!(found.mismatched_rows, Some(8), "{found:?}");
    // Rows that were swapped between segments of two rates.
    f32_table(&folder.path("other"), "t", DIM, &swapped(&values, [60, 150]));
    let found = check(&index, &folder.path("other"), &LIMITS_ALONE).tables.remove(0);
    assert_eq!(found.damage.iter().map(|damage| damage.first_row).collect::<Vec<_>>(), [60, 150], "{found:?}");

    let part = CompressOptions { part: Some(PartOf::Rows(40..290)), ..options(16) };
    compress_file(folder.path("in"), &[], folder.path("part"), &part, &Cpu, &quiet).unwrap();
    for options in [VerifyOptions::default(), ALL] {
        assert!(check(&folder.path("part"), &folder.path("in"), &options).is_whole());
    }
    let found = check(&folder.path("part"), &folder.path("other"), &LIMITS_ALONE).tables.remove(0);
    // Counted from the file's first row.
    assert_eq!(found.damage.iter().map(|damage| damage.first_row).collect::<Vec<_>>(), [20], "{found:?}");
}

#[test]
fn zero_rows_that_changed_places_with_others_are_found_out() {
    let mut values = rows(40, DIM, 1);
    values[3 * DIM..4 * DIM].fill(0.0);
    values[30 * DIM..31 * DIM].fill(f32::NAN);
    let folder = Folder::new();
    let input = folder.path("in");
    write(&input, &[("t", Dtype::F32, vec![40, DIM], f32_bytes(&values))]);
    let options = CompressOptions { non_finite: NonFinite::Zero, ..options(100) };
    compress(&input, &folder.path("table"), &options).unwrap();
    assert!(check(&folder.path("table"), &input, &ALL).is_whole());
    for (pair, rows) in [([3, 5], 2), ([30, 5], 2), ([3, 30], 0)] {
        let found = against(&folder, &swapped(&values, pair), &LIMITS_ALONE);
        assert_eq!(found.mismatched_rows, Some(rows), "{pair:?}: {found:?}");
        assert!(serde_json::to_string(&found).is_ok());
    }
}
