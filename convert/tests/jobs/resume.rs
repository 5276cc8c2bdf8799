//! Runs that end early: what they leave, and how the next run goes on.

use std::env;
use std::fs;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::common::{Cpu, Folder, compress, f32_table, options, rows};
use condprog_convert::{CompressOptions, CompressReport, Error, NonFinite, Stage, Update, compress_file};
use condprog_core::Rate;
use condprog_core::encoder::ScaleRule;
use condprog_table::{SegmentPlan, Tables};
use proptest::prelude::*;

const ROWS: usize = 30;
const DIM: usize = 16;
const BLOCK: u32 = 4;

fn input(folder: &Folder) -> std::path::PathBuf {
    let path = folder.path("in");
    f32_table(&path, "t", DIM, &rows(ROWS, DIM, 1));
    path
}

/// Runs until `rows` rows of the encoding are reported done, then stops.
fn stopped_after(rows: u64, input: &Path, output: &Path, options: &CompressOptions) -> Result<CompressReport, Error> {
    let stop = |update: &Update<'_>| match update {
        Update { stage: Stage::Encode, rows_done, .. } if *rows_done >= rows => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    compress_file(input, &[], output, options, &Cpu, &stop)
}

fn uninterrupted(input: &Path, options: &CompressOptions) -> Vec<u8> {
    let folder = Folder::new();
    compress(input, &folder.path("out"), options).unwrap();
    fs::read(folder.path("out")).unwrap()
}

const LEFT: [&str; 3] = ["in", "out.condprog-journal", "out.condprog-partial"];

#[test]
fn a_stopped_run_leaves_nothing_that_looks_finished_and_resumes() {
    for scale in ScaleRule::ALL {
        let folder = Folder::new();
        let (input, output) = (input(&folder), folder.path("out"));
        let options = CompressOptions { scale, ..options(BLOCK) };
        let whole = uninterrupted(&input, &options);
        for rows in [4, 8, 12] {
            let result = stopped_after(rows, &input, &output, &options);
            assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
            assert_eq!(folder.list(), LEFT);
            assert!(Tables::open(folder.path("out.condprog-partial")).is_err());
        }
        let seen = Mutex::new(Vec::new());
        let record = |update: &Update<'_>| {
            seen.lock().unwrap().push((update.stage, update.rows_done, update.rows_total));
            ControlFlow::Continue(())
        };
        let report = compress_file(&input, &[], &output, &options, &Cpu, &record).unwrap();
        // What the stopped runs had done is counted as done, and not done again; nor is the scale measured again.
        assert_eq!(report.resumed_rows, 12);
        let expected: Vec<_> = [16, 20, 24, 28, 30].map(|done| (Stage::Encode, done, 30)).into();
        assert_eq!(*seen.lock().unwrap(), expected);
        assert_eq!(fs::read(&output).unwrap(), whole);
        assert_eq!(folder.list(), ["in", "out"]);
    }
}

#[test]
fn a_run_that_was_stopped_before_its_last_step_resumes() {
    let folder = Folder::new();
    let (input, output) = (input(&folder), folder.path("out"));
    assert!(stopped_after(30, &input, &output, &options(BLOCK)).is_err());
    assert_eq!(folder.list(), LEFT);
    assert_eq!(compress(&input, &output, &options(BLOCK)).unwrap().resumed_rows, 30);
    assert_eq!(fs::read(output).unwrap(), uninterrupted(&input, &options(BLOCK)));
}

