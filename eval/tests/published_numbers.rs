//! The numbers in `docs/results` are what the code gives: a part of them is made again and compared, digit for digit.

use std::path::Path;

use condprog_eval::Method;
use condprog_eval::report::{MethodLine, Options, Report, Sample};

#[test]
fn lines_of_the_gaussian_table_are_made_again() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results/gaussian-256/methods.csv");
    let published: Vec<MethodLine> = csv::Reader::from_path(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        .deserialize()
        .collect::<Result<_, _>>()
        .unwrap();
    // Every method of the catalogue has a line, even those that are too slow to be run here.
    for method in Method::catalogue() {
        assert!(published.iter().any(|line| line.method == method.to_string()), "no line for {method}");
    }
    let quick = ["zero", "rtn-2-sym-range", "rtn-3-asym-range", "mxfp4", "nvfp4-search", "fp8", "lloyd-max-2"];
    let coded = ["hyb-2-norm", "cp-2-e0-*norm", "cp-2-e0-projection", "cp-2-e4-norm", "cp-2-e0-norm-rotated"];
    let mut options = Options { methods: Vec::new(), sample: 2_048, ..Options::default() };
    for pattern in quick.into_iter().chain(coded) {
        options.methods.extend(Method::matching(pattern).unwrap());
    }
    options.methods.dedup();
    options.methods.retain(|method| published.iter().any(|line| line.method == method.to_string()));
    let report = Report::of(Sample::gaussian(2_048, 256, options.seed), &options, |_| {}).unwrap();
    assert!(report.methods.len() >= 12);
    for line in &report.methods {
        let published = published.iter().find(|published| published.method == line.method).unwrap();
        // NaN, where there is no trace, is not equal to itself: compare what is written.
        assert_eq!(format!("{published:?}"), format!("{line:?}"));
    }
}
