//! Users' data is written with no claim on what a file system reserves for root: by the server as well as in passthrough mode,
//! where the kernel writes with the credentials of the thread that registered the backing file.
//!
//! As root it would fill the reserved blocks for whoever writes, and pass over the quotas of the file system below. The
//! reserved blocks are what catalogs and log files live on when the disk is full.

use rustix::fs::fstatvfs;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A user that owns nothing and that nothing is reserved for.
const NOBODY: libc::uid_t = u32::MAX - 1;

thread_local! {
    /// Whom this thread works for, once it has given up its claim for good. As root it keeps the user id, and that alone lets
    /// root's own work have what is reserved; only what runs in here goes without.
    static GIVEN_UP_BY: Cell<Option<libc::uid_t>> = const { Cell::new(None) };
}

/// Runs `work` in this thread as a user with no claim on what is reserved: after the first time this takes two system
/// calls, and none where we are an ordinary user ourselves.
///
/// # Errors
/// Those of `work`, and when the claim cannot be given up.
pub fn without_reserve<T, E: From<io::Error>>(work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let _nobody = (give_up()? == 0).then(Nobody::new);
    work()
}

/// Gives up this thread's capability for good, and says whom it works for.
fn give_up() -> io::Result<libc::uid_t> {
    if let Some(user) = GIVEN_UP_BY.get() {
        return Ok(user);
    }
    let mut lowered = capabilities(None).map_err(io::Error::from)?;
    lowered.effective.remove(CapabilitySet::SYS_RESOURCE);
    set_capabilities(None, lowered).map_err(io::Error::from)?;
    let user = rustix::process::geteuid().as_raw();
    GIVEN_UP_BY.set(Some(user));
    Ok(user)
}

/// What is known of how far a file system is from what it reserves. Writes ask it: the two system calls take longer than a
/// write of 4 KiB itself.
#[derive(Default)]
pub(crate) struct Distance {
    /// Until when the answer holds, by the coarse clock in nanoseconds; its last bit is the answer.
    known: AtomicU64,
}

impl Distance {
    /// As [`without_reserve`] for a piece of data, unless so much is free that nobody could come to what is reserved before it
    /// is looked at again.
    pub(crate) fn keep<T, E: From<io::Error>>(&self, file: &File, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let _nobody = (give_up()? == 0 && !self.is_far(file)).then(Nobody::new);
        work()
    }

    fn is_far(&self, file: &File) -> bool {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
        let now = Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
        let known = self.known.load(Relaxed);
        if now.as_nanos() < u128::from(known) {
            return known & 1 == 1;
        }
        let (holds, far) = fstatvfs(file).map_or((TICK, false), |of| distance(of.f_bavail, of.f_bfree, of.f_frsize));
        self.known.store((now + holds).as_nanos() as u64 & !1 | u64::from(far), Relaxed);
        far
    }
}

/// The coarse clock is never behind by more.
const TICK: Duration = Duration::from_millis(10);

/// How long it holds, and whether what is reserved is far away, when so many blocks are free for all and so many in all.
fn distance(for_all: u64, free: u64, block: u64) -> (Duration, bool) {
    /// Bytes a second that nothing writes faster than.
    const FASTEST: u64 = 32 << 30;
    const LONGEST: Duration = Duration::from_millis(100);
    if for_all > 0 && for_all == free {
        return (LONGEST, true);
    }
    let left =
        Duration::from_nanos((u128::from(for_all.saturating_mul(block)) * 1_000_000_000 / u128::from(FASTEST)) as u64);
    if left < 2 * TICK { (TICK, false) } else { (left.min(LONGEST).saturating_sub(TICK), true) }
}

/// This thread's user id for files is nobody's, as long as it lives.
struct Nobody;

impl Nobody {
    fn new() -> Self {
        set_fs_user(NOBODY);
        Self
    }
}

impl Drop for Nobody {
    fn drop(&mut self) {
        set_fs_user(0);
    }
}

fn set_fs_user(uid: libc::uid_t) {
    // SAFETY: it takes a number, changes this thread only, and touches no memory.
    unsafe { libc::setfsuid(uid) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_is_far_only_while_nobody_can_come_to_it() {
        const GIB: u64 = (1 << 30) / 4096;
        assert_eq!(distance(0, GIB, 4096), (TICK, false));
        assert_eq!(distance(0, 0, 4096), (TICK, false));
        assert_eq!(distance(GIB / 2, GIB, 4096), (TICK, false));
        assert_eq!(distance(GIB, 2 * GIB, 4096), (Duration::from_micros(21_250), true));
        assert_eq!(distance(1000 * GIB, 1001 * GIB, 4096), (Duration::from_millis(90), true));
        // Nothing is reserved.
        assert!(distance(1, 1, 4096).1);
    }

    #[test]
    fn a_thread_is_itself_again_afterwards_but_for_its_claim() {
        let before = capabilities(None).unwrap();
        let within = without_reserve(|| capabilities(None).map_err(io::Error::from)).unwrap();
        assert!(!within.effective.contains(CapabilitySet::SYS_RESOURCE));
        assert_eq!(
            within.effective.contains(CapabilitySet::SYS_ADMIN),
            before.effective.contains(CapabilitySet::SYS_ADMIN)
        );
        let mut expected = before;
        expected.effective.remove(CapabilitySet::SYS_RESOURCE);
        assert_eq!(capabilities(None).unwrap(), expected);
        // Asked with a user that cannot be, it answers who it is.
        // SAFETY: as above.
        assert_eq!(unsafe { libc::setfsuid(u32::MAX) } as u32, rustix::process::geteuid().as_raw());
    }
}
