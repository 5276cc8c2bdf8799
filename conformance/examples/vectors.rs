//! Writes golden vectors again, from core's reference: `vectors decode encode`.

use std::path::Path;
use std::process::ExitCode;

use condprog_conformance::vectors::{decode, encode};

const USAGE: &str = "usage: vectors [decode] [encode]";

fn main() -> ExitCode {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/v1");
    let names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    }
    for name in &names {
        let (file, text) = match name.as_str() {
            "decode" => ("decode.json", decode::to_json(&decode::generate())),
            "encode" => ("encode.json", encode::to_json(&encode::generate())),
            _ => {
                eprintln!("\"{name}\" names no vectors\n{USAGE}");
                return ExitCode::from(2);
            }
        };
        if let Err(error) = std::fs::write(folder.join(file), text) {
            eprintln!("{file}: {error}");
            return ExitCode::FAILURE;
        }
        println!("{file} written");
    }
    ExitCode::SUCCESS
}
