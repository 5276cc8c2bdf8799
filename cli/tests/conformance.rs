//! `condprog conformance`: what it prints and how it exits.

use std::process::{Command, Output};

fn run(arguments: &[&str], required: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_condprog"))
        .arg("conformance")
        .args(arguments)
        .env("CONDPROG_REQUIRE", required)
        .output()
        .expect("the program runs")
}

#[test]
fn cpu_is_exact_and_counted() {
    let output = run(&["--json"], "cpu/portable");
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("stdout is one JSON object");
    let portable = &report["reports"][0];
    assert_eq!(portable["backend"], "cpu/portable");
    assert_eq!((&portable["suite"], &portable["verdict"]), (&"decode".into(), &"exact".into()));
    assert_eq!(portable["cases"], condprog_conformance::DECODE_CASES);
    assert_eq!(report["reports"][1]["cases"], condprog_conformance::ENCODE_CASES);
}

#[test]
fn a_required_backend_that_is_not_there_fails() {
    let output = run(&[], "cpu, no-such-backend");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("\"no-such-backend\""), "{output:?}");
}

#[test]
fn wrong_usage_exits_with_2() {
    assert_eq!(run(&["--no-such-option"], "").status.code(), Some(2));
}
