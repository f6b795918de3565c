//! Whose credentials the kernel moves data with in passthrough mode: those of the thread that registered the backing file.
//!
//! As root it would fill the blocks that a file system reserves for root, for whoever writes, and pass over the quotas of the file
//! system below. The reserved blocks are what catalogs and log files live on when the disk is full.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use std::io;

/// A user that owns nothing and that nothing is reserved for.
const NOBODY: libc::uid_t = u32::MAX - 1;

/// Runs `register` in this thread as a user with no claim on what is reserved.
pub fn with_no_reserve<T>(register: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let _lowered = Lowered::new()?;
    register()
}

/// This thread's credentials, lowered as long as it lives.
struct Lowered {
    before: CapabilitySets,
}

impl Lowered {
    fn new() -> io::Result<Self> {
        let before = capabilities(None)?;
        let mut lowered = before;
        lowered.effective.remove(CapabilitySet::SYS_RESOURCE);
        set_capabilities(None, lowered)?;
        set_fs_user(NOBODY);
        Ok(Self { before })
    }
}

impl Drop for Lowered {
    fn drop(&mut self) {
        set_fs_user(rustix::process::geteuid().as_raw());
        if let Err(error) = set_capabilities(None, self.before) {
            tracing::error!(%error, "a thread could not get its capabilities back");
        }
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
    fn a_thread_is_itself_again_afterwards() {
        let before = capabilities(None).unwrap();
        let within = with_no_reserve(|| Ok(capabilities(None)?)).unwrap();
        assert!(!within.effective.contains(CapabilitySet::SYS_RESOURCE));
        assert_eq!(
            within.effective.contains(CapabilitySet::SYS_ADMIN),
            before.effective.contains(CapabilitySet::SYS_ADMIN)
        );
        assert_eq!(capabilities(None).unwrap(), before);
        // Asked with a user that cannot be, it answers who it is.
        // SAFETY: as above.
        assert_eq!(unsafe { libc::setfsuid(u32::MAX) } as u32, rustix::process::geteuid().as_raw());
    }
}
