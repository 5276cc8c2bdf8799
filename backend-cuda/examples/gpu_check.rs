//! The conformance suite on the device, then the benchmark: what `gpu-check.sh` runs. One program without dependencies
//! beyond the driver, to be built on one machine and run on another.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use condprog_conformance::{Verdict, backends};
use condprog_cuda::bench::{self, BenchOptions};

fn main() -> ExitCode {
    let (mut folder, mut small, mut bench_only) = (None, false, false);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--small" => small = true,
            "--bench-only" => bench_only = true,
            other if folder.is_none() && !other.starts_with('-') => folder = Some(PathBuf::from(other)),
            _ => return usage(),
        }
    }
    let Some(folder) = folder else { return usage() };
    match run(&folder, small, bench_only) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: gpu_check [--small] [--bench-only] FOLDER");
    ExitCode::from(2)
}

fn run(folder: &Path, small: bool, bench_only: bool) -> Result<bool, Box<dyn std::error::Error>> {
    let start = Instant::now();
    std::fs::create_dir_all(folder)?;
    let exact = bench_only || conformance(folder)?;
    let mut options = BenchOptions::default();
    if small {
        // To try the program, not to measure.
        options = BenchOptions { table_bytes: vec![1 << 20], tokens: vec![2, 1], runs: 3, ..options };
    }
    options.time_limit = options.time_limit.min(Duration::from_secs(420).saturating_sub(start.elapsed()));
    let report = bench::run(&options, &mut |next| eprintln!("bench: {next}"))?;
    print!("{report}");
    std::fs::write(folder.join("bench.txt"), report.to_string())?;
    std::fs::write(folder.join("bench.json"), serde_json::to_string_pretty(&report)?)?;
    Ok(exact && report.exact())
}

fn conformance(folder: &Path) -> std::io::Result<bool> {
    let (mut exact, mut verdicts) = (true, String::new());
    backends::cuda::run(&mut |report| {
        eprintln!("conformance: {}", report.name);
        exact &= report.verdict == Verdict::Exact;
        verdicts += &format!("{report}\n");
    });
    print!("{verdicts}");
    std::fs::write(folder.join("conformance.txt"), verdicts)?;
    Ok(exact)
}
