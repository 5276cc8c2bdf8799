//! What the user sees when the input is not what it should be.

mod common;

use common::{Place, gaussian};

const COMPRESS: [&str; 6] = ["compress", "in.safetensors", "-o", "out.safetensors", "--effort", "0"];

/// The rows of a table after compression, as JSON numbers.
fn rows(place: &Place, ids: &str) -> Vec<Vec<f64>> {
    serde_json::from_value(place.json(0, &["rows", "out.safetensors", "--ids", ids])["rows"].clone()).unwrap()
}

#[test]
fn values_that_are_not_finite_are_named_or_zeroed() {
    for (value, text) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (f32::NEG_INFINITY, "-inf")] {
        let place = Place::new();
        let mut table = gaussian(40, 32, 1);
        table[3][5] = value;
        place.table("in.safetensors", &table);
        assert_eq!(
            place.fails(&COMPRESS),
            format!(
                "error: tensor \"t\", row 3: value in column 5 is {text}, expected a finite number\n\
                 hint: --non-finite zero makes such rows zero rows and counts them; what is done is kept\n"
            )
        );
        assert_eq!(place.files(), ["in.safetensors"], "nothing is left behind");
        let error = &place.json(1, &COMPRESS)["error"];
        assert_eq!(error["code"], "row");

        let stdout = place.ok(&[&COMPRESS[..], &["--non-finite", "zero"]].concat());
        assert!(stdout.contains("  1 row: not finite or too large, now zero\n"), "{stdout}");
        let rows = rows(&place, "3,4");
        assert!(rows[0].iter().all(|value| *value == 0.0) && rows[1].iter().all(|value| *value != 0.0));
        let verified = place.json(0, &["verify", "out.safetensors", "--against", "in.safetensors"]);
        assert_eq!((&verified["tables"][0]["non_finite_rows"], &verified["whole"]), (&1.into(), &true.into()));
    }
}

#[test]
fn zero_rows_stay_zero_and_are_counted() {
    let place = Place::new();
    let mut table = gaussian(40, 32, 1);
    table[0] = vec![0.0; 32];
    table[39] = vec![-0.0; 32];
    place.table("in.safetensors", &table);
    let stdout = place.ok(&COMPRESS);
    assert!(stdout.contains("  2 rows: zero in the source\n"), "{stdout}");
    assert!(rows(&place, "0,39").concat().iter().all(|value| *value == 0.0));
    let verified = place.json(0, &["verify", "out.safetensors", "--against", "in.safetensors"]);
    assert_eq!(verified["tables"][0]["zero_rows"], 2);
}

#[test]
fn a_table_of_zero_rows_only_is_compressed() {
    let place = Place::new();
    place.table("in.safetensors", &[vec![0.0; 32], vec![0.0; 32]]);
    place.ok(&COMPRESS);
    let stdout = place.ok(&["inspect", "out.safetensors"]);
    assert!(stdout.contains("none: all rows are zero"), "{stdout}");
    let verified = place.json(0, &["verify", "out.safetensors", "--against", "in.safetensors"]);
    let table = &verified["tables"][0];
    assert_eq!((&table["relative_mse"], &table["mean_cosine"]), (&0.0.into(), &1.0.into()));
}

