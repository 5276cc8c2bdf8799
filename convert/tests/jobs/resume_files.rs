//! Runs of many files that end early: at every block, and between the renames of their files.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;

use crate::common::{Cpu, Folder, compress, f32_bytes, f32_table, options, read_all, rows, write};
use condprog_convert::{CompressOptions, Error, Stage, Update, compress_file, quiet};
use condprog_core::Rate;
use condprog_core::encoder::ScaleRule;
use condprog_table::SegmentPlan;
use safetensors::tensor::Dtype;

const JOURNAL: &str = "out.safetensors.condprog-journal";
const INDEX: &str = "out.safetensors.index.json";
const ROWS: u64 = 33;

/// Two tables, `t` of two rates, cut into four files.
fn input(folder: &Folder) {
    let tensors = [
        ("t", Dtype::F32, vec![22, 16], f32_bytes(&rows(22, 16, 1))),
        ("u", Dtype::F32, vec![11, 32], f32_bytes(&rows(11, 32, 2))),
    ];
    write(&folder.path("in"), &tensors);
}

fn sharded(shard_bytes: Option<u64>) -> CompressOptions {
    let plan = |rows, quarters| SegmentPlan { rows, rate: Rate::from_quarters(quarters).unwrap() };
    let segments = [("t".to_string(), vec![plan(9, 6), plan(13, 8)])].into();
    CompressOptions { segments, shard_bytes, ..options(4) }
}

/// Runs until `rows` rows are reported done.
fn stopped_after(rows: u64, folder: &Folder, options: &CompressOptions) {
    let stop = |update: &Update<'_>| match update {
        Update { stage: Stage::Encode, rows_done, .. } if *rows_done >= rows => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let result = compress_file(folder.path("in"), &[], folder.path("out.safetensors"), options, &Cpu, &stop);
    assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
}

fn run(folder: &Folder, options: &CompressOptions) -> Result<u64, Error> {
    let report = compress(&folder.path("in"), &folder.path("out.safetensors"), options)?;
    Ok(report.resumed_rows)
}

/// Files, by name.
type Contents = BTreeMap<String, Vec<u8>>;

/// All that is in a folder but the input.
fn contents(folder: &Folder) -> Contents {
    read_all(folder.list().iter().filter(|name| *name != "in").map(|name| folder.path(name)))
}

/// The files of a run that was never stopped, the index with them.
fn whole(options: &CompressOptions) -> Contents {
    let folder = Folder::new();
    input(&folder);
    assert_eq!(run(&folder, options).unwrap(), 0);
    contents(&folder)
}

fn put(folder: &Folder, files: &Contents) {
    folder.list().iter().filter(|name| *name != "in").for_each(|name| fs::remove_file(folder.path(name)).unwrap());
    files.iter().for_each(|(name, bytes)| fs::write(folder.path(name), bytes).unwrap());
}

fn partial(name: &str) -> String {
    format!("{name}.condprog-partial")
}

#[test]
fn a_run_stopped_at_any_block_goes_on_and_ends_alike() {
    for scale in [ScaleRule::Projection, ScaleRule::Global(())] {
        let options = CompressOptions { scale, ..sharded(Some(100)) };
        let whole = whole(&options);
        let names: Vec<_> = whole.keys().filter(|name| *name != INDEX).cloned().collect();
        assert_eq!(names.len(), 4);
        let folder = Folder::new();
        input(&folder);
        // Blocks of four rows end with their files and rates.
        for done in [4, 8, 9, 13, 17, 21, 22, 26, 30, 33] {
            stopped_after(done, &folder, &options);
            let mut left: Vec<_> = names.iter().map(|name| partial(name)).collect();
            left.extend([JOURNAL.to_string(), "in".into()]);
            left.sort();
            assert_eq!(folder.list(), left);
            assert_eq!(run(&folder, &options).unwrap(), done);
            assert_eq!(contents(&folder), whole);
            put(&folder, &BTreeMap::new());
        }
        // One stop after another.
        for done in [8, 9, 22, 30] {
            stopped_after(done, &folder, &options);
        }
        assert_eq!(run(&folder, &options).unwrap(), 30);
        assert_eq!(contents(&folder), whole);
    }
}

