//! Project quotas: system calls that no crate wraps.

use rustix::fd::{AsFd, AsRawFd};
use std::io;

/// `QCMD(command, PRJQUOTA)`.
const SET: u32 = 0x80_0008 << 8 | 2;
const NEXT: u32 = 0x80_0009 << 8 | 2;
/// `QIF_BLIMITS`.
const BLOCK_LIMITS: u32 = 1;
/// In which the kernel counts limits of blocks.
const UNIT: u64 = 1024;

/// `struct if_nextdqblk`, of which `struct if_dqblk` is all but the last field.
#[repr(C)]
#[derive(Default)]
struct Quota {
    block_hard: u64,
    block_soft: u64,
    space: u64,
    inode_hard: u64,
    inode_soft: u64,
    inodes: u64,
    block_time: u64,
    inode_time: u64,
    valid: u32,
    project: u32,
}

/// What the kernel knows of a project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes that its files may take.
    pub blocks: Option<u64>,
    /// Bytes that they take.
    pub used: u64,
    /// How many they are.
    pub inodes: u64,
}

/// Limits what the files of a project may take, in bytes; with none there is no limit.
pub(crate) fn limit(root: impl AsFd, project: u32, bytes: Option<u64>) -> io::Result<()> {
    // No limit is 0 to the kernel, so that the least one is a unit.
    let block_hard = bytes.map_or(0, |bytes| (bytes / UNIT).max(1));
    let mut quota = Quota { block_hard, valid: BLOCK_LIMITS, ..Quota::default() };
    call(root, SET, project, &mut quota)
}

/// The first project from this number on that the kernel knows something of.
pub(crate) fn next(root: impl AsFd, project: u32) -> io::Result<Option<(u32, Limits)>> {
    let mut quota = Quota::default();
    match call(root, NEXT, project, &mut quota) {
        Ok(()) => {
            let blocks = (quota.block_hard > 0).then_some(quota.block_hard * UNIT);
            Ok(Some((quota.project, Limits { blocks, used: quota.space, inodes: quota.inodes })))
        }
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

fn call(root: impl AsFd, command: u32, project: u32, quota: &mut Quota) -> io::Result<()> {
    let root = root.as_fd().as_raw_fd();
    // SAFETY: the kernel reads or writes one structure of this layout, which outlives the call.
    match unsafe { libc::syscall(libc::SYS_quotactl_fd, root, command, project, std::ptr::from_mut(quota)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structure_is_as_large_as_the_kernels() {
        assert_eq!(size_of::<Quota>(), 72);
    }
}
