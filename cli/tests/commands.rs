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
    let cases: [(&[&str], &str); 17] = [
        (&[], "Usage: condprog"),
        (&["shrink"], "unrecognized subcommand 'shrink'"),
        (&["compress", "in.safetensors"], "--output <OUT>"),
        (&["compress", "in.safetensors", "-o", "x", "--rate", "5"], "bits per value from 1 to 4 in steps of 0.25"),
        (&["compress", "in.safetensors", "-o", "x", "--effort", "5"], "0..=4"),
        (&["compress", "in.safetensors", "-o", "x", "--threads", "0"], "invalid value '0'"),
        (&["rows", "out.safetensors"], "--ids <ID,ID,...>"),
        (&["rows", "out.safetensors", "--ids", "1.5"], "invalid value '1.5'"),
        (&["rows", "out.safetensors", "--ids", "1", "--cpu-level", "mmx"], "portable, avx2, avx512"),
        (
            &["rows", "out.safetensors", "--ids", "1", "-o", "rows.csv"],
            "expected a name that ends in .npy or .safetensors",
        ),
        (&["rows", "out.safetensors", "--ids", "0..2e8"], "expected at most 100,000,000 where a range is given"),
        (&["rows", "out.safetensors", "--ids", "3..1"], "expected A..B, ids from A to before B"),
        (&["compress", "in.safetensors", "-o", "x/"], "the name of a folder; expected that of a file, or --whole"),
        (&["decompress", "out.safetensors", "-o", "x/."], "the name of a folder; expected that of a file, or --whole"),
        (&["join", "out.safetensors", "-o", "x/"], "expected the name of a file: this is the name of a folder"),
        (
            &["compress", "in.safetensors", "-o", "x", "--bits", "3"],
            "the option for bits per value is --rate, such as --rate 3",
        ),
        (&["compress", "in.safetensors", "-o", "x", "--rate-rows", "0..1.5=3"], "such as 0..1000 or 0..1e9"),
    ];
    for (arguments, says) in cases {
        let run = place.run(arguments);
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(run.stderr.contains(says), "{arguments:?}: {}", run.stderr);
    }
    assert_eq!(place.files(), ["in.safetensors", "out.safetensors"]);
}

#[test]
fn stdout_is_no_output_and_no_command_takes_it_for_a_file() {
    let place = compressed(4, 32);
    let commands: [&[&str]; 6] = [
        &["compress", "in.safetensors"],
        &["compress", "in.safetensors", "--whole"],
        &["decompress", "out.safetensors"],
        &["decompress", "out.safetensors", "--whole", "in.safetensors"],
        &["join", "out.safetensors"],
        &["rows", "out.safetensors", "--ids", "0"],
    ];
    let eval: &[&str] = &["eval", "in.safetensors", "--tensor", "t"];
    for command in commands.into_iter().chain(cfg!(feature = "eval").then_some(eval)) {
        for (output, says) in
            [("-", "stdout cannot be the output"), ("", "a value is required"), ("..", "ends in a name")]
        {
            let run = place.run(&[command, &["--force", "-o", output]].concat());
            assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{command:?} {output:?}");
            assert!(run.stderr.contains(says), "{command:?} {output:?}: {}", run.stderr);
        }
    }
    assert_eq!(place.files(), ["in.safetensors", "out.safetensors"]);
}

#[cfg(unix)]
#[test]
fn arguments_that_are_not_utf_8_are_errors() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let place = compressed(4, 32);
    let odd = OsStr::from_bytes(b"\xff1");
    let cases: [(&[&str], i32); 8] = [
        (&[], 2),
        (&["rows", "out.safetensors", "--ids"], 2),
        (&["rows", "out.safetensors", "--ids", "0", "-o"], 2),
        (&["rows", "out.safetensors", "--ids-file"], 1),
        (&["rows", "--ids", "0"], 1),
        (&["compress", "in.safetensors", "-o", "x", "--tensor"], 2),
        (&["compress", "in.safetensors", "-o", "x", "--rate-rows"], 2),
        (&["plan", "--dim", "8", "--source-bytes", "8", "--rows"], 2),
    ];
    for (arguments, code) in cases {
        let run = common::Run::from(place.command(arguments).arg(odd).output().unwrap());
        assert_eq!(run.code, Some(code), "{arguments:?}: {}", run.stderr);
        assert!(run.stderr.starts_with("error: "), "{arguments:?}: {}", run.stderr);
    }
    let ids = place.path("").join(OsStr::from_bytes(b"\xff.npy"));
    std::fs::write(&ids, b"PK").unwrap();
    let run = place.command(&["rows", "out.safetensors", "--ids-file"]).arg(&ids).output().unwrap();
    let stderr = String::from_utf8(run.stderr).unwrap();
    assert!(stderr.contains("is not a whole .npy file"), "{stderr}");
}

