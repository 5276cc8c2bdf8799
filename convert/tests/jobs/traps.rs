//! Names that are taken: whatever stands where an output or a working file would, by accident or as a trap, nothing of it
//! is lost.

#![cfg(unix)]

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use crate::common::{Cpu, Folder, compress, f32_table, options, rows};
use condprog_convert::{
    CompressOptions, DecompressOptions, Error, JoinOptions, PartOf, Stage, Update, compress_file, decompress, join,
    preview, quiet,
};
use condprog_table::Tables;

const IN: &str = "in.safetensors";
const OUT: &str = "out.safetensors";
const PARTIAL: &str = "out.safetensors.condprog-partial";
const JOURNAL: &str = "out.safetensors.condprog-journal";

fn folder() -> Folder {
    let folder = Folder::new();
    f32_table(&folder.path(IN), "t", 16, &rows(30, 16, 1));
    f32_table(&folder.path("other"), "t", 16, &rows(30, 16, 2));
    fs::write(folder.path("precious"), "somebody's only copy").unwrap();
    folder
}

/// All that is in a folder: what kind of thing, how many names, and its content or where it leads.
fn state(folder: &Folder) -> BTreeMap<String, (u32, u64, Vec<u8>)> {
    let about = |name: &String| {
        let path = folder.path(name);
        let about = fs::symlink_metadata(&path).unwrap();
        let content = match (about.is_file(), about.is_symlink()) {
            (true, _) => fs::read(&path).unwrap(),
            (_, true) => fs::read_link(&path).unwrap().to_str().unwrap().into(),
            _ => Vec::new(),
        };
        (about.mode(), about.nlink(), content)
    };
    folder.list().iter().map(|name| (name.clone(), about(name))).collect()
}

fn sharded() -> CompressOptions {
    CompressOptions { shard_bytes: Some(100), ..options(4) }
}

fn forced(options: &CompressOptions) -> CompressOptions {
    CompressOptions { force: true, ..options.clone() }
}

/// Puts something at a name; gives the codes of the errors that may follow.
type Trap = fn(&Folder, &Path) -> &'static [&'static str];

const TRAPS: [(&str, Trap); 10] = [
    ("link to the input", |_, path| {
        symlink(IN, path).unwrap();
        &["same-file"]
    }),
    ("hard link of the input", |folder, path| {
        fs::hard_link(folder.path(IN), path).unwrap();
        &["same-file"]
    }),
    ("link to an unrelated file", |_, path| {
        symlink("precious", path).unwrap();
        &["foreign", "output-not-a-file"]
    }),
    ("hard link of an unrelated file", |folder, path| {
        fs::hard_link(folder.path("precious"), path).unwrap();
        &["foreign", "output-exists"]
    }),
    ("unrelated file", |_, path| {
        fs::write(path, "somebody's, with a name like ours").unwrap();
        &["foreign", "output-exists"]
    }),
    ("link to nothing", |_, path| {
        symlink("nothing", path).unwrap();
        &["foreign", "output-not-a-file"]
    }),
    ("folder", |_, path| {
        fs::create_dir(path).unwrap();
        &["foreign", "output-not-a-file"]
    }),
    ("FIFO", |_, path| {
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
        &["foreign", "output-not-a-file"]
    }),
    ("socket", |_, path| {
        drop(UnixListener::bind(path).unwrap());
        &["foreign", "output-not-a-file"]
    }),
    ("link to a folder", |_, path| {
        symlink(".", path).unwrap();
        &["foreign", "output-not-a-file"]
    }),
];

fn refused(folder: &Folder, what: &str, codes: &[&str], job: &dyn Fn() -> Result<(), Error>) {
    let before = state(folder);
    let error = job().expect_err(what);
    assert!(codes.contains(&error.code()), "{what}: {}: {error}", error.code());
    assert!(state(folder) == before, "{what}: something has changed");
}

#[test]
fn working_names_that_are_taken_are_never_touched() {
    for name in [PARTIAL, JOURNAL] {
        for (trap, set) in TRAPS {
            let folder = folder();
            let codes = set(&folder, &folder.path(name));
            for force in [false, true] {
                let options = CompressOptions { force, ..options(4) };
                let what = format!("{trap} at {name}, force {force}");
                let output = folder.path(OUT);
                refused(&folder, &what, codes, &|| compress(&folder.path(IN), &output, &options).map(drop));
                // Nor by looking.
                let mut sources = sources(&folder);
                let error = preview(&mut sources, folder.path(OUT), &options).expect_err(&what);
                assert!(codes.contains(&error.code()), "{what}: {error}");
            }
        }
    }
}

fn sources(folder: &Folder) -> Vec<Box<dyn condprog_checkpoint::RowSource>> {
    let checkpoint = condprog_checkpoint::Checkpoint::open(folder.path(IN)).unwrap();
    vec![Box::new(checkpoint.table("t").unwrap())]
}