/// The states that a kill leaves while the files get their names: the first `renamed` outputs have theirs, the index
/// last, and the journal is there still.
fn between_renames(folder: &Folder, options: &CompressOptions) -> (Contents, Vec<Contents>) {
    stopped_after(ROWS, folder, options);
    let journal = fs::read(folder.path(JOURNAL)).unwrap();
    let unfinished = contents(folder);
    assert_eq!(run(folder, options).unwrap(), ROWS);
    let whole = contents(folder);
    let order: Vec<_> = whole.keys().cloned().collect();
    assert_eq!(order.last().unwrap(), INDEX);
    let mut states = Vec::new();
    for renamed in 0..=order.len() {
        for has_header in [false, true] {
            let mut state = BTreeMap::from([(JOURNAL.to_string(), journal.clone())]);
            for (place, name) in order.iter().enumerate().filter(|(place, name)| *place < renamed || *name != INDEX) {
                let sound = whole[name].clone();
                let bytes =
                    if has_header { sound.clone() } else { unfinished.get(&partial(name)).unwrap_or(&sound).clone() };
                if place < renamed {
                    state.insert(name.clone(), sound);
                } else {
                    state.insert(partial(name), bytes);
                }
            }
            states.push(state);
        }
    }
    (whole, states)
}

#[test]
fn a_run_killed_between_its_renames_goes_on() {
    for shard_bytes in [Some(100), Some(10_000)] {
        let folder = Folder::new();
        input(&folder);
        let options = sharded(shard_bytes);
        let (whole, states) = between_renames(&folder, &options);
        for (number, state) in states.iter().enumerate() {
            put(&folder, state);
            assert_eq!(run(&folder, &options).unwrap(), ROWS, "state {number}");
            assert_eq!(contents(&folder), whole);
            // As does the same call when it is forced.
            put(&folder, state);
            assert_eq!(run(&folder, &CompressOptions { force: true, ..options.clone() }).unwrap(), ROWS);
            assert_eq!(contents(&folder), whole);
        }
    }
    // One file without an index.
    let folder = Folder::new();
    input(&folder);
    let options = sharded(None);
    stopped_after(ROWS, &folder, &options);
    let journal = fs::read(folder.path(JOURNAL)).unwrap();
    run(&folder, &options).unwrap();
    let whole = contents(&folder);
    fs::write(folder.path(JOURNAL), journal).unwrap();
    assert_eq!(run(&folder, &options).unwrap(), ROWS);
    assert_eq!(contents(&folder), whole);
}

#[test]
fn finished_files_of_others_are_never_touched() {
    let folder = Folder::new();
    input(&folder);
    let options = sharded(Some(100));
    let (whole, states) = between_renames(&folder, &options);
    // A table file of other tables, and what is none.
    let other = Folder::new();
    f32_table(&other.path("in"), "t", 16, &rows(5, 16, 3));
    compress(&other.path("in"), &other.path("out"), &crate::common::options(4)).unwrap();
    let foreign = [fs::read(other.path("out")).unwrap(), b"precious".to_vec(), Vec::new()];
    let names: Vec<_> = whole.keys().cloned().collect();
    for bytes in &foreign {
        for (place, name) in names.iter().enumerate() {
            // The first `place` files are renamed, and the next is somebody else's.
            let mut state = states[2 * place].clone();
            state.insert(name.clone(), bytes.clone());
            put(&folder, &state);
            let error = run(&folder, &options).unwrap_err();
            assert!(matches!(&error, Error::OutputExists { path } if *path == folder.path(name)), "{error}");
            assert_eq!(contents(&folder), state, "{name}");
            // Without its unfinished file beside it, too.
            state.remove(&partial(name));
            put(&folder, &state);
            assert_eq!(run(&folder, &options).unwrap_err().code(), "output-exists");
            assert_eq!(contents(&folder), state, "{name}");
            run(&folder, &CompressOptions { force: true, ..options.clone() }).unwrap();
            assert_eq!(contents(&folder), whole);
        }
    }
    // Without a journal, what is finished is finished.
    put(&folder, &whole);
    assert_eq!(run(&folder, &options).unwrap_err().code(), "output-exists");
    assert_eq!(contents(&folder), whole);
    // Nor is it taken back for a run of other parameters.
    let mut state = states[2].clone();
    let changed = CompressOptions { effort: 1, ..options.clone() };
    put(&folder, &state);
    assert_eq!(run(&folder, &changed).unwrap_err().code(), "other-run");
    assert_eq!(contents(&folder), state);
    state.retain(|name, _| !name.ends_with("-partial"));
    put(&folder, &state);
    assert_eq!(run(&folder, &changed).unwrap_err().code(), "output-exists");
    assert_eq!(contents(&folder), state);
}

