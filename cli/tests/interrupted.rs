//! Runs that end before they are done: killed, or with a full disk.
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{Place, Run, gaussian};

const COMPRESS: [&str; 8] =
    ["compress", "in.safetensors", "-o", "out.safetensors", "--effort", "0", "--block-rows", "64"];

/// Kills a run with SIGKILL once its journal has grown, and gives the files it left.
fn kill_in_the_middle(place: &Place) -> Vec<String> {
    let journal = place.path("out.safetensors.condprog-journal");
    let length = || fs::metadata(&journal).map_or(0, |about| about.len());
    let before = length();
    let mut child = place.command(&COMPRESS).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let (start, mut first) = (Instant::now(), None);
    // The first sight of the journal may be of its head alone: blocks are done when it has grown since.
    while first.is_none_or(|first| length() <= first) {
        assert!(child.try_wait().unwrap().is_none(), "the run ended before it could be killed");
        assert!(start.elapsed() < Duration::from_secs(120), "no block was done in two minutes");
        if first.is_none() && length() > before {
            first = Some(length());
        }
        sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    place.files()
}

#[test]
fn a_killed_run_leaves_nothing_that_looks_finished_and_resumes_to_the_same_bytes() {
    let place = Place::new();
    place.table("in.safetensors", &gaussian(6_000, 64, 1));
    for _ in 0..2 {
        let left = kill_in_the_middle(&place);
        assert_eq!(
            left,
            ["in.safetensors", "out.safetensors.condprog-journal", "out.safetensors.condprog-partial"],
            "no output yet, and what is needed to go on"
        );
        for command in ["inspect", "verify"] {
            place.fails(&[command, "out.safetensors"]);
            place.fails(&[command, "out.safetensors.condprog-partial"]);
        }
    }
    // Another command must not take the unfinished output over by mistake.
    let stderr = place.fails(&["compress", "in.safetensors", "-o", "out.safetensors", "--effort", "1"]);
    assert!(stderr.contains("is the unfinished output of another run"), "{stderr}");
    assert!(stderr.contains("hint: the option is --force"), "{stderr}");

    let resumed = place.json(0, &COMPRESS);
    let rows = resumed["resumed_rows"].as_u64().unwrap();
    assert!((64..6_000).contains(&rows), "{rows} rows were done before");
    assert_eq!(place.files(), ["in.safetensors", "out.safetensors"]);

    let mut straight = COMPRESS;
    straight[3] = "straight.safetensors";
    place.ok(&straight);
    assert!(place.read("out.safetensors") == place.read("straight.safetensors"), "the bytes differ");
    place.ok(&["verify", "out.safetensors", "--against", "in.safetensors"]);
}

/// Runs a script in a mount namespace of its own, in which it may mount: `None` where the system does not permit it.
fn with_mounts(place: &Place, script: &str) -> Option<Run> {
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-euc", script]).current_dir(place.path(""));
        command.env("CONDPROG", env!("CARGO_BIN_EXE_condprog"));
        command.output().ok().map(Run::from)
    };
    if unshare("mount -t tmpfs none full").is_none_or(|run| run.code != Some(0)) {
        eprintln!("skipped: this system does not permit a mount of its own");
        return None;
    }
    unshare(script)
}

#[test]
fn a_full_disk_is_named_with_what_is_needed_and_the_run_goes_on_when_there_is_room() {
    let place = Place::new();
    place.table("in.safetensors", &gaussian(6_000, 64, 1));
    fs::create_dir(place.path("full")).unwrap();
    let script = "
        mount -t tmpfs -o size=64k none full
        compress() { $CONDPROG compress in.safetensors -o full/out.safetensors --effort 0 --block-rows 64; }
        compress && exit 7
        mount -o remount,size=8m full
        compress
        cp full/out.safetensors resumed.safetensors
        mount -o remount,size=600k full
        $CONDPROG decompress resumed.safetensors -o full/more.safetensors && exit 8
        $CONDPROG rows resumed.safetensors --ids-file ids.txt -o full/rows.npy && exit 9
        ls full/
    ";
    let ids: Vec<_> = (0..6_000).map(|id| id.to_string()).collect();
    place.write("ids.txt", ids.join("\n"));
    let Some(run) = with_mounts(&place, script) else { return };
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    let errors: Vec<_> = run.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    let needed = place.read("resumed.safetensors").len();
    assert_eq!(
        errors[0],
        format!(
            "error: cannot write full/out.safetensors.condprog-partial: no space left; {needed} bytes are needed in all"
        )
    );
    assert!(run.stderr.contains("hint: make room, then give the same command again: it goes on\n"), "{}", run.stderr);
    assert!(run.stdout.contains("rows were done before"), "{}", run.stdout);
    assert!(errors[1].contains("full/more.safetensors.condprog-partial: no space left"), "{errors:?}");
    assert!(errors[2].contains("full/rows.npy"), "{errors:?}");
    assert!(run.stdout.ends_with("\nout.safetensors\n"), "what failed leaves nothing behind: {}", run.stdout);

    place.ok(&["compress", "in.safetensors", "-o", "straight.safetensors", "--effort", "0", "--block-rows", "64"]);
    assert!(place.read("resumed.safetensors") == place.read("straight.safetensors"), "the bytes differ");
}
