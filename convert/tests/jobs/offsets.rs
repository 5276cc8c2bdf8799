//! Rows past 2^31 and bytes past 2^32: a file of 137 GB, nearly all of it a hole.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use crate::common::{Cpu, Folder, bf16_bytes, decode, options, rows, write};
use condprog_checkpoint::{Checkpoint, RowSource};
use condprog_convert::{CompressOptions, DecompressOptions, PartOf, RestoredDtype, compress_file, decompress, quiet};
use condprog_table::Tables;
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;

const ROWS: u64 = (1 << 31) + 5_000;
const DIM: usize = 32;
const ROW_BYTES: u64 = 2 * DIM as u64;

/// Where there are rows that are not zeros: at the start, around row 2^26, where bytes pass 2^32, around row 2^31, and at
/// the end.
const REAL: [u64; 4] = [0, (1 << 26) - 20, (1 << 31) - 20, ROWS - 40];
const COUNT: u64 = 40;

/// A table `t`, BF16; false where the file system has no holes, or none so large.
fn sparse(path: &Path) -> bool {
    let json =
        format!("{{\"t\":{{\"dtype\":\"BF16\",\"shape\":[{ROWS},{DIM}],\"data_offsets\":[0,{}]}}}}", ROWS * ROW_BYTES);
    let mut file = File::create(path).unwrap();
    file.write_all(&(json.len() as u64).to_le_bytes()).unwrap();
    file.write_all(json.as_bytes()).unwrap();
    let start = 8 + json.len() as u64;
    if let Err(error) = file.set_len(start + ROWS * ROW_BYTES) {
        eprintln!("not tested: no file so large ({error})");
        return false;
    }
    for (seed, first) in (0..).zip(REAL) {
        file.seek(SeekFrom::Start(start + first * ROW_BYTES)).unwrap();
        file.write_all(&bf16_bytes(&rows(COUNT as usize, DIM, seed))).unwrap();
    }
    true
}

#[test]
fn rows_past_31_bits_and_bytes_past_32_are_the_same_as_those_of_a_small_file() {
    let folder = Folder::new();
    let input = folder.path("in");
    if !sparse(&input) {
        return;
    }
    let checkpoint = Checkpoint::open(&input).unwrap();
    let mut table = checkpoint.table("t").unwrap();
    assert_eq!((table.info().rows, table.info().bytes()), (ROWS, ROWS * ROW_BYTES));
    for (seed, first) in (0..).zip(REAL) {
        let expected = rows(COUNT as usize, DIM, seed);
        let expected: Vec<_> = expected.iter().map(|&value| half::bf16::from_f32(value).to_f32()).collect();
        let raw = table.read(first, COUNT as usize).unwrap();
        let mut values = vec![0.0; COUNT as usize * DIM];
        raw.to_f32(0..COUNT as usize, &mut values);
        assert_eq!(values, expected);

        // A part with holes around the rows, as far as the table goes.
        let part = first.saturating_sub(30)..(first + COUNT + 30).min(ROWS);
        let output = folder.path("part");
        let options = |rows: Option<_>| CompressOptions { part: rows.map(PartOf::Rows), force: true, ..options(16) };
        compress_file(&input, &[], &output, &options(Some(part.clone())), &Cpu, &quiet).unwrap();
        let big = Tables::open(&output).unwrap();
        let about = &big.tables()[0];
        assert_eq!((about.first_row, about.rows, about.table_rows), (part.start, part.end - part.start, ROWS));
        assert_eq!(about.zero_rows, about.rows - COUNT);

        let before = (first - part.start) as usize;
        let mut values = vec![0.0; before * DIM];
        values.extend(&expected);
        values.resize(about.rows as usize * DIM, 0.0);
        let shape = vec![about.rows as usize, DIM];
        write(&folder.path("small"), &[("t", Dtype::BF16, shape, bf16_bytes(&values))]);
        compress_file(folder.path("small"), &[], folder.path("table"), &options(None), &Cpu, &quiet).unwrap();
        let small = Tables::open(folder.path("table")).unwrap();
        let records = |file: &Tables| file.load("t").unwrap().segments()[0].records.to_vec();
        assert_eq!(records(&big), records(&small));
        let ids: Vec<_> = (0..about.rows as i64).chain([-1, ROWS as i64]).collect();
        assert_eq!(decode(&big, "t", &ids), decode(&small, "t", &ids));

        // The same rows again, as the source has them.
        let source = DecompressOptions { dtype: RestoredDtype::Source, force: true, ..Default::default() };
        let restored = [(&big, "big"), (&small, "back")].map(|(file, name)| {
            decompress(file, folder.path(name), &source, &Cpu, &quiet).unwrap();
            let bytes = std::fs::read(folder.path(name)).unwrap();
            SafeTensors::deserialize(&bytes).unwrap().tensor("t").unwrap().data().to_vec()
        });
        assert_eq!(restored[0], restored[1]);
    }
    // A row past the last is one too many.
    let options = CompressOptions { part: Some(PartOf::Rows(ROWS - 1..ROWS + 1)), force: true, ..options(16) };
    assert_eq!(
        compress_file(&input, &[], folder.path("part"), &options, &Cpu, &quiet).unwrap_err().code(),
        "part-rows"
    );
}
