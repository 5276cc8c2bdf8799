//! Parts of tables that many machines code: however the rows are split, the parts joined are the output of one run.

mod common;

use std::fs;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use common::{Cpu, Folder, Named, Seeded, f32_bytes, f32_table, options, read_all, rows, write};
use condprog_checkpoint::{Checkpoint, RowSource};
use condprog_convert::{
    CompressOptions, CompressReport, Error, JoinOptions, NonFinite, PartOf, ScaleMode, Stage, Update, compress,
    compress_file, join, quiet,
};
use condprog_core::Rate;
use condprog_table::SegmentPlan;
use proptest::prelude::*;
use safetensors::tensor::Dtype;
use serde_json::{Value, json};

fn joined(parts: &[PathBuf], output: &Path) -> Result<CompressReport, Error> {
    join(parts, output, &JoinOptions::default(), &quiet)
}

/// A table of several tensors, and perhaps one of a single tensor, of nearly normal rows and some that become zeros.
fn checkpoint(folder: &Folder, counts: &[usize], second: Option<usize>, seed: u64) -> Checkpoint {
    let mut random = Seeded(seed);
    let mut tensor = |name: String, count: usize, dim: usize| -> Named {
        let mut values = rows(count, dim, random.next());
        for row in values.chunks_mut(dim) {
            match random.next() % 9 {
                0 => row.fill(0.0),
                1 => row.fill(1e-30),
                2 => row[0] = f32::NAN,
                _ => {}
            }
        }
        (name, Dtype::F32, vec![count, dim], f32_bytes(&values))
    };
    let mut tensors: Vec<_> =
        counts.iter().enumerate().map(|(part, &count)| tensor(format!("a.{part}"), count, 32)).collect();
    tensors.extend(second.map(|count| tensor("b".into(), count, 16)));
    write(&folder.path("in"), &tensors);
    Checkpoint::open(folder.path("in")).unwrap()
}

fn sources(checkpoint: &Checkpoint) -> Vec<Box<dyn RowSource>> {
    let mut infos = vec![checkpoint.join_matching("a", "a.*", None).unwrap()];
    infos.extend(checkpoint.info("b").ok());
    let mut sources: Vec<Box<dyn RowSource>> = Vec::new();
    for info in infos {
        sources.push(Box::new(checkpoint.rows(info).unwrap()));
    }
    sources
}

/// How the rows are split.
#[derive(Clone, Debug)]
enum Split {
    At(Vec<usize>),
    Shares(u64),
}

