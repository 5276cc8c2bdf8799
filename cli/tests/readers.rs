//! Commands that read: sources that are not those of the table, files that end or change under them, few open files,
//! names that are not UTF-8.

mod common;

use common::{Place, gaussian};

const COMPRESS: [&str; 6] = ["compress", "in.safetensors", "-o", "out.safetensors", "--effort", "0"];
const AGAINST: [&str; 4] = ["verify", "out.safetensors", "--against", "in.safetensors"];

#[test]
fn a_source_that_is_not_the_tables_is_a_mismatch() {
    let place = Place::new();
    let table = gaussian(600, 64, 1);
    place.table("in.safetensors", &table);
    place.ok(&COMPRESS);
    let stdout = place.ok(&AGAINST);
    // The first and the last row, and one of each of 256 parts of the table.
    assert!(stdout.contains("\n  coded again    257 rows of 600\n  mismatches     0 rows\n"), "{stdout}");
    assert!(stdout.ends_with("out.safetensors: sound\n"), "{stdout}");
    let stdout = place.ok(&[&AGAINST[..], &["--sample", "all"]].concat());
    assert!(stdout.contains("\n  coded again    600 rows of 600\n"), "{stdout}");

    let mut swapped = table.clone();
    swapped.swap(100, 500);
    place.table("in.safetensors", &swapped);
    let run = place.run(&AGAINST);
    assert_eq!((run.code, run.stderr.as_str()), (Some(1), ""));
    assert!(run.stdout.contains("\n  mismatches     2 rows\n  checksums      all right\n"), "{}", run.stdout);
    for row in [100, 500] {
        let line = format!(
            "\n  MISMATCH       tensor \"t\", rows {row} to {row}: 1 rows are not those of the source; the first is row \
             {row}, with relative MSE "
        );
        assert!(run.stdout.contains(&line), "{}", run.stdout);
    }
    assert!(run.stdout.ends_with("out.safetensors: NOT WHAT THIS SOURCE GIVES\n"), "{}", run.stdout);
    let found = place.json(1, &AGAINST);
    assert_eq!((&found["whole"], &found["tables"][0]["mismatched_rows"]), (&false.into(), &2.into()));
    assert_eq!(found["tables"][0]["damage"][1]["fault"]["kind"], "source-rows");

    place.table("in.safetensors", &gaussian(600, 64, 2));
    let run = place.run(&AGAINST);
    assert_eq!(run.code, Some(1));
    let line = "\n  MISMATCH       tensor \"t\", rows 0 to 599: mean cosine with the source is ";
    assert!(run.stdout.contains(line), "{}", run.stdout);

    // A limit of one's own.
    place.table("in.safetensors", &table);
    place.ok(&[&AGAINST[..], &["--max-error", "0.09"]].concat());
    let run = place.run(&[&AGAINST[..], &["--max-error", "0.01"]].concat());
    assert_eq!(run.code, Some(1));
    assert!(run.stdout.contains("expected at most 0.01\n"), "{}", run.stdout);
    let wrong: [&[&str]; 4] =
        [&["--max-error", "0"], &["--max-error", "NaN"], &["--sample", "-1"], &["--sample", "some"]];
    for options in wrong {
        assert_eq!(place.run(&[&AGAINST[..], options].concat()).code, Some(2), "{options:?}");
    }
    assert_eq!(place.run(&["verify", "out.safetensors", "--sample", "all"]).code, Some(2));
}

