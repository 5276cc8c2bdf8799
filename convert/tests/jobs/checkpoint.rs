//! Checkpoints of many files: what an index lists and what is there, and tables joined from tensors.

use std::fs;

use crate::common::{
    Cpu, Folder, Named, bf16_bytes, compress, f32_bytes, f32_table, options, rows, values, write, write_checkpoint,
    write_index,
};
use condprog_checkpoint::{Checkpoint, RowSource};
use condprog_convert::{CompressOptions, Error, compress_file, quiet};
use condprog_table::Tables;
use proptest::prelude::*;
use safetensors::tensor::Dtype;

const INDEX: &str = "model.safetensors.index.json";

fn f32_tensor(name: &str, dim: usize, values: &[f32]) -> Named {
    (name.into(), Dtype::F32, vec![values.len() / dim, dim], f32_bytes(values))
}

/// An FP8 tensor and its scales of groups.
fn fp8_pair(name: &str) -> [Named; 2] {
    let elements = (0..192).map(|i| (i * 37 % 120) as u8).collect();
    let scales = (118..124).collect();
    [
        (format!("{name}.weight"), Dtype::F8_E4M3, vec![3, 64], elements),
        (format!("{name}.scale"), Dtype::F8_E8M0, vec![3, 2], scales),
    ]
}

/// Compresses tables of a folder, and says what comes of it; of an error, that nothing was written.
fn table_of(folder: &Folder, patterns: &[&str]) -> Result<Vec<u8>, (&'static str, String)> {
    let out = Folder::new();
    let patterns: Vec<_> = patterns.iter().map(|pattern| pattern.to_string()).collect();
    match compress_file(folder.path(""), &patterns, out.path("out"), &options(4), &Cpu, &quiet) {
        Ok(_) => Ok(fs::read(out.path("out")).unwrap()),
        Err(error) => {
            assert!(out.list().is_empty(), "{:?}", out.list());
            Err((error.code(), error.to_string()))
        }
    }
}

#[test]
fn a_file_a_folder_and_an_index_are_one_checkpoint() {
    let one = Folder::new();
    let [weight, scale] = fp8_pair("x");
    let plain = f32_tensor("t", 16, &rows(5, 16, 1));
    write(&one.path("some.safetensors"), &[weight.clone(), scale.clone(), plain.clone()]);
    let expected = table_of(&one, &["x.weight", "t"]).unwrap();
    // Scales in other files than their tensors, before and after them.
    for (first, second) in [(&weight, &scale), (&scale, &weight)] {
        let many = Folder::new();
        let files = [
            ("model-1.safetensors", vec![plain.clone(), first.clone()]),
            ("model-2.safetensors", vec![second.clone(), f32_tensor("other", 16, &[0.0; 16])]),
        ];
        write_checkpoint(&many, &files);
        assert_eq!(table_of(&many, &["t"]).unwrap(), table_of(&one, &["t"]).unwrap());
        assert_eq!(table_of(&many, &["x.weight"]).unwrap(), table_of(&one, &["x.weight"]).unwrap());
        assert_eq!(table_of(&many, &["x.*"]).unwrap(), table_of(&one, &["x.weight"]).unwrap());
        for path in [many.path(""), many.path(INDEX)] {
            let checkpoint = Checkpoint::open(path).unwrap();
            assert!(checkpoint.is_indexed());
            assert_eq!(
                (checkpoint.files().count(), checkpoint.tensors().count(), checkpoint.names().count()),
                (2, 4, 4)
            );
        }
        // An index of any name, if it is the only one.
        fs::rename(many.path(INDEX), many.path("x.safetensors.index.json")).unwrap();
        assert_eq!(table_of(&many, &["x.weight"]).unwrap(), table_of(&one, &["x.weight"]).unwrap());
    }
    let checkpoint = Checkpoint::open(one.path("")).unwrap();
    assert!(!checkpoint.is_indexed());
    assert_eq!(Tables::from_bytes("out", expected).unwrap().tables().len(), 2);
}

