//! Reports on tables in files: part of the columns, tables in several tensors, methods that cannot be measured, what is
//! fitted and what that costs, rows that cannot be coded.

use std::path::{Path, PathBuf};

use condprog_checkpoint::Checkpoint;
use condprog_eval::report::{MethodLine, Options, Report, Sample};
use condprog_eval::table::SourceTable;
use condprog_eval::{Error, Method, Rows};
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};

/// Writes rows as the F32 tensor `t`.
fn file(name: &str, rows: &Rows) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let bytes: Vec<u8> = rows.values().iter().flat_map(|value| value.to_le_bytes()).collect();
    let view = TensorView::new(Dtype::F32, vec![rows.len(), rows.dim()], &bytes).unwrap();
    serialize_to_file([("t", view)], None, &path).unwrap();
    path
}

fn options(patterns: &[&str]) -> Options {
    Options { methods: Method::matching(patterns.iter().copied()).unwrap(), ..Options::default() }
}

#[test]
fn columns_are_the_first_values_of_each_row_at_their_share_of_the_bytes() {
    let rows = Rows::gaussian(30, 64, 1);
    let path = file("columns.safetensors", &rows);
    let open = || SourceTable::open(&path, "t").unwrap();
    let sample = Sample::of_table(open(), &Options { columns: Some(48), sample: 20, ..Options::default() }).unwrap();
    assert_eq!((sample.rows.dim(), sample.rows.len(), sample.source_bytes), (48, 20, 192.0));
    for (row, &id) in sample.rows.iter().zip(&sample.ids) {
        assert_eq!(row, &rows.row(id as usize)[..48]);
    }
    let others: Vec<usize> = (0..30).filter(|&row| !sample.ids.contains(&(row as u64))).collect();
    assert_eq!(sample.fit, rows.select(&others).narrowed(48));
    for columns in [0, 65] {
        let options = Options { columns: Some(columns), ..Options::default() };
        let error = Sample::of_table(open(), &options).err().unwrap();
        assert_eq!(error.to_string(), format!("columns is {columns}, expected 1 to 64"));
    }
}

#[test]
fn methods_that_a_width_rules_out_are_left_out() {
    let path = file("seven.safetensors", &Rows::gaussian(30, 7, 2));
    let report = |patterns: &[&str]| {
        let options = options(patterns);
        Report::of(Sample::of_table(SourceTable::open(&path, "t")?, &options)?, &options, |_| {})
    };
    let found = report(&["cp-2-e?-norm", "vq-2", "rtn-2-sym-range"]).unwrap();
    let names: Vec<_> = found.methods.iter().map(|line| line.method.as_str()).collect();
    assert_eq!(names, ["rtn-2-sym-range"]);
    let left_out: Vec<_> = found.left_out.iter().map(|group| (group.methods.len(), group.reason.as_str())).collect();
    assert_eq!(left_out[1], (1, "needs a row width that 8 divides"));
    assert_eq!((left_out.len(), left_out[0].0), (2, 5), "{left_out:?}");
    assert!(matches!(report(&["cp-2-e0-norm"]), Err(Error::Layout(_))));
}

#[test]
fn a_row_that_cannot_be_coded_is_named_by_its_id() {
    let mut values = Rows::gaussian(30, 32, 3).values().to_vec();
    values[17 * 32..18 * 32].iter_mut().for_each(|value| *value *= 1e30);
    let path = file("large.safetensors", &Rows::new(32, values));
    let options = options(&["cp-2-e0-norm"]);
    let sample = Sample::of_table(SourceTable::open(&path, "t").unwrap(), &options).unwrap();
    let error = Report::of(sample, &options, |_| {}).err().unwrap();
    assert!(error.to_string().starts_with("row 17: row scale is above 65024"), "{error}");
}

/// A report on part of a table.
fn report(path: &Path, patterns: &[&str], sample: u64) -> Report {
    let options = Options { sample, ..options(patterns) };
    let sample = Sample::of_table(SourceTable::open(path, "t").unwrap(), &options).unwrap();
    Report::of(sample, &options, |_| {}).unwrap()
}

