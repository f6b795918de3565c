//! Whose credentials the kernel moves data with in passthrough mode: those of the thread that registered the backing file.
//!
//! As root it would fill the blocks that a file system reserves for root, for whoever writes, and pass over the quotas of the file
//! system below. The reserved blocks are what catalogs and log files live on when the disk is full.

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::cell::Cell;
use std::io;

/// A user that owns nothing and that nothing is reserved for.
const NOBODY: libc::uid_t = u32::MAX - 1;

thread_local! {
    /// This thread has given up its claim for good. It keeps root's user id, and that alone lets root's own work have what
    /// is reserved; only what it registers goes without.
    static GIVEN_UP: Cell<bool> = const { Cell::new(false) };
}

/// Runs `register` in this thread as a user with no claim on what is reserved. Registering is on the way of every create and
/// open: after the first time this takes two system calls.
pub fn with_no_reserve<T>(register: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    if !GIVEN_UP.get() {
        let mut lowered = capabilities(None)?;
        lowered.effective.remove(CapabilitySet::SYS_RESOURCE);
        set_capabilities(None, lowered)?;
        GIVEN_UP.set(true);
    }
    let _nobody = Nobody::new();
    register()
}

/// This thread's user id for files, as long as it lives.
struct Nobody;

impl Nobody {
    fn new() -> Self {
        set_fs_user(NOBODY);
        Self
    }
}

impl Drop for Nobody {
    fn drop(&mut self) {
        set_fs_user(rustix::process::geteuid().as_raw());
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
    fn a_thread_is_itself_again_afterwards_but_for_its_claim() {
        let before = capabilities(None).unwrap();
        let within = with_no_reserve(|| Ok(capabilities(None)?)).unwrap();
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
