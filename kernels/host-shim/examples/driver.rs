//! Builds the CUDA driver without a GPU into the folder given, and prints where it is, for `LD_LIBRARY_PATH`.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(folder) = std::env::args().nth(1) else {
        eprintln!("usage: driver FOLDER");
        return ExitCode::from(2);
    };
    match condprog_cuda_host::simulated_driver(Path::new(&folder)) {
        Ok(path) => {
            println!("{}", path.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
