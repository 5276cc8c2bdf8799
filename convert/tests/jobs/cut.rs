//! Table files that are cut short or replaced while they are open, and rows that are picked from them.

use std::fs::{self, OpenOptions};
use std::path::Path;

use crate::common::{Cpu, Folder, Seeded, compress, decode, f32_table, options, rows};
use condprog_checkpoint::Checkpoint;
use condprog_convert::{
    CompressOptions, DecompressOptions, Error, JoinOptions, PartOf, VerifyOptions, compress_file, decompress, join,
    quiet, verify,
};
use condprog_core::{Decoder, Missing, Output, Rate, Table};
use condprog_cpu::CpuDecoder;
use condprog_table::{SegmentPlan, Tables, inspect};

const ROWS: usize = 3000;
const DIM: usize = 32;

/// The error of reading a file that ends too early: it names the file and where reading failed.
fn is_cut(error: &Error, path: &Path) {
    assert_eq!(error.code(), "io", "{error}");
    let message = error.to_string();
    assert!(message.starts_with(&format!("cannot read {}: bytes ", path.display())), "{message}");
    assert!(message.ends_with(": the file ends before; it was cut short while it was read"), "{message}");
}

#[test]
fn a_file_that_is_cut_under_its_reader_is_an_error_that_names_it() {
    let folder = Folder::new();
    let (input, output) = (folder.path("in"), folder.path("out"));
    f32_table(&input, "t", DIM, &rows(ROWS, DIM, 1));
    compress(&input, &output, &options(256)).unwrap();
    let source = Checkpoint::open(&input).unwrap();
    let file = Tables::open(&output).unwrap();
    let length = fs::metadata(&output).unwrap().len();
    OpenOptions::new().write(true).open(&output).unwrap().set_len(length - 4).unwrap();

    for source in [None, Some(&source)] {
        is_cut(&verify(&file, source, &VerifyOptions::default(), &Cpu, &quiet).unwrap_err(), &output);
    }
    is_cut(&inspect(&file).unwrap_err().into(), &output);
    is_cut(&file.load("t").unwrap_err().into(), &output);
    is_cut(&file.pick("t", &[0, ROWS as i64 - 1]).unwrap_err().into(), &output);
    is_cut(&file.check_block("t", 0, file.tables()[0].segments[0].blocks() - 1).unwrap_err().into(), &output);
    is_cut(&decompress(&file, folder.path("back"), &DecompressOptions::default(), &Cpu, &quiet).unwrap_err(), &output);
    // What is still there is served.
    assert!(file.check_block("t", 0, 0).is_ok() && file.pick("t", &[0, 5]).is_ok());
    assert_eq!(folder.list(), ["in", "out"]);

    // A source likewise.
    let table = compress(&input, &folder.path("again"), &options(256)).map(|_| folder.path("again")).unwrap();
    let length = fs::metadata(&input).unwrap().len();
    OpenOptions::new().write(true).open(&input).unwrap().set_len(length - 4).unwrap();
    let file = Tables::open(table).unwrap();
    let error = verify(&file, Some(&source), &VerifyOptions::default(), &Cpu, &quiet).unwrap_err();
    assert!(error.to_string().starts_with(&format!("cannot read {}: ", input.display())), "{error}");
}

#[test]
fn a_part_that_is_cut_is_not_joined() {
    let folder = Folder::new();
    let input = folder.path("in");
    f32_table(&input, "t", DIM, &rows(ROWS, DIM, 1));
    let parts: Vec<_> = [0..1200, 1200..ROWS as u64]
        .into_iter()
        .map(|part| {
            let path = folder.path(&format!("part-{}", part.start));
            let options = CompressOptions { part: Some(PartOf::Rows(part)), ..options(256) };
            compress_file(&input, &[], &path, &options, &Cpu, &quiet).unwrap();
            path
        })
        .collect();
    let bytes = fs::read(&parts[1]).unwrap();
    fs::write(&parts[1], &bytes[..bytes.len() - 1]).unwrap();
    let error = join(&parts, folder.path("out"), &JoinOptions::default(), &quiet).unwrap_err();
    assert!(error.to_string().starts_with(&parts[1].display().to_string()), "{error}");
    fs::write(&parts[1], &bytes).unwrap();
    join(&parts, folder.path("out"), &JoinOptions::default(), &quiet).unwrap();
}

#[test]
fn picked_rows_are_those_of_the_whole_table() {
    let folder = Folder::new();
    let (input, output) = (folder.path("in"), folder.path("out"));
    f32_table(&input, "t", DIM, &rows(ROWS, DIM, 1));
    let plan = [(1, 16), (1499, 8), (700, 4), (799, 8), (1, 8)];
    let plan = plan.map(|(rows, quarters)| SegmentPlan { rows, rate: Rate::from_quarters(quarters).unwrap() });
    let segments = [("t".to_string(), plan.to_vec())].into();
    compress(&input, &output, &CompressOptions { segments, ..options(256) }).unwrap();
    let file = Tables::open(&output).unwrap();
    let mut random = Seeded(5);
    let mut requests: Vec<Vec<i64>> = vec![
        vec![],
        vec![-1, ROWS as i64, i64::MAX, i64::MIN],
        vec![0],
        vec![ROWS as i64 - 1, 0, ROWS as i64 - 1, 0, -5],
        (0..ROWS as i64).rev().collect(),
        // Far apart, so that what lies between is passed over.
        (0..ROWS as i64).step_by(701).collect(),
    ];
    requests.extend((0..20).map(|_| (0..200).map(|_| (random.next() % 3100) as i64 - 50).collect()));
    for ids in requests {
        let picked = file.pick("t", &ids).unwrap();
        let segments = picked.segments();
        let decoder = CpuDecoder::new(Table::new(&segments).unwrap()).unwrap();
        let mut out = vec![f32::NAN; ids.len() * DIM];
        decoder.decode(picked.ids(), Missing::Zero, Output::F32(&mut out)).unwrap();
        let bits: Vec<u32> = out.into_iter().map(f32::to_bits).collect();
        assert_eq!(bits, decode(&file, "t", &ids));
        // Each row once, and no others.
        let mut own: Vec<i64> = ids.iter().copied().filter(|id| (0..ROWS as i64).contains(id)).collect();
        own.sort_unstable();
        own.dedup();
        assert_eq!(segments.iter().map(|segment| segment.rows).sum::<u64>(), own.len() as u64);
    }
}

#[test]
fn a_number_of_threads_that_is_a_mistake_is_refused() {
    let folder = Folder::new();
    let (input, output) = (folder.path("in"), folder.path("out"));
    f32_table(&input, "t", DIM, &rows(4, DIM, 1));
    let threads = std::num::NonZeroUsize::new(20_000);
    let error = compress(&input, &output, &CompressOptions { threads, ..options(4) }).unwrap_err();
    assert_eq!(error.to_string(), "number of threads is 20000, expected 1 to 1024");
    assert_eq!(folder.list(), ["in"]);
    compress(&input, &output, &options(4)).unwrap();
    let file = Tables::open(&output).unwrap();
    let error = verify(&file, None, &VerifyOptions { threads, ..Default::default() }, &Cpu, &quiet).unwrap_err();
    assert_eq!(error.code(), "option");
    let options = DecompressOptions { threads, ..Default::default() };
    assert_eq!(decompress(&file, folder.path("back"), &options, &Cpu, &quiet).unwrap_err().code(), "option");
}
