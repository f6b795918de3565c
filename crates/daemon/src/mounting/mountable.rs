//! Whether this process can mount at all, asked before anything is made.

use crate::{Error, Result};
use std::io::ErrorKind;
use std::path::PathBuf;

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
/// Where it is looked for without PATH, which mount(8) takes away from who is not root: as execvp(3) does.
const PLACES: &str = "/bin:/usr/bin";

/// [`Error::Refused`] says what is missing and who can do what about it.
pub(crate) fn refuse_unmountable() -> Result<()> {
    let refused = |text: String| Err(Error::Refused(text));
    let root = rustix::process::geteuid().is_root();
    if root && !may_mount() {
        return refused(
            "this process is root without the right to mount (CAP_SYS_ADMIN): a container has it with `--cap-add SYS_ADMIN \
             --device /dev/fuse`"
                .to_owned(),
        );
    }
    if !root && helper().is_none() {
        return refused(format!(
            "{HELPER} is not installed, and only root mounts without it: an administrator installs it with Debian's package fuse3"
        ));
    }
    match std::fs::OpenOptions::new().read(true).write(true).open(DEVICE).map_err(|error| error.kind()) {
        Err(ErrorKind::NotFound) => {
            refused(format!("there is no {DEVICE}: the kernel's module is loaded with `modprobe fuse`"))
        }
        Err(ErrorKind::PermissionDenied) => {
            refused(format!("{DEVICE} is not open to you: an administrator opens it with `chmod a+rw {DEVICE}`"))
        }
        // What else is wrong the mount itself says.
        _ => Ok(()),
    }
}

fn may_mount() -> bool {
    use rustix::thread::{CapabilitySet, capabilities};
    // Where it cannot be asked the mount itself tells.
    capabilities(None).map_or(true, |sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

fn helper() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| PLACES.into());
    std::env::split_paths(&path).map(|directory| directory.join(HELPER)).find(|helper| helper.is_file())
}