#[test]
fn nothing_is_fitted_to_rows_that_are_measured() {
    let path = file("fitted.safetensors", &Rows::gaussian(512, 256, 4));
    // All rows are measured, so there is none to fit on. With its 65,536 centres fitted to these very rows, vq-8 would
    // have half the error that any code of 2 bits can have.
    let whole = report(&path, &["vq-?", "cp-2-e0-norm-mean-pc0", "nvfp4", "lloyd-max-2"], 512);
    let names: Vec<_> = whole.methods.iter().map(|line| line.method.as_str()).collect();
    assert_eq!(names, ["nvfp4", "lloyd-max-2"]);
    let left_out: Vec<_> =
        whole.left_out.iter().map(|group| (group.methods.join(" "), group.reason.as_str())).collect();
    let need = |rows: u64| {
        format!("needs {rows} rows to fit on that are not measured, and there are 0: measure fewer rows of the table")
    };
    let expected = [("vq-2", 1), ("vq-4", 8), ("vq-8", 4_096), ("cp-2-e0-norm-mean-pc0", 256)];
    assert_eq!(left_out.len(), expected.len());
    for ((methods, reason), (method, rows)) in left_out.iter().zip(expected) {
        assert_eq!((methods.as_str(), *reason), (method, need(rows).as_str()));
    }
    // Some rows are left: what can be fitted to them is, and is not better than the bound on the others.
    let part = report(&path, &["vq-?", "cp-2-e0-norm-mean-pc0"], 64);
    let names: Vec<_> = part.methods.iter().map(|line| line.method.as_str()).collect();
    assert_eq!(names, ["vq-2", "vq-4", "cp-2-e0-norm-mean-pc0"]);
    assert!(part.methods.iter().all(|line| line.relative_mse > 0.0625 && line.rows == 64), "{:?}", part.methods);
}

#[test]
fn what_is_stored_once_is_shared_by_the_rows_of_the_table() {
    let path = file("shared.safetensors", &Rows::gaussian(512, 256, 5));
    let found = report(&path, &["rtn-2-sym-range", "vq-4", "hyb-2-norm", "qtip-2", "cp-2-e0-norm"], 8);
    let line = |method: &str| found.methods.iter().find(|line| line.method == method).unwrap();
    for (method, bytes, shared) in [
        ("rtn-2-sym-range", 66.0, 0),
        ("vq-4", 66.0, 2048),
        ("hyb-2-norm", 66.0, 2048),
        ("qtip-2", 64.0, 2048 + 32 + 4),
        ("cp-2-e0-norm", 66.0, 128),
    ] {
        let MethodLine { row_bytes, bits, shared_bytes, .. } = line(method);
        let expected = bytes + shared as f64 / 512.0;
        assert_eq!((*row_bytes, *bits, *shared_bytes), (expected, expected / 32.0, shared), "{method}");
    }
    // Rows that stand for a table without end.
    let gaussian = Sample::gaussian(8, 256, 1);
    let gaussian = Report::of(gaussian, &options(&["vq-4"]), |_| {}).unwrap();
    assert_eq!((gaussian.methods[0].row_bytes, gaussian.methods[0].shared_bytes), (66.0, 2048));
}

#[test]
fn tables_joined_from_tensors_are_measured_as_one() {
    let rows = Rows::gaussian(30, 32, 6);
    let whole = file("whole.safetensors", &rows);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shards.safetensors");
    let bytes: Vec<u8> = rows.values().iter().flat_map(|value| value.to_le_bytes()).collect();
    let shards = bytes.chunks(11 * 32 * 4).enumerate().map(|(shard, bytes)| {
        (format!("t.shard_{shard}"), TensorView::new(Dtype::F32, vec![bytes.len() / 128, 32], bytes).unwrap())
    });
    serialize_to_file(shards, None, &path).unwrap();

    let options = Options { sample: 20, ..options(&["cp-2-e0-norm", "rtn-2-sym-range"]) };
    let checkpoint = Checkpoint::open(&path).unwrap();
    let joined = checkpoint.rows(checkpoint.join_matching("t", "t.shard_*", None).unwrap()).unwrap();
    let joined = Sample::of_table(joined.into(), &options).unwrap();
    assert!(joined.facts[0].1.ends_with("F32, joined from 3 tensors"), "{:?}", joined.facts);
    let alone = Sample::of_table(SourceTable::open(&whole, "t").unwrap(), &options).unwrap();
    assert_eq!(
        (&joined.rows, &joined.ids, &joined.fit, &joined.title),
        (&alone.rows, &alone.ids, &alone.fit, &alone.title)
    );
    let lines = [joined, alone].map(|sample| Report::of(sample, &options, |_| {}).unwrap().methods);
    assert_eq!(format!("{:?}", lines[0]), format!("{:?}", lines[1]));
}
