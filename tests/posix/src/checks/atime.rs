//! What advances the time of access, where that follows `relatime`.

use crate::check::*;
use crate::sys;
use std::path::Path;
use std::time::Duration;

checks!("atime": copy_marks_source, read_marks_atime_that_lies_ahead);

/// 2099.
const AHEAD: i64 = 4_070_908_800;

fn accessed(path: &Path) -> sys::Sys<(i64, i64)> {
    let stat = sys::lstat(path)?;
    Ok((stat.st_atime, stat.st_atime_nsec))
}

/// Whether a read moved it, as it does where it may.
#[track_caller]
pub(super) fn moved(moved: bool, what: &str) -> Outcome {
    if !moved && std::fs::read_to_string("/proc/self/mounts")?.contains("noatime") {
        return Err(Failure::Skipped("some mount is noatime".to_owned()));
    }
    ensure(moved, what)
}

/// Also where all that is known of the source has been known for a while.
fn copy_marks_source(p: &Place) -> Outcome {
    let source = p.file("f", &[b'x'; 10_000])?;
    std::thread::sleep(Duration::from_secs(3));
    let before = accessed(&source)?;
    let from = sys::open(&source, libc::O_RDONLY, 0)?;
    let to = sys::open(p.file("g", b"")?, libc::O_WRONLY, 0)?;
    equal(supported(sys::copy_file_range(&from, 0, &to, 0, 10_000), "copy_file_range")?, 10_000)?;
    moved(accessed(&source)? > before, "what is copied was read")
}

/// Each reads what nobody has read before: what is in memory already is no news to a server.
fn read_marks_atime_that_lies_ahead(p: &Place) -> Outcome {
    const APART: i64 = 4 << 20;
    let f = p.file("f", b"abc")?;
    sys::truncate(&f, 3 * APART)?;
    let before = sys::open(&f, libc::O_RDONLY, 0)?;
    for (held, at) in [(true, 1), (false, 2)] {
        sys::utimens(&f, [sys::time(AHEAD, 0), sys::time(AHEAD, 0)], 0)?;
        equal(accessed(&f)?.0, AHEAD)?;
        let new = sys::open(&f, libc::O_RDONLY, 0)?;
        equal(sys::pread(if held { &before } else { &new }, &mut [0; 10], at * APART)?, 10)?;
        moved(accessed(&f)?.0 < AHEAD, "a read brings a time that lies ahead back to the clock")?;
        equal(sys::lstat(&f)?.st_mtime, AHEAD)?;
    }
    Ok(())
}
