//! Which file system something lies on.

use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;

/// `_IOR(BTRFS_IOCTL_MAGIC, 31, struct btrfs_ioctl_fs_info_args)`.
const BTRFS_IOC_FS_INFO: libc::c_ulong = 0x8400_941f;

/// As far as we read it.
#[repr(C)]
struct FsInfo {
    largest_device: u64,
    devices: u64,
    uuid: [u8; 16],
    rest: [u8; 992],
}

/// A number that everything on one file system has, and nothing else: its device, but that of a subvolume of btrfs is its own, while all of them
/// have the same room.
///
/// # Errors
/// Of fstat(2) and fstatfs(2).
pub fn disk_of(file: impl AsFd) -> rustix::io::Result<u64> {
    let device = rustix::fs::fstat(&file)?.st_dev;
    if rustix::fs::fstatfs(&file)?.f_type != libc::BTRFS_SUPER_MAGIC {
        return Ok(device);
    }
    Ok(uuid(file).map_or(device, |uuid| u64::from_le_bytes(uuid[..8].try_into().expect("eight of sixteen bytes"))))
}

fn uuid(file: impl AsFd) -> rustix::io::Result<[u8; 16]> {
    let mut info = FsInfo { largest_device: 0, devices: 0, uuid: [0; 16], rest: [0; 992] };
    // SAFETY: the kernel writes one structure of this layout, 1,024 bytes, which outlives the call.
    match unsafe { libc::ioctl(file.as_fd().as_raw_fd(), BTRFS_IOC_FS_INFO, &raw mut info) } {
        0 => Ok(info.uuid),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_has_the_length_that_the_call_says() {
        assert_eq!(size_of::<FsInfo>() as libc::c_ulong, BTRFS_IOC_FS_INFO >> 16 & 0x3fff);
    }
}
