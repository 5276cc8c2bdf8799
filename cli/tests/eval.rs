//! `condprog eval`: what it writes is what the evaluation itself says, and what is wrong with its input is said.
#![cfg(feature = "eval")]

mod common;

use std::fs;
use std::path::Path;

use common::{Place, gaussian};
use condprog_eval::Method;
use condprog_eval::report::{Options, Report, Sample};

/// Methods that take no time.
const QUICK: [&str; 8] =
    ["--method", "cp-2-e0-*norm", "--method", "cp-2-e4-norm", "--method", "rtn-2-*-range", "--method", "nvfp4"];

fn place() -> Place {
    let place = Place::new();
    place.table("in.safetensors", &gaussian(40, 32, 7));
    place
}

fn ask<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["eval", "in.safetensors", "--tensor", "t", "-o", "report"], &QUICK[..], more].concat()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn help_is_as_reviewed() {
    let place = Place::new();
    let stdout =
        String::from_utf8(place.command(&["eval", "--help"]).env("COLUMNS", "100").output().unwrap().stdout).unwrap();
    assert!(stdout == include_str!("help/eval.txt"), "tests/help/eval.txt has another text; now it is:\n{stdout}");
}

#[test]
fn report_is_that_of_the_evaluation() {
    let place = place();
    place.write("trace.txt", "3 3 3\n39, 0 -1 40");
    let said = place.json(0, &ask(&["--trace", "trace.txt", "--sample", "30", "--seed", "5"]));
    let mut expected = vec!["index.html", "methods.csv", "comparisons.csv", "worst-rows.csv"];
    let plots = ["rate-mse", "row-errors", "scales", "variants"];
    let plots: Vec<String> =
        plots.iter().flat_map(|name| ["svg", "png"].map(|kind| format!("{name}.{kind}"))).collect();
    expected.extend(plots.iter().map(String::as_str));
    let files: Vec<&str> = said["files"].as_array().unwrap().iter().map(|file| file.as_str().unwrap()).collect();
    assert_eq!(files, expected.iter().map(|name| format!("report/{name}")).collect::<Vec<_>>());
    expected.sort_unstable();
    assert_eq!(names(&place.path("report")), expected);

    let patterns = QUICK.into_iter().filter(|argument| *argument != "--method");
    let methods = Method::matching(patterns).unwrap();
    let mut options = Options { methods, sample: 30, seed: 5, ..Options::default() };
    options.trace = Some(vec![3, 3, 3, 39, 0]);
    let sample = Sample::of_table(&place.path("in.safetensors"), "t", &options).unwrap();
    let own = Report::of(sample, &options, |_| {}).unwrap();
    own.write(&place.path("own")).unwrap();
    for name in expected {
        assert!(place.read(&format!("report/{name}")) == place.read(&format!("own/{name}")), "{name} differs");
    }
    let lines = said["methods"].as_array().unwrap();
    assert_eq!(lines.len(), own.methods.len());
    for (line, own) in lines.iter().zip(&own.methods) {
        assert_eq!(line["method"], own.method);
        // Text, and what is read from it, may be off by the last bit.
        assert!((line["relative_mse"].as_f64().unwrap() / own.relative_mse - 1.0).abs() < 1e-14, "{line}");
        assert_eq!(line["rows"], 30);
        assert!(line["traced_mse"].is_number());
    }
    let png = place.read("report/rate-mse.png");
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n") && png.len() > 10_000);
    // One file, whole: nothing is loaded from elsewhere.
    let page = String::from_utf8(place.read("report/index.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 4);
    assert!(!page.contains("src=") && !page.contains("href=") && page.ends_with("</html>\n"));
}

#[test]
fn summary_names_the_page_and_a_report_is_not_overwritten() {
    let place = place();
    let said = place.ok(&ask(&[]));
    assert!(said.contains("cp-2-e4-norm") && said.contains("wrote report/index.html and 11 more files"), "{said}");
    let before = place.read("report/index.html");
    let refused = place.fails(&ask(&["--sample", "20"]));
    assert_eq!(refused, "error: report/index.html exists; force overwrites it\nhint: the option is --force\n");
    assert!(place.read("report/index.html") == before);
    place.ok(&ask(&["--sample", "20", "--force", "--threads", "1"]));
    assert!(place.read("report/index.html") != before);
}

#[test]
fn what_is_wrong_is_said_and_nothing_is_written() {
    let place = place();
    place.write("words.txt", "1, two");
    place.write("far.txt", "40 -1 99");
    place.tensors("floats.safetensors", &[("ids", &[2], &[1.0, 2.0])]);
    let fails = |more: &[&str], code: &str, says: &str| {
        let error = place.json(1, &ask(more))["error"].clone();
        assert_eq!(error["code"], code, "{more:?}: {error}");
        assert!(error["message"].as_str().unwrap().contains(says), "{more:?}: {error}");
    };
    fails(&["--trace", "words.txt"], "ids", "words.txt: line 1 has \"two\", expected an id: a whole number");
    fails(&["--trace", "none.txt"], "io", "cannot read none.txt");
    fails(&["--trace", "floats.safetensors"], "ids", "tensor \"ids\" has elements of type \"F32\", expected integers");
    fails(&["--trace", "far.txt"], "trace", "none of the 3 ids of the trace names a row, expected ids from 0 to 39");
    fails(&["--method", "cp-9-*"], "method", "no method matches \"cp-9-*\", expected a name such as cp-2-e0-norm");

    let other = place.json(1, &["eval", "in.safetensors", "--tensor", "u", "-o", "report"])["error"].clone();
    let message = other["message"].as_str().unwrap();
    assert!(message.starts_with("in.safetensors: ") && message.contains("\"u\""), "{message}");
    let absent = place.fails(&["eval", "no.safetensors", "--tensor", "t", "-o", "report"]);
    assert!(absent.starts_with("error: cannot") && absent.contains("no.safetensors"), "{absent}");

    let mut rows = gaussian(4, 32, 8);
    rows[2][5] = f32::NAN;
    place.table("in.safetensors", &rows);
    fails(&[], "not-finite", "row 2, column 5 is NaN, expected finite values");
    place.table("in.safetensors", &vec![vec![0.0; 32]; 4]);
    fails(&[], "all-zero", "all 4 sampled rows are zero");
    place.table("in.safetensors", &gaussian(4, 5, 8));
    let narrow = ["eval", "in.safetensors", "--tensor", "t", "-o", "report", "--method", "cp-2-e0-norm"];
    assert_eq!(place.json(1, &narrow)["error"]["code"], "layout");
    assert!(!place.exists("report"));
}

#[test]
fn rows_of_zeros_are_left_out_and_counted() {
    let place = Place::new();
    let mut rows = gaussian(30, 32, 9);
    rows[3].fill(0.0);
    rows[29].fill(0.0);
    place.table("in.safetensors", &rows);
    let said = place.json(0, &ask(&["--method", "vq-2"]));
    assert!(said["methods"].as_array().unwrap().iter().all(|line| line["rows"] == 28));
    assert!(String::from_utf8(place.read("report/index.html")).unwrap().contains("2 of the sample, left out"));
}
