//! Outputs cut into files: what the files and the index hold, and that all of them together are the one file.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use crate::common::{Cpu, Folder, Seeded, bf16_bytes, decode, f32_bytes, options, read_all, rows, write, write_index};
use condprog_checkpoint::{Checkpoint, RowSource};
use condprog_convert::{
    CompressOptions, CompressReport, DecompressOptions, Error, RestoredDtype, VerifyOptions, compress, decompress,
    quiet, verify,
};
use condprog_core::Rate;
use condprog_core::encoder::ScaleRule;
use condprog_table::input;
use condprog_table::{SegmentPlan, Tables, inspect};
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;

/// Tables `t` of two rates, `j` of three tensors, and `u`.
const TABLES: [(&str, u64); 3] = [("t", 53), ("j", 41), ("u", 31)];

fn checkpoint() -> (Folder, Checkpoint) {
    let folder = Folder::new();
    let mut zeros = rows(53, 16, 1);
    zeros[320..352].fill(0.0);
    zeros[800..816].fill(1e-30);
    let tensors = [
        ("t", Dtype::F32, vec![53, 16], f32_bytes(&zeros)),
        ("j.0", Dtype::BF16, vec![13, 32], bf16_bytes(&rows(13, 32, 2))),
        ("j.1", Dtype::BF16, vec![8, 32], bf16_bytes(&rows(8, 32, 3))),
        ("j.2", Dtype::BF16, vec![20, 32], bf16_bytes(&rows(20, 32, 4))),
        ("u", Dtype::F32, vec![31, 64], f32_bytes(&rows(31, 64, 5))),
    ];
    write(&folder.path("in"), &tensors);
    let checkpoint = Checkpoint::open(folder.path("in")).unwrap();
    (folder, checkpoint)
}

fn run(checkpoint: &Checkpoint, output: PathBuf, changed: CompressOptions) -> Result<CompressReport, Error> {
    let infos = [
        checkpoint.info("t").unwrap(),
        checkpoint.join_matching("j", "j.*", None).unwrap(),
        checkpoint.info("u").unwrap(),
    ];
    let mut sources: Vec<Box<dyn RowSource>> = Vec::new();
    for info in infos {
        sources.push(Box::new(checkpoint.rows(info).unwrap()));
    }
    let plan = |rows, quarters| SegmentPlan { rows, rate: Rate::from_quarters(quarters).unwrap() };
    let segments = [("t".to_string(), vec![plan(20, 6), plan(33, 8)])].into();
    compress(&mut sources, output, &CompressOptions { segments, ..changed }, &Cpu, &quiet)
}

fn sharded(shard_bytes: u64) -> CompressOptions {
    CompressOptions { shard_bytes: Some(shard_bytes), ..options(4) }
}

fn single(checkpoint: &Checkpoint, folder: &Folder) -> Tables {
    run(checkpoint, folder.path("one.safetensors"), options(4)).unwrap();
    Tables::open(folder.path("one.safetensors")).unwrap()
}

