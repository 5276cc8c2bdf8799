//! Reports on tables in files: part of the columns, widths that rule methods out, rows that cannot be coded.

use std::path::{Path, PathBuf};

use condprog_eval::report::{Options, Report, Sample};
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
    let sample = Sample::of_table(&path, "t", &Options { columns: Some(48), ..Options::default() }).unwrap();
    assert_eq!((sample.rows.dim(), sample.rows.len(), sample.source_bytes), (48, 30, 192.0));
    for (row, &id) in sample.rows.iter().zip(&sample.ids) {
        assert_eq!(row, &rows.row(id as usize)[..48]);
    }
    assert_eq!(sample.fit, rows.narrowed(48));
    for columns in [0, 65] {
        let options = Options { columns: Some(columns), ..Options::default() };
        let error = Sample::of_table(&path, "t", &options).err().unwrap();
        assert_eq!(error.to_string(), format!("columns is {columns}, expected 1 to 64"));
    }
}

#[test]
fn methods_that_a_width_rules_out_are_left_out() {
    let path = file("seven.safetensors", &Rows::gaussian(30, 7, 2));
    let report = |patterns: &[&str]| {
        let options = options(patterns);
        Report::of(Sample::of_table(&path, "t", &options)?, &options, |_| {})
    };
    let found = report(&["cp-2-e?-norm", "vq-2", "rtn-2-sym-range"]).unwrap();
    let names: Vec<_> = found.methods.iter().map(|line| line.method.as_str()).collect();
    assert_eq!(names, ["rtn-2-sym-range"]);
    assert!(matches!(report(&["cp-2-e0-norm"]), Err(Error::Layout(_))));
}

#[test]
fn a_row_that_cannot_be_coded_is_named_by_its_id() {
    let mut values = Rows::gaussian(30, 32, 3).values().to_vec();
    values[17 * 32..18 * 32].iter_mut().for_each(|value| *value *= 1e30);
    let path = file("large.safetensors", &Rows::new(32, values));
    let options = options(&["cp-2-e0-norm"]);
    let error = Report::of(Sample::of_table(&path, "t", &options).unwrap(), &options, |_| {}).err().unwrap();
    assert!(error.to_string().starts_with("row 17: row scale is above 65024"), "{error}");
}
