//! No room for the output. Needs a file system of a few kilobytes, which Linux gives to anyone in a namespace of their
//! own where the system allows that; elsewhere the test says that it did nothing.
#![cfg(target_os = "linux")]

use std::env;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;

use crate::common::{Cpu, Folder, compress, f32_bytes, f32_table, options, rows, write};
use condprog_convert::{DecompressOptions, Error, Update, compress_file, decompress};
use condprog_table::Tables;
use safetensors::tensor::Dtype;

/// The variable that makes [`child`] do its work in a folder that has a file system of 64 KiB mounted in it.
const CHILD: &str = "CONDPROG_TABLE_TEST_DISK";

#[test]
fn no_room_is_said_and_leaves_nothing_that_looks_finished() {
    let folder = Folder::new();
    fs::create_dir(folder.path("small")).unwrap();
    f32_table(&folder.path("in"), "t", 64, &rows(1200, 64, 1));
    f32_table(&folder.path("large"), "t", 64, &rows(4200, 64, 1));
    let few = ["t", "u"].map(|name| (name, Dtype::F32, vec![100, 64], f32_bytes(&rows(100, 64, 1))));
    write(&folder.path("few"), &few);
    compress(&folder.path("few"), &folder.path("table"), &options(32)).unwrap();
    let script = "mount -t tmpfs -o size=64k none \"$0/small\" && exec \"$1\" disk_full::child --exact --nocapture";
    let result = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .arg(folder.path(""))
        .arg(env::current_exe().unwrap())
        .env(CHILD, folder.path(""))
        .output();
    match result {
        Ok(output) if String::from_utf8_lossy(&output.stdout).contains("running 1 test") => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
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
    let says = |error: Error, goes_on: bool| {
        assert!(matches!(error, Error::DiskFull { resumes, .. } if resumes == goes_on), "{error}");
        let message = error.to_string();
        assert!(message.contains("no space left; ") && message.ends_with(" bytes are needed in all"), "{message}");
    };
    // 77 KB of records are too many, and so are 307 KB restored: said before any work.
    let large = |input: &str, output: &str| compress(&folder.join(input), &small.join(output), &options(32));
    let error = large("large", "out").unwrap_err();
    assert!(matches!(error, Error::NoRoom { needed: 77_000..90_000, free: 60_000..70_000, .. }), "{error}");
    assert!(list().is_empty());
    // Somebody else fills the disk while 22 KB of records are written; and while 26 KB are restored, after the first table.
    let fill = |update: &Update<'_>| {
        if update.rows_done >= 32 && !small.join("other").exists() {
            let mut other = fs::File::create(small.join("other")).unwrap();
            while std::io::Write::write_all(&mut other, &[1; 512]).is_ok() {}
        }
        ControlFlow::Continue(())
    };
    says(compress_file(folder.join("in"), &[], small.join("out"), &options(32), &Cpu, &fill).unwrap_err(), true);
    assert_eq!(list(), ["other", "out.condprog-journal", "out.condprog-partial"]);
    fs::remove_file(small.join("other")).unwrap();
    let table = Tables::open(folder.join("table")).unwrap();
    says(decompress(&table, small.join("restored"), &DecompressOptions::default(), &Cpu, &fill).unwrap_err(), false);
    fs::remove_file(small.join("other")).unwrap();
    assert_eq!(list(), ["out.condprog-journal", "out.condprog-partial"]);
    // With more room, the run goes on.
    for name in list() {
        fs::copy(small.join(&name), folder.join(&name)).unwrap();
    }
    let report = compress(&folder.join("in"), &folder.join("out"), &options(32)).unwrap();
    assert!(report.resumed_rows >= 32, "{}", report.resumed_rows);
    compress(&folder.join("in"), &folder.join("whole"), &options(32)).unwrap();
    assert_eq!(fs::read(folder.join("out")).unwrap(), fs::read(folder.join("whole")).unwrap());
}
