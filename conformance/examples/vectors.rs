//! Writes the golden vectors again, from core's reference: `vectors decode`.

use std::path::Path;
use std::process::ExitCode;

use condprog_conformance::vectors;

fn main() -> ExitCode {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/v1");
    let names: Vec<String> = std::env::args().skip(1).collect();
    for name in &names {
        let (file, text) = match name.as_str() {
            "decode" => ("decode.json", vectors::to_json(&vectors::generate())),
            _ => {
                eprintln!("\"{name}\" names no vectors, expected decode");
                return ExitCode::from(2);
            }
        };
        if let Err(error) = std::fs::write(folder.join(file), text) {
            eprintln!("{file}: {error}");
            return ExitCode::FAILURE;
        }
        println!("{file} written");
    }
    if names.is_empty() {
        eprintln!("usage: vectors decode");
        return ExitCode::from(2);
    }
    ExitCode::SUCCESS
}
