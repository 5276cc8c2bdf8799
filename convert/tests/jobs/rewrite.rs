//! A whole checkpoint made anew around its tables: what other programs read in it, what stays, what is refused, and
//! runs that are cut short.

#![cfg(unix)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::common::{Cpu, Folder, Seeded, compress, f32_bytes, options, rows};
use condprog_convert::{CompressReport, Error, Rewrite, RewriteOptions, RewriteReport, compress_file, quiet};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};

const TABLE: &str = "layers.1.engram.embed.weight";
const FORCE: RewriteOptions = RewriteOptions { copy: false, force: true };
const SCALE: &str = "layers.1.engram.embed.scale";
const CONFIG: &str =
    "{\n    \"architectures\": [\"X\"],\n    \"rms_norm_eps\": 1e-06,\n    \"big\": 12345678901234567890123\n}\n";

/// Writes a safetensors file with metadata.
fn write(path: &Path, tensors: &[(&str, Dtype, Vec<usize>, Vec<u8>)]) {
    let views =
        tensors.iter().map(|(name, dtype, shape, data)| (*name, TensorView::new(*dtype, shape.clone(), data).unwrap()));
    let metadata = [("format".to_string(), "pt".to_string())].into();
    fs::write(path, safetensors::serialize(views, Some(metadata)).unwrap()).unwrap();
}

fn bytes(count: usize, seed: u64) -> Vec<u8> {
    let mut random = Seeded(seed);
    // No NaN code among them, of elements or of scales.
    (0..count).map(|_| (random.next() % 126) as u8).collect()
}

/// A checkpoint of three files: the table beside others, its scales alone, and others, as a download cache has them.
fn checkpoint(folder: &Folder) -> PathBuf {
    let at = |name: &str| folder.path(&format!("snapshots/in/{name}"));
    fs::create_dir_all(at("sub/deep")).unwrap();
    fs::create_dir_all(at(".git")).unwrap();
    fs::create_dir_all(at(".cache")).unwrap();
    fs::create_dir_all(folder.path("blobs")).unwrap();
    let other = ("a.weight", Dtype::BF16, vec![3, 5], bytes(30, 1));
    let odd = ("z.bias", Dtype::U8, vec![7], bytes(7, 2));
    let table = (TABLE, Dtype::F8_E4M3, vec![40, 64], bytes(2560, 3));
    write(&at("model-00001-of-00003.safetensors"), &[other, table, odd]);
    write(&at("model-00002-of-00003.safetensors"), &[(SCALE, Dtype::F8_E8M0, vec![40, 2], vec![120; 80])]);
    write(&folder.path("blobs/c0ffee"), &[("b.weight", Dtype::F32, vec![2], bytes(8, 4))]);
    std::os::unix::fs::symlink("../../blobs/c0ffee", at("model-00003-of-00003.safetensors")).unwrap();
    let index = format!(
        "{{\"metadata\": {{\"total_parameters\": 1.0e3, \"total_size\": 1}},\n \"weight_map\": {{\n\
         \"z.bias\": \"model-00001-of-00003.safetensors\",\n\
         \"{TABLE}\": \"model-00001-of-00003.safetensors\",\n\
         \"b.weight\": \"model-00003-of-00003.safetensors\",\n\
         \"{SCALE}\": \"model-00002-of-00003.safetensors\",\n\
         \"a.weight\": \"model-00001-of-00003.safetensors\"}}, \"more\": [1,  2]}}"
    );
    fs::write(at("model.safetensors.index.json"), index).unwrap();
    fs::write(at("config.json"), CONFIG).unwrap();
    fs::write(at("tokenizer.json"), "{}").unwrap();
    fs::write(at("sub/deep/notes.txt"), "notes").unwrap();
    fs::write(at(".git/HEAD"), "ref").unwrap();
    fs::write(at(".cache/state"), "state").unwrap();
    folder.path("snapshots/in")
}

fn replaced() -> BTreeSet<String> {
    [TABLE.to_string(), SCALE.to_string()].into()
}

fn compress_table(input: &Path, output: &Path) -> CompressReport {
    let shards = condprog_convert::CompressOptions { shard_bytes: Some(500), ..options(10) };
    compress_file(input, &[TABLE.into()], output.join("tables.safetensors"), &shards, &Cpu, &quiet).unwrap()
}

fn rewrite(input: &Path, output: &Path) -> RewriteReport {
    let rewrite = Rewrite::begin(input, output, replaced(), RewriteOptions::default()).unwrap();
    assert!(!rewrite.is_resumed());
    let report = compress_table(input, output);
    rewrite.finish(&report.tables, &report.files).unwrap()
}