#[test]
fn without_a_terminal_progress_is_lines() {
    let place = Place::new();
    place.table("in.safetensors", &gaussian(300, 32, 5));
    let compress = ["compress", "in.safetensors", "-o", "out.safetensors", "--effort", "0", "--block-rows", "64"];
    let run = |arguments: &[&str]| {
        common::Run::from(place.command(arguments).env("CONDPROG_PROGRESS_SECONDS", "0").output().unwrap())
    };
    let coded = run(&[&compress[..], &["--json"]].concat());
    assert_eq!(coded.code, Some(0));
    let lines: Vec<_> = coded.stderr.lines().collect();
    let [first, .., before_last, last] = lines.as_slice() else { panic!("few lines: {lines:?}") };
    assert!(first.starts_with("encoding: ") && first.ends_with(" %)"), "no rate is known yet: {first}");
    assert!(before_last.contains(" of 300 rows (") && before_last.ends_with(" s left"), "{before_last}");
    assert!(last.starts_with("encoding: 300 of 300 rows (100.0 %), "), "{last}");
    assert!(last.contains(" rows/s, took "), "{last}");

    let verify = run(&["verify", "out.safetensors", "--against", "in.safetensors"]);
    for stage in ["checking: 300 of 300 rows (100.0 %)", "comparing: 300 of 300 rows (100.0 %)"] {
        assert!(verify.stderr.contains(stage), "{}", verify.stderr);
    }
    let quiet = run(&[&compress[..], &["--force", "--quiet"]].concat());
    assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(0), ""));
}

#[test]
fn segments_that_are_alike_are_one_line() {
    const PARTS: usize = 12;
    let place = Place::new();
    let names: Vec<_> = (0..PARTS).map(|part| format!("lookup.{part}.weight")).collect();
    let rows: Vec<_> = (0..PARTS).map(|part| gaussian(10 + part % 2, 32, part as u64).concat()).collect();
    let shapes: Vec<_> = rows.iter().map(|rows| [rows.len() / 32, 32]).collect();
    let tensors: Vec<(&str, &[usize], &[f32])> =
        (0..PARTS).map(|part| (&*names[part], &shapes[part][..], &*rows[part])).collect();
    place.tensors("in.safetensors", &tensors);
    // The rates change in the middle of a tensor.
    let options =
        ["--segments", "t=lookup.*.weight", "--rate-rows", "50..60=3", "--effort", "1", "--shard-size", "1kB"];
    place.ok(&[&["compress", "in.safetensors", "-o", "out.safetensors"], &options[..]].concat());
    let index = "out.safetensors.index.json";
    let listed = place.json(0, &["inspect", index]);
    let segments = listed["tables"][0]["segments"].as_array().unwrap();
    assert!(segments.len() > PARTS, "{} segments", segments.len());
    assert_eq!(&listed, &place.json(0, &["inspect", index, "--all"]));

    let (short, all) = (place.ok(&["inspect", index]), place.ok(&["inspect", index, "--all"]));
    let lines = |text: &str, start: &str| text.lines().filter(|line| line.trim_start().starts_with(start)).count();
    assert_eq!(lines(&all, "segment "), segments.len());
    assert_eq!((lines(&all, "segments "), lines(&short, "rate ")), (0, 3), "{short}");
    // Two bits, three, two.
    let rate = |segment: &serde_json::Value| segment["rate"].as_f64().unwrap();
    for group in segments.chunk_by(|one, next| rate(one) == rate(next)) {
        let number = |segment: &serde_json::Value, key: &str| segment[key].as_u64().unwrap();
        let (first, last) = (&group[0], &group[group.len() - 1]);
        let rows = format!(
            "rows {} to {}, ",
            number(first, "first_row"),
            number(last, "first_row") + number(last, "rows") - 1
        );
        let line = short.lines().find(|line| line.contains(&rows)).unwrap_or_else(|| panic!("{rows} in {short}"));
        if group.len() > 1 {
            assert!(line.contains(&format!("{rows}{} segments of ", group.len())), "{line}");
            assert!(line.ends_with(&format!("tensors {} to {}", first["tensor"], last["tensor"])), "{line}");
        }
    }
    // Each row has a variant.
    let counts = short
        .lines()
        .filter(|line| line.ends_with(" %"))
        .map(|line| line.split_whitespace().nth(1).unwrap().replace(',', "").parse::<u64>().unwrap());
    assert_eq!(counts.sum::<u64>(), 126);
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
    let mut npy = b"\x93NUMPY\x01\x00\x37\x00{'descr': '<i8', 'fortran_order': False, 'shape': (4,)}".to_vec();
    assert_eq!(npy.len(), 10 + 0x37);
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
    assert!(stderr.contains("table \"c\" is not in the file, expected one of \"a\" and \"b\""), "{stderr}");
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
