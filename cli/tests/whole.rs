//! A whole checkpoint in, a whole checkpoint out.

mod common;

use std::collections::BTreeMap;
use std::fs;

use common::{Place, gaussian};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::{Value, json};

const TABLES: [&str; 2] = ["layers.1.engram.embed.weight", "layers.14.engram.embed.weight"];

/// A checkpoint of two tables in F32 and other weights: one file with a table alone, one with a table among others.
fn checkpoint(place: &Place) {
    fs::create_dir(place.path("in")).unwrap();
    let (a, b) = (gaussian(300, 64, 1).concat(), gaussian(211, 64, 2).concat());
    place.tensors("in/model-1.safetensors", &[(TABLES[0], &[300, 64], &a)]);
    let other = gaussian(3, 5, 3).concat();
    place.tensors("in/model-2.safetensors", &[("head.weight", &[3, 5], &other), (TABLES[1], &[211, 64], &b)]);
    let map = json!({
        TABLES[0]: "model-1.safetensors", TABLES[1]: "model-2.safetensors", "head.weight": "model-2.safetensors"
    });
    let index = json!({ "metadata": { "total_size": 130_876 }, "weight_map": map });
    place.write("in/model.safetensors.index.json", index.to_string());
    place.write("in/config.json", r#"{"model_type": "x", "quantization_config": {"quant_method": "fp8"}}"#);
    place.write("in/tokenizer.json", "{}");
}

/// The tensors that an index names, from the files it names.
fn tensors(place: &Place, folder: &str) -> BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)> {
    let index: Value = serde_json::from_slice(&place.read(&format!("{folder}/model.safetensors.index.json"))).unwrap();
    let map = index["weight_map"].as_object().unwrap();
    let read = |(name, file): (&String, &Value)| {
        let bytes = place.read(&format!("{folder}/{}", file.as_str().unwrap()));
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let tensor: TensorView<'_> = file.tensor(name).unwrap();
        (name.clone(), (tensor.dtype(), tensor.shape().to_vec(), tensor.data().to_vec()))
    };
    let all: BTreeMap<_, _> = map.iter().map(read).collect();
    let total: usize = all.values().map(|(.., data)| data.len()).sum();
    assert_eq!(index["metadata"]["total_size"], total);
    all
}

#[test]
fn a_whole_checkpoint_keeps_all_but_its_tables() {
    let place = Place::new();
    checkpoint(&place);
    let before = tensors(&place, "in");
    let run = ["compress", "in", "-o", "out", "--whole", "--effort", "0", "--shard-size", "4000", "--block-rows", "64"];
    let made = place.json(0, &run);
    assert_eq!(made["whole"]["dropped"], json!(["model-1.safetensors"]));
    assert_eq!(made["whole"]["written"], json!(["model-2.safetensors"]));
    assert!(made["files"].as_array().unwrap().len() > 2, "{made}");

    let after = tensors(&place, "out");
    assert_eq!(after["head.weight"], before["head.weight"]);
    assert!(TABLES.iter().all(|table| !after.contains_key(*table) || after[*table].0 == Dtype::U8));
    let config =
        |folder: &str| -> Value { serde_json::from_slice(&place.read(&format!("{folder}/config.json"))).unwrap() };
    let made = config("out");
    assert_eq!((&made["model_type"], &made["quantization_config"]["quant_method"]), (&json!("x"), &json!("fp8")));
    let table = &made["quantization_config"]["condprog"]["tables"][TABLES[1]];
    assert_eq!((&table["rows"], &table["dim"]), (&json!(211), &json!(64)));
    assert_eq!(place.read("out/tokenizer.json"), b"{}");

    place.ok(&["verify", "out", "--against", "in"]);
    // The same rows as from one file.
    place.ok(&["compress", "in", "-o", "one.safetensors", "--effort", "0"]);
    let rows =
        |path: &str| place.ok(&["rows", path, "--tensor", TABLES[1], "--ids", "210,0,64,-1", "--missing", "zero"]);
    assert_eq!(rows("out"), rows("one.safetensors"));

    // And back: what a program that knows nothing of table files can load.
    place.ok(&["decompress", "out", "-o", "back", "--whole", "in", "--dtype", "source"]);
    let back = tensors(&place, "back");
    let kind = |all: &BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>| {
        all.iter().map(|(name, (dtype, shape, _))| (name.clone(), *dtype, shape.clone())).collect::<Vec<_>>()
    };
    assert_eq!((kind(&back), &back["head.weight"]), (kind(&before), &before["head.weight"]));
    assert_eq!(config("back"), config("in"));
    let restored = place.ok(&["rows", "one.safetensors", "--tensor", TABLES[0], "--ids", "7"]);
    let values: Vec<f32> = restored.trim().split(['\t', ' ']).skip(1).map(|value| value.parse().unwrap()).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(back[TABLES[0]].2[7 * 256..8 * 256], bytes);

    // The input is as it was.
    assert_eq!(tensors(&place, "in"), before);

    let again = place.fails(&run);
    assert!(again.contains("already exists; use force to overwrite it"), "{again}");
    place.json(0, &[&run[..], &["--force"]].concat());
    assert_eq!(tensors(&place, "out"), after);
}

