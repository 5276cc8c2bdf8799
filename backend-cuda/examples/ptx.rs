//! Compiles a CUDA source to PTX with NVRTC, as `kernels/check-cuda.sh` does to make and check what this crate carries.
//! Needs libnvrtc on the library path, and neither a driver nor a device.

use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: ptx FILE.cu > FILE.ptx");
        return ExitCode::from(2);
    };
    let compiled = std::fs::read_to_string(&path)
        .map_err(|error| format!("{path}: {error}"))
        .and_then(|source| condprog_cuda::compile(&source, "compute_90").map_err(|error| error.to_string()));
    match compiled {
        Ok(ptx) => {
            print!("{ptx}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