#[test]
fn other_parameters_are_refused_and_force_starts_over() {
    let folder = Folder::new();
    let (input, output) = (input(&folder), folder.path("out"));
    stopped_after(8, &input, &output, &options(BLOCK)).unwrap_err();
    let halves = [Rate::TWO, Rate::MIN].map(|rate| SegmentPlan { rows: 15, rate }).to_vec();
    let base = || options(BLOCK);
    let others = [
        (CompressOptions { effort: 1, ..base() }, "the effort was \"t\": 0, is \"t\": 1"),
        (
            CompressOptions { scale: ScaleRule::Global(()), ..base() },
            "the scale rule was \"t\": projection, is \"t\": global",
        ),
        (
            CompressOptions { rate: Rate::MIN, ..base() },
            "the rate was \"t\": 30 rows at 2 bits in blocks of 4, is \"t\": 30 rows at 1 bits in blocks of 4",
        ),
        (options(5), "in blocks of 4, is \"t\": 30 rows at 2 bits in blocks of 5"),
        (CompressOptions { segments: [("t".into(), halves)].into(), ..base() }, "is \"t\": 15 rows at 2 bits"),
    ];
    for (options, says) in others {
        let error = compress(&input, &output, &options).unwrap_err();
        assert!(matches!(error, Error::OtherRun { .. }) && error.to_string().contains(says), "{error}");
        assert_eq!(folder.list(), LEFT);
    }
    // The parameters that do not change the file may change.
    let threads = NonZeroUsize::new(3);
    let zero = NonFinite::Zero;
    let report = compress(&input, &output, &CompressOptions { threads, non_finite: zero, ..base() }).unwrap();
    assert_eq!(report.resumed_rows, 8);

    stopped_after(8, &input, &output, &CompressOptions { force: true, ..base() }).unwrap_err();
    let forced = CompressOptions { force: true, effort: 1, ..base() };
    assert_eq!(compress(&input, &output, &forced).unwrap().resumed_rows, 0);
    assert_eq!(fs::read(&output).unwrap(), uninterrupted(&input, &CompressOptions { effort: 1, ..base() }));
}

#[test]
fn a_source_that_changed_is_refused() {
    let folder = Folder::new();
    let (input, output) = (input(&folder), folder.path("out"));
    stopped_after(8, &input, &output, &options(BLOCK)).unwrap_err();
    let left = fs::read(folder.path("out.condprog-partial")).unwrap();
    let modified = fs::metadata(&input).unwrap().modified().unwrap();
    let sound = fs::read(&input).unwrap();
    // Whatever its time of change says, and however little of it has changed.
    for (byte, time) in [(0, modified), (0, modified + SECOND), (29 * DIM * 4 + 3, modified)] {
        let mut changed = sound.clone();
        let place = changed.len() - ROWS * DIM * 4 + byte;
        changed[place] ^= 1;
        fs::write(&input, changed).unwrap();
        set_modified(&input, time);
        let error = compress(&input, &output, &options(BLOCK)).unwrap_err();
        assert!(error.to_string().contains("the source was "), "{error}");
        assert_eq!(fs::read(folder.path("out.condprog-partial")).unwrap(), left);
    }
    // A copy is the same source, whenever it was made and whatever it is called.
    fs::write(folder.path("copy"), sound).unwrap();
    set_modified(&folder.path("copy"), modified + SECOND);
    assert_eq!(compress(&folder.path("copy"), &output, &options(BLOCK)).unwrap().resumed_rows, 8);
}

const SECOND: std::time::Duration = std::time::Duration::from_secs(1);

fn set_modified(path: &Path, time: std::time::SystemTime) {
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// Rewritten in place, which an open file does not notice by itself.
#[test]
fn a_source_that_changes_during_a_run_is_noticed() {
    let folder = Folder::new();
    let (input, output) = (input(&folder), folder.path("out"));
    let sound = fs::read(&input).unwrap();
    for cut in [false, true] {
        let change = |update: &Update<'_>| {
            if update.rows_done == 12 {
                let file = fs::File::options().write(true).open(&input).unwrap();
                if cut {
                    file.set_len(sound.len() as u64 - 40).unwrap();
                } else {
                    std::io::Write::write_all(&mut &file, &vec![0; sound.len()]).unwrap();
                }
                file.set_modified(std::time::SystemTime::now() + SECOND).unwrap();
            }
            ControlFlow::Continue(())
        };
        let error = compress_file(&input, &[], &output, &options(BLOCK), &Cpu, &change).unwrap_err();
        assert!(
            matches!(
                error,
                Error::SourceChanged { .. } | Error::File(condprog_table::Error::Io { action: "read", .. })
            ),
            "{error}"
        );
        assert!(!output.exists());
        // Nor does the next run go on from there, as if nothing had happened.
        let error = compress(&input, &output, &options(BLOCK)).unwrap_err();
        assert!(
            matches!(error.code(), "other-run" | "header-truncated" | "header-foreign"),
            "{} {error}",
            error.code()
        );
        fs::write(&input, &sound).unwrap();
        compress(&input, &output, &CompressOptions { force: true, ..options(BLOCK) }).unwrap();
        assert_eq!(fs::read(&output).unwrap(), uninterrupted(&input, &options(BLOCK)));
        fs::remove_file(&output).unwrap();
    }
}

