//! Runs the conformance suites over every backend this program was built with and prints a verdict for each.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use condprog_conformance::{REQUIRE_VARIABLE, Report, Verdict, backends, unmet};

const USAGE: &str = "\
usage: condprog-conformance [--json]

Runs the conformance suites over every backend of this build (cargo features cpu, on by default, cuda, wgpu) and prints
for each whether all bits are right: exact, FAILED, or no device.

  --json  print one JSON object instead of text

CONDPROG_REQUIRE=cpu,...  backends without which the run fails
CONDPROG_SEED=N           another seed for the random cases
Exit status: 0 exact, 1 a failure or a required backend without a device, 2 wrong usage.";

fn main() -> ExitCode {
    let mut json = false;
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--json" => json = true,
            "-h" | "--help" => {
                println!("{USAGE}");
                return ExitCode::SUCCESS;
            }
            _ => {
                eprintln!("unknown argument \"{argument}\"\n\n{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    let required = std::env::var(REQUIRE_VARIABLE).unwrap_or_default();
    let families = required.split(',').map(|name| name.trim().split('/').next().unwrap_or_default());
    if let Some(name) = families.filter(|name| !name.is_empty()).find(|name| !backends::NAMES.contains(name)) {
        let have = backends::NAMES.join(", ");
        eprintln!("{REQUIRE_VARIABLE} lists \"{name}\", expected backends of this build: {have}");
        return ExitCode::FAILURE;
    }
    let mut reports = Vec::new();
    backends::run(&mut |report| {
        if !json {
            println!("{report}");
        }
        reports.push(report);
    });
    let unmet = unmet(&required, &reports);
    let failed = reports.iter().any(|report| matches!(report.verdict, Verdict::Failed(_)));
    if json {
        println!("{}", to_json(&reports, &unmet));
    } else if reports.is_empty() {
        println!("no backend: this program was built without any");
    }
    for name in &unmet {
        eprintln!("{REQUIRE_VARIABLE} lists \"{name}\", which is not exact here");
    }
    if failed || !unmet.is_empty() || reports.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Version of the form of `--json`.
const SCHEMA: u32 = 1;

fn to_json(reports: &[Report], unmet: &[&str]) -> String {
    let reports: Vec<_> = reports
        .iter()
        .map(|report| {
            let (verdict, details) = match &report.verdict {
                Verdict::Exact => ("exact", vec![]),
                Verdict::Failed(failures) => ("failed", failures.clone()),
                Verdict::NoDevice(why) => ("no device", vec![why.clone()]),
            };
            serde_json::json!({
                "backend": report.name,
                "suite": report.suite,
                "verdict": verdict,
                "cases": report.cases,
                "expected_cases": report.expected_cases,
                "seed": report.seed,
                "details": details,
            })
        })
        .collect();
    serde_json::json!({ "schema": SCHEMA, "reports": reports, "required_but_not_exact": unmet }).to_string()
}
