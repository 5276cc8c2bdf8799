//! Inputs that are no files of tensors: what they are is said, at once, and nothing waits for them.

#![cfg(unix)]

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::common::{Folder, compress, f32_table, options, rows, write_index};
use condprog_checkpoint::Checkpoint;
use condprog_checkpoint::Error;
use condprog_table::input;
use condprog_table::{Tables, regular_file};

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// What comes of something that must not wait; a minute is far more than it needs on any machine.
fn at_once<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    thread::spawn(move || done.send(work()));
    result.recv_timeout(Duration::from_secs(60)).expect("it waits for what never comes")
}

#[test]
fn what_is_no_regular_file_is_refused_before_it_is_opened() {
    let folder = Folder::new();
    fifo(&folder.path("fifo"));
    fifo(&folder.path("x.safetensors.index.json"));
    let _socket = UnixListener::bind(folder.path("socket")).unwrap();
    std::os::unix::fs::symlink("fifo", folder.path("link")).unwrap();
    fs::create_dir_all(folder.path("sub/model.safetensors")).unwrap();
    let cases = [
        ("fifo", "a FIFO"),
        ("x.safetensors.index.json", "a FIFO"),
        ("socket", "a socket"),
        ("link", "a FIFO"),
        ("sub", "a folder"),
    ];
    for (name, got) in cases {
        let path = folder.path(name);
        let errors = at_once(move || {
            let errors = [
                Checkpoint::open(&path).err(),
                Tables::open(&path).err().map(Error::from),
                input::index(&path).err().map(Error::from),
            ];
            let mut errors: Vec<_> = errors.into_iter().flatten().collect();
            errors.extend([Checkpoint::open_all(&[&path]).err()].into_iter().flatten());
            errors
        });
        assert_eq!(errors.len(), 4, "{name}");
        for error in errors {
            assert_eq!(error.code(), "not-a-file", "{error}");
            assert!(error.to_string().ends_with(&format!("is {got}, expected a regular file")), "{error}");
        }
    }
    assert_eq!(regular_file("/dev/null").unwrap_err().to_string(), "/dev/null is a device, expected a regular file");
    assert_eq!(regular_file(folder.path("gone")).unwrap_err().code(), "io");
}

#[test]
fn files_that_an_index_names_are_regular() {
    let folder = Folder::new();
    fifo(&folder.path("a.safetensors"));
    write_index(&folder.path("model.safetensors.index.json"), &[("t", "a.safetensors")]);
    let path = folder.path("");
    let codes = at_once(move || {
        [Checkpoint::open(&path).unwrap_err(), Tables::open(&path).unwrap_err().into()].map(|e| e.code())
    });
    assert_eq!(codes, ["not-a-file"; 2]);
    // The configuration, which is read for one model alone.
    fs::remove_file(folder.path("a.safetensors")).unwrap();
    f32_table(&folder.path("a.safetensors"), "layers.1.ple.ple_embedding.ngram_embedding.shard_0", 16, &rows(5, 16, 1));
    let listed = [("layers.1.ple.ple_embedding.ngram_embedding.shard_0", "a.safetensors")];
    write_index(&folder.path("model.safetensors.index.json"), &listed);
    fifo(&folder.path("config.json"));
    let path = folder.path("");
    let code = at_once(move || {
        let checkpoint = Checkpoint::open(&path).unwrap();
        checkpoint.family_tables(checkpoint.family().unwrap().unwrap()).unwrap_err().code()
    });
    assert_eq!(code, "not-a-file");
}

#[test]
fn outputs_of_this_program_are_no_checkpoints() {
    let folder = Folder::new();
    f32_table(&folder.path("in"), "t", 16, &rows(50, 16, 1));
    let sharded = condprog_convert::CompressOptions { shard_bytes: Some(200), ..options(4) };
    compress(&folder.path("in"), &folder.path("out.safetensors"), &options(4)).unwrap();
    compress(&folder.path("in"), &folder.path("cut.safetensors"), &sharded).unwrap();
    for name in ["out.safetensors", "cut.safetensors.index.json"] {
        let error = Checkpoint::open(folder.path(name)).unwrap_err();
        assert_eq!(error.code(), "source-table-file");
        let says = "is a table file of condprog, compressed already; expected the checkpoint that it was made from";
        assert!(error.to_string().ends_with(says), "{error}");
    }
    let error = Checkpoint::open_all(&["in", "out.safetensors"].map(|name| folder.path(name))).unwrap_err();
    assert_eq!(error.code(), "source-table-file");
    for bytes in [vec![0; 100], b"half a header".repeat(5)] {
        fs::write(folder.path("x.safetensors.condprog-partial"), bytes).unwrap();
        let error = Checkpoint::open(folder.path("x.safetensors.condprog-partial")).unwrap_err();
        assert!(error.to_string().contains("an unfinished output of condprog"), "{error}");
    }
    fs::write(folder.path("zeros.safetensors"), vec![0; 100]).unwrap();
    let error = Checkpoint::open(folder.path("zeros.safetensors")).unwrap_err();
    let Error::File(condprog_table::Error::Header { source, .. }) = &error else { panic!("{error}") };
    assert!(source.to_string().starts_with("file starts with zeros"), "{error}");
}

#[test]
fn names_of_repositories_are_told_from_paths() {
    let open = |path: &str| Checkpoint::open(path).unwrap_err();
    let error = open("no-such-org/Model-1.5_x");
    assert_eq!(error.code(), "hub-id");
    let says = "no-such-org/Model-1.5_x is no file or folder here; a repository of that name on the Hugging Face hub is \
                downloaded with `hf download no-such-org/Model-1.5_x --local-dir Model-1.5_x`, whose folder can be given then";
    assert_eq!(error.to_string(), says);
    for path in [
        "nowhere",
        "no/such/folder",
        "no-such-org/model.safetensors",
        "./no-such-org/model",
        "../x/y",
        "/no-such/model",
        "src/no-such-model",
        "no org/model",
    ] {
        assert_eq!(open(path).code(), "io", "{path}");
    }
}
