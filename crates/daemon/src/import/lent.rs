//! Permissions that something of an ordinary user's has for a while, and gives back whatever happens.

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use ullage_pool::{by_descriptor, chmod};

/// What is lent until this is dropped.
#[derive(Default)]
pub(super) struct Lent(Option<(OwnedFd, u32)>);

impl Lent {
    /// Gives `bits` to something that has this mode.
    pub fn to(above: &OwnedFd, name: &[u8], mode: u32, bits: u32) -> rustix::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let what = rustix::fs::openat(above, name, flags, Mode::empty())?;
        chmod(&what, mode | bits)?;
        Ok(Self(Some((what, mode))))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some((what, mode)) = &self.0 else { return };
        if let Err(error) = chmod(what, *mode) {
            let path = std::fs::read_link(by_descriptor(what)).unwrap_or_default();
            let path = path.display();
            tracing::warn!("{path} did not get its permissions back ({error}): `chmod {mode:o}` gives them to it");
        }
    }
}
