//! No room for the output. Needs a file system of a few kilobytes, which Linux gives to anyone in a namespace of their
//! own where the system allows that; elsewhere the test says that it did nothing.
#![cfg(target_os = "linux")]

mod common;

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Folder, compress, f32_table, options, rows};
use condprog_table::{DecompressOptions, Error, TableFile, decompress, quiet};

/// The variable that makes [`child`] do its work in a folder that has a file system of 16 KiB mounted in it.
const CHILD: &str = "CONDPROG_TABLE_TEST_DISK";

#[test]
fn no_room_is_said_and_leaves_nothing_that_looks_finished() {
    let folder = Folder::new();
    fs::create_dir(folder.path("small")).unwrap();
    f32_table(&folder.path("in"), "t", 64, &rows(1200, 64, 1));
    f32_table(&folder.path("few"), "t", 64, &rows(200, 64, 1));
    compress(&folder.path("few"), &folder.path("table"), &options(32)).unwrap();
    let script = "mount -t tmpfs -o size=16k none \"$0/small\" && exec \"$1\" child --exact --nocapture";
    let result = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .arg(folder.path(""))
        .arg(env::current_exe().unwrap())
        .env(CHILD, folder.path(""))
        .output();
    match result {
        Ok(output) if String::from_utf8_lossy(&output.stdout).contains("running 1 test") => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        }
        other => eprintln!("not tested: this system mounts no small file system for us ({other:?})"),
    }
}

#[test]
fn child() {
    let Some(folder) = env::var_os(CHILD) else { return };
    let folder = Path::new(&folder);
    let small = folder.join("small");
    let list = || {
        let names = fs::read_dir(&small).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    let says = |error: Error| {
        assert!(matches!(error, Error::DiskFull { .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains("no space left; ") && message.ends_with(" bytes are needed in all"), "{message}");
    };
    // 22 KB of records; and 26 KB restored, with less than that left.
    says(compress(&folder.join("in"), &small.join("out"), &options(32)).unwrap_err());
    assert_eq!(list(), ["out.condprog-journal", "out.condprog-partial"]);
    let table = TableFile::open(folder.join("table")).unwrap();
    says(decompress(&table, small.join("restored"), &DecompressOptions::default(), &quiet).unwrap_err());
    assert_eq!(list(), ["out.condprog-journal", "out.condprog-partial"]);
    // With more room, the run goes on.
    for name in list() {
        fs::copy(small.join(&name), folder.join(&name)).unwrap();
    }
    let report = compress(&folder.join("in"), &folder.join("out"), &options(32)).unwrap();
    assert!(report.resumed_rows > 200, "{}", report.resumed_rows);
    compress(&folder.join("in"), &folder.join("whole"), &options(32)).unwrap();
    assert_eq!(fs::read(folder.join("out")).unwrap(), fs::read(folder.join("whole")).unwrap());
}
