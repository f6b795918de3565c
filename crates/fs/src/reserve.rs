//! Users' data is written with no claim on what a file system reserves for root: by the server as well as in passthrough mode,
//! where the kernel writes with the credentials of the thread that registered the backing file.
//!
//! As root it would fill the reserved blocks for whoever writes, and pass over the quotas of the file system below. The
//! reserved blocks are what catalogs and log files live on when the disk is full.

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::cell::Cell;
use std::io;

/// A user that owns nothing and that nothing is reserved for.
const NOBODY: libc::uid_t = u32::MAX - 1;

thread_local! {
    /// Whom this thread works for, once it has given up its claim for good. As root it keeps the user id, and that alone lets
    /// root's own work have what is reserved; only what runs in here goes without.
    static GIVEN_UP_BY: Cell<Option<libc::uid_t>> = const { Cell::new(None) };
}

/// Runs `work` in this thread as a user with no claim on what is reserved. It is on the way of every create, open and
/// write: after the first time this takes two system calls, and none where we are an ordinary user ourselves.
///
/// # Errors
/// Those of `work`, and when the claim cannot be given up.
pub fn without_reserve<T, E: From<io::Error>>(work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let user = if let Some(user) = GIVEN_UP_BY.get() {
        user
    } else {
        let mut lowered = capabilities(None).map_err(io::Error::from)?;
        lowered.effective.remove(CapabilitySet::SYS_RESOURCE);
        set_capabilities(None, lowered).map_err(io::Error::from)?;
        let user = rustix::process::geteuid().as_raw();
        GIVEN_UP_BY.set(Some(user));
        user
    };
    let _nobody = (user == 0).then(Nobody::new);
    work()
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