impl Split {
    fn parts(&self, rows: usize) -> Vec<PartOf> {
        match self {
            Split::Shares(of) => (0..*of).map(|index| PartOf::Share { index, of: *of }).collect(),
            Split::At(cuts) => {
                let mut edges: Vec<_> = cuts.iter().map(|cut| cut % rows).chain([0, rows]).map(|e| e as u64).collect();
                edges.sort_unstable();
                edges.dedup();
                edges.windows(2).map(|pair| PartOf::Rows(pair[0]..pair[1])).collect()
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn parts_joined_in_any_order_are_the_output_of_one_run(
        counts in prop::collection::vec(1usize..9, 1..5),
        second in prop::option::of(1usize..20),
        split in prop_oneof![
            prop::collection::vec(0usize..40, 0..5).prop_map(Split::At),
            (1u64..5).prop_map(Split::Shares),
        ],
        rates in prop::collection::vec((1usize..12, 4u32..17), 0..4),
        scale in prop::sample::select(ScaleMode::ALL.to_vec()),
        block in 1u32..7,
        shard_bytes in prop::option::of(170u64..700),
        seed: u64,
    ) {
        let folder = Folder::new();
        // A range of rows is of one table only.
        let second = second.filter(|_| matches!(split, Split::Shares(_)));
        let checkpoint = checkpoint(&folder, &counts, second, seed);
        let total: usize = counts.iter().sum();
        let (mut plan, mut left) = (Vec::new(), total);
        for (rows, quarters) in rates {
            let rows = rows.min(left);
            plan.push(SegmentPlan { rows: rows as u64, rate: Rate::from_quarters(quarters).unwrap() });
            left -= rows;
        }
        plan.push(SegmentPlan { rows: left as u64, rate: Rate::TWO });
        plan.retain(|segment| segment.rows > 0);
        let options = CompressOptions {
            segments: [("a".to_string(), plan)].into(),
            scale,
            shard_bytes,
            non_finite: NonFinite::Zero,
            ..options(block)
        };
        let blocks = [total, second.unwrap_or(0)].map(|rows| rows.div_ceil(block as usize) as u64).iter().sum();
        let split = match split {
            Split::Shares(of) => Split::Shares(of.min(blocks)),
            cuts => cuts,
        };
        let one = folder.path("one");
        fs::create_dir(&one).unwrap();
        let expected = compress(&mut sources(&checkpoint), one.join("out.safetensors"), &options, &Cpu, &quiet).unwrap();

        let mut parts = Vec::new();
        for (number, part) in split.parts(total).into_iter().enumerate() {
            let path = folder.path(&format!("part{number}"));
            let options = CompressOptions { part: Some(part), ..options.clone() };
            let report = compress(&mut sources(&checkpoint), &path, &options, &Cpu, &quiet).unwrap();
            prop_assert_eq!((report.files, report.index), (vec![path.clone()], None));
            parts.push(path);
        }
        let mut random = Seeded(seed);
        parts.sort_by_cached_key(|_| random.next());
        let both = folder.path("joined");
        fs::create_dir(&both).unwrap();
        let report = joined(&parts, &both.join("out.safetensors")).unwrap();
        prop_assert_eq!(&report.tables, &expected.tables);
        prop_assert_eq!(report.file_bytes, expected.file_bytes);
        prop_assert_eq!(
            read_all(report.files.iter().chain(&report.index)),
            read_all(expected.files.iter().chain(&expected.index))
        );
        prop_assert_eq!(fs::read_dir(&both).unwrap().count(), report.files.len() + usize::from(report.index.is_some()));
    }
}

const ROWS: usize = 30;

/// A table `t` of 30 rows of 16 values, and its parts of 0..7, 7..18, 18..30 rows.
struct Parts {
    folder: Folder,
    paths: Vec<PathBuf>,
}

const CUT: [Range<u64>; 3] = [0..7, 7..18, 18..30];

fn part_options(rows: Range<u64>) -> CompressOptions {
    CompressOptions { part: Some(PartOf::Rows(rows)), force: true, ..options(4) }
}

impl Parts {
    fn new() -> Parts {
        let folder = Folder::new();
        f32_table(&folder.path("in"), "t", 16, &rows(ROWS, 16, 1));
        let paths = (0..3).map(|number| folder.path(&format!("part{number}"))).collect();
        let parts = Parts { folder, paths };
        (0..3).for_each(|number| parts.code(number, &part_options(CUT[number].clone())));
        parts
    }

    fn code(&self, number: usize, options: &CompressOptions) {
        compress_file(self.folder.path("in"), &[], &self.paths[number], options, &Cpu, &quiet).unwrap();
    }

    /// What joining them says; nothing must be left.
    fn refused(&self, paths: &[PathBuf]) -> (&'static str, String) {
        let before = self.folder.list();
        let error = joined(paths, &self.folder.path("out")).unwrap_err();
        assert_eq!(self.folder.list(), before);
        (error.code(), error.to_string())
    }
}

#[test]
fn parts_of_different_wholes_are_refused_by_what_differs() {
    let parts = Parts::new();
    let base = || part_options(CUT[1].clone());
    let rate = Rate::from_quarters(6).unwrap();
    let plan = [Rate::TWO, rate].map(|rate| SegmentPlan { rows: 15, rate }).to_vec();
    let cases = [
        (CompressOptions { effort: 1, ..base() }, "the effort of table \"t\" is 1, expected 0"),
        (
            CompressOptions { scale: ScaleMode::Norm, ..base() },
            "the scale rule of table \"t\" is norm, expected projection",
        ),
        (CompressOptions { scale: ScaleMode::Global, ..base() }, "the scale rule of table \"t\" is global"),
        (CompressOptions { rate, ..base() }, "the rates of table \"t\" is [{\"rows\":30,\"rate_quarters\":6}]"),
        (CompressOptions { segments: [("t".into(), plan)].into(), ..base() }, "the rates of table \"t\""),
        (CompressOptions { block_rows: Some(5), ..base() }, "the rows per block of table \"t\" is 5, expected 4"),
        (CompressOptions { shard_bytes: Some(100), ..base() }, "the size of files is 100 bytes, expected not limited"),
    ];
    for (options, says) in cases {
        parts.code(1, &options);
        let (code, message) = parts.refused(&parts.paths);
        assert_eq!(code, "part-differs", "{message}");
        let files =
            format!("{} and {} are not parts of one table: ", parts.paths[0].display(), parts.paths[1].display());
        assert!(message.starts_with(&files) && message.contains(says), "{message}");
    }
    parts.code(1, &base());

    // Of another source: another number of rows, another name.
    let other = Folder::new();
    for (name, count, says) in [("t", 31, "the source of table \"t\" is"), ("u", 30, "the list of tables is [\"u\"]")] {
        f32_table(&other.path("in"), name, 16, &rows(count, 16, 1));
        compress_file(other.path("in"), &[], &parts.paths[1], &base(), &Cpu, &quiet).unwrap();
        let (code, message) = parts.refused(&parts.paths);
        assert!(code == "part-differs" && message.contains(says), "{message}");
    }
    // Of other values, which one scale for all rows tells.
    for (number, seed) in [(0, 1), (1, 2), (2, 1)] {
        let scaled: Vec<_> = rows(ROWS, 16, 1).iter().map(|value| value * seed as f32).collect();
        f32_table(&other.path("in"), "t", 16, &scaled);
        let options = CompressOptions { scale: ScaleMode::Global, ..part_options(CUT[number].clone()) };
        compress_file(other.path("in"), &[], &parts.paths[number], &options, &Cpu, &quiet).unwrap();
    }
    let (code, message) = parts.refused(&parts.paths);
    assert!(code == "part-differs" && message.contains("the source of table \"t\" is "), "{message}");
    // Whatever the scale rule, and however little of the values differs.
    let parts = Parts::new();
    let mut values = rows(ROWS, 16, 1);
    values[29 * 16 + 15] += 0.001;
    f32_table(&other.path("in"), "t", 16, &values);
    compress_file(other.path("in"), &[], &parts.paths[0], &part_options(CUT[0].clone()), &Cpu, &quiet).unwrap();
    let (code, message) = parts.refused(&parts.paths);
    assert!(code == "part-differs" && message.contains("the source of table \"t\" is "), "{message}");
    // Of another global scale.
    for (number, cut) in CUT.iter().enumerate() {
        parts.code(number, &CompressOptions { scale: ScaleMode::Global, ..part_options(cut.clone()) });
    }
    edit(&parts.paths[1], |_, tables| tables[0]["segments"][0]["global_scale"] = 1234.into());
    let (code, message) = parts.refused(&parts.paths);
    assert!(code == "part-differs" && message.contains("the global scale of table \"t\" is 0x04d2"), "{message}");
    // Of another version.
    let parts = Parts::new();
    edit(&parts.paths[2], |part, _| part["writer"] = "0.0.0".into());
    let (code, message) = parts.refused(&parts.paths);
    let says = format!("the version of condprog is 0.0.0, expected {}", env!("CARGO_PKG_VERSION"));
    assert!(code == "part-differs" && message.contains(&says), "{message}");
}

#[test]
fn rows_in_no_part_or_in_two_are_named() {
    let parts = Parts::new();
    let [a, b, c] = [0, 1, 2].map(|number| parts.paths[number].clone());
    let missing = [
        (vec![a.clone(), c.clone()], "rows 7..18 of table \"t\" are in no part"),
        (vec![c.clone(), b.clone()], "rows 0..7 of table \"t\" are in no part"),
        (vec![b.clone(), a.clone()], "rows 18..30 of table \"t\" are in no part"),
    ];
    for (paths, says) in missing {
        assert_eq!(parts.refused(&paths), ("part-missing", says.into()));
    }
    let twice = |rows: &str, first: &PathBuf, second: &PathBuf| {
        let files = [first, second].map(|path| path.display().to_string());
        ("part-twice", format!("rows {rows} of table \"t\" are in {} and in {}, expected once", files[0], files[1]))
    };
    assert_eq!(parts.refused(&[b.clone(), a.clone(), b.clone(), c.clone()]), twice("7..18", &b, &b));
    parts.code(1, &part_options(5..20));
    assert_eq!(parts.refused(&[a.clone(), b.clone(), c.clone()]), twice("5..7", &a, &b));
    parts.code(1, &part_options(7..19));
    assert_eq!(parts.refused(&[c.clone(), a.clone(), b.clone()]), twice("18..19", &b, &c));
    assert_eq!(joined(&[], &parts.folder.path("out")).unwrap_err().code(), "nothing-to-do");
}

#[test]
fn what_is_no_part_is_refused() {
    let parts = Parts::new();
    let [a, _, c] = [0, 1, 2].map(|number| parts.paths[number].clone());
    let whole = parts.folder.path("whole");
    compress_file(parts.folder.path("in"), &[], &whole, &options(4), &Cpu, &quiet).unwrap();
    let (code, message) = parts.refused(&[a.clone(), whole.clone(), c.clone()]);
    assert!(
        code == "part-none" && message.starts_with(&format!("{} is not a part of a table", whole.display())),
        "{message}"
    );
    assert_eq!(parts.refused(&[a.clone(), parts.folder.path("in"), c.clone()]).0, "format-magic");
    assert_eq!(parts.refused(&[a, parts.folder.path("none"), c]).0, "io");
}

#[test]
fn parts_stay_as_they_are_and_outputs_are_not_overwritten() {
    let parts = Parts::new();
    let (before, output) = (read_all(&parts.paths), parts.folder.path("out"));
    let forced = JoinOptions { force: true };
    let error = join(&parts.paths, &parts.paths[2], &forced, &quiet).unwrap_err();
    assert_eq!(error.code(), "same-file");
    fs::write(&output, "precious").unwrap();
    assert_eq!(parts.refused(&parts.paths).0, "output-exists");
    assert_eq!(fs::read(&output).unwrap(), b"precious");
    join(&parts.paths, &output, &forced, &quiet).unwrap();
    let whole = parts.folder.path("whole");
    compress_file(parts.folder.path("in"), &[], &whole, &options(4), &Cpu, &quiet).unwrap();
    assert_eq!(fs::read(&output).unwrap(), fs::read(&whole).unwrap());
    assert_eq!(read_all(&parts.paths), before);

    // Stopped in the middle, nothing is left.
    fs::remove_file(&output).unwrap();
    let stop = |update: &Update<'_>| {
        assert_eq!((update.stage, update.rows_total, update.table), (Stage::Join, 30, "t"));
        if update.rows_done > 8 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let list = parts.folder.list();
    assert_eq!(join(&parts.paths, &output, &JoinOptions::default(), &stop).unwrap_err().code(), "cancelled");
    assert_eq!(parts.folder.list(), list);
    // Somebody's unfinished compression of that name stays.
    compress_file(parts.folder.path("in"), &[], &output, &options(4), &Cpu, &stop_after(8)).unwrap_err();
    let (code, message) = parts.refused(&parts.paths);
    assert!(code == "other-run" && message.contains("the command was compress, is join"), "{message}");
    assert_eq!(
        compress_file(parts.folder.path("in"), &[], &output, &options(4), &Cpu, &quiet).unwrap().resumed_rows,
        8
    );
}

#[test]
fn a_damaged_block_of_a_part_is_found_before_it_is_copied() {
    let parts = Parts::new();
    for (number, row) in [(0, 0), (1, 4), (2, 11)] {
        let sound = fs::read(&parts.paths[number]).unwrap();
        let mut damaged = sound.clone();
        let records = damaged.len() - CUT[number].clone().count() * 6;
        damaged[records + row * 6 + 3] ^= 1;
        fs::write(&parts.paths[number], damaged).unwrap();
        let (code, message) = parts.refused(&parts.paths);
        let first = row / 4 * 4;
        let last = (first + 3).min(CUT[number].clone().count() - 1);
        let says = format!("{}: tensor \"t\", rows {first} to {last}: checksum", parts.paths[number].display());
        assert!(code == "damage-checksum" && message.starts_with(&says), "{message}");
        fs::write(&parts.paths[number], sound).unwrap();
    }
    joined(&parts.paths, &parts.folder.path("out")).unwrap();
}

/// Changes what a part says of its whole, and of its tables.
fn edit(path: &Path, change: impl Fn(&mut Value, &mut Value)) {
    let bytes = fs::read(path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let text = |header: &Value, key: &str| header["__metadata__"][key].as_str().unwrap().to_string();
    let keys = ["condprog.part", "condprog.tables"];
    let [mut part, mut tables] = keys.map(|key| serde_json::from_str(&text(&header, key)).unwrap());
    change(&mut part, &mut tables);
    for (key, value) in keys.into_iter().zip([part, tables]) {
        header["__metadata__"][key] = value.to_string().into();
    }
    // What a part says is wrong, not the checksum of the header that says it.
    header["__metadata__"]["condprog.checksum"] = "xxh3-64".into();
    let json = header.to_string();
    fs::write(path, [&(json.len() as u64).to_le_bytes(), json.as_bytes(), &bytes[8 + length..]].concat()).unwrap();
}

#[test]
fn parts_whose_account_of_the_whole_is_wrong_are_refused() {
    let parts = Parts::new();
    let sound = read_all(&parts.paths);
    type Edit<'a> = &'a dyn Fn(&mut Value, &mut Value);
    let cases: [(&str, Edit<'_>); 18] = [
        ("part-malformed", &|part, _| *part = json!([])),
        ("part-malformed", &|part, _| part["tables"][0]["runs"] = "".into()),
        ("part-malformed", &|part, _| part["tables"][0]["runs"][0]["rows"] = 29.into()),
        ("part-malformed", &|part, _| part["tables"][0]["runs"][0]["rows"] = u64::MAX.into()),
        ("part-malformed", &|part, _| {
            let run = json!({ "rows": u64::MAX, "rate_quarters": 8 });
            part["tables"][0]["runs"] = json!([run, run]);
        }),
        ("part-malformed", &|part, _| {
            let runs = [(0, 8), (30, 8)].map(|(rows, rate)| json!({ "rows": rows, "rate_quarters": rate }));
            part["tables"][0]["runs"] = json!(runs);
        }),
        ("part-malformed", &|part, _| part["tables"][0]["runs"] = json!([])),
        ("part-malformed", &|part, _| part["tables"][0]["block_rows"] = 0.into()),
        ("part-malformed", &|part, _| part["tables"][0]["block_rows"] = u64::MAX.into()),
        ("part-malformed", &|part, _| part["tables"] = json!([])),
        ("part-malformed", &|part, _| part["tables"][0]["name"] = "u".into()),
        ("part-malformed", &|part, _| part["tables"][0]["source"]["shape"][1] = 32.into()),
        ("part-malformed", &|part, _| part["tables"][0]["effort"] = 3.into()),
        ("part-malformed", &|part, _| part["tables"][0]["scale_rule"] = "global".into()),
        ("part-malformed", &|_, tables| tables[0]["segments"][0]["global_scale"] = 4096.into()),
        ("part-malformed", &|_, tables| drop(tables[0]["segments"][0].as_object_mut().unwrap().remove("zeroed"))),
        ("width", &|part, _| part["tables"][0]["runs"][0]["rate_quarters"] = 3.into()),
        ("option", &|part, _| part["shard_bytes"] = 0.into()),
    ];
    for (case, (code, change)) in cases.into_iter().enumerate() {
        // All of them say so, so that they do not differ.
        parts.paths.iter().for_each(|path| edit(path, change));
        let (got, message) = parts.refused(&parts.paths);
        assert_eq!(got, code, "{case}: {message}");
        for (name, bytes) in &sound {
            fs::write(parts.folder.path(name), bytes).unwrap();
        }
    }
    // Another rate than the records have.
    let rate = |part: &mut Value, _: &mut Value| part["tables"][0]["runs"][0]["rate_quarters"] = 12.into();
    parts.paths.iter().for_each(|path| edit(path, rate));
    let (code, message) = parts.refused(&parts.paths);
    assert!(code == "part-malformed" && message.contains("segment \"t\" is not one of its whole"), "{message}");
    // The same table twice.
    for (name, bytes) in &sound {
        fs::write(parts.folder.path(name), bytes).unwrap();
    }
    let twice = |part: &mut Value, _: &mut Value| part["tables"] = json!([part["tables"][0], part["tables"][0]]);
    parts.paths.iter().for_each(|path| edit(path, twice));
    assert_eq!(parts.refused(&parts.paths).0, "name-taken");
}

fn stop_after(rows: u64) -> impl Fn(&Update<'_>) -> ControlFlow<()> + Sync {
    move |update| {
        let stop = update.stage == Stage::Encode && update.rows_done >= rows;
        if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

#[test]
fn a_part_that_was_stopped_resumes_and_another_part_is_another_run() {
    let parts = Parts::new();
    let (input, output) = (parts.folder.path("in"), parts.folder.path("out"));
    let run = |options: &CompressOptions, stop| compress_file(&input, &[], &output, options, &Cpu, &stop_after(stop));
    for scale in [ScaleMode::Projection, ScaleMode::Global] {
        let base = || CompressOptions { force: false, scale, ..part_options(7..18) };
        run(&base(), 8).unwrap_err();
        for (other, says) in [
            (CompressOptions { part: Some(PartOf::Rows(7..19)), ..base() }, "rows 7..18, is \"t\": rows 7..19"),
            (CompressOptions { part: Some(PartOf::Rows(6..17)), ..base() }, "the part was"),
            (CompressOptions { part: Some(PartOf::Share { index: 1, of: 3 }), ..base() }, "the part was"),
            (CompressOptions { part: None, ..base() }, "the output was a part, is whole tables"),
            (CompressOptions { shard_bytes: Some(100), ..base() }, "the size of files was not limited, is 100 bytes"),
        ] {
            let error = run(&other, 99).unwrap_err();
            assert!(error.code() == "other-run" && error.to_string().contains(says), "{error}");
        }
        assert_eq!(run(&base(), 99).unwrap().resumed_rows, 8);
        parts.code(1, &CompressOptions { scale, ..part_options(7..18) });
        assert_eq!(fs::read(&output).unwrap(), fs::read(&parts.paths[1]).unwrap());
        fs::remove_file(&output).unwrap();
    }
    // A part of all rows is a part all the same.
    let all = CompressOptions { force: false, ..part_options(0..30) };
    run(&all, 8).unwrap_err();
    let error = run(&CompressOptions { part: None, ..all.clone() }, 99).unwrap_err();
    assert!(error.to_string().contains("the output was a part, is whole tables"), "{error}");
    assert_eq!(run(&all, 99).unwrap().resumed_rows, 8);
}

#[test]
fn parts_that_a_table_does_not_have_are_refused() {
    let folder = Folder::new();
    let checkpoint = checkpoint(&folder, &[4, 6], Some(5), 1);
    let refused = |names: &[&str], part| {
        let mut chosen: Vec<Box<dyn RowSource>> = Vec::new();
        for source in sources(&checkpoint) {
            if names.contains(&source.info().name.as_str()) {
                chosen.push(source);
            }
        }
        let options = CompressOptions { part: Some(part), non_finite: NonFinite::Zero, ..options(4) };
        let error = compress(&mut chosen, folder.path("out"), &options, &Cpu, &quiet).unwrap_err();
        assert_eq!(folder.list(), ["in"]);
        (error.code(), error.to_string())
    };
    #[allow(clippy::reversed_empty_ranges, reason = "it is what is refused")]
    for rows in [0..0, 5..5, 7..3, 0..11, 10..11, u64::MAX - 1..u64::MAX] {
        let says = format!("the part is rows {}..{} of table \"a\", expected", rows.start, rows.end);
        let (code, message) = refused(&["a"], PartOf::Rows(rows));
        assert!(code == "part-rows" && message.starts_with(&says) && message.contains("its 10 rows"), "{message}");
    }
    let (code, message) = refused(&["a", "b"], PartOf::Rows(0..3));
    assert!(code == "part-of-several" && message.contains("[\"a\", \"b\"]"), "{message}");
    let share = |index, of| refused(&["a", "b"], PartOf::Share { index, of });
    assert_eq!(share(0, 0), ("option", "share is 0, expected below the number of shares, 0".into()));
    assert_eq!(share(3, 3).1, "share is 3, expected below the number of shares, 3");
    // Three blocks of four rows, and two.
    assert_eq!(share(0, 6), ("option", "number of shares is 6, expected at most 5, a block of rows each".into()));
    assert_eq!(share(9, u64::MAX).1.split(',').next().unwrap(), format!("number of shares is {}", u64::MAX));
}

#[test]
fn shares_have_as_many_blocks_as_each_other_and_none_is_empty() {
    let folder = Folder::new();
    let checkpoint = checkpoint(&folder, &[4, 6], Some(15), 1);
    // Blocks of four rows: three, and four.
    for of in 1..=7 {
        let (mut all, mut sizes) = ([0, 0], Vec::new());
        for index in 0..of {
            let part = Some(PartOf::Share { index, of });
            let options = CompressOptions { part, non_finite: NonFinite::Zero, force: true, ..options(4) };
            let report = compress(&mut sources(&checkpoint), folder.path("out"), &options, &Cpu, &quiet).unwrap();
            for table in &report.tables {
                let next = &mut all[usize::from(table.name == "b")];
                assert_eq!((table.first_row, table.first_row % 4), (*next, 0));
                *next += table.rows;
            }
            sizes.push(report.tables.iter().map(|table| table.rows.div_ceil(4)).sum::<u64>());
        }
        assert_eq!(all, [10, 15]);
        assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{sizes:?}");
    }
}
