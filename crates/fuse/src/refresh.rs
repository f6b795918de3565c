//! Making the kernel take a node's attributes from us.

use crate::entrance::Entrance;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use ullage_types::NodeId;

/// Makes the kernel send a SETATTR, and take what it is answered, while nobody writes to the file: there is no
/// notification that does it, and what a GETATTR is answered is not taken while somebody writes. Nothing stays open: the mount is as free
/// to go as before.
pub(crate) fn refresh(entrance: &mut Entrance, node: NodeId, opener: u32) -> io::Result<()> {
    let file = entrance.file(node.0, opener)?;
    // Of all that changes attributes this can be ended by a signal while it waits, and asks for nothing else.
    rustix::fs::chmodat(CWD, format!("/proc/self/fd/{}", file.as_raw_fd()), Mode::empty(), AtFlags::empty())?;
    Ok(())
}

/// A file without a name in the root of the mount, opened to be written.
pub(crate) fn unnamed(entrance: &Entrance) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(entrance.root()?, ".", flags, Mode::RUSR | Mode::WUSR)?.into())
}
