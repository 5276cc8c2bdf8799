//! What each command does on sound input, as text and as JSON, and its exit status.

mod common;

use common::{Place, gaussian};
use safetensors::SafeTensors;

fn compressed(rows: usize, dim: usize) -> Place {
    let place = Place::new();
    place.table("in.safetensors", &gaussian(rows, dim, 5));
    place.ok(&["compress", "in.safetensors", "-o", "out.safetensors", "--effort", "0"]);
    place
}

#[test]
fn help_is_as_reviewed() {
    let place = Place::new();
    for (command, golden) in [
        ("help", include_str!("help/condprog.txt")),
        ("compress", include_str!("help/compress.txt")),
        ("plan", include_str!("help/plan.txt")),
    ] {
        // A build without reports has no such command.
        let kept = golden.split_inclusive('\n').filter(|line| cfg!(feature = "eval") || !line.starts_with("  eval "));
        let golden: String = kept.collect();
        let arguments: &[&str] = if command == "help" { &["--help"] } else { &[command, "--help"] };
        let mut run = place.command(arguments);
        let stdout = String::from_utf8(run.env("COLUMNS", "100").output().unwrap().stdout).unwrap();
        assert!(stdout == golden, "tests/help has another text; condprog {arguments:?} now says:\n{stdout}");
    }
}

#[test]
fn wrong_usage_exits_2_and_says_what_is_right() {
    let place = compressed(4, 32);
    let cases: [(&[&str], &str); 10] = [
        (&[], "Usage: condprog"),
        (&["shrink"], "unrecognized subcommand 'shrink'"),
        (&["compress", "in.safetensors"], "--output <OUT>"),
        (&["compress", "in.safetensors", "-o", "x", "--rate", "5"], "bits per value from 1 to 4 in steps of 0.25"),
        (&["compress", "in.safetensors", "-o", "x", "--effort", "5"], "0..=4"),
        (&["compress", "in.safetensors", "-o", "x", "--threads", "0"], "invalid value '0'"),
        (&["rows", "out.safetensors"], "--ids <ID,ID,...>"),
        (&["rows", "out.safetensors", "--ids", "1.5"], "invalid value '1.5'"),
        (&["rows", "out.safetensors", "--ids", "1", "--cpu-level", "mmx"], "portable, avx2, avx512"),
        (&["rows", "out.safetensors", "--ids", "1", "-o", "rows.csv"], "expected a name that ends in .npy"),
    ];
    for (arguments, says) in cases {
        let run = place.run(arguments);
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(run.stderr.contains(says), "{arguments:?}: {}", run.stderr);
    }
    assert_eq!(place.files(), ["in.safetensors", "out.safetensors"]);
}