#[test]
fn the_journal_is_not_trusted() {
    let folder = Folder::new();
    let (input, output) = (input(&folder), folder.path("out"));
    let (partial, journal) = (folder.path("out.condprog-partial"), folder.path("out.condprog-journal"));
    let whole = uninterrupted(&input, &options(BLOCK));
    let stop = || stopped_after(16, &input, &output, &options(BLOCK)).unwrap_err();
    let resumed = || {
        let report = compress(&input, &output, &options(BLOCK)).unwrap();
        assert_eq!(fs::read(&output).unwrap(), whole);
        fs::remove_file(&output).unwrap();
        report.resumed_rows
    };

    stop();
    // A block that never reached the disk: the partial has other bytes there.
    let mut bytes = fs::read(&partial).unwrap();
    let records = bytes.len() - ROWS * 6;
    bytes[records + 5 * 6] ^= 1;
    fs::write(&partial, bytes).unwrap();
    assert_eq!(resumed(), 12);

    stop();
    // The last line was cut short.
    let text = fs::read(&journal).unwrap();
    fs::write(&journal, &text[..text.len() - 5]).unwrap();
    assert_eq!(resumed(), 12);

    stop();
    // Lines that say something else than was written, of no block, of no meaning.
    let text = fs::read_to_string(&journal).unwrap();
    let last = text.lines().last().unwrap();
    let line = |from: &str, to: &str| last.replace(from, to) + "\n";
    let more = [line("\"block\":3", "\"block\":4"), line("\"zero\":0", "\"zero\":9"), "x\n{}\n\t\n".into()].concat();
    assert_ne!(line("\"zero\":0", "\"zero\":9").trim_end(), last);
    fs::write(&journal, text + &more).unwrap();
    assert_eq!(resumed(), 16);

    stop();
    // No unfinished output.
    fs::remove_file(&partial).unwrap();
    assert_eq!(resumed(), 0);
}

/// Hours of work are not dropped in silence because the account of them is lost.
#[test]
fn a_begun_output_without_a_sound_journal_is_kept_until_forced() {
    let folder = Folder::new();
    let (input, output) = (input(&folder), folder.path("out"));
    let journal = folder.path("out.condprog-journal");
    let whole = uninterrupted(&input, &options(BLOCK));
    stopped_after(16, &input, &output, &options(BLOCK)).unwrap_err();
    let sound = fs::read(&journal).unwrap();
    let partial = fs::read(folder.path("out.condprog-partial")).unwrap();
    let head = sound.iter().position(|byte| *byte == b'\n').unwrap();
    let flipped = |byte: usize| {
        let mut journal = sound.clone();
        journal[byte] ^= 1;
        Some(journal)
    };
    let damaged = [
        (None, "missing"),
        (Some(Vec::new()), "missing"),
        (Some(sound[..head / 2].to_vec()), "missing"),
        (flipped(head / 2), "damaged"),
        (flipped(head - 1), "damaged"),
        (flipped(20), "damaged"),
    ];
    for (bytes, what) in damaged {
        match &bytes {
            Some(bytes) => fs::write(&journal, bytes).unwrap(),
            None => fs::remove_file(&journal).unwrap(),
        }
        let error = compress(&input, &output, &options(BLOCK)).unwrap_err();
        assert!(matches!(&error, Error::JournalLost { what: got, .. } if *got == what), "{error}");
        assert!(error.to_string().ends_with("use force to start over"), "{error}");
        assert_eq!(fs::read(folder.path("out.condprog-partial")).unwrap(), partial);
        if let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) {
            assert_eq!(fs::read(&journal).unwrap(), bytes);
        }
        fs::write(&journal, &sound).unwrap();
    }
    fs::remove_file(&journal).unwrap();
    let forced = CompressOptions { force: true, ..options(BLOCK) };
    assert_eq!(compress(&input, &output, &forced).unwrap().resumed_rows, 0);
    assert_eq!(fs::read(&output).unwrap(), whole);
    assert_eq!(folder.list(), ["in", "out"]);
}