#[test]
fn outliers_do_not_lose_the_row() {
    let place = Place::new();
    let mut table = gaussian(64, 256, 3);
    // One-hot, with each sign, at each end and in the middle; and rows with one or a few large values.
    for (row, (column, value)) in [(0, 1.0), (255, -1.0), (100, 1e-3), (7, -300.0)].into_iter().enumerate() {
        table[row] = vec![0.0; 256];
        table[row][column] = value;
    }
    for row in &mut table[4..8] {
        row[9] = 100.0;
    }
    for (index, row) in table.iter_mut().enumerate().skip(8).take(8) {
        for value in row.iter_mut().step_by(17 + index) {
            *value = value.powi(5);
        }
    }
    place.table("in.safetensors", &table);
    place.ok(&COMPRESS);
    let ids: Vec<_> = (0..16).map(|id| id.to_string()).collect();
    for (id, (restored, source)) in rows(&place, &ids.join(",")).iter().zip(&table).enumerate() {
        let dot: f64 = restored.iter().zip(source).map(|(r, &s)| r * f64::from(s)).sum();
        let length = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
        let (restored_length, source_length) =
            (length(&mut restored.iter().copied()), length(&mut source.iter().map(|&v| f64::from(v))));
        let cosine = dot / (restored_length * source_length);
        // Levels end at 2.9 deviations: of a row with outliers no more than this much of the direction can be kept, and
        // the search, whose noise is that of an even row, should keep most of that.
        let edge = 2.886 * source_length / 16.0;
        let clipped: Vec<_> = source.iter().map(|&value| f64::from(value).clamp(-edge, edge)).collect();
        let overlap: f64 = clipped.iter().zip(source).map(|(c, &s)| c * f64::from(s)).sum();
        let ceiling = overlap / (length(&mut clipped.iter().copied()) * source_length);
        assert!(cosine > 0.9 * ceiling, "row {id} has cosine {cosine} with its source, of {ceiling} that can be had");
        // What the default scale keeps: the projection on the source.
        let projection = dot / source_length.powi(2);
        assert!((projection - 1.0).abs() < 0.01, "row {id} has {projection} of its source");
        let largest = |values: &[f64]| (0..values.len()).max_by(|&a, &b| values[a].abs().total_cmp(&values[b].abs()));
        let source: Vec<_> = source.iter().map(|&value| f64::from(value)).collect();
        if id < 8 {
            assert_eq!(largest(restored), largest(&source), "row {id}");
        }
    }
}

#[test]
fn tiny_rows_become_zero_rows_and_are_counted() {
    let place = Place::new();
    let mut table = gaussian(40, 32, 1);
    table[7].iter_mut().for_each(|value| *value *= 1e-30);
    // Small, but not too small.
    table[8].iter_mut().for_each(|value| *value *= 1e-9);
    place.table("in.safetensors", &table);
    let stdout = place.ok(&COMPRESS);
    assert!(stdout.contains("  1 row: too small for the smallest scale, now zero\n"), "{stdout}");
    let rows = rows(&place, "7,8");
    assert!(rows[0].iter().all(|value| *value == 0.0) && rows[1].iter().all(|value| *value != 0.0));
    let verified = place.json(0, &["verify", "out.safetensors"]);
    let table = &verified["tables"][0];
    assert_eq!((&table["underflow_rows"], &table["zero_rows"]), (&1.into(), &1.into()));
}

#[test]
fn huge_rows_are_named_or_zeroed() {
    let place = Place::new();
    let mut table = gaussian(40, 32, 1);
    table[11].iter_mut().for_each(|value| *value *= 1e30);
    let (column, value) = table[11].iter().copied().enumerate().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs())).unwrap();
    place.table("in.safetensors", &table);
    let stderr = place.fails(&COMPRESS);
    assert!(stderr.starts_with("error: tensor \"t\", row 11: "), "{stderr}");
    assert!(stderr.contains(&format!("{value:e} in column {column}")), "{stderr} names {column} and {value:e}");
    assert!(stderr.contains("--non-finite zero"), "{stderr}");
    place.ok(&[&COMPRESS[..], &["--non-finite", "zero"]].concat());
    assert!(rows(&place, "11").concat().iter().all(|value| *value == 0.0));
}