#[test]
fn an_index_that_is_none_or_does_not_fit_is_refused() {
    let folder = Folder::new();
    f32_table(&folder.path("a.safetensors"), "t", 16, &rows(5, 16, 1));
    let cases = [
        ("", "index-json", "malformed: EOF"),
        ("{}", "index-json", "missing field `weight_map`"),
        (r#"{"weight_map": []}"#, "index-json", "expected a map"),
        (r#"{"weight_map": {"t": 1}}"#, "index-json", "expected a string"),
        (r#"{"weight_map": {"t": "a.safetensors"}"#, "index-json", "EOF"),
        (r#"{"weight_map": {"t": "a.safetensors", "t": "b.safetensors"}}"#, "index-json", "\"t\" is there twice"),
        (r#"{"weight_map": {"t": "a.safetensors"}, "weight_map": {}}"#, "index-json", "duplicate field `weight_map`"),
        (r#"{"weight_map": {}}"#, "index-empty", "lists no tensor"),
        (r#"{"weight_map": {"t": "../a.safetensors"}}"#, "index-file-name", "in file \"../a.safetensors\""),
        (r#"{"weight_map": {"t": "/a.safetensors"}}"#, "index-file-name", "in file \"/a.safetensors\""),
        (r#"{"weight_map": {"t": "x/../a.safetensors"}}"#, "index-file-name", "tensor \"t\""),
        (r#"{"weight_map": {"t": "x/./a.safetensors"}}"#, "index-file-name", "in file \"x/./a.safetensors\""),
        (r#"{"weight_map": {"t": "x//a.safetensors"}}"#, "index-file-name", "in file \"x//a.safetensors\""),
        (r#"{"weight_map": {"t": "x/"}}"#, "index-file-name", "in file \"x/\""),
        (r#"{"weight_map": {"t": "x/..\\..\\a.safetensors"}}"#, "index-file-name", "in the index's folder"),
        (r#"{"weight_map": {"t": "x\\a.safetensors"}}"#, "index-file-name", "or in one below it"),
        (
            r#"{"weight_map": {"t": "\u001b[2Ja.safetensors"}}"#,
            "index-file-name",
            "in file \"\\u{1b}[2Ja.safetensors\"",
        ),
        (r#"{"weight_map": {"t": ".."}}"#, "index-file-name", "in file \"..\""),
        (r#"{"weight_map": {"t": "."}}"#, "index-file-name", "in file \".\""),
        (r#"{"weight_map": {"t": ""}}"#, "index-file-name", "in file \"\""),
        (r#"{"weight_map": {"u": "a.safetensors"}}"#, "index-missing-tensor", "\"u\" in file \"a.safetensors\""),
    ];
    fs::create_dir(folder.path("x")).unwrap();
    for (json, code, says) in cases {
        fs::write(folder.path(INDEX), json).unwrap();
        for error in [Checkpoint::open(folder.path("")).unwrap_err(), table_error(&folder)] {
            // Of a folder without table files, a reader of tables says that first.
            let other = matches!(error.code(), "index-no-tables") && code == "index-missing-tensor";
            assert!(error.code() == code || other, "{json}: {error}");
            assert!(error.to_string().contains(says) || other, "{json}: {error}");
            assert!(error.to_string().contains("model.safetensors.index.json: "), "{error}");
        }
    }
    assert_eq!(folder.list(), ["a.safetensors", INDEX, "x"]);
}

#[test]
fn an_index_may_name_files_in_folders_below_it() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("sub/deeper")).unwrap();
    let (top, below) = (rows(5, 16, 1), rows(5, 16, 2));
    // The same name in two folders is two files.
    f32_table(&folder.path("a.safetensors"), "t", 16, &top);
    f32_table(&folder.path("sub/deeper/a.safetensors"), "u", 16, &below);
    write_index(&folder.path(INDEX), &[("t", "a.safetensors"), ("u", "sub/deeper/a.safetensors")]);
    let checkpoint = Checkpoint::open(folder.path("")).unwrap();
    for (name, expected) in [("t", &top), ("u", &below)] {
        assert_eq!(values(&mut checkpoint.table(name).unwrap()), *expected);
    }
    // What the index has in another file of the same name is not there.
    write_index(&folder.path(INDEX), &[("t", "a.safetensors"), ("u", "a.safetensors")]);
    assert_eq!(Checkpoint::open(folder.path("")).unwrap_err().code(), "index-missing-tensor");
    let both = [("t", "a.safetensors"), ("u", "sub/deeper/a.safetensors"), ("v", "a.safetensors")];
    write_index(&folder.path(INDEX), &both);
    f32_table(&folder.path("sub/deeper/a.safetensors"), "v", 16, &below);
    let error = Checkpoint::open(folder.path("")).unwrap_err();
    assert!(error.to_string().contains("\"u\" in file \"sub/deeper/a.safetensors\""), "{error}");
    // The outputs of a run may be found the same way.
    write_index(&folder.path(INDEX), &[("t", "a.safetensors")]);
    compress(&folder.path(""), &folder.path("sub/table.safetensors"), &options(4)).unwrap();
    let tensors: Vec<_> = Tables::open(folder.path("sub/table.safetensors")).unwrap().tables()[0]
        .segments
        .iter()
        .flat_map(|segment| [segment.tensor.clone(), segment.checksums.tensor.clone()])
        .collect();
    let listed: Vec<_> = tensors.iter().map(|name| (name.as_str(), "sub/table.safetensors")).collect();
    write_index(&folder.path("tables.safetensors.index.json"), &listed);
    assert_eq!(Tables::open(folder.path("tables.safetensors.index.json")).unwrap().tables()[0].name, "t");
}

#[test]
fn files_without_an_index_are_one_checkpoint() {
    let folder = Folder::new();
    let [weight, scale] = fp8_pair("x");
    write(&folder.path("a"), &[f32_tensor("t.0", 16, &rows(5, 16, 1)), weight]);
    write(&folder.path("b"), &[f32_tensor("t.1", 16, &rows(6, 16, 2)), scale]);
    let open = |names: &[&str]| Checkpoint::open_all(&names.iter().map(|name| folder.path(name)).collect::<Vec<_>>());
    let checkpoint = open(&["a", "b"]).unwrap();
    let mut joined = checkpoint.rows(checkpoint.join_matching("t", "t.*", None).unwrap()).unwrap();
    assert_eq!(values(&mut joined), [rows(5, 16, 1), rows(6, 16, 2)].concat());
    assert_eq!(joined.files(), [folder.path("a"), folder.path("b")]);
    assert_eq!(checkpoint.info("x.weight").unwrap().parts[0].scale.as_ref().unwrap().name, "x.scale");
    assert_eq!(open(&["a"]).unwrap().names().count(), 2);
    let refused = |names: &[&str]| {
        let error = open(names).unwrap_err();
        (error.code(), error.to_string())
    };
    assert_eq!(refused(&["a", "b", "a"]).0, "source-file-twice");
    assert!(refused(&["a", "b", "a"]).1.contains("a: it is the same file as "));
    fs::create_dir(folder.path("folder")).unwrap();
    f32_table(&folder.path("folder/one.safetensors"), "f", 16, &rows(5, 16, 1));
    assert_eq!(refused(&["a", "folder"]).0, "source-not-one-file");
    assert_eq!(refused(&["a", "gone"]).0, "io");
    write(&folder.path("c"), &[f32_tensor("t.0", 16, &rows(5, 16, 1))]);
    let twice = open(&["a", "c"]).unwrap().info("t.0").unwrap_err();
    assert_eq!(twice.code(), "source-two-files");
}

fn table_error(folder: &Folder) -> condprog_checkpoint::Error {
    Tables::open(folder.path("")).unwrap_err().into()
}

#[test]
fn a_folder_has_one_index_or_one_file() {
    let folder = Folder::new();
    let code = || [Checkpoint::open(folder.path("")).unwrap_err(), table_error(&folder)].map(|error| error.code());
    assert_eq!(code(), ["index-none"; 2]);
    for file in ["a.safetensors", "b.safetensors"] {
        f32_table(&folder.path(file), "t", 16, &rows(5, 16, 1));
    }
    assert_eq!(code(), ["index-none"; 2]);
    for file in ["a.safetensors.index.json", "b.safetensors.index.json"] {
        write_index(&folder.path(file), &[("t", "a.safetensors")]);
    }
    assert_eq!(code(), ["index-two"; 2]);
    write_index(&folder.path(INDEX), &[("t", "b.safetensors")]);
    assert_eq!(Checkpoint::open(folder.path("")).unwrap().files().next().unwrap().0, folder.path("b.safetensors"));
    // What the index does not list is not there, though its file is.
    write(&folder.path("b.safetensors"), &[f32_tensor("t", 16, &[0.5; 16]), f32_tensor("u", 16, &[0.5; 16])]);
    assert_eq!(table_of(&folder, &["u"]).unwrap_err().0, "source-missing");
    assert_eq!(Checkpoint::open(folder.path("")).unwrap().select(&[]).unwrap().len(), 1);
}

#[test]
fn a_file_that_is_not_there_is_missed_when_it_is_needed() {
    let folder = Folder::new();
    let [weight, scale] = fp8_pair("x");
    let files = [
        ("a.safetensors", vec![f32_tensor("t.0", 16, &rows(5, 16, 1)), weight]),
        ("b.safetensors", vec![f32_tensor("t.1", 16, &rows(5, 16, 2)), scale]),
    ];
    write_checkpoint(&folder, &files);
    fs::remove_file(folder.path("b.safetensors")).unwrap();
    assert!(table_of(&folder, &["t.0"]).is_ok());
    let missing = |patterns: &[&str], tensor: &str| {
        let (code, message) = table_of(&folder, patterns).unwrap_err();
        assert_eq!(code, "source-missing-file", "{message}");
        let file = folder.path("b.safetensors");
        let says = format!("tensor {tensor:?} is listed in {}, which is not there", file.display());
        assert!(message.contains(&says), "{message}");
    };
    missing(&["t.1"], "t.1");
    missing(&["x.weight"], "x.scale");
    // What a pattern selects may be there: left out silently, a table would be missing in the end.
    missing(&["t.*"], "t.1");
    missing(&[], "x.scale");
    let checkpoint = Checkpoint::open(folder.path("")).unwrap();
    let joined = checkpoint.join_matching("t", "t.*", None).unwrap_err();
    assert_eq!(joined.code(), "source-missing-file");
    assert_eq!(checkpoint.names().count(), 4);
    // A copy in another file is not what the index lists, nor is it a second tensor of the name.
    write(&folder.path("a.safetensors"), &[f32_tensor("t.0", 16, &[1.0; 16]), f32_tensor("t.1", 16, &[1.0; 16])]);
    write_index(&folder.path(INDEX), &[("t.0", "a.safetensors"), ("t.1", "b.safetensors")]);
    missing(&["t.1"], "t.1");
    assert_eq!(Checkpoint::open(folder.path("")).unwrap().names().collect::<Vec<_>>(), ["t.0", "t.1"]);
}

#[test]
fn a_tensor_in_two_files_is_refused_when_it_is_needed() {
    let folder = Folder::new();
    let twice = f32_tensor("t", 16, &rows(5, 16, 1));
    let files = [
        ("a.safetensors", vec![twice.clone(), f32_tensor("u", 16, &rows(5, 16, 1))]),
        ("b.safetensors", vec![twice.clone(), f32_tensor("v", 16, &rows(5, 16, 1))]),
        ("c.safetensors", vec![twice]),
    ];
    write_checkpoint(&folder, &files);
    assert!(table_of(&folder, &["u", "v"]).is_ok());
    for patterns in [&["t"][..], &["?"], &[]] {
        let (code, message) = table_of(&folder, patterns).unwrap_err();
        assert_eq!(code, "source-two-files");
        let files = ["a.safetensors", "b.safetensors"].map(|file| folder.path(file).display().to_string());
        assert!(message.contains(&format!("tensor \"t\" is in {} and in {}", files[0], files[1])), "{message}");
    }
}

#[test]
fn an_index_is_not_replaced_by_what_is_made_from_it() {
    let folder = Folder::new();
    write_checkpoint(&folder, &[("a.safetensors", vec![f32_tensor("t", 16, &rows(5, 16, 1))])]);
    let before = fs::read(folder.path(INDEX)).unwrap();
    let options = CompressOptions { force: true, shard_bytes: Some(1000), ..options(4) };
    let error = compress(&folder.path(""), &folder.path("model.safetensors"), &options).unwrap_err();
    assert!(matches!(&error, Error::SameFile { path } if path.ends_with(INDEX)), "{error}");
    assert_eq!(fs::read(folder.path(INDEX)).unwrap(), before);
    assert_eq!(folder.list(), ["a.safetensors", INDEX]);
}

/// Tensors `t.0` to `t.N` of so many rows of 16 values, spread over three files.
fn parts(counts: &[usize]) -> (Folder, Vec<f32>) {
    let folder = Folder::new();
    let mut files = [("a.safetensors", vec![]), ("b.safetensors", vec![]), ("c.safetensors", vec![])];
    let mut all = Vec::new();
    for (part, &count) in counts.iter().enumerate() {
        let values = rows(count, 16, part as u64);
        files[part * 7 % 3].1.push(f32_tensor(&format!("t.{part}.weight"), 16, &values));
        all.extend(values);
    }
    files.iter_mut().for_each(|(_, tensors)| tensors.reverse());
    files[1].1.push(f32_tensor("t.all", 16, &[9.0; 16]));
    write_checkpoint(&folder, &files);
    (folder, all)
}

#[test]
fn tensors_are_joined_in_the_order_of_their_numbers() {
    let counts = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8];
    let (folder, all) = parts(&counts);
    let checkpoint = Checkpoint::open(folder.path("")).unwrap();
    let info = checkpoint.join_matching("t", "t.*.weight", None).unwrap();
    assert_eq!((info.name.as_str(), info.rows, info.dim), ("t", 52, 16));
    let names: Vec<_> = (0..12).map(|part| format!("t.{part}.weight")).collect();
    assert!(info.parts.iter().map(|part| &part.name).eq(&names));
    assert!(info.parts.iter().map(|part| part.rows as usize).eq(counts));
    assert_eq!(values(&mut checkpoint.rows(info.clone()).unwrap()), all);
    assert_eq!(checkpoint.join("t", &names, None).unwrap(), info);
    let reversed: Vec<_> = names.iter().rev().cloned().collect();
    let other = checkpoint.join("t", &reversed, None).unwrap();
    assert_eq!(values(&mut checkpoint.rows(other).unwrap())[..16], all[44 * 16..45 * 16]);
}

#[test]
fn tensors_that_do_not_make_a_table_are_refused_by_name() {
    let folder = Folder::new();
    let number = |name: &str| (name.to_string(), Dtype::BF16, vec![1], bf16_bytes(&[0.5]));
    let fp8 = |name: &str| (name.to_string(), Dtype::F8_E4M3, vec![2, 32], vec![0x38; 64]);
    let tensors = vec![
        f32_tensor("t.8", 16, &[0.5; 32]),
        f32_tensor("t.9", 16, &[0.5; 32]),
        f32_tensor("t.11", 16, &[0.5; 32]),
        f32_tensor("wide", 32, &[0.5; 64]),
        ("half".into(), Dtype::BF16, vec![2, 16], bf16_bytes(&[0.5; 32])),
        fp8("one"),
        number("one.scale"),
        fp8("rows"),
        ("rows.scale".into(), Dtype::BF16, vec![2, 1], bf16_bytes(&[0.5; 2])),
        fp8("single"),
        ("single.scale".into(), Dtype::F32, vec![2, 1], f32_bytes(&[0.5; 2])),
        fp8("groups"),
        ("groups.scale".into(), Dtype::F8_E8M0, vec![2, 1], vec![127; 2]),
        fp8("bare"),
    ];
    write(&folder.path("in"), &tensors);
    let checkpoint = Checkpoint::open(folder.path("in")).unwrap();
    let refused = |parts: &[&str]| {
        let parts: Vec<_> = parts.iter().map(|part| part.to_string()).collect();
        let error = checkpoint.join("T", &parts, None).unwrap_err();
        (error.code(), error.to_string())
    };
    let cases = [
        (["t.8", "wide"], "source-part-differs", "\"wide\" has values per row 32, expected 16 as tensor \"t.8\""),
        (["t.8", "half"], "source-part-differs", "table \"T\": tensor \"half\" has type BF16, expected F32"),
        (["one", "rows"], "source-part-differs", "scales BF16 for rows, expected BF16 for the whole tensor"),
        (["rows", "single"], "source-part-differs", "\"single\" has scales F32 for rows, expected BF16 for rows"),
        (["rows", "groups"], "source-part-differs", "scales F8_E8M0 for groups of columns, expected BF16 for rows"),
        (["one", "bare"], "source-missing-scale", "tensor \"bare\" of type F8_E4M3 has no scales"),
        (["t.8", "t.8"], "source-part-twice", "table \"T\" has tensor \"t.8\" twice"),
        (["t.8", "t.10"], "source-missing", "\"t.10\" is not in the checkpoint; near it are \"t.11\""),
        (["t.8", "one.scale"], "source-rank", "\"one.scale\" has shape [1]"),
    ];
    for (parts, code, says) in cases {
        let got = refused(&parts);
        assert!(got.0 == code && got.1.contains(says), "{parts:?}: {got:?}");
    }
    assert_eq!(refused(&[]).0, "source-no-tables");
    let gap = checkpoint.join_matching("T", "t.*", None).unwrap_err();
    assert_eq!(gap.code(), "source-part-gap");
    assert!(gap.to_string().contains("from tensor \"t.9\" to \"t.11\""), "{gap}");
    assert_eq!(checkpoint.join_matching("T", "u.*", None).unwrap_err().code(), "source-no-match");
    // One scale may be named for all.
    let joined = checkpoint.join("T", &["one".into(), "bare".into()], Some("one.scale")).unwrap();
    assert!(joined.parts.iter().all(|part| part.scale.as_ref().unwrap().name == "one.scale"));
    assert_eq!(values(&mut checkpoint.rows(joined).unwrap()), [0.5; 128]);
}

/// Whatever shifts the ids is refused; a pattern that lists the numbers takes exactly these.
#[test]
fn numbers_of_joined_tensors_start_at_zero_and_are_there_once() {
    let join = |names: &[&str], pattern: &str| {
        let folder = Folder::new();
        let tensors: Vec<_> = names.iter().map(|name| f32_tensor(name, 16, &[0.5; 32])).collect();
        write(&folder.path("in"), &tensors);
        let joined = Checkpoint::open(folder.path("in")).unwrap().join_matching("T", pattern, None);
        joined.map(|info| info.parts.into_iter().map(|part| part.name).collect::<Vec<_>>()).map_err(|error| {
            let message = error.to_string();
            (error.code(), message)
        })
    };
    let refused = |names: &[&str], pattern, code, says: &str| {
        let (got, message) = join(names, pattern).unwrap_err();
        assert!(got == code && message.contains(says), "{message}");
    };
    let from_one = ["t.1.w", "t.2.w", "t.3.w"];
    let says = "starts at tensor \"t.1.w\", expected number 0: without it every id names another row; where this is the \
                first, a pattern that lists the numbers says so: \"t.{1..3}.w\"";
    refused(&from_one, "t.*.w", "source-part-first", says);
    refused(&from_one, "t.[1-3].w", "source-part-first", says);
    refused(&from_one[1..2], "t.*.w", "source-part-first", "\"t.{2..2}.w\"");
    assert_eq!(join(&from_one, "t.{1..3}.w").unwrap(), from_one);
    assert_eq!(join(&from_one, "t.{2..3}.w").unwrap(), from_one[1..]);
    assert_eq!(join(&["t.08", "t.09", "t.10"], "t.{08..10}").unwrap(), ["t.08", "t.09", "t.10"]);
    refused(&from_one, "t.{1..4}.w", "source-missing", "tensor \"t.4.w\" is not in the checkpoint");
    refused(&from_one, "t.{0..3}.w", "source-missing", "tensor \"t.0.w\" is not in the checkpoint");
    refused(&["t.0", "t.1", "t.3"], "t.*", "source-part-gap", "from tensor \"t.1\" to \"t.3\"");
    let says = "has tensors \"t.1\" and \"t.01\" with the same number, expected one of them";
    refused(&["t.0", "t.1", "t.01"], "t.*", "source-part-same", says);
    // Layers have any numbers, their shards start at 0 each.
    let layers = ["b.3.s_0", "b.3.s_1", "b.14.s_0"];
    assert_eq!(join(&layers, "b.*.s_*").unwrap(), layers);
    refused(&["b.3.s_0", "b.3.s_1", "b.14.s_1"], "b.*.s_*", "source-part-first", "\"b.14.s_1\"");
    // A name with braces in it is a name.
    assert_eq!(join(&["t{0..1}"], "t{0..1}").unwrap(), ["t{0..1}"]);
}

#[test]
fn names_that_were_meant_are_suggested() {
    let folder = Folder::new();
    let names = ["model.layers.1.engram.embed.weight", "head.weight"];
    let mut tensors: Vec<_> = names.iter().map(|name| f32_tensor(name, 16, &[0.5; 32])).collect();
    tensors.push(("ids".into(), Dtype::I64, vec![2, 2], vec![0; 32]));
    write(&folder.path("in"), &tensors);
    let refused = |pattern: &str| {
        let checkpoint = Checkpoint::open(folder.path("in")).unwrap();
        checkpoint.select(&[pattern.into()]).unwrap_err().to_string()
    };
    let near = format!("; near it are {:?}", names[0]);
    for pattern in ["layers.1.engram.embed.weight", "model.layers.1.engam.embed.weight", "*.engram.embed"] {
        assert!(refused(pattern).ends_with(&near), "{}", refused(pattern));
    }
    assert!(refused("nothing").ends_with("is not in the checkpoint"));
    // Of a checkpoint without tables, what it has instead.
    write(&folder.path("in"), &tensors[2..]);
    let error = Checkpoint::open(folder.path("in")).unwrap().select(&[]).unwrap_err().to_string();
    let says = "no two-dimensional tensor of type F32, F16, BF16, F8_E4M3 or I8; it has \"ids\" (I64 [2, 2])";
    assert!(error.ends_with(says), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_block_of_joined_tensors_is_their_rows(
        counts in prop::collection::vec(1usize..6, 1..9),
        blocks in prop::collection::vec((0usize..48, 0usize..48), 12),
    ) {
        let (folder, all) = parts(&counts);
        let total = all.len() / 16;
        let checkpoint = Checkpoint::open(folder.path("")).unwrap();
        let mut table = checkpoint.rows(checkpoint.join_matching("t", "t.*.weight", None).unwrap()).unwrap();
        for (first, count) in blocks {
            let (first, end) = (first.min(total), (first + count).min(total));
            let raw = table.read(first as u64, end - first).unwrap();
            let mut out = vec![0.0; (end - first) * 16];
            raw.to_f32(0..end - first, &mut out);
            prop_assert_eq!(&out[..], &all[first * 16..end * 16]);
        }
    }
}