#[test]
fn a_number_of_threads_that_is_a_mistake_is_refused_at_once() {
    let place = Place::new();
    place.table("in.safetensors", &gaussian(4, 32, 1));
    place.ok(&COMPRESS);
    let commands: [&[&str]; 4] =
        [&COMPRESS, &["verify", "out.safetensors"], &["decompress", "out.safetensors", "-o", "back"], &["bench"]];
    for command in commands {
        for threads in ["20000", "1025", "0", "-1", "many"] {
            let run = place.run(&[command, &[&*format!("--threads={threads}")]].concat());
            assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{command:?} {threads}");
            assert!(run.stderr.contains(": expected 1 to 1024\n"), "{}", run.stderr);
        }
    }
    place.ok(&["verify", "out.safetensors", "--threads", "3"]);
}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::{OsStr, OsString};
    use std::fs::{self, OpenOptions};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::*;

    /// Runs a command in which `@` is a name that is not UTF-8.
    fn run(place: &Place, arguments: &[&str]) -> std::process::Output {
        let name = |argument: &str| -> OsString {
            let pieces: Vec<&[u8]> = argument.split('@').map(str::as_bytes).collect();
            OsStr::from_bytes(&pieces.join(&b"caf\xe9"[..])).into()
        };
        place.command(&[]).args(arguments.iter().map(|argument| name(argument))).output().unwrap()
    }

    #[test]
    fn names_that_are_not_utf_8_are_read_written_and_told() {
        let place = Place::new();
        place.table("in.safetensors", &gaussian(64, 32, 1));
        fs::rename(place.path("in.safetensors"), place.path("").join(OsStr::from_bytes(b"caf\xe9.safetensors")))
            .unwrap();
        let commands: [&[&str]; 11] = [
            &["compress", "@.safetensors", "-o", "@.out.safetensors", "--effort", "0"],
            &["compress", "@.safetensors", "-o", "@.0", "--effort", "0", "--part", "0/2", "--block-rows", "32"],
            &["compress", "@.safetensors", "-o", "@.1", "--effort", "0", "--part", "1/2", "--block-rows", "32"],
            &["join", "@.0", "@.1", "-o", "@.joined"],
            &["verify", "@.out.safetensors", "--against", "@.safetensors"],
            &["verify", "@.joined"],
            &["inspect", "@.out.safetensors"],
            &["rows", "@.out.safetensors", "--ids", "1,2"],
            &["rows", "@.out.safetensors", "--ids", "1,2", "-o", "@.npy"],
            &["decompress", "@.out.safetensors", "-o", "@.back.safetensors"],
            &["plan", "@.safetensors", "--tensor", "t"],
        ];
        for json in [false, true] {
            for command in commands {
                let forced = json && command.contains(&"-o");
                let options = [(json, "--json"), (forced, "--force")];
                let options: Vec<_> = options.iter().filter(|(on, _)| *on).map(|(_, option)| *option).collect();
                let output = run(&place, &[command, &options].concat());
                let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
                assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""), "{command:?} {options:?}");
                let stdout = String::from_utf8(output.stdout).unwrap();
                if json {
                    let value: serde_json::Value = serde_json::from_str(&stdout).unwrap();
                    assert_eq!(value["command"], command[0]);
                    assert!(command[0] == "plan" || stdout.contains("caf\u{fffd}"), "{stdout}");
                }
            }
        }
    }

    #[cfg(feature = "eval")]
    #[test]
    fn a_report_goes_to_a_folder_whose_name_is_not_utf_8() {
        let place = Place::new();
        place.table("in.safetensors", &gaussian(600, 32, 1));
        fs::rename(place.path("in.safetensors"), place.path("").join(OsStr::from_bytes(b"caf\xe9.safetensors")))
            .unwrap();
        let eval = ["eval", "@.safetensors", "--tensor", "t", "-o", "@", "--method", "mxfp4", "--json"];
        let output = run(&place, &eval);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8(output.stdout).unwrap().contains("caf\u{fffd}"));
    }

    #[test]
    fn a_table_that_is_cut_under_a_command_ends_it_with_no_signal() {
        let place = Place::new();
        place.table("in.safetensors", &gaussian(4000, 32, 1));
        place.ok(&COMPRESS);
        let whole = place.read("out.safetensors");
        let ids: Vec<String> = (0..4000).rev().map(|id| id.to_string()).collect();
        place.write("ids", ids.join("\n"));
        let commands: [&[&str]; 5] = [
            &["rows", "out.safetensors", "--ids-file", "ids"],
            &["verify", "out.safetensors"],
            &AGAINST,
            &["inspect", "out.safetensors"],
            &["decompress", "out.safetensors", "-o", "back.safetensors", "--force"],
        ];
        // Whenever it is cut, before, while or after it is read: what the command says of it is its own matter.
        for command in commands {
            for wait in 0..6 {
                place.write("out.safetensors", &whole);
                let mut run = place.command(command).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
                std::thread::sleep(Duration::from_millis(3 * wait));
                let file = OpenOptions::new().write(true).open(place.path("out.safetensors")).unwrap();
                file.set_len(whole.len() as u64 / 2).unwrap();
                let status = run.wait().unwrap();
                assert_eq!(status.signal(), None, "{command:?} after {wait}");
                assert!(matches!(status.code(), Some(0 | 1)), "{command:?}: {status}");
            }
        }
    }

    /// A command whose process may have no more than 64 files open.
    fn with_few_files(place: &Place, arguments: &[&str]) -> std::process::Output {
        let command = place.command(arguments);
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\""]).arg(command.get_program()).args(command.get_args());
        shell.current_dir(place.path("")).output().unwrap()
    }

    #[test]
    fn a_checkpoint_and_a_table_of_300_files_are_read_with_64_open_files() {
        let place = Place::new();
        let row = |number: u64| gaussian(2, 32, number).concat();
        let mut map = serde_json::Map::new();
        for number in 0..300 {
            let (file, tensor) = (format!("model-{number}.safetensors"), format!("shard_{number}"));
            place.tensors(&file, &[(&tensor, &[2, 32], &row(number))]);
            map.insert(tensor, file.into());
        }
        let index = serde_json::json!({ "metadata": {}, "weight_map": map });
        place.write("model.safetensors.index.json", index.to_string());
        let ok = |arguments: &[&str]| {
            let output = with_few_files(&place, arguments);
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""), "{arguments:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let compress = ["compress", ".", "--segments", "t=shard_*", "--effort", "0"];
        ok(&[&compress[..], &["-o", "one.cp"]].concat());
        let verified = ok(&["verify", "one.cp", "--against", "."]);
        assert!(verified.contains("600 rows of 32 values") && verified.ends_with("one.cp: sound\n"), "{verified}");

        // Written with as many files as the system allows, read with few.
        place.ok(&[&compress[..], &["-o", "cut.safetensors", "--shard-size", "36B"]].concat());
        let cut = "cut.safetensors.index.json";
        let listed: serde_json::Value = serde_json::from_slice(&place.read(cut)).unwrap();
        let mut files: Vec<_> =
            listed["weight_map"].as_object().unwrap().values().map(|v| v.as_str().unwrap()).collect();
        files.sort_unstable();
        files.dedup();
        assert!(files.len() >= 300, "{} files", files.len());
        ok(&["verify", cut, "--against", "."]);
        ok(&["inspect", cut]);
        ok(&["decompress", cut, "-o", "back.safetensors"]);
        let ids: Vec<String> = (0..600).rev().map(|id| id.to_string()).collect();
        place.write("ids", ids.join("\n"));
        assert_eq!(ok(&["rows", cut, "--ids-file", "ids"]), ok(&["rows", "one.cp", "--ids-file", "ids"]));
    }
}