#[test]
fn widths_that_the_rate_does_not_allow_are_named() {
    let place = Place::new();
    place.table("in.safetensors", &gaussian(4, 33, 1));
    assert_eq!(
        place.fails(&[&COMPRESS[..], &["--rate", "1.5"]].concat()),
        "error: tensor \"t\": row width 33 at 1.5 bits per value makes 198/4 bits, expected a whole number of bits\n\
         hint: width times --rate must be a whole number of bits, at least 16; rates go from 1 to 4 by 0.25\n"
    );
    place.table("in.safetensors", &gaussian(4, 6, 1));
    let stderr = place.fails(&COMPRESS);
    assert!(stderr.contains("makes a code of 12 bits, expected at least 16"), "{stderr}");
    assert_eq!(place.files(), ["in.safetensors"]);
}

#[test]
fn tensors_that_are_no_tables_are_named() {
    let place = Place::new();
    let three = [0.5; 24];
    place.tensors("in.safetensors", &[("cube", &[2, 3, 4], &three), ("line", &[24], &three), ("none", &[0, 32], &[])]);
    let cases = [
        ("nope", "tensor \"nope\" is not in the checkpoint; near it are \"none\""),
        ("n?pe*", "pattern \"n?pe*\" matches no tensor in the checkpoint"),
        ("cube", "tensor \"cube\" has shape [2, 3, 4], expected two dimensions: rows and values per row"),
        ("line", "tensor \"line\" has shape [24], expected two dimensions: rows and values per row"),
        ("none", "tensor \"none\" has shape [0, 32], expected at least one row of at least one value"),
    ];
    for (tensor, fault) in cases {
        let stderr = place.fails(&[&COMPRESS[..], &["--tensor", tensor]].concat());
        assert_eq!(stderr, format!("error: in.safetensors: {fault}\n"));
    }
    let stderr = place.fails(&COMPRESS);
    assert_eq!(
        stderr,
        "error: in.safetensors: checkpoint has no two-dimensional tensor of type F32, F16, BF16, F8_E4M3 or I8; it has \
         \"cube\" (F32 [2, 3, 4]), \"line\" (F32 [24]), \"none\" (F32 [0, 32])\n"
    );
    assert_eq!(place.files(), ["in.safetensors"]);
}

#[test]
fn what_can_be_compressed_is_and_the_rest_is_reported_at_the_end() {
    let place = Place::new();
    let (good, odd) = (gaussian(4, 32, 1).concat(), gaussian(4, 6, 1).concat());
    place.tensors("in.safetensors", &[("good", &[4, 32], &good), ("odd", &[4, 6], &odd)]);
    let run = place.run(&[&COMPRESS[..], &["--tensor", "nope", "--tensor", "*o*d", "--tensor", "good"]].concat());
    assert_eq!(run.code, Some(1));
    assert!(run.stdout.starts_with("good: 4 rows of 32 F32 values"), "{}", run.stdout);
    let errors: Vec<_> = run.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 2, "{}", run.stderr);
    assert!(
        errors[0].contains("\"nope\" is not in the checkpoint") && errors[1].contains("tensor \"odd\": row width 6")
    );
    let inspected = place.json(0, &["inspect", "out.safetensors"]);
    assert_eq!(inspected["tables"].as_array().unwrap().len(), 1);

    let left_out = &place.json(1, &[&COMPRESS[..], &["--force", "--tensor", "odd", "--tensor", "good"]].concat());
    assert_eq!(left_out["left_out"][0]["code"], "width");

    let stderr = place.fails(&[&COMPRESS[..], &["--force", "--tensor", "nope", "--tensor", "odd"]].concat());
    assert!(stderr.ends_with("error: none of 2 tensors can be compressed\n"), "{stderr}");
}