#[test]
fn the_whole_way_gives_tables_that_other_programs_read() {
    let place = Place::new();
    let table = gaussian(300, 256, 5);
    let other = gaussian(10, 64, 6).concat();
    place.tensors("in.safetensors", &[("a.weight", &[300, 256], &table.concat()), ("b", &[10, 64], &other)]);
    let compressed = place.json(0, &["compress", "in.safetensors", "-o", "out.safetensors", "--effort", "0"]);
    assert_eq!(compressed["file_bytes"], place.read("out.safetensors").len());
    assert_eq!(compressed["tables"][0]["record_bytes"], 66);

    let verified = place.json(0, &["verify", "out.safetensors", "--against", "in.safetensors"]);
    let table = &verified["tables"][0];
    let keys = [
        "name",
        "rows",
        "dim",
        "rate",
        "record_bytes",
        "source_bytes",
        "table_bytes",
        "relative_mse",
        "mean_cosine",
        "norm_ratio",
        "worst_row",
        "worst_relative_mse",
        "zero_rows",
    ];
    for key in keys {
        assert!(!table[key].is_null(), "{key}");
    }
    let mse = table["relative_mse"].as_f64().unwrap();
    assert!((0.06..0.075).contains(&mse), "relative MSE {mse}");
    assert_eq!((&table["source_bytes"], &table["table_bytes"]), (&(300 * 1024).into(), &(300 * 66).into()));

    let inspected = place.json(0, &["inspect", "out.safetensors"]);
    let variants = inspected["tables"][0]["segments"][0]["variants"].as_array().unwrap();
    assert_eq!((variants.len(), &variants[0]), (16, &300.into()));
    assert!(inspected["tables"][0]["segments"][0]["scales"]["max"].as_f64().unwrap() > 0.0);

    for (dtype, bytes) in [("bf16", 2), ("f16", 2), ("f32", 4), ("source", 4)] {
        let name = format!("{dtype}.safetensors");
        let restored = place.json(0, &["decompress", "out.safetensors", "-o", &name, "--dtype", dtype]);
        assert_eq!(restored["dtype"], dtype);
        let file = place.read(&name);
        let tensors = SafeTensors::deserialize(&file).unwrap();
        let (a, b) = (tensors.tensor("a.weight").unwrap(), tensors.tensor("b").unwrap());
        assert_eq!((a.shape(), b.shape()), (&[300, 256][..], &[10, 64][..]));
        assert_eq!(a.data().len(), 300 * 256 * bytes);
        // The same rows come out of `rows`, and of every backend.
        if dtype != "source" {
            let ask = ["rows", "out.safetensors", "--tensor", "a.weight", "--ids", "7,0,299", "--dtype", dtype];
            place.ok(&[&ask[..], &["-o", "rows.npy", "--force"]].concat());
            let expected: Vec<u8> =
                [7, 0, 299].iter().flat_map(|row| &a.data()[row * 256 * bytes..][..256 * bytes]).copied().collect();
            assert!(place.read("rows.npy").ends_with(&expected), "{dtype}");
            let level = ["-o", "rows.npy", "--force", "--cpu-level", "portable"];
            place.ok(&[&ask[..], &level].concat());
            assert!(place.read("rows.npy").ends_with(&expected), "{dtype}");
        }
    }
}

#[test]
fn rows_come_in_request_order_from_any_source_of_ids() {
    let place = compressed(100, 32);
    let ask = |how: &[&str]| place.ok(&[&["rows", "out.safetensors"], how].concat());
    let expected = ask(&["--ids", "5,7,5,99"]);
    let lines: Vec<_> = expected.lines().collect();
    assert_eq!(lines.len(), 4);
    assert!(lines[0].starts_with("5\t") && lines[1].starts_with("7\t") && lines[0] == lines[2]);
    assert_eq!(lines[3].split('\t').nth(1).unwrap().split(' ').count(), 32);

    place.write("ids.txt", "5, 7\n5\n99\n");
    let mut npy = b"\x93NUMPY\x01\x00\x36\x00{'descr': '<i8', 'fortran_order': False, 'shape': (4,)}".to_vec();
    npy.truncate(10 + 0x36);
    npy.extend([5i64, 7, 5, 99].iter().flat_map(|id| id.to_le_bytes()));
    place.write("ids.npy", npy);
    for file in ["ids.txt", "ids.npy"] {
        assert_eq!(ask(&["--ids-file", file]), expected, "{file}");
    }

    let stderr = place.fails(&["rows", "out.safetensors", "--ids", "5,7,-1"]);
    assert_eq!(
        stderr,
        "error: id -1 at position 2 names no row, expected 0 to 99\n\
         hint: --missing zero gives a row of zeros for such ids\n"
    );
    let zeros = ask(&["--ids=-1,100,9223372036854775807", "--missing", "zero"]);
    for (line, id) in zeros.lines().zip(["-1", "100", "9223372036854775807"]) {
        assert_eq!(line, format!("{id}\t{}", vec!["0.0"; 32].join(" ")));
    }
    place.write("none.txt", "");
    assert_eq!(ask(&["--ids-file", "none.txt"]), "");
    place.write("words.txt", "5\nseven");
    let stderr = place.fails(&["rows", "out.safetensors", "--ids-file", "words.txt"]);
    assert_eq!(stderr, "error: words.txt: line 2 has \"seven\", expected an id: a whole number\n");
}

