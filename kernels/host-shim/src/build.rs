//! Compiling a kernel and the model of the device into a program.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, process};

use condprog_kernels::cuda;

use crate::error::HostError;

/// The environment variable that names the C++ compiler; `c++` if it is not set.
pub const COMPILER_VARIABLE: &str = "CXX";
/// The environment variable with more flags for it, such as `-fsanitize=address`.
pub const FLAGS_VARIABLE: &str = "CONDPROG_HOST_FLAGS";

const SOURCES: [(&str, &str); 5] = [
    ("block.h", include_str!("../cpp/block.h")),
    ("block.cpp", include_str!("../cpp/block.cpp")),
    ("device.h", include_str!("../cpp/device.h")),
    ("driver.cpp", include_str!("../cpp/driver.cpp")),
    ("main.cpp", include_str!("../cpp/main.cpp")),
];

const FLAGS: [&str; 9] = [
    "-std=c++20",
    "-O2",
    "-g1",
    "-pthread",
    // The kernel reads and writes words as vectors of words.
    "-fno-strict-aliasing",
    // A product and a sum stay two roundings unless the kernel asks for one.
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
    // `#pragma unroll` is the device compiler's.
    "-Wno-unknown-pragmas",
];

/// A kernel compiled for the CPU.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
}

impl Program {
    /// `kernels/decode.cu` as it is, with the flags of the environment. `folder` keeps what is built.
    ///
    /// # Errors
    /// [`HostError::NoCompiler`], [`HostError::Compile`] and [`HostError::Io`].
    pub fn new(folder: &Path) -> Result<Program, HostError> {
        Program::build(folder, cuda::DECODE, &words(&flags_of_environment()))
    }

    /// Any text of the kernel, with more flags.
    ///
    /// # Errors
    /// As [`Program::new`].
    pub fn build(folder: &Path, kernel: &str, flags: &[&str]) -> Result<Program, HostError> {
        Ok(Program { path: compile(folder, "main.cpp", kernel, flags)? })
    }

    /// The executable file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Builds the driver without a GPU (`cpp/driver.cpp`) as `libcuda.so` in a folder of its own within `folder`, and gives
/// that folder, for `LD_LIBRARY_PATH`.
///
/// # Errors
/// As [`Program::new`].
pub fn simulated_driver(folder: &Path) -> Result<PathBuf, HostError> {
    let flags = flags_of_environment();
    let flags = [&["-shared", "-fPIC", "-fvisibility=hidden"], &words(&flags)[..]].concat();
    let built = compile(folder, "driver.cpp", cuda::DECODE, &flags)?;
    let folder = built.with_extension("driver");
    fs::create_dir_all(&folder)?;
    fs::copy(&built, folder.join("libcuda.so"))?;
    Ok(folder)
}

fn flags_of_environment() -> String {
    env::var(FLAGS_VARIABLE).unwrap_or_default()
}

fn words(flags: &str) -> Vec<&str> {
    flags.split_whitespace().collect()
}

/// Compiles `main` with the model of a block, unless that was done before.
fn compile(folder: &Path, main: &str, kernel: &str, flags: &[&str]) -> Result<PathBuf, HostError> {
    let compiler = env::var(COMPILER_VARIABLE).unwrap_or_else(|_| "c++".into());
    let mut hasher = DefaultHasher::new();
    (&compiler, main, kernel, cuda::BENCH, flags, SOURCES, FLAGS).hash(&mut hasher);
    let path = folder.join(format!("cuda-host-{:016x}", hasher.finish()));
    if path.exists() {
        return Ok(path);
    }
    // Built beside its name and renamed when whole: tests run at the same time.
    let work = path.with_extension(format!("{}-{:?}", process::id(), std::thread::current().id()));
    fs::create_dir_all(&work)?;
    for (name, text) in SOURCES.iter().chain(&[("decode.cu", kernel), ("bench.cu", cuda::BENCH)]) {
        fs::write(work.join(name), text)?;
    }
    let output = Command::new(&compiler)
        .args(FLAGS)
        .args(flags)
        .args(["block.cpp", main, "-o", "program"])
        .current_dir(&work)
        .output()
        .map_err(|error| HostError::NoCompiler { command: compiler, error })?;
    if !output.status.success() {
        return Err(HostError::Compile(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    fs::rename(work.join("program"), &path)?;
    fs::remove_dir_all(&work)?;
    Ok(path)
}
