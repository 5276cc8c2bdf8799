//! `condprog plan`: the published figures, and requests that make no sense.

mod common;

use common::Place;
use serde_json::Value;

const DEEPSEEK: [&str; 3] = ["plan", "--model", "deepseek-v4.1"];

#[test]
fn published_figures_are_reproduced() {
    let place = Place::new();
    let text =
        place.ok(&[&DEEPSEEK[..], &["--gpus", "4", "--memory", "141GB", "--kv-bytes-per-token", "68KiB"]].concat());
    let expected = "\
layers.1.engram.embed.weight: 384,006,168 rows of 256 values, 101.38 GB to 25.34 GB
  2 bits per value, 264 to 66 bytes per row
layers.14.engram.embed.weight: 384,016,682 rows of 256 values, 101.38 GB to 25.35 GB
  2 bits per value, 264 to 66 bytes per row

              before      after             freed       GPU memory  KV tokens
split over 4 GPUs
  per GPU   50.69 GB   12.67 GB          38.02 GB    36.0 to 9.0 %    545,972
  in all   202.76 GB   50.69 GB         152.07 GB                   2,183,888
a copy on each of 4 GPUs
  per GPU  202.76 GB   50.69 GB  too large before  143.8 to 36.0 %
  in all   811.03 GB  202.76 GB  too large before
one copy in host memory
  in all   202.76 GB   50.69 GB         152.07 GB

1 GB is 10^9 bytes; a GPU has 141.00 GB; a token's keys and values take 69,632 bytes
";
    assert!(text == expected, "condprog plan now says:\n{text}");

    let eight = place.ok(&[&DEEPSEEK[..], &["--gpus", "8"]].concat());
    assert!(eight.contains("\n  per GPU   25.34 GB    6.34 GB   19.01 GB\n"), "{eight}");
}

#[test]
fn json_has_bytes() {
    let place = Place::new();
    let plan = |arguments: &[&str]| place.json(0, &[&["plan"], arguments].concat());
    let all = plan(&["--model", "deepseek-v4.1", "--gpus", "8", "--memory", "141GB", "--kv-bytes-per-token", "1000"]);
    assert_eq!((&all["source_bytes"], &all["table_bytes"]), (&202_758_032_400u64.into(), &50_689_508_100u64.into()));
    let split = &all["places"][0];
    assert_eq!((&split["place"], &split["per_gpu"]["freed_bytes"]), (&"split".into(), &19_008_565_537u64.into()));
    assert_eq!(split["per_gpu"]["kv_tokens"], 19_008_565);
    let copies = &all["places"][1];
    // What never fitted cannot be freed.
    assert_eq!((&copies["place"], &copies["per_gpu"]["freed_bytes"]), (&"copies".into(), &Value::Null));
    assert_eq!((&copies["in_all"]["kv_tokens"], &copies["per_gpu"]["kv_tokens"]), (&Value::Null, &Value::Null));
    assert!(copies["per_gpu"]["memory_share_after"].as_f64().unwrap() < 1.0);

    // The two releases of Qwen's, and a table that no model is known of, which is the same.
    let fp8 = plan(&["--model", "qwen3.8", "--source-bytes", "160"]);
    let other = plan(&["--rows", "320001536", "--dim", "160", "--source-bytes", "160"]);
    assert_eq!((&fp8["places"], &fp8["model"]), (&other["places"], &"qwen3.8".into()));
    assert_eq!((&other["source_bytes"], &other["table_bytes"]), (&51_200_245_760u64.into(), &13_440_064_512u64.into()));
    assert_eq!(plan(&["--model", "qwen3.8"])["source_bytes"], 102_400_491_520u64);

    let rated = plan(&["--model", "longcat-flash", "--rate", "1.5", "--rate-order", "2=3"]);
    let segments = rated["tables"][0]["segments"].as_array().unwrap();
    let pairs: Vec<_> = segments.iter().map(|s| (s["rows"].as_u64().unwrap(), s["rate"].as_f64().unwrap())).collect();
    assert_eq!(pairs, [(40_894_480, 3.0), (81_789_056, 1.5)]);
    assert_eq!((&segments[1]["first_row"], &segments[1]["record_bytes"]), (&40_894_480.into(), &50.into()));
    assert_eq!(rated["table_bytes"], 40_894_480u64 * 98 + 81_789_056 * 50);
}