#[test]
fn a_run_that_was_cut_short_behind_its_last_table_file_goes_on() {
    let place = Place::new();
    checkpoint(&place);
    let run = ["compress", "in", "-o", "out", "--whole", "--effort", "0", "--shard-size", "4000", "--block-rows", "64"];
    let zeros = [&run[..], &["--non-finite", "zero"]].concat();
    // A row that cannot be coded stops the first run, whose marker says what it was at.
    let mut rows = gaussian(300, 64, 1).concat();
    rows[299 * 64] = f32::NAN;
    place.tensors("in/model-1.safetensors", &[(TABLES[0], &[300, 64], &rows)]);
    assert!(place.fails(&run).contains("row 299"));
    let marker = place.read("out/condprog-rewrite");
    place.json(0, &zeros);
    let whole = tensors(&place, "out");
    assert!(!place.exists("out/condprog-rewrite"));

    // The state behind the last table file.
    let cut = || {
        place.write("out/condprog-rewrite", &marker);
        fs::remove_file(place.path("out/model.safetensors.index.json")).unwrap();
    };
    cut();
    assert_eq!(place.json(0, &zeros)["resumed_rows"], 511);
    assert_eq!(tensors(&place, "out"), whole);
    // What has become of such rows is not forgotten.
    cut();
    let message = place.fails(&run);
    assert!(message.contains("what becomes of rows that cannot be coded was zeros, is an error"), "{message}");
    place.json(0, &zeros);
    assert_eq!(tensors(&place, "out"), whole);
}

/// A copy that is edited changes nothing in the checkpoint; weights are linked unless that is not wanted.
#[test]
fn what_people_edit_is_copied() {
    use std::os::unix::fs::MetadataExt;
    let place = Place::new();
    checkpoint(&place);
    let third = gaussian(3, 5, 4).concat();
    place.tensors("in/draft.safetensors", &[("draft.weight", &[3, 5], &third)]);
    let number = |name: &str| fs::metadata(place.path(name)).unwrap().ino();
    for (option, links) in [(None, true), (Some("--copy"), false)] {
        let mut run = vec!["compress", "in", "-o", "out", "--whole", "--effort", "0"];
        run.extend(option);
        let seen = place.json(0, &[&run[..], &["--dry-run"]].concat());
        assert!(!place.exists("out"), "a dry run makes nothing");
        let made = place.json(0, &run);
        let counts = if links { (1, 1) } else { (0, 2) };
        assert_eq!((&made["whole"]["linked"], &made["whole"]["copied"]), (&json!(counts.0), &json!(counts.1)));
        let planned = |key: &str| seen["whole"][key].as_array().unwrap().len();
        assert_eq!((planned("linked"), planned("copied")), counts);
        assert_eq!(number("in/draft.safetensors") == number("out/draft.safetensors"), links);
        for name in ["tokenizer.json", "config.json", "model.safetensors.index.json", "model-2.safetensors"] {
            assert_ne!(number(&format!("in/{name}")), number(&format!("out/{name}")), "{name}");
        }
        fs::remove_dir_all(place.path("out")).unwrap();
    }
    // A link to a private file elsewhere is no part of the checkpoint.
    place.write("secret", "mine");
    std::os::unix::fs::symlink("../secret", place.path("in/notes.txt")).unwrap();
    let message = place.fails(&["compress", "in", "-o", "out", "--whole", "--effort", "0"]);
    assert!(message.contains("in/notes.txt: is a link to ") && message.contains("secret"), "{message}");
    assert!(!place.exists("out"));
}

#[test]
fn what_is_wrong_with_the_rest_is_said_before_any_row_is_coded() {
    let place = Place::new();
    checkpoint(&place);
    let whole = |input: &str, output: &str| place.fails(&["compress", input, "-o", output, "--whole", "--effort", "0"]);
    assert!(whole("in", "in/out").contains("output folder is the checkpoint's or lies in it"));
    assert!(whole("in/model-1.safetensors", "out").contains("checkpoint is not a folder"));
    place.write("in/config.json", "{");
    assert!(whole("in", "out").contains("config.json is malformed"));
    assert!(!place.exists("out/condprog.safetensors.condprog-partial"));
}
