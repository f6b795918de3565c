//! The time that new timestamps get.
//!
//! It must be neither earlier than one that a file below already has, nor later than one that such a file gets afterwards: whoever
//! compares two files sees which came first. Until Linux 6.13 that is the coarse clock. Since then a file whose times somebody has seen
//! gets a fine one at its next change, and no later change anywhere gets an earlier time. Only the kernel knows that bound, so a file in memory,
//! which belongs to nobody else, is changed and looked at: 1.1 µs.

use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, fstat, futimens, memfd_create};
use std::sync::OnceLock;
use ullage_types::Timestamp;

/// Whether the kernel gives fine times.
static IS_FINE: OnceLock<bool> = OnceLock::new();

thread_local! {
    /// Each thread has its own: a change takes the file's lock.
    static FILE: Option<OwnedFd> = memfd_create("clock", MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL).ok();
}

/// The kernel's time for a file that changes now. Two calls never give the same one where it gives fine times.
pub fn now() -> Timestamp {
    let fine = *IS_FINE.get_or_init(gives_fine_times);
    if fine && let Some(stamp) = FILE.with(|file| stamp(file.as_ref()?)) {
        return stamp;
    }
    let time = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec as u32 }
}

fn stamp(file: &OwnedFd) -> Option<Timestamp> {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    let times = Timestamps { last_access: special(UTIME_OMIT), last_modification: special(UTIME_NOW) };
    futimens(file, &times).ok()?;
    let stat = fstat(file).ok()?;
    Some(Timestamp { seconds: stat.st_ctime, nanoseconds: u32::try_from(stat.st_ctime_nsec).ok()? })
}

/// Three in a row that differ: the coarse clock has one tick at most meanwhile.
fn gives_fine_times() -> bool {
    FILE.with(|file| {
        let file = file.as_ref()?;
        let stamps = [stamp(file)?, stamp(file)?, stamp(file)?];
        Some(stamps[0] < stamps[1] && stamps[1] < stamps[2])
    })
    .unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;

    /// The coarse clock alone was behind files that had been looked at and changed again, by up to a tick.
    #[test]
    fn a_time_is_never_before_a_file_changed_earlier_nor_after_one_changed_later() {
        let mut file = tempfile::tempfile().unwrap();
        let mut change = || {
            file.write_all(b"x").unwrap();
            let found = file.metadata().unwrap();
            Timestamp { seconds: found.ctime(), nanoseconds: found.ctime_nsec() as u32 }
        };
        for _ in 0..1000 {
            let (before, time, after) = (change(), now(), change());
            assert!(before <= time && time <= after, "{before:?} {time:?} {after:?}");
        }
    }
}
