//! What the user is told of a checkpoint: `condprog list`, what may have been meant, and inputs that are none.

mod common;

use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{Place, gaussian};
use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize_to_file};
use serde_json::{Value, json};

const QWEN: &str = "model.layers.1.ple.ple_embedding.ngram_embedding";
const INDEX: &str = "model.safetensors.index.json";

/// Writes tensors of any types, all of whose bytes are the same.
fn typed(place: &Place, name: &str, tensors: &[(&str, Dtype, &[usize], u8)]) {
    let bytes: Vec<_> = tensors
        .iter()
        .map(|(_, dtype, shape, byte)| vec![*byte; shape.iter().product::<usize>() * dtype.bitsize() / 8])
        .collect();
    let views = tensors
        .iter()
        .zip(&bytes)
        .map(|((name, dtype, shape, _), bytes)| (*name, TensorView::new(*dtype, shape.to_vec(), bytes).unwrap()));
    serialize_to_file(views, None, &place.path(name)).unwrap();
}

fn write_index(place: &Place, listed: &[(&str, &str)]) {
    let map: serde_json::Map<_, _> = listed.iter().map(|(tensor, file)| (tensor.to_string(), json!(file))).collect();
    place.write(INDEX, json!({ "weight_map": map }).to_string());
}

#[test]
fn each_tensor_is_listed_with_what_it_would_be_taken_for() {
    let place = Place::new();
    let tensors: [(&str, Dtype, &[usize], u8); 8] = [
        ("ids", Dtype::I64, &[4, 4], 1),
        ("q.weight", Dtype::U32, &[8, 4], 1),
        ("q.scales", Dtype::BF16, &[8, 2], 63),
        ("norm.weight", Dtype::BF16, &[32], 63),
        ("t\u{1b}[2J", Dtype::BF16, &[4, 32], 63),
        ("x.weight", Dtype::F8_E4M3, &[4, 32], 56),
        ("x.weight_scale", Dtype::F32, &[4, 1], 63),
        ("y.weight", Dtype::I8, &[4, 32], 1),
    ];
    typed(&place, "in.safetensors", &tensors);
    let text = place.ok(&["list", "in.safetensors"]);
    let lines: Vec<_> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let mut found: Vec<_> = lines[..8].to_vec();
    found.sort();
    let missing = "no table: of type I8 has no scales: expected a tensor ";
    let expected = [
        "ids I64 [4, 4] no table: has type I64, expected F32, F16, BF16, F8_E4M3 or I8",
        "norm.weight BF16 [32] no table: has shape [32], expected two dimensions: rows and values per row",
        "q.scales BF16 [8, 2] scales of q.weight",
        "q.weight U32 [8, 4] no table: of type U32 is packed or quantised in a form that is not read (with \"q.scales\"): \
         compress the checkpoint that it was quantised from",
        "t\\u{1b}[2J BF16 [4, 32] table",
        "x.weight F8_E4M3 [4, 32] table, scales x.weight_scale",
        "x.weight_scale F32 [4, 1] scales of x.weight",
    ];
    assert_eq!(found[..7], expected, "{text}");
    assert!(found[7].starts_with("y.weight I8 [4, 32]") && found[7].contains(missing), "{text}");
    let summary = "8 tensors; tables: 2, scales: 1, others of quantised tensors: 1, no tables: 4";
    assert_eq!(lines[8], summary, "{text}");

    let one = place.json(0, &["list", "in.safetensors", "--tensor", "x.*", "--tensor", "ids"]);
    let roles: Vec<_> =
        one["tensors"].as_array().unwrap().iter().map(|t| (&t["name"], &t["role"], &t["code"])).collect();
    let (x, scale, none) = (json!("x.weight"), json!("x.weight_scale"), Value::Null);
    assert!(
        roles.contains(&(&x, &json!("table"), &none)) && roles.contains(&(&scale, &json!("scales"), &none)),
        "{one}"
    );
    assert!(roles.contains(&(&json!("ids"), &json!("none"), &json!("source-dtype"))) && roles.len() == 3, "{one}");
    assert_eq!((&one["model"], &one["fault"], &one["input"]), (&none, &none, &json!("in.safetensors")));
    let table = one["tensors"].as_array().unwrap().iter().find(|tensor| tensor["name"] == x).unwrap();
    assert_eq!((&table["scale"], &table["bytes"], &table["shape"]), (&scale, &json!(128), &json!([4, 32])));
    let stderr = place.fails(&["list", "in.safetensors", "--tensor", "z*.weigh"]);
    assert!(stderr.contains("pattern \"z*.weigh\" matches no tensor in the checkpoint; near it are"), "{stderr}");
}

