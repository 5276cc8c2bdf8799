//! `condprog rows`: ids in every form, arrays of every shape, and outputs that must not be replaced.

mod common;

use std::fs;
use std::io::Write;
use std::process::Stdio;

use common::{Place, Run, gaussian};
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};
use safetensors::{SafeTensors, tensor};

const ROWS: [&str; 2] = ["rows", "out.safetensors"];

fn compressed() -> Place {
    let place = Place::new();
    place.table("in.safetensors", &gaussian(100, 32, 5));
    place.ok(&["compress", "in.safetensors", "-o", "out.safetensors", "--effort", "0"]);
    place
}

/// A file in NumPy's format.
fn npy(descr: &str, order: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), data].concat()
}

/// What NumPy's format says of an array, and its elements.
fn read_npy(file: &[u8]) -> (String, Vec<u8>) {
    let end = 10 + usize::from(u16::from_le_bytes([file[8], file[9]]));
    (String::from_utf8(file[10..end].to_vec()).unwrap().trim_end().into(), file[end..].to_vec())
}

fn little(ids: &[i64]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.to_le_bytes()).collect()
}

fn with_stdin(place: &Place, arguments: &[&str], input: &[u8]) -> Run {
    let mut command = place.command(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Less than a pipe holds.
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap().into()
}

fn safetensors_ids(place: &Place, name: &str, shape: &[usize], ids: &[i64]) {
    let bytes = little(ids);
    let view = TensorView::new(Dtype::I64, shape.to_vec(), &bytes).unwrap();
    serialize_to_file([("ids", view)], None, &place.path(name)).unwrap();
}

#[test]
fn ids_come_in_every_form() {
    let place = compressed();
    let ask = |how: &[&str]| place.ok(&[&ROWS[..], how].concat());
    let expected = ask(&["--ids", "5,6,7,-1,99", "--missing", "zero"]);
    let lists: [&[&str]; 5] = [
        &["--ids", "5 6 7 -1 99"],
        &["--ids", " 5..8,-1..0,\t99, "],
        &["--ids", "5", "--ids", "6..8", "--ids=-1", "--ids", "99"],
        &["--ids", "5..8 -1", "--ids", "9_9..1e2"],
        &["--ids=5..8,-1,99"],
    ];
    for list in lists {
        assert_eq!(ask(&[list, &["--missing", "zero"]].concat()), expected, "{list:?}");
    }
    let ids = [5i64, 6, 7, -1, 99];
    let big: Vec<u8> = ids.iter().flat_map(|id| id.to_be_bytes()).collect();
    let bytes: Vec<u8> = ids.iter().map(|&id| id as i8 as u8).collect();
    safetensors_ids(&place, "ids.safetensors", &[5], &ids);
    let tensors = place.read("ids.safetensors");
    let files: [(&str, &[u8]); 7] = [
        ("ids.txt", b"5 6,7\r\n\r\n-1\n99"),
        ("ids", b"\xef\xbb\xbf5..8\n-1..0 99..100\n"),
        ("big.npy", &npy(">i8", "False", "(5,)", &big)),
        ("bytes.npy", &npy("|i1", "False", "(5,)", &bytes)),
        // Known by its first bytes.
        ("npy.bin", &npy("<i8", "False", "(5,)", &little(&ids))),
        ("square.npy", &npy("<i8", "True", "(5, 1)", &little(&ids))),
        ("tensors.bin", &tensors),
    ];
    for (name, bytes) in files {
        place.write(name, bytes);
        assert_eq!(ask(&["--ids-file", name, "--missing", "zero"]), expected, "{name}");
        let run = with_stdin(&place, &[&ROWS[..], &["--ids-file", "-", "--missing", "zero"]].concat(), bytes);
        assert_eq!((run.code, run.stdout.as_str()), (Some(0), expected.as_str()), "{name} on stdin: {}", run.stderr);
    }
    let bound = ["--ids", "0..101"];
    assert!(place.fails(&[&ROWS[..], &bound].concat()).contains("id 100 at position 100 names no row"));
}

#[test]
fn files_of_ids_that_are_not_whole_are_refused() {
    let place = compressed();
    let ids = little(&[5, 6, 7, 8]);
    let faults: [(&[u8], &str); 6] = [
        (&npy("<i8", "False", "(5,)", &ids), "has 32 bytes of elements, expected 40 for an array of shape [5]"),
        (&npy("<i8", "False", "(3,)", &ids), "has 32 bytes of elements, expected 24 for an array of shape [3]"),
        (&npy("<i8", "False", "(2305843009213693952, 8)", &[]), "expected 2^64 or more"),
        (&npy("<f8", "False", "(4,)", &ids), "has elements of type \"<f8\", expected integers"),
        (
            &npy("<i8", "False", &format!("({})", "1, ".repeat(32)), &little(&[5])),
            "has ids of 32 dimensions, expected at most 31",
        ),
        (&npy("<i8", "False", &"(".repeat(60_000), &ids), "a header that is not that of an array of numbers"),
    ];
    for (bytes, says) in faults {
        place.write("ids.npy", bytes);
        let stderr = place.fails(&[&ROWS[..], &["--ids-file", "ids.npy", "-o", "rows.npy"]].concat());
        assert!(stderr.starts_with("error: ids.npy: ") && stderr.contains(says), "{stderr}");
        assert!(stderr.len() < 400, "{stderr}");
    }
    let texts: [(&[u8], &str); 4] = [
        (b"5\n7..7", "line 2 has \"7..7\", expected A..B, ids from A to before B"),
        (b"0..1e12", "which makes 1,000,000,000,000 ids, expected at most 100,000,000"),
        (b"\xff\xfe5\x00", "is text in UTF-16, expected UTF-8"),
        (b"\x80", "is not text"),
    ];
    for (bytes, says) in texts {
        place.write("ids.txt", bytes);
        let stderr = place.fails(&[&ROWS[..], &["--ids-file", "ids.txt"]].concat());
        assert!(stderr.starts_with("error: ids.txt: ") && stderr.contains(says), "{stderr}");
    }
    assert!(!place.exists("rows.npy"));
}

#[test]
fn rows_have_the_shape_of_their_ids() {
    let place = compressed();
    let save = |ids: &[&str], output: &str| place.json(0, &[&ROWS[..], ids, &["-o", output, "--force"]].concat());
    save(&["--ids", "0..6"], "line.npy");
    let (header, line) = read_npy(&place.read("line.npy"));
    assert_eq!(header, "{'descr': '<f4', 'fortran_order': False, 'shape': (6, 32), }");
    let ids = little(&[0, 1, 2, 3, 4, 5]);
    // The same elements in column order.
    let columns = little(&[0, 3, 1, 4, 2, 5]);
    safetensors_ids(&place, "rows.ids.safetensors", &[2, 3], &[0, 1, 2, 3, 4, 5]);
    place.write("rows.npy", npy("<i8", "False", "(2, 3)", &ids));
    place.write("columns.npy", npy("<i8", "True", "(2, 3)", &columns));
    for file in ["rows.npy", "columns.npy", "rows.ids.safetensors"] {
        let saved = save(&["--ids-file", file], "square.npy");
        assert_eq!(saved["shape"], serde_json::json!([2, 3, 32]), "{file}");
        assert_eq!(saved["ids"], serde_json::json!([0, 1, 2, 3, 4, 5]), "{file}");
        let (header, square) = read_npy(&place.read("square.npy"));
        assert_eq!(header, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 32), }", "{file}");
        assert!(square == line, "{file}");
    }
    place.write("one.npy", npy("<i8", "False", "()", &ids[..8]));
    save(&["--ids-file", "one.npy"], "one-row.npy");
    let (header, one) = read_npy(&place.read("one-row.npy"));
    assert_eq!(header, "{'descr': '<f4', 'fortran_order': False, 'shape': (32,), }");
    assert!(one == line[..128]);
    place.write("none.npy", npy("<i8", "False", "(0, 3)", &[]));
    save(&["--ids-file", "none.npy"], "none-rows.npy");
    let (header, none) = read_npy(&place.read("none-rows.npy"));
    assert_eq!((header.contains("'shape': (0, 3, 32), "), none.len()), (true, 0), "{header}");
    let text = place.ok(&[&ROWS[..], &["--ids-file", "rows.npy", "-o", "again.npy"]].concat());
    assert_eq!(text, "wrote again.npy: 6 rows of 32 f32 values, an array of shape [2, 3, 32]\n");
}

