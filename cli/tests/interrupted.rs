//! Runs that end before they are done: killed, or with a full disk.
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::process::{Child, Command, Stdio};
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
    assert!(stderr.contains("hint: pass --force"), "{stderr}");

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

/// A job that is running, with its messages in a file, ended at the end of a test whatever happens.
struct Job(Child);

impl Job {
    /// Starts a command and waits until a file of its has grown beyond some bytes: by then it listens to signals.
    fn start(place: &Place, arguments: &[&str], file: &str, beyond: u64) -> Job {
        let messages = fs::File::create(place.path("stderr")).unwrap();
        let mut job = Job(place.command(arguments).stdout(Stdio::null()).stderr(messages).spawn().unwrap());
        let start = Instant::now();
        while fs::metadata(place.path(file)).map_or(0, |about| about.len()) <= beyond {
            assert!(job.0.try_wait().unwrap().is_none(), "the job ended before it could be stopped");
            assert!(start.elapsed() < Duration::from_secs(120), "no block was done in two minutes");
            sleep(Duration::from_millis(1));
        }
        job
    }

    fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.0.id().to_string()]).status().unwrap().success());
    }

    /// Its exit status, which must come soon.
    fn status(mut self) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(start.elapsed() < Duration::from_secs(120), "the job does not end");
            sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn ctrl_c_stops_between_blocks_and_the_same_command_resumes() {
    let place = Place::new();
    place.table("in.safetensors", &gaussian(8_000, 64, 1));
    let journal = "out.safetensors.condprog-journal";
    let mut blocks = 0;
    for signal in ["-INT", "-TERM"] {
        // By more than its head, and than the line end with which a run goes on.
        let before = fs::metadata(place.path(journal)).map_or(1000, |about| about.len() + 8);
        let job = Job::start(&place, &COMPRESS, journal, before);
        job.signal(signal);
        assert_eq!(job.status(), Some(130), "{signal}");
        let stderr = String::from_utf8(place.read("stderr")).unwrap();
        assert_eq!(
            stderr,
            "stopping after this step; press Ctrl-C again to stop at once\n\
             error: stopped before the end\n\
             hint: the same command resumes: what is done is kept\n"
        );
        // But for the head, a line is a block.
        let lines = String::from_utf8(place.read(journal)).unwrap();
        let now = lines.lines().filter(|line| !line.is_empty()).count() - 1;
        assert!(now > blocks, "{blocks} blocks were done before, {now} are now");
        blocks = now;
        assert!(!place.exists("out.safetensors"));
    }
    let resumed = place.json(0, &COMPRESS);
    assert!(resumed["resumed_rows"].as_u64().unwrap() >= 64 * blocks as u64);
    let mut straight = COMPRESS;
    straight[3] = "straight.safetensors";
    place.ok(&straight);
    assert!(place.read("out.safetensors") == place.read("straight.safetensors"), "the bytes differ");
}