/// Contents of all files below a folder, links followed.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(contents(&path));
        } else {
            files.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    files
}

fn json_of(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Every tensor is where the index says, and the sizes add up.
fn check_index(folder: &Path) -> Value {
    let index = json_of(&folder.join("model.safetensors.index.json"));
    let mut total = 0;
    for (tensor, file) in index["weight_map"].as_object().unwrap() {
        let file = fs::read(folder.join(file.as_str().unwrap())).unwrap();
        total += SafeTensors::deserialize(&file).unwrap().tensor(tensor).unwrap().data().len();
    }
    assert_eq!(index["metadata"]["total_size"], total);
    index
}

#[test]
fn other_programs_read_the_new_checkpoint() {
    let folder = Folder::new();
    let input = checkpoint(&folder);
    let before = contents(folder.path("").as_path());
    let output = folder.path("out");
    let report = rewrite(&input, &output);
    assert_eq!((report.linked, report.copied), (1, 2));
    assert_eq!(report.written, [PathBuf::from("model-00001-of-00003.safetensors")]);
    assert_eq!(report.dropped, [PathBuf::from("model-00002-of-00003.safetensors")]);
    for (path, content) in before {
        assert!(fs::read(&path).unwrap() == content, "{} has changed", path.display());
    }

    let index = check_index(&output);
    assert_eq!(index["metadata"]["total_size"], report.total_size);
    let text = fs::read_to_string(&report.index).unwrap();
    // Old tensors in their old order, then the new ones; all else as it was spelled.
    let places: Vec<_> = [
        "total_parameters\": 1.0e3",
        "\"z.bias\"",
        "\"b.weight\"",
        "\"a.weight\"",
        &format!("\"{TABLE}#0\""),
        "[1,  2]",
    ]
    .map(|text_in| text.find(text_in).unwrap_or_else(|| panic!("{text_in} is not in {text}")))
    .into();
    assert!(places.is_sorted(), "{text}");
    let map = &index["weight_map"];
    assert!(map[TABLE].is_null() && map[SCALE].is_null(), "{text}");
    assert_eq!(map["a.weight"], "model-00001-of-00003.safetensors");

    let rest = fs::read(output.join("model-00001-of-00003.safetensors")).unwrap();
    let (_, header) = SafeTensors::read_metadata(&rest).unwrap();
    assert_eq!(header.metadata().as_ref().unwrap()["format"], "pt");
    let rest = SafeTensors::deserialize(&rest).unwrap();
    let mut names = rest.names();
    names.sort();
    assert_eq!(names, ["a.weight", "z.bias"]);
    assert_eq!(
        (rest.tensor("a.weight").unwrap().data(), rest.tensor("z.bias").unwrap().data()),
        (&bytes(30, 1)[..], &bytes(7, 2)[..])
    );
    assert_eq!(
        (rest.tensor("a.weight").unwrap().dtype(), rest.tensor("z.bias").unwrap().shape()),
        (Dtype::BF16, &[7][..])
    );

    let config = fs::read_to_string(output.join("config.json")).unwrap();
    let kept = &CONFIG[CONFIG.find("[").unwrap()..CONFIG.find("\n    \"rms").unwrap()];
    assert!(config.contains(kept) && config.contains(": 1e-06") && config.contains(": 12345678901234567890123,"));
    let entry = &json_of(&output.join("config.json"))["quantization_config"];
    assert_eq!(
        *entry,
        json!({ "quant_method": "condprog", "format_version": 1, "tables": { TABLE: { "dim": 64, "rows": 40, "rate": 2.0 } } })
    );

    // Links to weights are the same files, all else are copies; the state of downloads and of version control stays
    // behind, nothing else is new.
    let same = |name: &str| {
        fs::metadata(input.join(name)).unwrap().ino() == fs::symlink_metadata(output.join(name)).unwrap().ino()
    };
    assert!(!same("tokenizer.json") && !same("sub/deep/notes.txt") && same("model-00003-of-00003.safetensors"));
    let names: BTreeSet<_> =
        contents(&output).into_keys().map(|path| path.strip_prefix(&output).unwrap().to_path_buf()).collect();
    let tables =
        ["tables-00001-of-00002.safetensors", "tables-00002-of-00002.safetensors", "tables.safetensors.index.json"];
    let mut expected: BTreeSet<_> = tables.map(PathBuf::from).into();
    expected.extend(
        [
            "config.json",
            "model-00001-of-00003.safetensors",
            "model-00003-of-00003.safetensors",
            "model.safetensors.index.json",
        ]
        .map(PathBuf::from),
    );
    expected.extend(["sub/deep/notes.txt", "tokenizer.json"].map(PathBuf::from));
    assert_eq!(names, expected);
}

#[test]
fn a_run_cut_short_anywhere_goes_on() {
    let folder = Folder::new();
    let input = checkpoint(&folder);
    let whole = folder.path("whole");
    rewrite(&input, &whole);
    let expected: BTreeMap<_, _> =
        contents(&whole).into_iter().map(|(path, c)| (path.strip_prefix(&whole).unwrap().to_path_buf(), c)).collect();
    // Files of the checkpoint in the order in which they are made.
    let order = [
        "model-00003-of-00003.safetensors",
        "sub/deep/notes.txt",
        "tokenizer.json",
        "model-00001-of-00003.safetensors",
        "config.json",
        "model.safetensors.index.json",
    ];
    for done in 0..=order.len() {
        let output = folder.path(&format!("out{done}"));
        let begun = Rewrite::begin(&input, &output, replaced(), RewriteOptions::default()).unwrap();
        let report = compress_table(&input, &output);
        // Killed: nothing is cleaned up. What has a name is whole, what was being made has another.
        drop(begun);
        fs::create_dir_all(output.join("sub/deep")).unwrap();
        // The first as a link, the others as copies.
        for (place, name) in order[..done].iter().enumerate() {
            match place {
                0 => fs::hard_link(folder.path("blobs/c0ffee"), output.join(name)).unwrap(),
                _ => fs::write(output.join(name), &expected[Path::new(name)]).unwrap(),
            }
        }
        let error = Rewrite::begin(&input, &output, [TABLE.to_string()].into(), RewriteOptions::default()).unwrap_err();
        assert_eq!(error.code(), "other-run", "{error}");
        let again = Rewrite::begin(&input, &output, replaced(), RewriteOptions::default()).unwrap();
        assert!(again.is_resumed());
        let report = again.finish(&report.tables, &report.files).unwrap();
        assert_eq!((report.linked, report.copied), (1, 2), "cut short after {done} files");
        let got: BTreeMap<_, _> = contents(&output)
            .into_iter()
            .map(|(path, c)| (path.strip_prefix(&output).unwrap().to_path_buf(), c))
            .collect();
        assert_eq!(got.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "cut short after {done} files");
        assert!(got == expected, "cut short after {done} files");
    }
}

#[test]
fn what_exists_is_kept_unless_forced() {
    let folder = Folder::new();
    let input = checkpoint(&folder);
    let output = folder.path("out");
    fs::create_dir(&output).unwrap();
    fs::write(output.join("tokenizer.json"), "mine").unwrap();
    fs::write(output.join("stranger"), "mine too").unwrap();
    let error = Rewrite::begin(&input, &output, replaced(), RewriteOptions::default()).unwrap_err();
    assert!(matches!(&error, Error::OutputExists { path } if path.ends_with("tokenizer.json")), "{error}");
    assert_eq!(contents(&output).len(), 2, "nothing is added");
    let forced = Rewrite::begin(&input, &output, replaced(), FORCE).unwrap();
    let report = compress_table(&input, &output);
    // While it is at work nobody else is.
    assert_eq!(Rewrite::begin(&input, &output, replaced(), FORCE).unwrap_err().code(), "busy");
    forced.finish(&report.tables, &report.files).unwrap();
    assert_eq!(fs::read(output.join("tokenizer.json")).unwrap(), b"{}");
    assert_eq!(fs::read(output.join("stranger")).unwrap(), b"mine too");
    // Done is done.
    assert_eq!(
        Rewrite::begin(&input, &output, replaced(), RewriteOptions::default()).unwrap_err().code(),
        "output-exists"
    );

    // What another run has left gives way when forced, and its files with it.
    let output = folder.path("other");
    drop(Rewrite::begin(&input, &output, [SCALE.to_string()].into(), RewriteOptions::default()).unwrap());
    fs::write(output.join("tokenizer.json"), "{}").unwrap();
    let forced = Rewrite::begin(&input, &output, replaced(), FORCE).unwrap();
    assert!(!forced.is_resumed() && !output.join("tokenizer.json").exists());
}

#[test]
fn a_single_file_gets_an_index() {
    let folder = Folder::new();
    let input = folder.path("in");
    fs::create_dir(&input).unwrap();
    let table = ("t", Dtype::F32, vec![20, 32], f32_bytes(&rows(20, 32, 1)));
    write(&input.join("model.safetensors"), &[table.clone(), ("head", Dtype::U8, vec![3], vec![1, 2, 3])]);
    let output = folder.path("out");
    let rewrite = |output: &Path| {
        let rewrite = Rewrite::begin(&input, output, ["t".to_string()].into(), RewriteOptions::default()).unwrap();
        let report =
            compress_file(&input, &["t".into()], output.join("tables.safetensors"), &options(8), &Cpu, &quiet).unwrap();
        rewrite.finish(&report.tables, &report.files).unwrap()
    };
    let report = rewrite(&output);
    let index = check_index(&output);
    // Not model.safetensors: loaders that find it do not look at the index.
    assert_eq!(
        (&index["weight_map"]["head"], &index["weight_map"]["t"]),
        (&"model-other.safetensors".into(), &"tables.safetensors".into())
    );
    assert_eq!(
        (report.written.len(), output.join("model.safetensors").exists(), output.join("config.json").exists()),
        (1, false, false)
    );

    // Of a file with nothing else in it nothing is left.
    write(&input.join("model.safetensors"), &[table]);
    let output = folder.path("only");
    assert_eq!(rewrite(&output).dropped, [PathBuf::from("model.safetensors")]);
    check_index(&output);
    assert!(!output.join("model-other.safetensors").exists());
}

#[test]
fn a_checkpoint_made_anew_can_be_again() {
    let folder = Folder::new();
    let input = folder.path("in");
    fs::create_dir(&input).unwrap();
    let table = |name, seed| (name, Dtype::F32, vec![20, 32], f32_bytes(&rows(20, 32, seed)));
    write(&input.join("model.safetensors"), &[table("t", 1), table("u", 2)]);
    fs::write(input.join("config.json"), r#"{"quantization_config": {"quant_method": "fp8"}}"#).unwrap();
    let rewrite = |input: &Path, table: &str, output: &Path| {
        let rewrite = Rewrite::begin(input, output, [table.to_string()].into(), RewriteOptions::default()).unwrap();
        let file = output.join(format!("{table}.safetensors"));
        let report = compress_file(input, &[table.into()], file, &options(8), &Cpu, &quiet).unwrap();
        rewrite.finish(&report.tables, &report.files).unwrap();
    };
    rewrite(&input, "t", &folder.path("first"));
    rewrite(&folder.path("first"), "u", &folder.path("second"));
    let map = check_index(&folder.path("second"))["weight_map"].clone();
    assert_eq!((&map["t"], &map["u"]), (&"t.safetensors".into(), &"u.safetensors".into()));
    let config = json_of(&folder.path("second/config.json"));
    let entry = &config["quantization_config"];
    let tables: Vec<_> = entry["condprog"]["tables"].as_object().unwrap().keys().cloned().collect();
    assert_eq!((&entry["quant_method"], tables), (&"fp8".into(), vec!["t".to_string(), "u".to_string()]));
}

#[test]
fn another_file_system_gets_copies() {
    let folder = Folder::new();
    let input = checkpoint(&folder);
    // Where this is the same file system, or is not there, links are right.
    let shared = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let is_same = fs::metadata(shared.path()).unwrap().dev() == fs::metadata(&input).unwrap().dev();
    let output = shared.path().join("out");
    let report = rewrite(&input, &output);
    assert_eq!((report.linked, report.copied), if is_same { (1, 2) } else { (0, 3) });
    check_index(&output);
    assert_eq!(fs::read(output.join("sub/deep/notes.txt")).unwrap(), b"notes");
    assert!(contents(&output).keys().all(|path| !path.to_string_lossy().contains("condprog-")));
}

#[test]
fn faults_are_found_before_anything_is_made() {
    let folder = Folder::new();
    let input = checkpoint(&folder);
    let before = contents(&folder.path(""));
    let output = folder.path("out");
    let fails = |input: &Path, output: &Path, replaced: &[&str], code: &str, says: &str| {
        let replaced = replaced.iter().map(|name| name.to_string()).collect();
        let error = Rewrite::begin(input, output, replaced, RewriteOptions::default()).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    };
    fails(&input, &output, &["x", TABLE], "rewrite-no-tensor", "tensor \"x\" is not in the checkpoint");
    fails(&input, &input, &[TABLE], "rewrite-inside", "lies in it");
    fails(&input, &input.join("new/out"), &[TABLE], "rewrite-inside", "lies in it");
    fails(&input, &folder.path("blobs/../snapshots/in/out"), &[TABLE], "rewrite-inside", "lies in it");
    fails(&input.join("config.json"), &output, &[TABLE], "rewrite-not-a-folder", "expected one");
    fails(&folder.path("nowhere"), &output, &[TABLE], "io", "cannot open");
    assert!(contents(&folder.path("")) == before && !output.exists(), "nothing is made");

    let broken = |change: &dyn Fn(), undo: &dyn Fn(), code: &str, says: &str| {
        change();
        fails(&input, &output, &[TABLE, SCALE], code, says);
        assert!(!output.exists());
        undo();
    };
    let at = |name: &str| input.join(name);
    let config = |text: &'static str| move |path: &Path| fs::write(path, text).unwrap();
    for (text, code, says) in [
        ("{\"a\": ", "rewrite-json", "config.json is malformed"),
        ("{\"a\": 1, \"a\": 2}", "rewrite-json", "key \"a\" is there twice"),
        ("{\"quantization_config\": 1}", "rewrite-json", "config.json is malformed"),
        (
            "{\"quantization_config\": {\"condprog\": {\"format_version\": 2}}}",
            "rewrite-version",
            "condprog's format version 2, expected 1",
        ),
    ] {
        broken(&|| config(text)(&at("config.json")), &|| config(CONFIG)(&at("config.json")), code, says);
    }
    let loops = at("sub/deep/loop");
    broken(
        &|| std::os::unix::fs::symlink("../../sub", &loops).unwrap(),
        &|| fs::remove_file(&loops).unwrap(),
        "rewrite-loop",
        "is a link to a folder that contains it",
    );
    broken(
        &|| std::os::unix::fs::symlink("nowhere", at("dangling")).unwrap(),
        &|| fs::remove_file(at("dangling")).unwrap(),
        "io",
        "dangling",
    );
    let shard = at("model-00002-of-00003.safetensors");
    let kept = fs::read(&shard).unwrap();
    broken(&|| fs::remove_file(&shard).unwrap(), &|| fs::write(&shard, &kept).unwrap(), "io", "model-00002");
    broken(
        &|| fs::write(&shard, &kept[..kept.len() - 1]).unwrap(),
        &|| fs::write(&shard, &kept).unwrap(),
        "header-truncated",
        "model-00002",
    );
    broken(
        &|| write(&shard, &[("other", Dtype::U8, vec![1], vec![0])]),
        &|| fs::write(&shard, &kept).unwrap(),
        "index-missing-tensor",
        SCALE,
    );
    let socket = at("socket");
    broken(
        &|| drop(std::os::unix::net::UnixListener::bind(&socket).unwrap()),
        &|| fs::remove_file(&socket).unwrap(),
        "rewrite-special",
        "is neither a file nor a folder",
    );
}

#[test]
fn table_files_must_fit() {
    let folder = Folder::new();
    let input = checkpoint(&folder);
    let elsewhere = folder.path("tables.safetensors");
    let report = compress_file(&input, &[TABLE.into()], &elsewhere, &options(8), &Cpu, &quiet).unwrap();
    let begin = || Rewrite::begin(&input, folder.path("out"), replaced(), RewriteOptions::default()).unwrap();
    assert!(begin().is_taken("tokenizer.json") && begin().is_taken("model.safetensors.index.json"));
    assert!(!begin().is_taken("tables.safetensors") && !begin().is_taken("model-00002-of-00003.safetensors"));
    let error = begin().finish(&report.tables, &report.files).unwrap_err();
    assert_eq!(error.code(), "rewrite-elsewhere", "{error}");
    let taken = folder.path("out/tokenizer.json");
    fs::copy(&elsewhere, &taken).unwrap();
    let error = begin().finish(&report.tables, std::slice::from_ref(&taken)).unwrap_err();
    assert_eq!(error.code(), "rewrite-file-taken", "{error}");
    fs::remove_file(taken).unwrap();
    // A table called like a tensor that stays.
    let odd = folder.path("odd.safetensors");
    crate::common::f32_table(&odd, "a.weight", 32, &rows(8, 32, 1));
    let report = compress(&odd, &folder.path("out/odd.safetensors"), &options(8)).unwrap();
    let error = begin().finish(&report.tables, &report.files).unwrap_err();
    assert_eq!(error.code(), "rewrite-tensor-taken", "{error}");
    assert!(
        error
            .to_string()
            .contains("tensor \"a.weight\" is in a table file and in \"model-00001-of-00003.safetensors\"")
    );
}
