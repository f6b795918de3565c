//! The time that new timestamps get.
//!
//! It must be neither earlier than one that a file below already has, nor later than one that such a file gets afterwards: whoever
//! compares two files sees which came first. Until Linux 6.13 that is the coarse clock. Since then a file whose times somebody has seen
//! gets a fine one at its next change, and no later change anywhere gets an earlier time. Only the kernel knows that bound, so a file in memory,
//! which belongs to nobody else, is changed and looked at: 1.1 µs, twice that where another thread did so since.

use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, fstat, futimens, memfd_create};
use rustix::time::{ClockId, clock_gettime};
use std::sync::OnceLock;
use ullage_types::Timestamp;

/// Whether the kernel gives fine times.
static IS_FINE: OnceLock<bool> = OnceLock::new();

thread_local! {
    /// Each thread has its own: a change takes the file's lock.
    static FILE: Option<OwnedFd> = memfd_create("clock", MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL).ok();
}

/// The kernel's time for a file that changes now. Where it gives fine times, what changes after this call gets a later one, of this or
/// another thread, or in the kernel alone.
pub fn now() -> Timestamp {
    let fine = *IS_FINE.get_or_init(gives_fine_times);
    if fine && let Some(stamp) = FILE.with(|file| between(file.as_ref()?)) {
        return stamp;
    }
    timestamp(ClockId::RealtimeCoarse)
}

/// One that was made just now, and not what a thread whose file was changed before another's is given: the other's stamp. The file's was seen
/// then, so that it is given one of its own the next time. No change of before is later than the clock when this began, and none from here
/// on earlier than the stamp: the moment before it lies between them.
fn between(file: &OwnedFd) -> Option<Timestamp> {
    const TRIES: u32 = 3;
    let mut given = None;
    for _ in 0..TRIES {
        let began = timestamp(ClockId::Realtime);
        let time = stamp(file)?;
        if time > began {
            return Some(just_before(time));
        }
        given = Some(time);
    }
    given
}

fn just_before(time: Timestamp) -> Timestamp {
    match time.nanoseconds.checked_sub(1) {
        Some(nanoseconds) => Timestamp { nanoseconds, ..time },
        None => Timestamp { seconds: time.seconds - 1, nanoseconds: 999_999_999 },
    }
}

fn timestamp(clock: ClockId) -> Timestamp {
    let time = clock_gettime(clock);
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

    /// Regression: a thread whose file was changed last before another's was given the other's time, and who had seen that took what changed
    /// then for unchanged.
    #[test]
    fn no_thread_is_given_the_time_of_another_before_it() {
        for _ in 0..100 {
            let (first, second) = (now(), std::thread::spawn(now).join().unwrap());
            assert!(first < second || !IS_FINE.get().unwrap(), "{first:?} {second:?}");
        }
    }

    /// Regression: a file that was made, seen, and written for the first time within a tick looked unchanged.
    #[test]
    fn what_the_kernel_changes_unseen_after_a_time_was_given_has_a_later_one() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..200 {
            let mut file = std::fs::File::create(dir.path().join(number.to_string())).unwrap();
            let time = now();
            file.write_all(b"x").unwrap();
            let found = file.metadata().unwrap();
            let written = Timestamp { seconds: found.mtime(), nanoseconds: found.mtime_nsec() as u32 };
            assert!(time < written || !IS_FINE.get().unwrap(), "{time:?} {written:?}");
        }
    }

    #[test]
    fn the_moment_before_a_second_is_in_the_one_before() {
        let at = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
        assert_eq!([at(7, 5), at(7, 0)].map(just_before), [at(7, 4), at(6, 999_999_999)]);
    }
}