#[test]
fn tables_of_a_model_are_listed_and_what_compress_would_stop_at_is_told() {
    let place = Place::new();
    let rows = gaussian(4, 32, 1).concat();
    let names: Vec<_> = (0..4).map(|shard| format!("{QWEN}.shard_{shard}")).collect();
    let tensors: Vec<_> = names.iter().map(|name| (name.as_str(), &[4, 32][..], rows.as_slice())).collect();
    place.tensors("a.safetensors", &tensors);
    let listed: Vec<_> = names.iter().map(|name| (name.as_str(), "a.safetensors")).collect();
    write_index(&place, &listed);
    let list = place.json(0, &["list", INDEX]);
    assert_eq!((&list["model"], &list["tables"]), (&json!("qwen3.8"), &json!([{ "name": QWEN, "tensors": 4 }])));
    assert_eq!((&list["tensors"][3]["role"], &list["tensors"][3]["table"]), (&json!("part"), &json!(QWEN)));
    // Nothing says that four are all: that is worth a word, wherever tables are taken.
    let says = format!("no config.json says in split_ngram_parts how many tensors table {QWEN:?} has");
    assert!(list["notes"][0].as_str().unwrap().starts_with(&says), "{list}");
    let compress = ["compress", INDEX, "-o", "out.safetensors", "--effort", "0", "--force"];
    let run = place.run(&compress);
    assert_eq!((run.code, run.stderr.starts_with(&format!("note: {says}"))), (Some(0), true), "{}", run.stderr);
    assert_eq!(place.json(0, &compress)["notes"], list["notes"]);
    place.write("config.json", r#"{"text_config": {"split_ngram_parts": 4}}"#);
    place.ok(&compress);
    place.ok(&["verify", "out.safetensors", "--against", INDEX]);
    // One too few: the list is there, and says so.
    place.write("config.json", r#"{"text_config": {"split_ngram_parts": 5}}"#);
    let list = place.json(1, &["list", INDEX]);
    assert_eq!((&list["fault"]["code"], list["tensors"].as_array().unwrap().len()), (&json!("family-missing-part"), 4));
    let run = place.run(&["list", INDEX]);
    let missing = format!("\nfault: table {QWEN:?} has 4 parts, expected 5 as split_ngram_parts in config.json has it");
    assert!(run.code == Some(1) && run.stdout.contains(&missing), "{}", run.stdout);
    // A layer that only the published model has.
    place.tensors("b.safetensors", &[("layers.14.engram.embed.weight", &[4, 32], &rows)]);
    write_index(&place, &[("layers.14.engram.embed.weight", "b.safetensors")]);
    let run = place.run(&compress);
    let says = "has the table of layer 14 of deepseek-v4.1 and not that of layer 1, which the published model has";
    assert!(run.code == Some(0) && run.stderr.contains(says), "{}", run.stderr);
}

#[test]
fn several_files_are_one_checkpoint() {
    let place = Place::new();
    let (first, second) = (gaussian(6, 32, 1), gaussian(5, 32, 2));
    place.tensors("a.safetensors", &[("t.0", &[6, 32], &first.concat())]);
    place.tensors("b.safetensors", &[("t.1", &[5, 32], &second.concat())]);
    place.table("one.safetensors", &[first, second].concat());
    let options = ["--effort", "0", "--join-tensors", "t=t.*"];
    let compressed = place
        .json(0, &[&["compress", "a.safetensors", "b.safetensors", "-o", "out.safetensors"], &options[..]].concat());
    assert_eq!(compressed["input"], json!(["a.safetensors", "b.safetensors"]));
    assert_eq!(compressed["tables"][0]["rows"], 11);
    let against = ["verify", "out.safetensors", "--against", "a.safetensors", "--against", "b.safetensors"];
    assert_eq!(place.json(0, &against)["whole"], true);
    // The same rows as from one file.
    place.ok(&["compress", "one.safetensors", "-o", "one.out.safetensors", "--effort", "0"]);
    let rows = |file: &str| place.json(0, &["rows", file, "--ids", "0,5,6,10"])["rows"].clone();
    assert_eq!(rows("out.safetensors"), rows("one.out.safetensors"));
    let listed = place.ok(&["list", "a.safetensors", "b.safetensors"]);
    assert!(listed.contains("t.0  F32  [6, 32]  table") && listed.contains("t.1  F32  [5, 32]  table"), "{listed}");
    // The name that the option had before.
    let old = ["compress", "a.safetensors", "b.safetensors", "-o", "old.safetensors", "--effort", "0", "--segments"];
    place.ok(&[&old[..], &["t=t.*"]].concat());
    assert_eq!(place.read("old.safetensors"), place.read("out.safetensors"));
    let stderr = place.fails(&["compress", "a.safetensors", "a.safetensors", "-o", "x.safetensors"]);
    assert!(
        stderr.starts_with("error: a.safetensors: it is the same file as a.safetensors, expected each once"),
        "{stderr}"
    );
    let run = place.run(&["compress", "a.safetensors", "b.safetensors", "-o", "whole", "--whole"]);
    assert_eq!((run.code, run.stderr.contains("--whole takes one checkpoint, a folder, got 2 paths")), (Some(2), true));
    assert!(!place.exists("x.safetensors") && !place.exists("whole"));
}

#[test]
fn a_checkpoint_of_no_known_model_is_told_with_its_candidates() {
    let place = Place::new();
    let rows = gaussian(8, 32, 1).concat();
    let tensors: [(&str, &[usize], &[f32]); 3] =
        [("head.weight", &[8, 32], &rows), ("my.ngram_table", &[4, 32], &rows[..128]), ("norm", &[32], &rows[..32])];
    place.tensors("a.safetensors", &tensors);
    write_index(
        &place,
        &[("head.weight", "a.safetensors"), ("my.ngram_table", "a.safetensors"), ("norm", "a.safetensors")],
    );
    let run = place.run(&["compress", INDEX, "-o", "out.safetensors"]);
    let says = format!(
        "error: {INDEX} has no table of deepseek-v4.1, qwen3.8, longcat-flash, expected --tensor or --join-tensors; it has \
         \"my.ngram_table\" (F32 [4, 32]), \"head.weight\" (F32 [8, 32]); `condprog list` shows all\n"
    );
    assert_eq!((run.code, run.stderr.as_str()), (Some(2), says.as_str()));
    let stderr = place.fails(&["compress", INDEX, "-o", "out.safetensors", "--tensor", "my.ngram_tabel"]);
    assert!(stderr.ends_with("is not in the checkpoint; near it are \"my.ngram_table\"\n"), "{stderr}");
    let stderr = place.fails(&["compress", "a.safetensors", "-o", "out.safetensors", "--model", "qwen3.8"]);
    assert!(!stderr.contains("near them"), "{stderr}");
    // Types that are not read are named.
    typed(&place, "b.safetensors", &[("t", Dtype::F8_E5M2, &[4, 32], 1), ("ids", Dtype::I64, &[4], 1)]);
    let stderr = place.fails(&["compress", "b.safetensors", "-o", "out.safetensors"]);
    let says = "of type F32, F16, BF16, F8_E4M3 or I8; it has \"t\" (F8_E5M2 [4, 32]), \"ids\" (I64 [4])\n";
    assert!(stderr.ends_with(says), "{stderr}");
    let rows = [("t", Dtype::BF16, &[4, 32][..], 63), ("u", Dtype::F64, &[4, 32], 63)];
    typed(&place, "b.safetensors", &rows);
    let run = place.run(&["compress", "b.safetensors", "-o", "b.out.safetensors", "--effort", "0"]);
    let says = "note: passed over, since their types are not read: \"u\" (F64 [4, 32])\n";
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), says));
    // A hub's name is no path, and a table file no checkpoint.
    let stderr = place.fails(&["compress", "org/model", "-o", "out.safetensors"]);
    assert!(
        stderr.contains("is no file or folder here") && stderr.contains("`hf download org/model --local-dir model`")
    );
    place.ok(&["compress", "a.safetensors", "-o", "t.safetensors", "--tensor", "head.weight", "--effort", "0"]);
    let stderr = place.fails(&["compress", "t.safetensors", "-o", "out.safetensors"]);
    let says =
        "t.safetensors is a table file of condprog, compressed already; expected the checkpoint that it was made from";
    assert!(stderr.contains(says), "{stderr}");
    assert!(!place.exists("out.safetensors"));
}