#[test]
fn a_table_is_chosen_by_name_where_there_are_several() {
    let place = Place::new();
    let (a, b) = (gaussian(3, 32, 1).concat(), gaussian(3, 64, 2).concat());
    place.tensors("in.safetensors", &[("a", &[3, 32], &a), ("b", &[3, 64], &b)]);
    place.ok(&["compress", "in.safetensors", "-o", "out.safetensors", "--effort", "0"]);
    let run = place.run(&["rows", "out.safetensors", "--ids", "0"]);
    assert_eq!(run.code, Some(2));
    assert_eq!(run.stderr, "error: out.safetensors has 2 tables, expected --tensor with one of [\"a\", \"b\"]\n");
    assert_eq!(place.json(0, &["rows", "out.safetensors", "--ids", "0", "--tensor", "b"])["dim"], 64);
    let stderr = place.fails(&["rows", "out.safetensors", "--ids", "0", "--tensor", "c"]);
    assert!(stderr.contains("table \"c\" is not in the file, expected one of [\"a\", \"b\"]"), "{stderr}");
}

#[test]
fn a_device_gives_the_cpu_s_rows_or_says_why_not() {
    let place = compressed(100, 32);
    let help = place.ok(&["rows", "--help"]);
    for backend in ["wgpu", "cuda"].into_iter().filter(|name| help.contains(&format!("- {name}:"))) {
        let ask = ["rows", "out.safetensors", "--ids", "5,-1,7", "--missing", "zero", "--dtype", "f16"];
        let run = place.run(&[&ask[..], &["--backend", backend]].concat());
        match run.code {
            Some(0) => assert_eq!(run.stdout, place.ok(&ask), "{backend}"),
            code => {
                assert_eq!((code, run.stdout.as_str()), (Some(1), ""));
                assert!(run.stderr.contains(&format!("error: backend {backend}: no ")), "{}", run.stderr);
                eprintln!("{backend}: no device here");
            }
        }
    }
}

#[test]
fn a_level_that_is_not_there_is_named() {
    let place = compressed(4, 32);
    let run = place
        .command(&["verify", "out.safetensors", "--against", "in.safetensors"])
        .env("CONDPROG_CPU_LEVEL", "mmx")
        .output();
    let stderr = String::from_utf8(run.unwrap().stderr).unwrap();
    assert!(
        stderr.starts_with("error: CPU level is \"mmx\", expected one that this machine has: portable"),
        "{stderr}"
    );
}

#[test]
fn the_demo_is_exact_on_every_backend_and_beats_rounding() {
    let place = Place::new();
    let demo = place.json(0, &["demo"]);
    assert_eq!((&demo["exact"], &demo["whole"]), (&true.into(), &true.into()));
    let methods = demo["methods"].as_array().unwrap();
    let mse = |name: &str| {
        let method = methods.iter().find(|method| method["method"].as_str().unwrap().starts_with(name)).unwrap();
        (method["relative_mse"].as_f64().unwrap(), method["bytes_per_row"].as_u64().unwrap())
    };
    let (ours, nearest) = (mse("Conditional Program"), mse("round to nearest, 2 bits"));
    assert!(ours.0 < 0.07 && ours.0 < nearest.0 / 4.0 && ours.1 < nearest.1, "{ours:?} {nearest:?}");
    let backends = demo["backends"].as_array().unwrap();
    assert!(backends.iter().any(|backend| backend["backend"] == "cpu/portable" && backend["verdict"] == "exact"));
    assert!(backends.iter().all(|backend| backend["verdict"] != "differs"), "{backends:?}");
    assert_eq!(place.files(), Vec::<String>::new(), "it leaves nothing behind");

    let text = place.ok(&["demo", "--backend", "cpu", "--cpu-level", "portable"]);
    assert!(text.contains("Conditional Program, 2 bits") && text.contains("on cpu/portable"), "{text}");
}

#[test]
fn bench_measures_what_it_says() {
    let place = Place::new();
    let short = ["bench", "--backend", "cpu", "--rows", "1000", "--ids", "300", "--dim", "16", "--seconds", "0"];
    let bench = place.json(0, &[&short[..], &["--threads", "2", "--rate", "1.5"]].concat());
    let (encode, decode) = (bench["encode"].as_array().unwrap(), bench["decode"].as_array().unwrap());
    assert_eq!((encode.len(), decode.len(), &bench["record_bytes"]), (6, 4, &5.into()));
    for one in encode.iter().chain(decode) {
        assert!(one["rows_per_second"].as_f64().unwrap() > 0.0, "{one}");
    }
    let text = place.ok(&short);
    assert!(text.contains("decode to bf16") && text.contains("Ids are random"), "{text}");
}
