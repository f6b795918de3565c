//! Extended attributes of what is imported.

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use ullage_pool::by_descriptor;

pub(super) type Attribute = (Vec<u8>, Vec<u8>);

/// Extended attributes, our own excepted, as far as they could be read.
pub(super) struct Told {
    found: Vec<Attribute>,
    all: bool,
}

impl Told {
    /// With those that can be read by now, as what was read before still is.
    pub fn all_of(mut self, above: &OwnedFd, name: &[u8]) -> rustix::io::Result<Vec<Attribute>> {
        if !self.all {
            let more = xattrs(above, name)?;
            if !more.all {
                return Err(Errno::ACCESS);
            }
            for new in more.found {
                if self.found.iter().all(|(known, _)| *known != new.0) {
                    self.found.push(new);
                }
            }
        }
        Ok(self.found)
    }
}

/// Those of a name. What is no regular file has some too: the ACL of a pipe, the label of a symbolic link.
pub(super) fn xattrs(above: &OwnedFd, name: &[u8]) -> rustix::io::Result<Told> {
    let mut told = Told { found: Vec::new(), all: true };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(above, name, flags, Mode::empty())?;
    let path = by_descriptor(&file);
    let mut names = vec![0u8; 65536];
    let length = match rustix::fs::listxattr(&*path, &mut names[..]) {
        Err(Errno::NOTSUP) => 0,
        other => other?,
    };
    names.truncate(length);
    for name in names.split(|byte| *byte == 0) {
        // What root sees of xfs's own way to keep an ACL is the ACL once more.
        let is_acl = name.starts_with(b"trusted.SGI_ACL_");
        if name.is_empty() || is_acl || name == b"user.ullage" || name.starts_with(b"user.ullage.") {
            continue;
        }
        let mut value = vec![0u8; 65536];
        match rustix::fs::getxattr(&*path, name, &mut value[..]) {
            Ok(length) => value.truncate(length),
            Err(Errno::ACCESS) => {
                told.all = false;
                continue;
            }
            Err(errno) => return Err(errno),
        }
        told.found.push((name.to_vec(), value));
    }
    Ok(told)
}
