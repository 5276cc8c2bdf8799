//! `condprog eval`: what it writes is what the evaluation itself says, and what is wrong with its input is said.
#![cfg(feature = "eval")]

mod common;

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Place, gaussian};
use condprog_eval::Method;
use condprog_eval::report::{Folder, Options, Report, Sample};
use condprog_eval::table::SourceTable;

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
    let table = SourceTable::open(&place.path("in.safetensors"), "t").unwrap();
    let own = Report::of(Sample::of_table(table, &options).unwrap(), &options, |_| {}).unwrap();
    own.write(&Folder::claim(place.path("own"), false, &[]).unwrap()).unwrap();
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
    assert_eq!(refused, "error: report/index.html already exists; use force to overwrite it\nhint: pass --force\n");
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
    fails(&["--trace", "none.txt"], "io", "cannot open none.txt");
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
    assert!(said["methods"].as_array().unwrap().iter().all(|line| line["rows"] == 28 && line["method"] != "vq-2"));
    // No row is left that it could be fitted to.
    assert_eq!(said["left_out"][0]["methods"][0], "vq-2");
    assert!(said["left_out"][0]["reason"].as_str().unwrap().starts_with("needs 2 rows to fit on"), "{said}");
    assert!(String::from_utf8(place.read("report/index.html")).unwrap().contains("2 of the sample, left out"));
}

#[test]
fn nothing_that_is_there_is_overwritten_before_or_after_the_work() {
    let place = place();
    let pass = ask(&[]);
    place.ok(&pass);
    let all = names(&place.path("report"));
    // Each file of an earlier report, also one that this one would not write, is in the way, not the page alone.
    for name in all.iter().map(String::as_str).chain(["kl.csv", "storage-kl.svg"]) {
        fs::remove_dir_all(place.path("report")).unwrap();
        fs::create_dir(place.path("report")).unwrap();
        place.write(&format!("report/{name}"), "years of work");
        let refused = place.fails(&pass);
        assert_eq!(
            refused,
            format!("error: report/{name} already exists; use force to overwrite it\nhint: pass --force\n")
        );
        assert_eq!(names(&place.path("report")), [name]);
        assert!(place.read(&format!("report/{name}")) == b"years of work");
    }
    // What is not of a report stays; what is of an earlier one goes.
    place.write("report/notes.txt", "years of work");
    place.ok(&ask(&["--force"]));
    let mut expected = all.clone();
    expected.push("notes.txt".into());
    expected.sort();
    assert_eq!(names(&place.path("report")), expected);
    assert!(place.read("report/notes.txt") == b"years of work");
}

#[test]
fn the_output_is_a_folder_of_ordinary_files() {
    let place = place();
    let refused = |output: &str, more: &[&str], says: &str| {
        for more in [more, &[more, &["--force"]].concat()] {
            let arguments = [&["eval", "in.safetensors", "--tensor", "t", "-o", output], &QUICK[..], more].concat();
            let error = place.json(1, &arguments)["error"].clone();
            assert_eq!((&error["code"], error["message"].as_str()), (&"output".into(), Some(says)), "{output}");
        }
    };
    place.write("file", "years of work");
    refused("file", &[], "file is a file, expected a folder, or nothing yet");
    assert!(place.read("file") == b"years of work");
    fs::create_dir(place.path("folder")).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::symlink;
        symlink("folder", place.path("link")).unwrap();
        symlink("nowhere", place.path("dangling")).unwrap();
        for link in ["link", "link/"] {
            refused(link, &[], "link is a symbolic link, expected the folder itself that it leads to");
        }
        refused("dangling", &[], "dangling is a symbolic link, expected the folder itself that it leads to");
        assert!(names(&place.path("folder")).is_empty());
        // Without --force it is there, and with it, it is no file to overwrite.
        let forced = ["eval", "in.safetensors", "--tensor", "t", "-o", "folder", "--method", "nvfp4", "--force"];
        symlink("../file", place.path("folder/kl.csv")).unwrap();
        let error = place.json(1, &forced)["error"].clone();
        assert_eq!(error["message"], "folder/kl.csv is a symbolic link, expected an ordinary file to overwrite");
        fs::remove_file(place.path("folder/kl.csv")).unwrap();
        fs::create_dir(place.path("folder/index.html")).unwrap();
        let error = place.json(1, &forced)["error"].clone();
        assert_eq!(error["message"], "folder/index.html is a folder, expected an ordinary file to overwrite");
        fs::remove_dir(place.path("folder/index.html")).unwrap();
        assert!(place.read("file") == b"years of work");
        // Nor is what is read written.
        place.write("folder/methods.csv", "3 5");
        let error = place.json(1, &[&forced[..], &["--trace", "folder/methods.csv"]].concat())["error"].clone();
        assert_eq!(
            error["message"],
            "folder/methods.csv is read for the report, expected another folder for the output"
        );
        assert!(place.read("folder/methods.csv") == b"3 5");
    }
}