#[test]
fn files_and_index_are_what_others_read_and_together_the_one_file() {
    let (_input, checkpoint) = checkpoint();
    let reference = Folder::new();
    let one = single(&checkpoint, &reference);
    for (shard_bytes, count) in [(90, None), (150, None), (333, None), (1000, Some(2)), (100_000, Some(1))] {
        let folder = Folder::new();
        let report = run(&checkpoint, folder.path("out.safetensors"), sharded(shard_bytes)).unwrap();
        let of = report.files.len();
        assert!(count.is_none_or(|count| count == of) && (of > 4 || shard_bytes > 333), "{shard_bytes}: {of}");
        let names: Vec<_> = (1..=of).map(|number| format!("out-{number:05}-of-{of:05}.safetensors")).collect();
        assert_eq!(report.files, names.iter().map(|name| folder.path(name)).collect::<Vec<_>>());
        let index = folder.path("out.safetensors.index.json");
        assert_eq!(report.index.as_ref(), Some(&index));
        assert_eq!(folder.list(), [names.clone(), vec!["out.safetensors.index.json".into()]].concat());

        // The index against what the files hold.
        let (mut weight_map, mut total, mut bytes) = (BTreeMap::new(), 0, 0);
        let mut next: BTreeMap<String, u64> = BTreeMap::new();
        for name in &names {
            let file = fs::read(folder.path(name)).unwrap();
            bytes += file.len() as u64;
            let tensors = SafeTensors::deserialize(&file).unwrap();
            let data: u64 = tensors.iter().map(|(_, tensor)| tensor.data().len() as u64).sum();
            assert!(data <= shard_bytes, "{name} has {data} bytes of {shard_bytes}");
            total += data;
            weight_map.extend(tensors.names().into_iter().map(|tensor| (tensor.to_string(), name.clone())));
            // Each file alone is a table file of its rows.
            let alone = Tables::open(folder.path(name)).unwrap();
            for table in alone.tables() {
                let start = next.entry(table.name.clone()).or_default();
                assert_eq!(table.first_row, *start);
                *start += table.rows;
                let ids: Vec<_> = (0..table.rows as i64).collect();
                let ids_of_one: Vec<_> = ids.iter().map(|id| id + table.first_row as i64).collect();
                assert_eq!(decode(&alone, &table.name, &ids), decode(&one, &table.name, &ids_of_one));
            }
        }
        assert_eq!(next, TABLES.map(|(name, rows)| (name.to_string(), rows)).into());
        let json: serde_json::Value = serde_json::from_slice(&fs::read(&index).unwrap()).unwrap();
        // The run that all files are of, so that a file of another does not pass for one of them.
        let run = &json["metadata"]["condprog.run"];
        assert_eq!(run.as_str().unwrap().len(), 16);
        let metadata = serde_json::json!({ "condprog.run": run, "total_size": total });
        let expected = serde_json::json!({ "metadata": metadata, "weight_map": weight_map });
        assert_eq!(json, expected);
        assert_eq!(report.file_bytes, bytes);

        for path in [index, folder.path("")] {
            let all = Tables::open(path).unwrap();
            assert_eq!((all.files().count(), all.file_bytes()), (of, bytes));
            assert_eq!(all.tables(), report.tables);
            for table in all.tables() {
                let ends = table.segments.iter().map(|segment| segment.first_row + segment.rows);
                let starts = table.segments.iter().map(|segment| segment.first_row);
                assert!(starts.eq([0].into_iter().chain(ends).take(table.segments.len())), "{:?}", table.segments);
            }
            for (table, rows) in TABLES {
                let ids: Vec<_> = (0..rows as i64).collect();
                assert_eq!(decode(&all, table, &ids), decode(&one, table, &ids), "{table}");
                let mut random = Seeded(shard_bytes);
                let ids: Vec<_> = (0..97).map(|_| (random.next() % (rows + 2)) as i64 - 1).collect();
                assert_eq!(decode(&all, table, &ids), decode(&one, table, &ids), "{table} {ids:?}");
                assert!(decode(&all, table, &[-1, rows as i64]).iter().all(|bits| *bits == 0));
            }
        }
    }
}

#[test]
fn neighbours_of_one_layout_in_one_file_are_one_run_of_records() {
    let (_input, checkpoint) = checkpoint();
    let folder = Folder::new();
    let one = single(&checkpoint, &folder);
    let runs = |file: &Tables, table| -> Vec<u64> {
        file.load(table).unwrap().segments().iter().map(|segment| segment.rows).collect()
    };
    assert_eq!(one.table("j").unwrap().segments.iter().map(|segment| segment.rows).collect::<Vec<_>>(), [13, 8, 20]);
    assert_eq!([runs(&one, "t"), runs(&one, "j"), runs(&one, "u")], [vec![20, 33], vec![41], vec![31]]);
    run(&checkpoint, folder.path("out.safetensors"), sharded(350)).unwrap();
    let all = Tables::open(folder.path("out.safetensors.index.json")).unwrap();
    let of_files: BTreeMap<_, _> = all
        .files()
        .flat_map(|path| {
            let file = Tables::open(path).unwrap();
            file.tables().iter().map(|table| ((table.name.clone(), table.first_row), table.rows)).collect::<Vec<_>>()
        })
        .collect();
    let expected: Vec<_> = of_files.iter().filter(|((name, _), _)| name == "j").map(|(_, rows)| *rows).collect();
    assert_eq!(runs(&all, "j"), expected);
    assert!(expected.len() > 1 && expected.len() < all.table("j").unwrap().segments.len());
}