#[test]
fn outputs_that_are_no_files_are_refused_before_any_work_forced_or_not() {
    let index = "out.safetensors.index.json";
    let shard = "out-00002-of-00003.safetensors";
    for (name, options) in [(OUT, options(4)), (index, sharded()), (shard, sharded())] {
        for (trap, set) in TRAPS {
            let folder = folder();
            let codes = set(&folder, &folder.path(name));
            let output = folder.path(OUT);
            let run = |options: &CompressOptions| compress(&folder.path(IN), &output, options).map(drop);
            refused(&folder, &format!("{trap} at {name}"), codes, &|| run(&options));
            // A regular file is replaced when that is asked for, and its other names stay.
            if ["unrelated file", "hard link of an unrelated file"].contains(&trap) {
                run(&forced(&options)).unwrap();
                assert_eq!(fs::read(folder.path("precious")).unwrap(), b"somebody's only copy");
            } else {
                refused(&folder, &format!("{trap} at {name}, forced"), codes, &|| run(&forced(&options)));
            }
        }
    }
}

#[test]
fn a_name_that_is_no_name_of_a_file_is_refused() {
    let folder = folder();
    for output in ["", ".", "..", "sub/.."].map(|name| folder.path("").join(name)) {
        let what = format!("{}", output.display());
        refused(&folder, &what, &["output-not-a-file"], &|| {
            compress(&folder.path(IN), &output, &forced(&options(4))).map(drop)
        });
    }
}

#[test]
fn parts_and_restored_files_keep_to_the_same_rules() {
    for (trap, set) in TRAPS {
        let folder = folder();
        let output = folder.path(OUT);
        let part = CompressOptions { part: Some(PartOf::Share { index: 0, of: 2 }), ..options(4) };
        compress(&folder.path(IN), &folder.path("0.part"), &part).unwrap();
        let part = CompressOptions { part: Some(PartOf::Share { index: 1, of: 2 }), ..options(4) };
        compress(&folder.path(IN), &folder.path("1.part"), &part).unwrap();
        compress(&folder.path(IN), &folder.path("table"), &options(4)).unwrap();
        let table = Tables::open(folder.path("table")).unwrap();
        let parts = ["0.part", "1.part"].map(|name| folder.path(name));
        let codes = set(&folder, &folder.path(PARTIAL));
        let codes = if trap.ends_with("the input") { &["foreign"] } else { codes };
        for force in [false, true] {
            let what = format!("{trap}, force {force}");
            refused(&folder, &what, codes, &|| join(&parts, &output, &JoinOptions { force }, &quiet).map(drop));
        }
        fs::rename(folder.path(PARTIAL), &output).unwrap();
        for force in [false, true] {
            if force
                && (trap.ends_with("unrelated file") || trap.ends_with("hard link of the input"))
                && !trap.starts_with("link")
            {
                continue;
            }
            let codes = ["output-not-a-file", "output-exists"];
            let what = format!("{trap}, force {force}");
            refused(&folder, &what, &codes, &|| join(&parts, &output, &JoinOptions { force }, &quiet).map(drop));
            let options = DecompressOptions { force, ..DecompressOptions::default() };
            refused(&folder, &what, &codes, &|| decompress(&table, &output, &options, &Cpu, &quiet).map(drop));
        }
    }
}

#[test]
fn an_input_with_the_name_of_a_working_file_stays() {
    for name in [PARTIAL, JOURNAL] {
        let folder = folder();
        fs::rename(folder.path(IN), folder.path(name)).unwrap();
        for force in [false, true] {
            let options = CompressOptions { force, ..options(4) };
            refused(&folder, name, &["same-file"], &|| {
                compress(&folder.path(name), &folder.path(OUT), &options).map(drop)
            });
        }
    }
    // A finished table file that was given the name of an unfinished one: it has the mark of its run.
    let folder = folder();
    compress(&folder.path("other"), &folder.path(PARTIAL), &options(4)).unwrap();
    refused(&folder, "table", &["journal-lost"], &|| {
        compress(&folder.path(IN), &folder.path(OUT), &options(4)).map(drop)
    });
}

fn stopped(folder: &Folder, options: &CompressOptions) {
    let stop = |update: &Update<'_>| match update {
        Update { stage: Stage::Encode, rows_done, .. } if *rows_done >= 8 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let result = compress_file(folder.path(IN), &[], folder.path(OUT), options, &Cpu, &stop);
    assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
}

#[test]
fn unfinished_files_that_get_a_second_name_are_left_alone() {
    for name in [PARTIAL, JOURNAL] {
        let folder = folder();
        stopped(&folder, &options(4));
        fs::hard_link(folder.path(name), folder.path("kept")).unwrap();
        for force in [false, true] {
            let options = CompressOptions { force, ..options(4) };
            refused(&folder, name, &["foreign"], &|| compress(&folder.path(IN), &folder.path(OUT), &options).map(drop));
        }
        fs::remove_file(folder.path("kept")).unwrap();
        assert_eq!(compress(&folder.path(IN), &folder.path(OUT), &options(4)).unwrap().resumed_rows, 8);
    }
}

