//! The numbers in `docs/results` are what the code gives: a part of them is made again and compared, digit for digit.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use condprog_eval::Method;
use condprog_eval::report::{ComparisonLine, KlLine, MethodLine, Options, Report, Sample};
use serde::de::DeserializeOwned;

fn docs(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(path)
}

/// The lines of a CSV file; none when it is not there.
fn lines<T: DeserializeOwned>(path: &Path) -> Vec<T> {
    let Ok(text) = fs::read(path) else { return Vec::new() };
    let lines = csv::Reader::from_reader(text.as_slice()).into_deserialize().collect::<Result<_, _>>();
    lines.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_method_of_the_catalogue_has_a_line() {
    let published: Vec<MethodLine> = lines(&docs("results/gaussian-256/methods.csv"));
    for method in Method::catalogue() {
        assert!(published.iter().any(|line| line.method == method.to_string()), "no line for {method}");
    }
}

#[test]
fn quick_lines_of_the_gaussian_table_are_made_again() {
    are_made_again(&["zero", "rtn-2-sym-range", "rtn-3-asym-range", "mxfp4", "nvfp4-search", "fp8", "lloyd-max-2"]);
}

#[test]
#[ignore = "takes minutes: rows are coded; eval/check.sh runs it"]
fn coded_lines_of_the_gaussian_table_are_made_again() {
    are_made_again(&["hyb-2-norm", "cp-2-e0-*norm", "cp-2-e0-projection", "cp-2-e4-norm", "cp-2-e0-norm-rotated"]);
}

fn are_made_again(patterns: &[&str]) {
    let published: Vec<MethodLine> = lines(&docs("results/gaussian-256/methods.csv"));
    let methods = Method::matching(patterns.iter().copied()).unwrap();
    let mut options = Options { methods, sample: 8_192, ..Options::default() };
    options.methods.retain(|method| published.iter().any(|line| line.method == method.to_string()));
    let report = Report::of(Sample::gaussian(8_192, 256, options.seed), &options, |_| {}).unwrap();
    assert!(report.methods.len() >= patterns.len());
    for line in &report.methods {
        let published = published.iter().find(|published| published.method == line.method).unwrap();
        // NaN, where there is no trace, is not equal to itself: compare what is written.
        assert_eq!(format!("{published:?}"), format!("{line:?}"));
    }
}

/// Bytes per row as the page has them: what is stored once per table shows where it is worth a hundredth.
fn in_bytes(row_bytes: f64) -> String {
    let text = format!("{row_bytes:.2}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

/// The lines that tables of the page may have, from the CSV files of a folder.
fn page_lines(folder: &Path) -> BTreeSet<String> {
    let methods = lines(&folder.join("methods.csv")).into_iter().map(|line: MethodLine| {
        let MethodLine {
            method, row_bytes, rows, relative_mse, half, median, p99, worst, cosine, readout_slope, ..
        } = line;
        let row_bytes = in_bytes(row_bytes);
        format!(
            "| {method} | {row_bytes} | {rows} | {relative_mse:.5} ± {half:.5} | {median:.5} | {p99:.5} | {worst:.4} | \
             {cosine:.5} | {readout_slope:.4} |"
        )
    });
    let comparisons = ["comparisons.csv", "kl-comparisons.csv"].into_iter().flat_map(|name| lines(&folder.join(name)));
    let comparisons = comparisons.map(|line: ComparisonLine| {
        let ComparisonLine { method, baseline, rows, ratio, low, high } = line;
        format!("| {method} | {baseline} | {rows} | {ratio:.4} | {low:.4} to {high:.4} |")
    });
    let kl: Vec<KlLine> = lines(&folder.join("kl.csv"));
    let all = kl.iter().filter(|line| line.domain == "all").map(|line| {
        let row_bytes = in_bytes(line.row_bytes);
        let [kl, kl_half, loss, loss_half] =
            [line.kl, line.kl_half, line.loss_change, line.loss_half].map(|nats| 1e3 * nats);
        let KlLine { method, relative_mse, .. } = line;
        format!("| {method} | {row_bytes} | {relative_mse:.5} | {kl:.3} ± {kl_half:.3} | {loss:+.2} ± {loss_half:.2} |")
    });
    let domains = kl.chunk_by(|a, b| a.method == b.method).map(|of| {
        let cells = of.iter().filter(|line| line.domain != "all");
        let cells = cells.map(|line| format!(" {:.2} ± {:.2} |", 1e3 * line.kl, 1e3 * line.kl_half));
        format!("| {} |{}", of[0].method, cells.collect::<String>())
    });
    methods.chain(comparisons).chain(all).chain(domains).collect()
}

#[test]
fn tables_of_the_page_are_the_csv_files() {
    let page = fs::read_to_string(docs("results.md")).unwrap();
    let known: BTreeSet<String> = Method::matching(["*"]).unwrap().iter().map(Method::to_string).collect();
    let mut expected = BTreeSet::new();
    let mut compared = 0;
    for line in page.lines() {
        // The command above a table says where its numbers are.
        if let Some((_, folder)) = line.strip_prefix("    condprog-eval ").and_then(|c| c.split_once(" -o docs/")) {
            expected = page_lines(&docs(folder));
        }
        let first = line.strip_prefix("| ").and_then(|rest| rest.split(" | ").next());
        if first.is_some_and(|first| known.contains(first)) {
            assert!(expected.contains(line), "no CSV file of the command above gives:\n{line}");
            compared += 1;
        }
    }
    assert!(compared > 250, "{compared} lines");
}