#[test]
fn every_job_on_many_files_gives_what_it_gives_on_one() {
    let (_input, checkpoint) = checkpoint();
    let folder = Folder::new();
    let one = single(&checkpoint, &folder);
    run(&checkpoint, folder.path("out.safetensors"), sharded(200)).unwrap();
    let many = Tables::open(folder.path("out.safetensors.index.json")).unwrap();
    let report = |file| verify(file, Some(&checkpoint), &VerifyOptions::default(), &Cpu, &quiet).unwrap();
    assert!(report(&many).is_whole());
    assert_eq!(report(&many), report(&one));
    for (many, one) in inspect(&many).unwrap().into_iter().zip(inspect(&one).unwrap()) {
        let zeros = |summary: &condprog_table::TableSummary| -> u64 {
            summary.segments.iter().map(|segment| segment.zero_records).sum()
        };
        assert_eq!(zeros(&many), zeros(&one));
        assert!(many.segments.len() > one.segments.len());
        let (a, b) = (serde_json::to_value(&many).unwrap(), serde_json::to_value(&one).unwrap());
        for (key, value) in a.as_object().unwrap().iter().filter(|(key, _)| *key != "segments") {
            assert_eq!(value, &b[key], "{key}");
        }
    }
    for dtype in [RestoredDtype::Bf16, RestoredDtype::F32, RestoredDtype::Source] {
        let options = DecompressOptions { dtype, force: true, ..Default::default() };
        for (file, name) in [(&many, "many"), (&one, "single")] {
            decompress(file, folder.path(name), &options, &Cpu, &quiet).unwrap();
        }
        assert_eq!(fs::read(folder.path("many")).unwrap(), fs::read(folder.path("single")).unwrap());
    }
    // A file that is read is not replaced, whichever it is.
    let options = DecompressOptions { force: true, ..Default::default() };
    for path in many.files().map(PathBuf::from).collect::<Vec<_>>() {
        let before = fs::read(&path).unwrap();
        assert!(matches!(decompress(&many, &path, &options, &Cpu, &quiet), Err(Error::SameFile { .. })));
        assert_eq!(fs::read(&path).unwrap(), before);
    }
}

#[test]
fn damage_in_one_file_of_many_is_named_by_rows_of_the_table() {
    let (_input, checkpoint) = checkpoint();
    let folder = Folder::new();
    let report = run(&checkpoint, folder.path("out.safetensors"), sharded(200)).unwrap();
    // The last record of the last file: the last row of `u`.
    let last = report.files.last().unwrap();
    let mut bytes = fs::read(last).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(last, bytes).unwrap();
    let file = Tables::open(folder.path("")).unwrap();
    let report = verify(&file, None, &VerifyOptions::default(), &Cpu, &quiet).unwrap();
    let damage: Vec<_> = report.tables.iter().flat_map(|table| &table.damage).collect();
    let [damage] = damage.as_slice() else { panic!("{damage:?}") };
    let table = file.table("u").unwrap();
    let (place, segment) = table.segments.iter().enumerate().next_back().unwrap();
    assert_eq!((&*damage.table, &damage.tensor, damage.first_row + damage.rows), ("u", &segment.tensor, 31));
    let error = file.check_block("u", place, segment.blocks() - 1).unwrap_err();
    assert!(error.to_string().starts_with(&format!("{}: tensor", last.display())), "{error}");
}

#[test]
fn files_do_not_depend_on_threads() {
    let (_input, checkpoint) = checkpoint();
    let outputs = [1, 2, 5].map(|threads| {
        let folder = Folder::new();
        let options = CompressOptions { threads: NonZeroUsize::new(threads), ..sharded(200) };
        let report = run(&checkpoint, folder.path("out.safetensors"), options).unwrap();
        read_all(report.files.iter().chain(&report.index))
    });
    assert!(outputs[0].len() > 5 && outputs.iter().all(|output| *output == outputs[0]));
}