/// An earlier output of the name that was cut in another way: a loader that is given the folder would take its index.
#[test]
fn files_of_an_earlier_output_do_not_stay_beside_a_new_one() {
    let cuts = [options(4), sharded(), CompressOptions { shard_bytes: Some(60), ..options(4) }];
    for first in &cuts {
        for second in cuts.iter().filter(|second| *second != first) {
            let folder = folder();
            compress(&folder.path("other"), &folder.path(OUT), first).unwrap();
            refused(&folder, "earlier output", &["output-exists"], &|| {
                compress(&folder.path(IN), &folder.path(OUT), second).map(drop)
            });
            let report = compress(&folder.path(IN), &folder.path(OUT), &forced(second)).unwrap();
            let mut expected: Vec<_> = report
                .files
                .iter()
                .chain(&report.index)
                .map(|path| path.file_name().unwrap().to_str().unwrap().to_string())
                .collect();
            expected.extend([IN, "other", "precious"].map(String::from));
            expected.sort();
            assert_eq!(folder.list(), expected);
            // As one that was never there.
            let alone = Folder::new();
            let report = compress(&folder.path(IN), &alone.path(OUT), second).unwrap();
            for path in report.files.iter().chain(&report.index) {
                let name = path.file_name().unwrap().to_str().unwrap();
                assert_eq!(fs::read(path).unwrap(), fs::read(folder.path(name)).unwrap(), "{name}");
            }
        }
    }
}

#[test]
fn files_that_look_like_parts_of_an_output_but_are_none_are_never_removed() {
    let folder = folder();
    fs::rename(folder.path("other"), folder.path("out-00001-of-00004.safetensors")).unwrap();
    for (force, code) in [(false, "output-exists"), (true, "beside")] {
        let options = CompressOptions { force, ..options(4) };
        refused(&folder, "shard of a checkpoint", &[code], &|| {
            compress(&folder.path(IN), &folder.path(OUT), &options).map(drop)
        });
    }
    // Parts that are joined to an output of their own name.
    let folder = self::folder();
    let mut parts = Vec::new();
    for index in 0..2 {
        let part = CompressOptions { part: Some(PartOf::Share { index, of: 2 }), ..options(4) };
        parts.push(folder.path(&format!("out-0000{index}-of-00002.safetensors")));
        compress(&folder.path(IN), &parts[index as usize], &part).unwrap();
    }
    refused(&folder, "parts", &["same-file"], &|| {
        join(&parts, folder.path(OUT), &JoinOptions { force: true }, &quiet).map(drop)
    });
}

/// A file of another output of the same shape, copied over one of several.
#[test]
fn a_file_of_another_output_among_several_is_told() {
    let (folder, other) = (folder(), folder());
    let report = compress(&folder.path(IN), &folder.path(OUT), &sharded()).unwrap();
    compress(&other.path("other"), &other.path(OUT), &sharded()).unwrap();
    for path in &report.files {
        let name = path.file_name().unwrap().to_str().unwrap();
        let sound = fs::read(path).unwrap();
        fs::copy(other.path(name), path).unwrap();
        let error = Tables::open(folder.path("out.safetensors.index.json")).unwrap_err();
        assert!(error.code() == "format-other-run" && error.to_string().contains(name), "{error}");
        fs::write(path, sound).unwrap();
    }
    fs::copy(other.path("out.safetensors.index.json"), folder.path("out.safetensors.index.json")).unwrap();
    assert_eq!(Tables::open(folder.path("out.safetensors.index.json")).unwrap_err().code(), "format-other-run");
}

#[test]
fn a_preview_says_what_would_be_written_and_writes_nothing() {
    let folder = folder();
    let before = state(&folder);
    let seen = preview(&mut sources(&folder), folder.path(OUT), &sharded()).unwrap();
    assert!(state(&folder) == before);
    assert!(!seen.resumes && seen.free_bytes.is_some_and(|free| free > seen.file_bytes));
    assert!(seen.working.contains(&folder.path(JOURNAL)) && seen.working.len() == 1 + seen.files.len());
    stopped(&folder, &sharded());
    assert!(preview(&mut sources(&folder), folder.path(OUT), &sharded()).unwrap().resumes);
    let report = compress(&folder.path(IN), &folder.path(OUT), &sharded()).unwrap();
    let lengths: Vec<_> = report.files.iter().map(|path| (path.clone(), fs::metadata(path).unwrap().len())).collect();
    assert_eq!((seen.files, seen.index, seen.file_bytes), (lengths, report.index, report.file_bytes));
    let error = preview(&mut sources(&folder), folder.path(OUT), &sharded()).unwrap_err();
    assert_eq!(error.code(), "output-exists");
}
