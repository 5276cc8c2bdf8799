//! Writes the table files that a reader must refuse, one per defect, and `cases.json` that says what a reader of this
//! crate says to each: `cargo run -p condprog-convert --example reject_files -- FOLDER`.

mod cases;
#[path = "../../tests/common/cpu.rs"]
mod cpu;

use std::path::Path;
use std::{env, fs};

use condprog_convert::{compress_file, quiet};
use cpu::Cpu;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = env::args_os().nth(1).ok_or("expected a folder to write to")?;
    let folder = Path::new(&folder);
    fs::create_dir_all(folder)?;
    let mut list = Vec::new();
    for case in cases::cases(&sound(folder)?) {
        let file = format!("{}.safetensors", case.name);
        fs::write(folder.join(&file), case.bytes)?;
        let stage = format!("{:?}", case.stage).to_lowercase();
        list.push(serde_json::json!({ "file": file, "stage": stage, "code": case.code }));
    }
    fs::write(folder.join("cases.json"), serde_json::to_string_pretty(&list)? + "\n")?;
    println!("{} files in {}", list.len() + 1, folder.display());
    Ok(())
}

/// The file without defects, `sound.safetensors`.
fn sound(folder: &Path) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let (input, output) = (folder.join("input"), folder.join("sound.safetensors"));
    fs::write(&input, cases::input())?;
    compress_file(&input, &[], &output, &cases::options(), &Cpu, &quiet)?;
    fs::remove_file(&input)?;
    Ok(fs::read(output)?)
}