#[test]
fn a_block_that_does_not_fit_a_file_is_named_and_the_smallest_size_is_right() {
    let (_input, checkpoint) = checkpoint();
    let folder = Folder::new();
    let least = |shard_bytes| {
        let error = run(&checkpoint, folder.path("out.safetensors"), sharded(shard_bytes)).unwrap_err();
        let message = error.to_string();
        assert_eq!(error.code(), "option");
        assert!(message.starts_with(&format!("bytes per file is {shard_bytes}, expected at least ")), "{message}");
        assert!(folder.list().is_empty());
        let number = message.split("at least ").nth(1).unwrap().split(' ').next().unwrap();
        (number.parse::<u64>().unwrap(), message)
    };
    // Four rows of 16 values at 1.5 bits, of 32 and of 64 at 2 bits, and a checksum.
    for (shard_bytes, expected, table) in [(0, 28, "t"), (27, 28, "t"), (28, 32, "t"), (32, 48, "j"), (79, 80, "u")] {
        let (number, message) = least(shard_bytes);
        assert_eq!(number, expected, "{message}");
        assert!(message.ends_with(&format!("one block of rows of table {table:?}")), "{message}");
    }
    run(&checkpoint, folder.path("out.safetensors"), sharded(80)).unwrap();
    // A table of less than a block needs no room for a whole one.
    let small = Folder::new();
    write(&small.path("in"), &[("s", Dtype::F32, vec![3, 16], f32_bytes(&rows(3, 16, 1)))]);
    let options = CompressOptions { shard_bytes: Some(26), ..options(1000) };
    let report = crate::common::compress(&small.path("in"), &small.path("out"), &options).unwrap();
    assert_eq!(report.files, [small.path("out-00001-of-00001.safetensors")]);
    let options = CompressOptions { shard_bytes: Some(25), ..options };
    let error = crate::common::compress(&small.path("in"), &small.path("more"), &options).unwrap_err();
    assert!(error.to_string().contains("at least 26 bytes"), "{error}");
}

/// A table cut into files, and its index as pairs.
fn cut() -> (Folder, Folder, Vec<PathBuf>, Vec<(String, String)>) {
    let (input, checkpoint) = checkpoint();
    let folder = Folder::new();
    let report = run(&checkpoint, folder.path("out.safetensors"), sharded(200)).unwrap();
    let index = input::index(&folder.path("out.safetensors.index.json")).unwrap();
    (input, folder, report.files, index.weight_map.into_iter().collect())
}

