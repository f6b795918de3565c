//! What the file system below a pool can do, tried out once when the pool is opened.

use super::{marker, record};
use crate::sys::{self, Lease};
use crate::{Error, sys::reopen};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use serde::Serialize;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

/// What the file system below can do.
#[allow(clippy::struct_excessive_bools)] // Independent answers, not states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Abilities {
    /// Copies that share blocks (`FICLONE`).
    pub reflink: bool,
    /// Leases (`F_SETLEASE`): without them backing files are never used again.
    pub leases: bool,
    /// `O_DIRECT`.
    pub direct_io: bool,
    /// A flush of a file makes the directories it was made in durable too: their file system's log is one sequence.
    pub ordered: bool,
    /// User extended attributes: without them a catalog can be rebuilt from names alone.
    pub xattrs: bool,
}

impl Abilities {
    /// Each ability by name, for reports.
    pub fn named(&self) -> [(&'static str, bool); 4] {
        [("reflink", self.reflink), ("leases", self.leases), ("direct_io", self.direct_io), ("xattrs", self.xattrs)]
    }
}

const NAMES: [&str; 2] = [".ullage-probe-0", ".ullage-probe-1"];

/// Tries everything out on two files that are gone afterwards.
pub fn abilities(root: &OwnedFd, path: &Path) -> Result<Abilities, Error> {
    let probed = match probe(root) {
        Err(Errno::NOSPC | Errno::DQUOT) => Ok(untried(root, path)),
        probed => probed,
    };
    let result = probed.map_err(|errno| match errno {
        Errno::ROFS => Error::Unusable(format!(
            "the pool {} is on a file system that is mounted read-only: remount it with 'mount -o remount,rw', \
             after looking for errors in the kernel's log",
            path.display()
        )),
        errno => Error::io("create a file in", path)(errno),
    });
    for name in NAMES {
        let _ = rustix::fs::unlinkat(root, name, AtFlags::empty());
    }
    result
}

/// What is safe to take for granted where no file can be made: what was not tried is not there, so files are removed and not used again.
fn untried(root: &OwnedFd, path: &Path) -> Abilities {
    tracing::warn!(
        "the pool {} is full: until a start finds room in it, its files are removed and not used again",
        path.display()
    );
    let asked = marker(root).and_then(|marker| rustix::fs::fgetxattr(marker, record::NAME, &mut [0u8; 0][..]));
    let xattrs = matches!(asked, Ok(_) | Err(Errno::NODATA));
    Abilities { xattrs, ordered: is_ordered(root), ..Abilities::default() }
}

/// The one file that is in every pool.
fn marker(root: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(root, marker::NAME, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// See [`Abilities::ordered`].
fn is_ordered(root: &OwnedFd) -> bool {
    matches!(&*fs_type(root), "ext4" | "xfs" | "btrfs" | "tmpfs")
}

fn probe(root: &OwnedFd) -> rustix::io::Result<Abilities> {
    let create = |name| {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(root, name, flags, Mode::from_raw_mode(0o600))
    };
    let [from, to] = [create(NAMES[0])?, create(NAMES[1])?];
    let xattrs = match rustix::fs::fsetxattr(&from, record::NAME, &[0; record::LONGEST], XattrFlags::empty()) {
        // A full file system has no room for an attribute, and would have for ours later on.
        Ok(()) | Err(Errno::NOSPC | Errno::DQUOT) => true,
        Err(_) => false,
    };
    // On an empty file some file systems say yes without being able to.
    let filled = rustix::io::pwrite(&from, &[1; 4096], 0).is_ok();
    let reflink = filled && rustix::fs::ioctl_ficlone(&to, &from).is_ok();
    let direct_io = reopen(&from, OFlags::RDWR | OFlags::DIRECT).is_ok();
    let leases = probe_leases(from);
    Ok(Abilities { reflink, leases, direct_io, ordered: is_ordered(root), xattrs })
}

/// Both kinds must be granted on a free file, and refused on one that is held: a file system that grants
/// everything would be worse than one that grants nothing.
fn probe_leases(file: OwnedFd) -> bool {
    let Ok(reader) = reopen(file.as_fd(), OFlags::RDONLY) else { return false };
    let refused = sys::probe_lease(&reader, Lease::Read) == Err(Errno::AGAIN)
        && sys::probe_lease(&file, Lease::Write) == Err(Errno::AGAIN);
    drop(file);
    // A child that another thread is just starting holds all descriptors for a moment.
    let granted = |kind| {
        (0..50).any(|_| {
            let answer = sys::probe_lease(&reader, kind);
            if answer == Err(Errno::AGAIN) {
                std::thread::sleep(Duration::from_millis(2));
            }
            answer.is_ok()
        })
    };
    refused && granted(Lease::Read) && granted(Lease::Write)
}

/// How many bytes the file system gives a file for its first one: a block, or as many as it always gives at once (clusters of
/// ext4, huge pages of tmpfs). Tried with a file without a name; where there is no room for that, no less than it can be.
pub fn unit(root: &OwnedFd) -> u64 {
    /// So long that large pages fit in.
    const LENGTH: u64 = 64 << 20;
    /// What lies in the inode is said to have blocks for the whole length.
    const BEYOND_INODE: u64 = 8192;
    let given = || -> rustix::io::Result<u64> {
        let file = sys::unnamed(root)?;
        rustix::fs::ftruncate(&file, LENGTH)?;
        rustix::io::pwrite(&file, &[1], BEYOND_INODE)?;
        rustix::fs::fdatasync(&file)?;
        let stat = rustix::fs::fstat(&file)?;
        // Elsewhere that is what to transfer at once.
        let said = if fs_type(root) == "tmpfs" { stat.st_blksize as u64 } else { 0 };
        Ok(said.max(stat.st_blocks as u64 * 512))
    };
    given().unwrap_or_else(|error| {
        tracing::debug!(%error, "it is not known how much is given to a file at once");
        most_at_once(root)
    })
}

/// What the file system gives at most for the first byte, as far as can be told where nothing can be made: the marker has one unit or more.
fn most_at_once(root: &OwnedFd) -> u64 {
    let has = marker(root).and_then(rustix::fs::fstat).map_or(0, |stat| stat.st_blocks as u64 * 512);
    if fs_type(root) == "tmpfs" { has.max(huge_page(root).unwrap_or(0)) } else { has }
}

/// The size of a huge page, if a tmpfs may give such to files: its mount options say so.
fn huge_page(root: &OwnedFd) -> Option<u64> {
    let device = rustix::fs::fstat(root).ok()?.st_dev;
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let own = mounts.lines().find(|mount| mount.split(' ').nth(2) == Some(&device));
    let mut options = own.and_then(|mount| mount.rsplit(' ').next())?.split(',');
    let gives = options.any(|option| matches!(option, "huge=always" | "huge=within_size"));
    let size = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").ok()?;
    size.trim().parse().ok().filter(|_| gives)
}

/// The seconds that the file system can keep as a file's times: what is earlier or later it takes for the first or the last of them.
/// Tried with a file without a name.
pub fn times(root: &OwnedFd) -> RangeInclusive<i64> {
    let kept = |seconds: i64| -> rustix::io::Result<i64> {
        let file = sys::unnamed(root)?;
        let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
        rustix::fs::futimens(&file, &Timestamps { last_access: time, last_modification: time })?;
        Ok(rustix::fs::fstat(&file)?.st_mtime)
    };
    let range = kept(i64::MIN).and_then(|first| Ok(first..=kept(i64::MAX)?));
    let range = range.and_then(|range| if range.start() < range.end() { Ok(range) } else { Err(Errno::RANGE) });
    range.unwrap_or_else(|error| {
        tracing::debug!(%error, "it is not known which times files can have");
        i64::MIN..=i64::MAX
    })
}

/// To how much the file system cuts the times of its files: to seconds on ext4 with inodes of 128 bytes, as ext3 had them, to two of them on
/// FAT. Tried with a file without a name.
pub fn granularity(root: &OwnedFd) -> Duration {
    /// Just before an even second: whatever can be cut off is.
    const SECOND: u64 = 1_000_000_001;
    const ASKED: Duration = Duration::new(SECOND, 999_999_999);
    let kept = || -> rustix::io::Result<Duration> {
        let file = sys::unnamed(root)?;
        let time = Timespec { tv_sec: SECOND as i64, tv_nsec: ASKED.subsec_nanos().into() };
        rustix::fs::futimens(&file, &Timestamps { last_access: time, last_modification: time })?;
        let stat = rustix::fs::fstat(&file)?;
        Ok(Duration::new(stat.st_mtime.unsigned_abs(), stat.st_mtime_nsec as u32))
    };
    kept().map_or_else(
        |error| {
            tracing::debug!(%error, "it is not tried how exact the times of files are");
            marker(root).and_then(rustix::fs::fstat).map_or(COARSEST, |stat| no_finer_than(stat.st_mtime_nsec as u32))
        },
        |kept| ASKED.abs_diff(kept) + Duration::from_nanos(1),
    )
}

/// What no file system known is coarser than.
const COARSEST: Duration = Duration::from_secs(2);

/// What the times of a file system are at most cut to that has kept so many nanoseconds past a second: a power of ten goes into a second, and
/// into that.
fn no_finer_than(nanoseconds: u32) -> Duration {
    let powers = (0..9).rev().map(|power| 10u32.pow(power));
    let kept = powers.into_iter().find(|power| nanoseconds > 0 && nanoseconds.is_multiple_of(*power));
    kept.map_or(COARSEST, |kept| Duration::from_nanos(kept.into()))
}

/// Whether the file system maps a new file by extents: ext4 does not where that is switched off, and that of ext3 never.
pub fn extents(root: &OwnedFd) -> bool {
    /// `FS_EXTENT_FL`.
    const BY_EXTENTS: u32 = 0x80000;
    match &*fs_type(root) {
        "ext4" => {
            let by_extents = || -> rustix::io::Result<bool> {
                let file = sys::unnamed(root)?;
                // What fits into the inode has neither. Where nothing can be written, it was flagged when it was made.
                let _ = rustix::io::pwrite(&file, &[0; 4096], 0);
                Ok(rustix::fs::ioctl_getflags(&file)?.bits() & BY_EXTENTS != 0)
            };
            by_extents().unwrap_or(false)
        }
        other => other == "xfs",
    }
}

/// The name of the file system below, by its magic number.
pub fn fs_type(root: &OwnedFd) -> String {
    let Ok(stat) = rustix::fs::fstatfs(root) else { return "unknown".to_owned() };
    match stat.f_type as u32 {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x0102_1994 => "tmpfs",
        0x794c_7630 => "overlay",
        0x6969 => "nfs",
        0x0102_1997 => "9p",
        0x00c3_6400 => "ceph",
        0x6b41_4653 | 0x5346_414f => "afs",
        0x6573_5546 => "fuse",
        0xf2f5_2010 => "f2fs",
        0x2fc1_2fc1 => "zfs",
        0xca45_1a4e => "bcachefs",
        0xff53_4d42 | 0xfe53_4d42 => "smb",
        0x0bd0_0bd0 => "lustre",
        0x4750_4653 => "gpfs",
        0x4d44 => "vfat",
        0x2011_bab0 => "exfat",
        other => return format!("{other:#x}"),
    }
    .to_owned()
}

/// Whether data can move in the kernel where the file system below is of this type. Not over FUSE: in passthrough mode the kernel opens a backing
/// file in the name of whoever opens the file in the mount, and with that one's flags, both of which such a file system is told of and may refuse. Nor over
/// one of a server's: that is asked in the name of the user whom the file was registered as, who has no right to it. Nor over an overlay, where
/// the kernel registers none.
pub fn moves_in_kernel(fs_type: &str) -> bool {
    !matches!(fs_type, "fuse" | "nfs" | "9p" | "ceph" | "afs" | "smb" | "lustre" | "gpfs" | "overlay")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_a_servers_is_not_opened_in_the_name_of_a_user_that_owns_nothing() {
        for local in ["ext4", "xfs", "btrfs", "tmpfs", "zfs", "f2fs"] {
            assert!(moves_in_kernel(local), "{local}");
        }
        for remote in ["nfs", "smb", "ceph", "lustre", "fuse", "overlay"] {
            assert!(!moves_in_kernel(remote), "{remote}");
        }
    }

    #[test]
    fn what_a_time_has_kept_says_how_exact_times_are() {
        let nanoseconds = |of| no_finer_than(of).as_nanos();
        assert_eq!(no_finer_than(0), COARSEST);
        assert_eq!((nanoseconds(987_654_321), nanoseconds(987_654_300)), (1, 100));
        assert_eq!((nanoseconds(120_000_000), nanoseconds(900_000_000)), (10_000_000, 100_000_000));
    }
}