/// With one scale for the table, a flipped bit of it in the journal once gave other bytes that every check passed.
#[test]
fn no_flip_of_a_bit_in_the_journal_changes_the_output() {
    let folder = Folder::new();
    let (input, output) = (input(&folder), folder.path("out"));
    let options = CompressOptions { scale: ScaleRule::Global(()), ..options(BLOCK) };
    let whole = uninterrupted(&input, &options);
    stopped_after(12, &input, &output, &options).unwrap_err();
    let (journal, partial) = (folder.path("out.condprog-journal"), folder.path("out.condprog-partial"));
    let (lines, begun) = (fs::read(&journal).unwrap(), fs::read(&partial).unwrap());
    let mut refused = 0;
    for bit in (0..8 * lines.len()).step_by(13) {
        let mut flipped = lines.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        fs::write(&journal, &flipped).unwrap();
        fs::write(&partial, &begun).unwrap();
        match compress(&input, &output, &options) {
            Ok(_) => {
                assert_eq!(fs::read(&output).unwrap(), whole, "bit {bit}");
                fs::remove_file(&output).unwrap();
            }
            Err(error) => {
                assert!(matches!(error.code(), "journal-lost" | "foreign"), "bit {bit}: {error}");
                assert_eq!((fs::read(&journal).unwrap(), fs::read(&partial).unwrap()), (flipped, begun.clone()));
                refused += 1;
            }
        }
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn blocks_with_zeroed_rows_are_done_again_when_they_are_errors() {
    let folder = Folder::new();
    let (input, output) = (folder.path("in"), folder.path("out"));
    let mut values = rows(ROWS, DIM, 1);
    values[5 * DIM + 2] = f32::NAN;
    f32_table(&input, "t", DIM, &values);
    let zero = CompressOptions { non_finite: NonFinite::Zero, ..options(BLOCK) };
    stopped_after(12, &input, &output, &zero).unwrap_err();
    let error = compress(&input, &output, &options(BLOCK)).unwrap_err();
    assert!(error.to_string().starts_with("tensor \"t\", row 5: value in column 2 is NaN"), "{error}");
    // What was done stays done: with zeros allowed again, the run goes on where it was.
    let report = compress(&input, &output, &zero).unwrap();
    assert_eq!((report.resumed_rows, report.tables[0].non_finite_rows), (12, 1));
    assert_eq!(fs::read(&output).unwrap(), uninterrupted(&input, &zero));
}

#[test]
fn a_bad_row_in_the_first_block_leaves_nothing_and_later_ones_leave_what_is_done() {
    let folder = Folder::new();
    let (input, output) = (folder.path("in"), folder.path("out"));
    let mut values = rows(ROWS, DIM, 1);
    values[20 * DIM] = f32::NAN;
    f32_table(&input, "t", DIM, &values);
    compress(&input, &output, &options(BLOCK)).unwrap_err();
    assert_eq!(folder.list(), LEFT);
    let zero = CompressOptions { non_finite: NonFinite::Zero, ..options(BLOCK) };
    assert_eq!(compress(&input, &output, &zero).unwrap().resumed_rows, 20);
    fs::remove_file(&output).unwrap();
    values[0] = f32::NAN;
    f32_table(&input, "t", DIM, &values);
    compress(&input, &output, &options(BLOCK)).unwrap_err();
    let global = CompressOptions { scale: ScaleRule::Global(()), ..options(BLOCK) };
    compress(&input, &output, &global).unwrap_err();
    assert_eq!(folder.list(), ["in"]);
}

#[test]
fn restoring_does_not_touch_an_unfinished_compression() {
    let folder = Folder::new();
    let (input, output, table) = (input(&folder), folder.path("out"), folder.path("table"));
    compress(&input, &table, &options(BLOCK)).unwrap();
    stopped_after(8, &input, &output, &options(BLOCK)).unwrap_err();
    let file = Tables::open(&table).unwrap();
    let restore = |force| {
        let options = condprog_convert::DecompressOptions { force, ..Default::default() };
        condprog_convert::decompress(&file, &output, &options, &Cpu, &condprog_convert::quiet)
    };
    let error = restore(false).unwrap_err();
    assert!(error.to_string().contains("the command was compress, is decompress"), "{error}");
    assert_eq!(compress(&input, &folder.path("out"), &options(BLOCK)).unwrap().resumed_rows, 8);
}

#[test]
fn one_output_has_one_writer() {
    let folder = Folder::new();
    let (input, output) = (input(&folder), folder.path("out"));
    let meanwhile = Mutex::new(None);
    let other = |_: &Update<'_>| {
        let mut meanwhile = meanwhile.lock().unwrap();
        meanwhile.get_or_insert_with(|| compress(&input, &output, &options(BLOCK)));
        ControlFlow::Continue(())
    };
    compress_file(&input, &[], &output, &options(BLOCK), &Cpu, &other).unwrap();
    let error = meanwhile.into_inner().unwrap().unwrap().unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    assert!(Tables::open(&output).is_ok());
}

/// The variable that makes [`child`] a process to be killed.
const CHILD: &str = "CONDPROG_TABLE_TEST_CHILD";

/// Compresses in the folder that the parent names, and hangs when half of the rows are done. Alone, it does nothing.
#[test]
fn child() {
    let Some(folder) = env::var_os(CHILD) else { return };
    let folder = Path::new(&folder);
    let hang = |update: &Update<'_>| {
        if update.rows_done >= 16 {
            // Until the writer, too, has seen the block.
            while fs::read_to_string(folder.join("out.condprog-journal")).map_or(0, |text| text.lines().count()) < 5 {
                std::thread::yield_now();
            }
            println!("half done");
            loop {
                std::thread::park();
            }
        }
        ControlFlow::Continue(())
    };
    compress_file(folder.join("in"), &[], folder.join("out"), &options(BLOCK), &Cpu, &hang).unwrap();
}