/// Companions of quantised tensors, through the command.
#[test]
fn quantised_tensors_that_are_not_read_are_refused() {
    let place = Place::new();
    let tensors: [(&str, Dtype, &[usize], u8); 3] = [
        ("x.weight", Dtype::U32, &[8, 8], 1),
        ("x.scales", Dtype::BF16, &[8, 32], 63),
        ("x.biases", Dtype::BF16, &[8, 32], 63),
    ];
    typed(&place, "in.safetensors", &tensors);
    let compress = ["compress", "in.safetensors", "-o", "out.safetensors", "--effort", "0"];
    let stderr = place.fails(&compress);
    assert!(stderr.contains("tensor \"x.weight\" of type U32 is packed"), "{stderr}");
    // Beside what can be compressed it is reported, and nothing of it is taken.
    typed(&place, "in.safetensors", &[&tensors[..], &[("t", Dtype::BF16, &[4, 32], 63)]].concat());
    let done = place.json(1, &compress);
    assert_eq!((done["tables"].as_array().unwrap().len(), &done["tables"][0]["name"]), (1, &json!("t")));
    assert_eq!(
        (done["left_out"].as_array().unwrap().len(), &done["left_out"][0]["code"]),
        (1, &json!("source-packed"))
    );
    let int8: [(&str, Dtype, &[usize], u8); 3] = [
        ("x.weight", Dtype::I8, &[8, 32], 1),
        ("x.weight_scale", Dtype::BF16, &[8, 1], 63),
        ("x.weight_zero_point", Dtype::I8, &[8, 1], 60),
    ];
    typed(&place, "in.safetensors", &int8);
    let stderr = place.fails(&[&compress[..], &["--force"]].concat());
    assert!(
        stderr.contains("has zero points \"x.weight_zero_point\", of which element 0 is 60, expected zeros"),
        "{stderr}"
    );
    // Scales of rows are of one tensor.
    let two: [(&str, Dtype, &[usize], u8); 3] =
        [("a", Dtype::F8_E4M3, &[8, 32], 1), ("b", Dtype::F8_E4M3, &[8, 32], 1), ("s", Dtype::BF16, &[8, 1], 63)];
    typed(&place, "in.safetensors", &two);
    let each = ["--force", "--tensor", "a", "--tensor", "b", "--scale-tensor", "s"];
    let stderr = place.fails(&[&compress[..], &each].concat());
    assert!(stderr.contains("scales \"s\" would be those of the rows of tensor \"a\" and of tensor \"b\""), "{stderr}");
}