#[test]
fn files_of_a_run_that_is_renaming_them_belong_to_it() {
    let folder = Folder::new();
    input(&folder);
    let options = sharded(Some(100));
    let (whole, states) = between_renames(&folder, &options);
    // Another process holds the output until its journal is gone, whatever names its files have by now.
    for state in [&states[2], &states[6], states.last().unwrap()] {
        for name in state.keys().filter(|name| *name == JOURNAL || name.ends_with("-partial")) {
            put(&folder, state);
            let file = fs::File::options().write(true).open(folder.path(name)).unwrap();
            file.lock().unwrap();
            for force in [false, true] {
                let options = CompressOptions { force, ..options.clone() };
                assert_eq!(run(&folder, &options).unwrap_err().code(), "busy", "{name}");
            }
            assert_eq!(contents(&folder), *state);
        }
        assert_eq!(run(&folder, &options).unwrap(), ROWS);
        assert_eq!(contents(&folder), whole);
    }
}

#[test]
fn another_size_of_files_is_another_run() {
    let folder = Folder::new();
    input(&folder);
    let options = sharded(Some(100));
    stopped_after(8, &folder, &options);
    let left = contents(&folder);
    for (shard_bytes, says) in [(Some(101), "the size of files was 100 bytes, is 101 bytes"), (None, "is not limited")]
    {
        let error = run(&folder, &sharded(shard_bytes)).unwrap_err();
        assert!(error.code() == "other-run" && error.to_string().contains(says), "{error}");
        assert_eq!(contents(&folder), left);
    }
    assert_eq!(run(&folder, &options).unwrap(), 8);
    put(&folder, &left);
    // Forced, it starts over, and what was unfinished goes.
    for shard_bytes in [Some(200), None] {
        put(&folder, &left);
        let forced = CompressOptions { force: true, ..sharded(shard_bytes) };
        assert_eq!(run(&folder, &forced).unwrap(), 0);
        assert_eq!(contents(&folder), self::whole(&sharded(shard_bytes)));
    }
    // A journal without anything unfinished is no obstacle.
    put(&folder, &left);
    let partials: Vec<PathBuf> = left.keys().filter(|name| *name != JOURNAL).map(|name| folder.path(name)).collect();
    partials.iter().for_each(|path| fs::remove_file(path).unwrap());
    assert_eq!(run(&folder, &sharded(Some(200))).unwrap(), 0);
    assert_eq!(contents(&folder), whole(&sharded(Some(200))));
}

#[test]
fn a_run_over_finished_files_is_forced_and_resumes_forced() {
    let folder = Folder::new();
    input(&folder);
    let options = sharded(Some(100));
    run(&folder, &options).unwrap();
    let before = contents(&folder);
    let forced = CompressOptions { force: true, effort: 1, ..options.clone() };
    stopped_after(22, &folder, &forced);
    // Until it ends, the old files are there.
    assert!(before.iter().all(|(name, bytes)| fs::read(folder.path(name)).unwrap() == *bytes));
    assert_eq!(run(&folder, &CompressOptions { force: false, ..forced.clone() }).unwrap_err().code(), "output-exists");
    assert_eq!(run(&folder, &forced).unwrap(), 22);
    assert_eq!(contents(&folder), whole(&CompressOptions { force: false, ..forced }));
    assert_ne!(contents(&folder), before);
    compress_file(folder.path("in"), &[], folder.path("out.safetensors"), &options, &Cpu, &quiet).unwrap_err();
}
