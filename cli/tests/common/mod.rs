//! What every test of the command needs: a folder of its own, tables to compress, and runs whose output can be read.
#![allow(dead_code, reason = "each test program uses a part")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize_to_file};
use serde_json::Value;
use tempfile::TempDir;

/// A folder in which commands run, so that messages have short paths.
pub(crate) struct Place {
    folder: TempDir,
}

/// What a run said, and its exit code.
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    /// Names of all files, sorted.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Writes a safetensors file of F32 tensors.
    pub(crate) fn tensors(&self, name: &str, tensors: &[(&str, &[usize], &[f32])]) {
        let bytes: Vec<Vec<u8>> =
            tensors.iter().map(|(_, _, values)| values.iter().flat_map(|v| v.to_le_bytes()).collect()).collect();
        let views = tensors
            .iter()
            .zip(&bytes)
            .map(|((name, shape, _), bytes)| (*name, TensorView::new(Dtype::F32, shape.to_vec(), bytes).unwrap()));
        serialize_to_file(views, None, &self.path(name)).unwrap();
    }

    /// Writes a file of one table `t` of these rows.
    pub(crate) fn table(&self, name: &str, rows: &[Vec<f32>]) {
        let dim = rows.first().map_or(32, Vec::len);
        self.tensors(name, &[("t", &[rows.len(), dim], &rows.concat())]);
    }

    /// A command in this folder.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_condprog"));
        command.args(arguments).current_dir(self.folder.path());
        // Where it is unset, Mesa's Vulkan drivers complain on stderr.
        command.env("XDG_RUNTIME_DIR", self.folder.path());
        // On a slow machine, what takes half a minute would report its progress.
        command.env("CONDPROG_PROGRESS_SECONDS", "86400");
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        self.command(arguments).output().unwrap().into()
    }

    /// Runs a command that must exit 0, and gives its stdout.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let run = self.run(arguments);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        run.stdout
    }

    /// Runs a command with `--json`; checks the envelope.
    pub(crate) fn json(&self, code: i32, arguments: &[&str]) -> Value {
        let run = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(run.code, Some(code), "{arguments:?}: {}", run.stderr);
        let value: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|e| panic!("{e}: {:?}", run.stdout));
        assert_eq!((&value["schema"], &value["command"]), (&Value::from(1), &Value::from(arguments[0])));
        value
    }

    /// Runs a command that must exit 1, and gives its stderr. It says nothing on stdout.
    pub(crate) fn fails(&self, arguments: &[&str]) -> String {
        let run = self.run(arguments);
        assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""), "{arguments:?}: {}", run.stderr);
        run.stderr
    }
}

impl From<Output> for Run {
    fn from(output: Output) -> Run {
        Run {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Rows of numbers that are nearly Gaussian, the same in every run.
pub(crate) fn gaussian(rows: usize, dim: usize, seed: u64) -> Vec<Vec<f32>> {
    let mut state = seed;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    (0..rows).map(|_| (0..dim).map(|_| (0..12).map(|_| uniform()).sum::<f32>() - 6.0).collect()).collect()
}