#[test]
fn a_run_killed_at_any_moment_goes_on_to_the_same_files() {
    const FILES: usize = 3;
    const KILLS: usize = 10;
    let place = Place::new();
    // Tensors of unequal sizes, one table, over several files.
    fs::create_dir(place.path("in")).unwrap();
    let rows = [151, 289, 64, 600, 67, 363].map(|rows| gaussian(rows, 64, rows as u64).concat());
    let names: Vec<_> = (0..rows.len()).map(|tensor| format!("lookup.{tensor}.weight")).collect();
    let file = |tensor: usize| format!("model-{:05}-of-{FILES:05}.safetensors", 1 + tensor * 2 % FILES);
    for first in 0..FILES {
        let tensors = (0..rows.len()).filter(|&tensor| file(tensor) == file(first));
        let tensors: Vec<(usize, [usize; 2])> = tensors.map(|tensor| (tensor, [rows[tensor].len() / 64, 64])).collect();
        let tensors: Vec<(&str, &[usize], &[f32])> =
            tensors.iter().map(|(tensor, shape)| (&*names[*tensor], &shape[..], &*rows[*tensor])).collect();
        place.tensors(&format!("in/{}", file(first)), &tensors);
    }
    let weight_map: serde_json::Map<_, _> =
        (0..rows.len()).map(|tensor| (names[tensor].clone(), file(tensor).into())).collect();
    place.write("in/model.safetensors.index.json", serde_json::json!({ "weight_map": weight_map }).to_string());

    let outputs = |folder: &str| -> Vec<(String, Vec<u8>)> {
        let mut names: Vec<_> = fs::read_dir(place.path(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        names.iter().map(|path| (path.file_name().unwrap().to_string_lossy().into(), fs::read(path).unwrap())).collect()
    };
    let compress = |folder: &'static str| {
        let output = format!("{folder}/table.safetensors");
        let options =
            "--join-tensors lookup=lookup.*.weight --effort 0 --block-rows 64 --shard-size 7kB --rate-rows 250..400=3";
        let mut command = place.command(&["compress", "in", "-o", &output]);
        command.args(options.split(' ')).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    for folder in ["straight", "killed"] {
        fs::create_dir(place.path(folder)).unwrap();
    }
    let start = Instant::now();
    assert!(compress("straight").status().unwrap().success());
    let whole = start.elapsed();
    let straight = outputs("straight");
    assert!(straight.len() > 4, "{} files", straight.len());

    let journal = place.path("killed/table.safetensors.condprog-journal");
    let blocks = || fs::read_to_string(&journal).map_or(0, |text| text.matches("\"checksum\"").count());
    let (mut kills, mut runs, mut done) = (0, 0, 0);
    let mut moments = gaussian(1, 100 * KILLS, 7).concat().into_iter();
    while kills < KILLS {
        // In parts of the time of a whole run: four tries in five take less than a third.
        let moment = moments.next().unwrap().abs() / 4.0;
        let mut child = compress("killed").spawn().unwrap();
        sleep(whole.mul_f32(moment));
        let ended = child.try_wait().unwrap();
        if ended.is_none() {
            child.kill().unwrap();
            child.wait().unwrap();
            kills += 1;
            eprintln!("kill {kills} after {moment:.3} of a run: {done} blocks before it, {} after", blocks());
        }
        assert!(ended.is_none_or(|status| status.success()));
        // The journal goes last.
        if !journal.exists() && place.exists("killed/table.safetensors.index.json") {
            assert!(outputs("killed") == straight, "the bytes differ after {kills} kills");
            straight.iter().for_each(|(name, _)| fs::remove_file(place.path("killed").join(name)).unwrap());
            (runs, done) = (runs + 1, 0);
            continue;
        }
        assert!(blocks() >= done, "of {done} blocks {} are left", blocks());
        done = blocks();
    }
    eprintln!("{runs} runs were done between kills");
    assert!(compress("killed").status().unwrap().success());
    assert!(outputs("killed") == straight, "the bytes differ");
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
fn a_full_disk_is_named_with_what_is_needed_before_any_work() {
    let place = Place::new();
    place.table("in.safetensors", &gaussian(6_000, 64, 1));
    fs::create_dir(place.path("full")).unwrap();
    let script = "
        mount -t tmpfs -o size=64k none full
        compress() { $CONDPROG compress in.safetensors -o full/out.safetensors --effort 0 --block-rows 64; }
        compress && exit 7
        ls full/
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
        format!("error: full/out.safetensors would take {needed} bytes, but {} are free on its disk", 60 << 10)
    );
    assert!(errors[1].starts_with("error: full/more.safetensors would take 768"), "{errors:?}");
    assert!(errors[2].contains("full/rows.npy"), "{errors:?}");
    assert!(run.stdout.ends_with("\nout.safetensors\n"), "what failed leaves nothing behind: {}", run.stdout);

    place.ok(&["compress", "in.safetensors", "-o", "straight.safetensors", "--effort", "0", "--block-rows", "64"]);
    assert!(place.read("resumed.safetensors") == place.read("straight.safetensors"), "the bytes differ");
}