/// Waits for a command, and ends it when it does not end by itself.
fn ends(mut child: Child, seconds: u64) -> (Option<i32>, String) {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_secs(seconds) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it waits for what never comes");
        }
        sleep(Duration::from_millis(20));
    }
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    (child.wait().unwrap().code(), stderr)
}

#[cfg(unix)]
#[test]
fn what_is_no_file_is_refused_at_once() {
    let place = Place::new();
    place.table("in.safetensors", &gaussian(4, 32, 1));
    place.ok(&["compress", "in.safetensors", "-o", "out.safetensors", "--effort", "0"]);
    let made = std::process::Command::new("mkfifo").arg(place.path("fifo")).status().unwrap();
    assert!(made.success());
    let cases: [&[&str]; 7] = [
        &["compress", "fifo", "-o", "x"],
        &["list", "fifo"],
        &["plan", "fifo"],
        &["inspect", "fifo"],
        &["verify", "out.safetensors", "--against", "fifo"],
        &["rows", "fifo", "--ids", "1"],
        &["rows", "out.safetensors", "--ids-file", "fifo"],
    ];
    for arguments in cases {
        let child = place.command(arguments).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let (code, stderr) = ends(child, 60);
        assert_eq!(
            (code, stderr.as_str()),
            (Some(1), "error: fifo is a FIFO, expected a regular file\n"),
            "{arguments:?}"
        );
    }
    // Ids from stdin may come from anywhere.
    let mut rows = place.command(&["rows", "out.safetensors", "--ids-file", "-"]);
    let mut child = rows.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"1,2\n").unwrap();
    assert_eq!(ends(child, 60), (Some(0), String::new()));
}