#[test]
fn checkpoints_are_planned_from_their_headers() {
    let place = Place::new();
    // The first 24 primes above 100, eight to an order.
    let (rows, orders) = (3828, [928, 1278, 1622]);
    let table = vec![0.0; rows * 32];
    let tensors: [(&str, &[usize], &[f32]); 2] =
        [("layers.3.engram.embed.weight", &[rows, 32], &table), ("head.weight", &[4, 32], &table[..128])];
    place.tensors("in.safetensors", &tensors);
    let plan = place.json(0, &["plan", "in.safetensors", "--rate", "2", "--rate-order", "2=3,4=1"]);
    assert_eq!((&plan["model"], &plan["source_bytes"]), (&"deepseek-v4.1".into(), &(rows * 128).into()));
    let segments = plan["tables"][0]["segments"].as_array().unwrap();
    let rows_of: Vec<_> = segments.iter().map(|segment| segment["rows"].as_u64().unwrap()).collect();
    assert_eq!((rows_of, plan["table_bytes"].as_u64().unwrap()), (orders.to_vec(), 928 * 14 + 1278 * 10 + 1622 * 6));

    // Tables of no family are named.
    let plan = place.json(0, &["plan", "in.safetensors", "--tensor", "head.*"]);
    assert_eq!((&plan["model"], &plan["source_bytes"]), (&Value::Null, &512.into()));
    let run = place.run(&["plan", "in.safetensors", "--tensor", "head.*", "--rate-order", "2=3"]);
    assert_eq!((run.code, run.stderr.contains("--rate-order is for tables of a known model")), (Some(2), true));
    let stderr = place.fails(&["plan", "in.safetensors", "--model", "qwen3.8"]);
    assert!(stderr.starts_with("error: no tensor is a table of qwen3.8, expected names such as "), "{stderr}");
    let stderr = place.fails(&["plan", "nowhere"]);
    assert!(stderr.starts_with("error: cannot open nowhere: "), "{stderr}");

    // Of a whole checkpoint of another model, not every matrix is a table.
    place.tensors("other.safetensors", &[("head.weight", &[4, 32], &table[..128])]);
    place.write("model.safetensors.index.json", r#"{"weight_map": {"head.weight": "other.safetensors"}}"#);
    let run = place.run(&["plan", "model.safetensors.index.json"]);
    let says = "model.safetensors.index.json has no table of deepseek-v4.1, qwen3.8, longcat-flash, expected --tensor";
    assert_eq!((run.code, run.stderr.contains(says)), (Some(2), true), "{}", run.stderr);
    place.ok(&["plan", "model.safetensors.index.json", "--tensor", "head.weight"]);

    // Rows that are not those of heads: the whole table can be planned, its orders cannot.
    place.tensors("in.safetensors", &[("layers.3.engram.embed.weight", &[100, 32], &table[..3200])]);
    place.ok(&["plan", "in.safetensors"]);
    let stderr = place.fails(&["plan", "in.safetensors", "--rate-order", "2=3"]);
    let says = "has 100 rows: 0 runs of 24 consecutive primes have this sum, expected one, so where its orders begin is \
                not known\nhint: compress --rate-rows";
    assert!(stderr.contains(says), "{stderr}");
}

#[test]
fn tensors_that_are_one_table_and_rates_of_rows_are_planned() {
    let place = Place::new();
    let parts: [(&str, &[usize], &[f32]); 3] = [
        ("memory.0.weight", &[100, 32], &[0.5; 3200]),
        ("memory.1.weight", &[50, 32], &[0.5; 1600]),
        ("head.weight", &[4, 32], &[0.5; 128]),
    ];
    place.tensors("in.safetensors", &parts);
    let joined = ["plan", "in.safetensors", "--join-tensors", "memory=memory.*.weight"];
    let plan = place.json(0, &joined);
    assert_eq!((plan["tables"].as_array().unwrap().len(), &plan["tables"][0]["name"]), (1, &"memory".into()));
    assert_eq!((&plan["source_bytes"], &plan["table_bytes"]), (&(150 * 128).into(), &(150 * 10).into()));

    // Beside others, and with the rates that compress would give.
    let all = [&joined[..], &["--tensor", "head.weight", "--rate-rows", "memory:90..1_10=3"]].concat();
    let plan = place.json(0, &all);
    let segments = plan["tables"][0]["segments"].as_array().unwrap();
    let rows: Vec<_> = segments.iter().map(|s| (s["rows"].as_u64().unwrap(), s["rate"].as_f64().unwrap())).collect();
    assert_eq!(rows, [(90, 2.0), (20, 3.0), (40, 2.0)]);
    assert_eq!(plan["table_bytes"], 130 * 10 + 20 * 14 + 4 * 10);

    // Without a checkpoint, of a model and of a number of rows.
    let name = "layers.1.engram.embed.weight";
    let plan = place.json(0, &[&DEEPSEEK[..], &["--rate-rows", &format!("{name}:0..1e6=4")]].concat());
    assert_eq!(plan["tables"][0]["segments"][1]["rows"], 383_006_168);
    assert_eq!(plan["tables"][1]["segments"].as_array().unwrap().len(), 1);
    let plan =
        place.json(0, &["plan", "--rows", "1e9", "--dim", "64", "--source-bytes", "128", "--rate-rows", "0..1e6=4"]);
    assert_eq!(plan["table_bytes"], 999_000_000u64 * 18 + 1_000_000 * 34);
    assert_eq!(
        place.json(0, &["plan", "--rows", "1_000", "--dim", "64", "--source-bytes", "128"])["table_bytes"],
        18_000
    );
}

#[test]
fn what_cannot_be_planned_is_named() {
    let place = Place::new();
    let wrong: [(&[&str], &str); 19] = [
        (&[], "<CHECKPOINT>"),
        (&["in", "--source-bytes", "160"], "cannot be used with"),
        (&["--tensor", "t", "--model", "qwen3.8"], "cannot be used with"),
        (&["--model", "gpt"], "deepseek-v4.1, qwen3.8, longcat-flash"),
        (&["--model", "qwen3.8", "--rows", "5"], "cannot be used with"),
        (&["--rows", "5", "--dim", "160"], "--source-bytes <N>"),
        (&["--model", "qwen3.8", "--gpus", "0"], "invalid value '0'"),
        (&["--model", "qwen3.8", "--memory", "141G"], "expected a size of at least 1 byte"),
        (&["--model", "qwen3.8", "--kv-bytes-per-token", "0"], "expected a size of at least 1 byte"),
        (&["--model", "qwen3.8", "--rate-order", "2"], "expected an order and a rate, such as 2=3"),
        (&["--model", "qwen3.8", "--rate-order", "2=5"], "\"5\" is not a rate: expected bits per value"),
        (&["--model", "qwen3.8", "--rate-order", "2=3,2=4"], "--rate-order names 2-grams twice"),
        (&["--model", "qwen3.8", "--bits", "3"], "the option for bits per value is --rate, such as --rate 3"),
        (&["--rows", "10M", "--dim", "64", "--source-bytes", "128"], "such as 1000, 1_000_000 or 1e9"),
        (&["--rows", "1.5", "--dim", "64", "--source-bytes", "128"], "such as 1000, 1_000_000 or 1e9"),
        (&["--model", "qwen3.8", "--rate-rows", "0..9=3", "--rate-order", "2=3"], "cannot be used with"),
        (&["--model", "qwen3.8", "--rate-rows", "nope:0..9=3"], "--rate-rows names table \"nope\", expected one of ["),
        (&["--model", "qwen3.8", "--join-tensors", "t=*"], "cannot be used with"),
        (&["in", "--join-tensors", "t"], "expected a name and a pattern"),
    ];
    for (arguments, says) in wrong {
        let run = place.run(&[&["plan"], arguments].concat());
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(run.stderr.contains(says), "{arguments:?}: {}", run.stderr);
    }
    let rows = ["plan", "--rows", "18446744073709551615", "--source-bytes", "9", "--dim"];
    let run = place.run(&[&rows[..], &["64", "--rate-order", "2=3"]].concat());
    assert_eq!((run.code, run.stderr.contains("--rate-order is for tables of a known model")), (Some(2), true));
    let cases: [(&[&str], &str); 3] = [
        (
            &["plan", "--model", "qwen3.8", "--rate-order", "4=2"],
            "error: tables of qwen3.8 have no rows of 4-grams, expected an order among [2, 3]\n",
        ),
        (&[&rows[..], &["64"]].concat(), "error: table \"table\" would take 2^64 bytes or more\n"),
        (
            &[&rows[..], &["7"]].concat(),
            "error: tensor \"table\": row width 7 at 2 bits per value makes a code of 14 bits, expected at least 16\n\
             hint: width times --rate must be a whole number of bits, at least 16; rates go from 1 to 4 by 0.25\n",
        ),
    ];
    for (arguments, says) in cases {
        assert_eq!(place.fails(arguments), says);
    }
}
