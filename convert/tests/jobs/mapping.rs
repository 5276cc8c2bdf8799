//! Opening tables reads their headers and checksums and maps nothing; decoding from files that the caller has mapped
//! touches the pages of the rows asked for.
#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::common::{Folder, compress, options};
use condprog_convert::CompressOptions;
use condprog_core::{Decoder, Missing, Output, Table};
use condprog_cpu::CpuDecoder;
use condprog_memory::{Access, MappedFile};
use condprog_table::Tables;

const ROWS: u64 = 400_000;

/// KiB of a folder's files that are mapped and in memory, by the system's count.
fn resident(folder: &Path) -> u64 {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut own, mut sum) = (false, 0);
    for line in maps.lines() {
        match line.strip_prefix("Rss:") {
            Some(size) if own => sum += size.trim().trim_end_matches(" kB").parse::<u64>().unwrap(),
            Some(_) => {}
            None if line.contains('-') && !line.contains("kB") => own = line.contains(folder.to_str().unwrap()),
            None => {}
        }
    }
    sum
}

#[test]
fn what_is_not_asked_for_stays_on_the_disk() {
    let folder = Folder::new();
    // Zero rows: quick to code, and 12 MB of records.
    let input = folder.path("in");
    let json = format!("{{\"t\":{{\"dtype\":\"BF16\",\"shape\":[{ROWS},112],\"data_offsets\":[0,{}]}}}}", ROWS * 224);
    let mut file = File::create(&input).unwrap();
    file.write_all(&(json.len() as u64).to_le_bytes()).unwrap();
    file.write_all(json.as_bytes()).unwrap();
    file.set_len(8 + json.len() as u64 + ROWS * 224).unwrap();
    let cut = CompressOptions { shard_bytes: Some(3_000_000), block_rows: None, ..options(1) };
    let report = compress(&input, &folder.path("out.safetensors"), &cut).unwrap();
    assert!(report.files.len() > 3, "{:?}", report.files);

    let tables = Tables::open(report.index.unwrap()).unwrap();
    let ids = [ROWS as i64 - 1, 200_000, -1, 200_000];
    let picked = tables.pick("t", &ids).unwrap();
    assert_eq!(picked.ids(), [1, 0, -1, 0]);
    // Of two files of one layout: two records in one run.
    assert_eq!(picked.segments().iter().map(|segment| segment.rows).collect::<Vec<_>>(), [2]);
    assert_eq!(resident(&folder.path("")), 0);

    // SAFETY: the files are this test's own, and nobody changes them.
    let open = |path| unsafe { MappedFile::open(path, Access::Random) }.unwrap();
    let mapped: Vec<_> = tables.files().map(open).collect();
    let bytes: Vec<&[u8]> = mapped.iter().map(|file| &**file).collect();
    let segments = tables.segments_in("t", &bytes).unwrap();
    assert_eq!(segments.len(), report.files.len());
    assert_eq!(resident(&folder.path("")), 0);
    let decoder = CpuDecoder::new(Table::new(&segments).unwrap()).unwrap();
    let mut row = vec![1.0; 2 * 112];
    decoder.decode(&[ROWS as i64 - 1, 200_000], Missing::Error, Output::F32(&mut row)).unwrap();
    assert_eq!(row, [0.0; 2 * 112]);
    let decoded = resident(&folder.path(""));
    // With a page, the system maps what it has in its cache beside it: up to half a megabyte on recent kernels.
    assert!((1..=2 * 640).contains(&decoded), "{decoded} KiB");

    // The count is one that could grow: reading everything brings everything in.
    let ids: Vec<i64> = (0..ROWS as i64).step_by(50).collect();
    let mut rows = vec![0.0; ids.len() * 112];
    decoder.decode(&ids, Missing::Error, Output::F32(&mut rows)).unwrap();
    assert!(resident(&folder.path("")) > 10_000);
}