#[test]
fn files_that_are_no_safetensors_or_not_whole_are_named() {
    let place = Place::new();
    place.table("whole.safetensors", &gaussian(40, 32, 1));
    let whole = place.read("whole.safetensors");
    let cases: [(&str, &[u8]); 5] = [
        ("empty", b""),
        ("short", b"\x01\x02"),
        ("text", b"This is the README of a model, and no tensor file at all."),
        ("cut in the header", &whole[..20]),
        ("cut in the data", &whole[..whole.len() - 1]),
    ];
    for (what, bytes) in cases {
        place.write("in.safetensors", bytes);
        for arguments in [&COMPRESS[..], &["inspect", "in.safetensors"], &["verify", "in.safetensors"]] {
            let stderr = place.fails(arguments);
            assert!(stderr.starts_with("error: in.safetensors: "), "{what}: {stderr}");
            assert!(stderr.contains("expected") || stderr.contains("safetensors file"), "{what}: {stderr}");
            assert_eq!(stderr.lines().count(), 1, "{what}: {stderr}");
        }
        assert!(!place.exists("out.safetensors"));
    }
    // A sound file of tensors that is no table file.
    for command in ["inspect", "verify"] {
        let stderr = place.fails(&[command, "whole.safetensors"]);
        assert!(stderr.contains("not a table file"), "{stderr}");
    }
    let stderr = place.fails(&["compress", "nowhere.safetensors", "-o", "out.safetensors"]);
    assert!(stderr.starts_with("error: cannot open nowhere.safetensors: "), "{stderr}");
    let stderr = place.fails(&["compress", "whole.safetensors", "-o", "no/folder/out.safetensors"]);
    assert!(stderr.starts_with("error: cannot create no/folder/out.safetensors"), "{stderr}");
}

#[test]
fn outputs_that_exist_are_kept() {
    let place = Place::new();
    place.table("in.safetensors", &gaussian(4, 32, 1));
    place.ok(&[&COMPRESS[..], &["-q"]].concat());
    place.write("precious", "years of work");
    let rows = ["rows", "out.safetensors", "--ids", "0", "-o", "precious.npy"];
    place.write("precious.npy", "years of work");
    let cases: [&[&str]; 3] = [
        &["compress", "in.safetensors", "-o", "precious"],
        &["decompress", "out.safetensors", "-o", "precious"],
        &rows,
    ];
    for arguments in cases {
        let (stderr, name) = (place.fails(arguments), arguments[arguments.len() - 1]);
        assert_eq!(stderr, format!("error: {name} already exists; use force to overwrite it\nhint: pass --force\n"));
        assert_eq!(place.read(name), b"years of work");
        place.ok(&[arguments, &["--force"]].concat());
        assert_ne!(place.read(name), b"years of work");
        place.write(name, "years of work");
    }
    assert_eq!(place.files(), ["in.safetensors", "out.safetensors", "precious", "precious.npy"]);
}

#[test]
fn damage_is_found_and_the_rows_are_named() {
    let place = Place::new();
    place.table("in.safetensors", &gaussian(200, 32, 1));
    place.ok(&[&COMPRESS[..], &["--block-rows", "64"]].concat());
    let mut bytes = place.read("out.safetensors");
    // Records of ten bytes lie before the checksums of four blocks, at the end of the file or before its last tensor.
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let entry: serde_json::Value = serde_json::from_slice(&bytes[8..header]).unwrap();
    let start = header + entry["t"]["data_offsets"][0].as_u64().unwrap() as usize;
    bytes[start + 10 * 130] ^= 0x40;
    place.write("damaged.safetensors", &bytes);
    let run = place.run(&["verify", "damaged.safetensors"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(1), ""));
    assert!(run.stdout.contains("DAMAGE         tensor \"t\", rows 128 to 191: checksum is "), "{}", run.stdout);
    assert!(run.stdout.ends_with("damaged.safetensors: DAMAGED\n"), "{}", run.stdout);
    let verified = place.json(1, &["verify", "damaged.safetensors"]);
    assert_eq!((&verified["whole"], &verified["tables"][0]["damage"][0]["first_row"]), (&false.into(), &128.into()));

    let stderr = place.fails(&["verify", "out.safetensors", "--against", "out.safetensors"]);
    assert!(stderr.contains("expected F32, F16, BF16, F8_E4M3 or I8") || stderr.contains("was made from"), "{stderr}");
}
