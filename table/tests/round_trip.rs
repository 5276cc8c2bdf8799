//! Compressing, restoring and verifying, from file to file.

mod common;

use common::{Folder, compress, f32_table, options, rows};
use condprog_table::source::SourceFile;
use condprog_table::{DecompressOptions, RestoredDtype, TableFile, VerifyOptions, decompress, inspect, quiet, verify};

#[test]
fn a_table_is_compressed_verified_and_restored() {
    let folder = Folder::new();
    let (input, table, restored) = (folder.path("in"), folder.path("table"), folder.path("restored"));
    f32_table(&input, "embed.weight", 32, &rows(50, 32, 1));
    let report = compress(&input, &table, &options(16)).unwrap();
    assert_eq!(report.resumed_rows, 0);
    let file = TableFile::open(&table).unwrap();
    assert_eq!(file.tables(), report.tables);
    let source = SourceFile::open(&input).unwrap();
    let found = verify(&file, Some(&source), &VerifyOptions::default(), &quiet).unwrap();
    assert!(found.is_whole(), "{found:?}");
    let found = &found.tables[0];
    assert!(found.relative_mse.unwrap() < 0.12, "{found:?}");
    assert!((found.norm_ratio.unwrap() - 1.0).abs() < 0.01, "{found:?}");
    let summary = &inspect(&file)[0];
    assert_eq!(summary.segments[0].variants[0], 50);
    let dtype = RestoredDtype::F32;
    decompress(&file, &restored, &DecompressOptions { dtype, ..Default::default() }, &quiet).unwrap();
    let info = SourceFile::open(&restored).unwrap().info("embed.weight").unwrap();
    assert_eq!((info.rows, info.dim), (50, 32));
}