#[test]
fn tables_in_many_tensors_and_files_are_evaluated() {
    let place = Place::new();
    let rows = gaussian(40, 32, 7);
    place.table("in.safetensors", &rows);
    let alone = place.json(0, &ask(&["--sample", "30"]));
    fs::create_dir(place.path("parts")).unwrap();
    let mut weight_map = serde_json::Map::new();
    for (shard, rows) in rows.chunks(11).enumerate() {
        let (file, tensor) = (format!("model-{shard}.safetensors"), format!("memory.shard_{shard}.weight"));
        place.tensors(&format!("parts/{file}"), &[(&tensor, &[rows.len(), 32], &rows.concat())]);
        weight_map.insert(tensor, file.into());
    }
    let index = "parts/model.safetensors.index.json";
    place.write(index, serde_json::json!({ "weight_map": weight_map }).to_string());
    for (run, (input, option)) in
        [("parts", "--join-tensors"), (index, "--join-tensors"), ("parts", "--segments")].into_iter().enumerate()
    {
        let output = format!("report-{run}");
        let choice = ["eval", input, option, "all=memory.shard_*.weight", "-o", &output, "--sample", "30"];
        let joined = place.json(0, &[&choice[..], &QUICK].concat());
        assert_eq!((&joined["tensor"], &joined["methods"]), (&"all".into(), &alone["methods"]));
    }
    // Without a name there must be one table.
    let only = place.json(0, &[&["eval", "in.safetensors", "-o", "only", "--sample", "30"], &QUICK[..]].concat());
    assert_eq!((&only["tensor"], &only["methods"]), (&"t".into(), &alone["methods"]));
    let which = place.json(2, &["eval", "parts", "-o", "none"])["error"].clone();
    let message = which["message"].as_str().unwrap();
    assert!(
        message.starts_with("parts has 4 tables, expected --tensor with one of \"memory.shard_0.weight\","),
        "{which}"
    );
    assert!(!place.exists("none"));
}

#[test]
fn tables_of_a_known_model_are_found_by_their_names() {
    let place = Place::new();
    let rows = gaussian(24, 32, 8);
    let parts: Vec<(String, Vec<f32>)> = rows
        .chunks(2)
        .enumerate()
        .map(|(part, rows)| (format!("model.ngram_embeddings.embedders.{part}.weight"), rows.concat()))
        .collect();
    let tensors: Vec<(&str, &[usize], &[f32])> =
        parts.iter().map(|(name, values)| (name.as_str(), &[2usize, 32][..], values.as_slice())).collect();
    place.tensors("model.safetensors", &tensors);
    place.table("in.safetensors", &rows);
    let alone = place.json(0, &ask(&["--sample", "20"]));
    let found = place.json(0, &[&["eval", "model.safetensors", "-o", "found", "--sample", "20"], &QUICK[..]].concat());
    assert_eq!(found["methods"], alone["methods"]);
    let name = found["tensor"].as_str().unwrap();
    let named = ["eval", "model.safetensors", "--tensor", name, "-o", "named", "--sample", "20"];
    assert_eq!(place.json(0, &[&named[..], &QUICK].concat())["methods"], alone["methods"]);
}

/// Its table was once made by the first thread that asked for it, with the help of threads that waited for the table.
#[test]
fn the_trellis_does_not_wait_for_itself() {
    let place = place();
    for threads in ["1", "2", "3"] {
        let output = format!("report-{threads}");
        let arguments = ["eval", "in.safetensors", "--tensor", "t", "-o", &output, "--method", "hyb-2-norm"];
        let mut command = place.command(&[&arguments[..], &["--threads", threads]].concat());
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(120);
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if Instant::now() > end => {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    break None;
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        assert!(status.is_some_and(|status| status.success()), "on {threads} threads: {status:?}");
    }
}