#[test]
fn rows_are_written_as_safetensors_with_their_own_type() {
    let place = compressed();
    place.write("ids.npy", npy("<i4", "False", "(2, 2)", &[5, 0, 0, 0, 0, 0, 0, 0, 99, 0, 0, 0, 5, 0, 0, 0]));
    for (name, dtype) in [("bf16", tensor::Dtype::BF16), ("f16", tensor::Dtype::F16), ("f32", tensor::Dtype::F32)] {
        let ask = [&ROWS[..], &["--ids-file", "ids.npy", "--dtype", name, "--force"]].concat();
        place.ok(&[&ask[..], &["-o", "rows.npy"]].concat());
        place.ok(&[&ask[..], &["-o", "rows.safetensors"]].concat());
        let file = place.read("rows.safetensors");
        let tensors = SafeTensors::deserialize(&file).unwrap();
        assert_eq!(tensors.names(), ["rows"]);
        let rows = tensors.tensor("rows").unwrap();
        assert_eq!((rows.dtype(), rows.shape()), (dtype, &[2, 2, 32][..]));
        assert!(rows.data() == read_npy(&place.read("rows.npy")).1, "{name}");
    }
}

#[cfg(unix)]
#[test]
fn an_output_never_replaces_what_it_is_made_from_nor_what_is_no_file() {
    use std::os::unix::fs::{FileTypeExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    let place = compressed();
    let table = place.read("out.safetensors");
    let ids = npy("<i8", "False", "(2,)", &little(&[5, 7]));
    place.write("ids.npy", &ids);
    fs::create_dir(place.path("folder.npy")).unwrap();
    fs::hard_link(place.path("ids.npy"), place.path("hard.npy")).unwrap();
    symlink("ids.npy", place.path("soft.npy")).unwrap();
    symlink("nowhere", place.path("dangling.npy")).unwrap();
    place.write("other", "years of work");
    symlink("other", place.path("link.npy")).unwrap();
    let _socket = UnixListener::bind(place.path("socket.npy")).unwrap();
    assert!(Command::new("mkfifo").arg(place.path("pipe.npy")).status().unwrap().success());
    let before = place.files();
    let cases = [
        ("ids.npy", "is both input and output"),
        ("./ids.npy", "is both input and output"),
        ("folder.npy/../ids.npy", "is both input and output"),
        ("hard.npy", "is both input and output"),
        ("soft.npy", "is both input and output"),
        ("out.safetensors", "is both input and output"),
        ("folder.npy", "is a folder, expected the name of a file"),
        ("link.npy", "is a symbolic link, expected the name of a file"),
        ("dangling.npy", "is a symbolic link, expected the name of a file"),
        ("socket.npy", "is a socket, expected the name of a file"),
        ("pipe.npy", "is a FIFO, expected the name of a file"),
    ];
    for (output, says) in cases {
        for force in [&[][..], &["--force"]] {
            let stderr = place.fails(&[&ROWS[..], &["--ids-file", "ids.npy", "-o", output], force].concat());
            let stderr = stderr.replace("error: output ", "error: ");
            assert!(stderr.starts_with(&format!("error: {output} {says}")), "{output}: {stderr}");
        }
    }
    assert_eq!(place.files(), before);
    assert!(place.read("ids.npy") == ids && place.read("out.safetensors") == table);
    assert_eq!(place.read("other"), b"years of work");
    let kind = |name: &str| fs::symlink_metadata(place.path(name)).unwrap().file_type();
    assert!(kind("pipe.npy").is_fifo() && kind("socket.npy").is_socket() && kind("link.npy").is_symlink());
    assert_eq!(fs::metadata(place.path("hard.npy")).unwrap().len(), ids.len() as u64);

    // Of several files each is an input, and the index, and the folder's only table.
    fs::create_dir(place.path("sharded")).unwrap();
    let shards = ["compress", "in.safetensors", "-o", "sharded/t.safetensors", "--effort", "0", "--block-rows", "64"];
    place.ok(&[&shards[..], &["--shard-size", "1kB"]].concat());
    for input in ["sharded", "sharded/t.safetensors.index.json"] {
        for output in ["sharded/t-00001-of-00002.safetensors", "sharded/t-00002-of-00002.safetensors"] {
            let shard = place.read(output);
            let stderr = place.fails(&["rows", input, "--ids", "0", "-o", output, "--force"]);
            assert!(stderr.contains("is both input and output"), "{stderr}");
            assert!(place.read(output) == shard);
        }
    }
}