/// A header with a shape of ten million numbers, and names that a terminal would obey.
#[test]
fn what_a_header_holds_does_not_flood_the_terminal() {
    let place = Place::new();
    let file = |json: String| [&(json.len() as u64).to_le_bytes(), json.as_bytes(), &[0; 256]].concat();
    let shape = format!("[{}1]", "1,".repeat(10_000_000));
    place.write("in.safetensors", file(format!(r#"{{"t":{{"dtype":"F32","shape":{shape},"data_offsets":[0,256]}}}}"#)));
    let child =
        place.command(&["list", "in.safetensors"]).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let says = "error: in.safetensors: tensor \"t\" has 10000001 dimensions, expected at most 64\n";
    assert_eq!(ends(child, 120), (Some(1), says.to_string()));
    // A table file's own names.
    let name = format!("\\u001b]0;title\\u0007{}", "n".repeat(100_000));
    place.write(
        "in.safetensors",
        file(format!(r#"{{"{name}":{{"dtype":"F32","shape":[2,32],"data_offsets":[0,256]}}}}"#)),
    );
    place.ok(&["compress", "in.safetensors", "-o", "out.safetensors", "--effort", "0", "-q"]);
    let cases: [&[&str]; 6] = [
        &["list", "in.safetensors"],
        &["inspect", "out.safetensors"],
        &["verify", "out.safetensors", "--against", "in.safetensors"],
        &["plan", "in.safetensors", "--tensor", "*"],
        &["decompress", "out.safetensors", "-o", "restored.safetensors"],
        &["compress", "in.safetensors", "-o", "again.safetensors", "--effort", "0"],
    ];
    for arguments in cases {
        let text = place.ok(arguments);
        assert!(text.contains("\\u{1b}]0;title\\u{7}nnn"), "{arguments:?}: {}", &text[..text.len().min(2000)]);
        assert!(!text.contains(|c: char| c.is_control() && c != '\n') && text.len() < 3000, "{arguments:?}");
    }
    let stderr = place.fails(&["rows", "out.safetensors", "--tensor", "t", "--ids", "1"]);
    assert!(stderr.len() < 5000 && !stderr.contains('\u{1b}'), "{}", &stderr[..stderr.len().min(2000)]);
}

#[test]
fn files_of_other_programs_are_named() {
    let place = Place::new();
    let pad = |start: &[u8]| [start, &[b'x'; 200]].concat();
    let cases: [(&str, Vec<u8>, &str); 6] = [
        ("model.safetensors", pad(b"version https://git-lfs.github.com/spec/v1\noid "), "git lfs pull"),
        ("model.gguf", pad(b"GGUF\x03\0\0\0"), "is a GGUF file"),
        ("pytorch_model.bin", pad(b"PK\x03\x04\0\0\x08\x08"), "safetensors.torch.save_file"),
        ("page.safetensors", pad(b"<!doctype html><html>"), "is a web page"),
        ("cut.safetensors", vec![0; 1 << 16], "its download was cut short"),
        ("x.safetensors.condprog-partial", vec![0; 1 << 16], "resumes when it is run again"),
    ];
    for (name, bytes, says) in cases {
        place.write(name, bytes);
        for command in [&["compress", name, "-o", "out.safetensors"][..], &["verify", name], &["list", name]] {
            let stderr = place.fails(command);
            assert!(stderr.starts_with(&format!("error: {name}: file ")) && stderr.contains(says), "{stderr}");
        }
    }
}
