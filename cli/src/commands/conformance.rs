//! `condprog conformance`

use std::io::{self, Write as _};

use condprog_conformance::{REQUIRE_VARIABLE, Report, Verdict, unmet};
use serde_json::{Value, json};

use crate::error::Error;
use crate::ui::Ui;
use crate::{Outcome, suites};

pub(crate) fn run(ui: &Ui) -> Result<Outcome, Error> {
    let required = std::env::var(REQUIRE_VARIABLE).unwrap_or_default();
    let families = required.split(',').map(|name| name.trim().split('/').next().unwrap_or_default());
    if let Some(name) = families.filter(|name| !name.is_empty()).find(|name| !suites::NAMES.contains(name)) {
        let have = suites::NAMES.join(", ");
        return Err(Error::Required(format!(
            "{REQUIRE_VARIABLE} lists \"{name}\", expected backends of this build: {have}"
        )));
    }
    let mut reports = Vec::new();
    let mut printed = Ok(());
    suites::run(&mut |report| {
        // One after another: a backend may take a minute.
        if !ui.is_json() && printed.is_ok() {
            printed = writeln!(io::stdout(), "{report}");
        }
        reports.push(report);
    });
    printed.map_err(Error::Stdout)?;
    let unmet = unmet(&required, &reports);
    if ui.is_json() {
        let reports: Vec<_> = reports.iter().map(object).collect();
        ui.print("conformance", json!({ "reports": reports, "required_but_not_exact": unmet }), String::new)?;
    }
    if !unmet.is_empty() {
        return Err(Error::Required(format!("{REQUIRE_VARIABLE} lists {}, not exact here", unmet.join(", "))));
    }
    let failed = reports.iter().any(|report| matches!(report.verdict, Verdict::Failed(_)));
    Ok(if failed { Outcome::Failed } else { Outcome::Done })
}

fn object(report: &Report) -> Value {
    let (verdict, details) = match &report.verdict {
        Verdict::Exact => ("exact", vec![]),
        Verdict::Failed(failures) => ("failed", failures.clone()),
        Verdict::NoDevice(why) => ("no device", vec![why.clone()]),
    };
    json!({
        "backend": report.name,
        "suite": report.suite,
        "verdict": verdict,
        "cases": report.cases,
        "expected_cases": report.expected_cases,
        "seed": report.seed,
        "details": details,
    })
}