#[test]
fn a_killed_process_leaves_nothing_that_looks_finished_and_resumes() {
    let folder = Folder::new();
    let (input, output) = (input(&folder), folder.path("out"));
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["resume::child", "--exact", "--nocapture"])
        .env(CHILD, folder.path(""))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert!(said.map_while(Result::ok).any(|line| line.contains("half done")));
    assert!(matches!(compress(&input, &output, &options(BLOCK)), Err(Error::Busy { .. })));
    child.kill().unwrap(); // SIGKILL where there are signals
    child.wait().unwrap();
    assert_eq!(folder.list(), LEFT);
    assert_eq!(compress(&input, &output, &options(BLOCK)).unwrap().resumed_rows, 16);
    assert_eq!(fs::read(&output).unwrap(), uninterrupted(&input, &options(BLOCK)));
    assert_eq!(folder.list(), ["in", "out"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_interruptions_give_the_same_file(
        stops in prop::collection::vec(0u64..40, 0..4),
        block in 1u32..9,
        split in 1u64..30,
        threads in 1usize..4,
    ) {
        let folder = Folder::new();
        let (input, output) = (input(&folder), folder.path("out"));
        let plan = vec![
            SegmentPlan { rows: split, rate: Rate::TWO },
            SegmentPlan { rows: ROWS as u64 - split, rate: Rate::from_quarters(6).unwrap() },
        ];
        let mut options = CompressOptions { segments: [("t".into(), plan)].into(), ..options(block) };
        let whole = uninterrupted(&input, &options);
        options.threads = NonZeroUsize::new(threads);
        for stop in stops {
            if stopped_after(stop, &input, &output, &options).is_ok() {
                break;
            }
        }
        if !output.exists() {
            compress(&input, &output, &options).unwrap();
        }
        prop_assert_eq!(fs::read(&output).unwrap(), whole);
    }
}
