//! The journal of a run that was cut short: refused, or the run is finished.
//!
//! The input is the journal's lines without their checksums, which nothing that is changed at random would have. A line
//! `@N` stands for line N of the journal as the run left it. An input that starts with `!` is the journal, byte for byte.

#![no_main]

use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;

use condprog_convert::{Stage, Update, compress_file, quiet};
use condprog_fuzz::{Cpu, options, small_table};
use condprog_table::{Tables, checksum};
use condprog_testkit::Folder;
use libfuzzer_sys::fuzz_target;

const MARK: &str = "condprog-journal 1\t";

struct Run {
    folder: Folder,
    input: PathBuf,
    partial: Vec<u8>,
    /// Its lines, without checksums.
    lines: Vec<String>,
}

impl Run {
    /// Stops after 8 rows of 20.
    fn new() -> Run {
        let folder = Folder::new();
        let input = small_table(&folder);
        let stop = |update: &Update<'_>| match update {
            Update { stage: Stage::Encode, rows_done, .. } if *rows_done >= 8 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        let output = folder.path("out");
        compress_file(&input, &[], &output, &options(), &Cpu, &stop).expect_err("it was stopped");
        let partial = fs::read(folder.path("out.condprog-partial")).expect("what was done stays");
        let journal = fs::read_to_string(folder.path("out.condprog-journal")).expect("it has a journal");
        let journal = journal.strip_prefix(MARK).expect("a journal says what it is");
        let lines: Vec<_> = journal.lines().filter_map(|line| Some(line.split_once('\t')?.0.into())).collect();
        assert!(lines.len() >= 3, "a head and two blocks");
        Run { folder, input, partial, lines }
    }

    fn journal(&self, text: &str) -> String {
        let line = |line: &str| {
            let kept = line.strip_prefix('@').and_then(|number| self.lines.get(number.parse::<usize>().ok()?));
            let json = kept.map_or(line, |line| line.as_str());
            format!("{json}\t{}\n", checksum::hex(checksum::of(json.as_bytes())))
        };
        MARK.to_string() + &text.lines().map(line).collect::<String>()
    }
}

thread_local!(static RUN: Run = Run::new());

fuzz_target!(|bytes: &[u8]| {
    RUN.with(|run| {
        let journal = match (bytes, std::str::from_utf8(bytes)) {
            ([b'!', raw @ ..], _) => raw.to_vec(),
            (_, Ok(text)) => run.journal(text).into_bytes(),
            _ => return,
        };
        let path = |name| run.folder.path(name);
        fs::write(path("out.condprog-journal"), journal).expect("a temporary file can be written");
        fs::write(path("out.condprog-partial"), &run.partial).expect("a temporary file can be written");
        match compress_file(&run.input, &[], path("out"), &options(), &Cpu, &quiet) {
            Ok(_) => drop(Tables::open(path("out")).expect("what was written opens")),
            Err(error) => assert!(!error.code().is_empty()),
        }
        for name in run.folder.list().iter().filter(|name| name.starts_with("out")) {
            fs::remove_file(path(name)).expect("a temporary file can be removed");
        }
    });
});