#[test]
fn files_that_do_not_belong_together_are_refused_by_name() {
    let (input, folder, files, listed) = cut();
    // The third last to the last all have rows of `u`.
    let (middle, last) = (files.len() - 2, files.len() - 1);
    assert!(files[middle - 1..].iter().all(|path| Tables::open(path).unwrap().table("u").is_ok()));
    let index = folder.path("out.safetensors.index.json");
    let names: Vec<_> = files.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_string()).collect();
    let list = |edit: &dyn Fn(&str, &str) -> Option<String>| {
        let edited: Vec<_> =
            listed.iter().filter_map(|(tensor, file)| Some((tensor.as_str(), edit(tensor, file)?))).collect();
        write_index(&index, &edited.iter().map(|(tensor, file)| (*tensor, file.as_str())).collect::<Vec<_>>());
    };
    let refused = |code: &str, parts: &[&str]| {
        for path in [index.clone(), folder.path("")] {
            let error = Tables::open(path).unwrap_err();
            let message = error.to_string();
            assert!(error.code() == code && parts.iter().all(|part| message.contains(part)), "{code}: {message}");
        }
    };
    let whole = read_all(&files);
    let restore = || {
        for (name, bytes) in &whole {
            fs::write(folder.path(name), bytes).unwrap();
        }
        list(&|_, file| Some(file.into()));
        Tables::open(&index).unwrap();
    };
    restore();

    fs::remove_file(&files[middle]).unwrap();
    refused("index-missing-file", &[&names[middle], "a shard is missing"]);
    restore();
    // Not even listed: the first, one between, the last.
    list(&|_, file| (file != names[0]).then(|| file.into()));
    assert_eq!(Tables::open(&index).unwrap_err().code(), "format-rows-missing");
    list(&|_, file| (file != names[middle]).then(|| file.into()));
    refused("format-file-rows", &["a file is missing"]);
    list(&|_, file| (file != names[last]).then(|| file.into()));
    refused("format-rows-missing", &["table \"u\" has", "rows in all files, expected 31: a file is missing"]);
    restore();

    // The same file under two names.
    fs::copy(&files[middle], folder.path("copy.safetensors")).unwrap();
    let first = listed.iter().find(|(_, file)| *file == names[middle]).unwrap();
    list(&|tensor, file| Some(if tensor == first.0 { "copy.safetensors".into() } else { file.into() }));
    refused("format-file-rows", &["a file is missing or there twice"]);
    restore();

    // Exchanged.
    fs::write(&files[0], &whole[&names[1]]).unwrap();
    fs::write(&files[1], &whole[&names[0]]).unwrap();
    refused("index-missing-tensor", &["which does not have it"]);
    restore();

    // Of another run, with other parameters; the names of files and tensors are the same.
    let checkpoint = Checkpoint::open(input.path("in")).unwrap();
    for (changed, what) in [
        (CompressOptions { effort: 1, ..sharded(200) }, "effort 1"),
        (CompressOptions { scale: ScaleRule::Norm, ..sharded(200) }, "scale rule norm"),
    ] {
        let other = Folder::new();
        let report = run(&checkpoint, other.path("out.safetensors"), changed).unwrap();
        assert_eq!(report.files.len(), files.len());
        fs::copy(&report.files[middle], &files[middle]).unwrap();
        refused("format-files-differ", &[what, "expected", &names[middle]]);
        restore();
    }
    let other = Folder::new();
    write(&other.path("in"), &[("t", Dtype::F32, vec![5, 16], f32_bytes(&rows(5, 16, 9)))]);
    crate::common::compress(&other.path("in"), &other.path("out"), &options(4)).unwrap();
    fs::copy(other.path("out"), folder.path("other.safetensors")).unwrap();
    list(&|_, file| Some(file.into()));
    let mut more: Vec<_> = listed.iter().map(|(tensor, file)| (tensor.as_str(), file.as_str())).collect();
    more.push(("t", "other.safetensors"));
    write_index(&index, &more);
    refused("format-files-differ", &["table \"t\" has rows in all"]);
    fs::remove_file(folder.path("other.safetensors")).unwrap();
    restore();

    // No table file, and a damaged one.
    write(&files[middle], &[("t#1", Dtype::U8, vec![4], vec![0; 4])]);
    assert_eq!(Tables::open(&index).unwrap_err().code(), "format-file-rows");
    fs::write(&files[middle], &whole[&names[middle]][..100]).unwrap();
    refused("header-cut", &[&names[middle]]);
    restore();
}

#[test]
fn files_of_a_checkpoint_that_hold_no_tables_are_not_its_business() {
    let (_input, folder, files, listed) = cut();
    let whole = Tables::open(folder.path("")).unwrap();
    write(&folder.path("rest.safetensors"), &[("w", Dtype::BF16, vec![2, 16], vec![0; 64])]);
    write(&folder.path("bytes.safetensors"), &[("b", Dtype::U8, vec![2, 16], vec![0; 32])]);
    let mut listed: Vec<_> = listed.iter().map(|(tensor, file)| (tensor.as_str(), file.as_str())).collect();
    listed.extend([("w", "rest.safetensors"), ("b", "bytes.safetensors")]);
    fs::remove_file(folder.path("out.safetensors.index.json")).unwrap();
    write_index(&folder.path("model.safetensors.index.json"), &listed);
    let found = Tables::open(folder.path("")).unwrap();
    assert_eq!(found.tables(), whole.tables());
    assert!(found.files().eq(files.iter().map(PathBuf::as_path)));
    let ids: Vec<_> = (0..41).collect();
    assert_eq!(decode(&found, "j", &ids), decode(&whole, "j", &ids));
    // And a folder without any says so.
    write_index(&folder.path("model.safetensors.index.json"), &listed[listed.len() - 2..]);
    assert_eq!(Tables::open(folder.path("")).unwrap_err().code(), "index-no-tables");
}
