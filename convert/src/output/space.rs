//! Free disk space, checked before the work rather than after hours of it.

use std::fs;
use std::path::Path;

use super::folder_of;
use crate::error::Error;

/// Bytes that an ordinary user may still write to the file system that a folder is on, or would be; `None` where that is
/// not known.
#[cfg(unix)]
pub(crate) fn free_bytes(folder: &Path) -> Option<u64> {
    let folder = std::path::absolute(folder).ok()?;
    let there = folder.ancestors().find(|folder| folder.is_dir())?;
    let about = rustix::fs::statvfs(there).ok()?;
    // Some network file systems count nothing.
    (about.f_blocks > 0).then(|| about.f_bavail.saturating_mul(about.f_frsize))
}

#[cfg(not(unix))]
pub(crate) fn free_bytes(_: &Path) -> Option<u64> {
    None
}

/// Bytes of the disk that a file takes: of one that is mostly holes, fewer than it is long.
#[cfg(unix)]
fn allocated(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    fs::symlink_metadata(path).map_or(0, |about| about.blocks().saturating_mul(512))
}

#[cfg(not(unix))]
fn allocated(path: &Path) -> u64 {
    fs::symlink_metadata(path).map_or(0, |about| about.len())
}

/// Refuses an output of `needed` bytes for which the disk has no room. What its unfinished files, `begun`, take already
/// counts as room. Others may fill the disk later: this is a courtesy, not a promise.
pub(crate) fn refuse_full<'a>(output: &Path, needed: u64, begun: impl Iterator<Item = &'a Path>) -> Result<(), Error> {
    let Some(free) = free_bytes(folder_of(output)) else { return Ok(()) };
    if needed > free.saturating_add(begun.map(allocated).sum()) {
        return Err(Error::NoRoom { path: output.into(), needed, free });
    }
    Ok(())
}
