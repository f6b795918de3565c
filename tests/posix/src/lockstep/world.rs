//! One of the two directories, and what of it can be compared.

use crate::check::{Failure, as_user, content};
use crate::directory;
use crate::lockstep::operation::{Call, Operation, SLOTS};
use crate::map::Map;
use crate::sys::{self, Stat, Sys};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// A directory under test.
pub struct World {
    holder: PathBuf,
    root: PathBuf,
    descriptors: Vec<Option<OwnedFd>>,
    /// The times last seen of each path: what can be compared is whether they moved.
    seen: HashMap<String, [(i64, i64); 2]>,
}

impl World {
    /// Makes a new directory, open to all, below `base`.
    pub fn new(base: &Path) -> Result<Self, String> {
        let holder = base.join(format!("lockstep.{}", std::process::id()));
        // Links to `..` lead out of the root: what they reach must be as empty on both sides.
        let root = holder.join("root");
        for path in [&holder, &root] {
            let made = sys::mkdir(path, 0o777).and_then(|()| sys::chmod(path, 0o777));
            made.map_err(|errno| format!("making {}: {errno}", path.display()))?;
        }
        let descriptors = (0..SLOTS).map(|_| None).collect();
        Ok(Self { holder, root, descriptors, seen: HashMap::new() })
    }

    /// Removes it with all it holds.
    pub fn remove(&mut self) {
        self.descriptors.clear();
        let _ = std::process::Command::new("rm").arg("-rf").arg(&self.holder).status();
    }

    /// Does it as its user; says how it went.
    pub fn apply(&mut self, operation: &Operation) -> String {
        if matches!(operation.call, Call::Rename(..) | Call::Unlink(_) | Call::Rmdir(_)) {
            // Paths may now lead to other files, whose times say nothing of the old ones'.
            self.seen.clear();
        }
        let old = sys::umask(operation.umask);
        let result = as_user(operation.user, || self.call(&operation.call).map_err(Failure::from));
        sys::umask(old);
        match result {
            Ok(text) => text,
            // Without the place in our source, which is no part of the answer.
            Err(Failure::Failed(text) | Failure::Skipped(text)) => {
                text.rsplit_once("got ").map_or(text.clone(), |(_, errno)| errno.to_owned())
            }
        }
    }

    fn call(&mut self, call: &Call) -> Sys<String> {
        let root = self.root.clone();
        let at = |path: &String| root.join(path);
        let done = |()| "done".to_owned();
        match call {
            Call::Mkdir(path, mode) => sys::mkdir(at(path), *mode).map(done),
            Call::Rmdir(path) => sys::rmdir(at(path)).map(done),
            Call::Unlink(path) => sys::unlink(at(path)).map(done),
            Call::Mknod(path, mode) => sys::mknod(at(path), *mode, libc::makedev(1, 3)).map(done),
            Call::Symlink(target, path) => sys::symlink(target, at(path)).map(done),
            Call::Link(from, to) => sys::link(at(from), at(to)).map(done),
            Call::Rename(from, to, flags) => sys::rename2(at(from), at(to), *flags).map(done),
            Call::Chmod(path, mode) => sys::chmod(at(path), *mode).map(done),
            Call::Chown(path, uid, gid) => sys::lchown(at(path), *uid, *gid).map(done),
            Call::Truncate(path, size) => sys::truncate(at(path), *size).map(done),
            Call::Utimens(path, seconds, nanoseconds) => {
                let time = sys::time(*seconds, *nanoseconds);
                sys::utimens(at(path), [time, time], libc::AT_SYMLINK_NOFOLLOW).map(done)
            }
            Call::Access(path, mode) => sys::access(at(path), *mode).map(done),
            Call::Readlink(path) => sys::readlink(at(path)).map(|target| String::from_utf8_lossy(&target).into_owned()),
            Call::Open(slot, path, flags, mode) => {
                self.descriptors[*slot] = None;
                self.descriptors[*slot] = Some(sys::open(at(path), *flags, *mode)?);
                Ok("opened".to_owned())
            }
            Call::Close(slot) => {
                self.descriptors[*slot] = None;
                Ok("closed".to_owned())
            }
            Call::SetXattr(path, name, size) => sys::setxattr(at(path), name, &vec![b'v'; *size], 0).map(done),
            Call::GetXattr(path, name) => sys::getxattr(at(path), name, 5000).map(|value| value.len().to_string()),
            Call::RemoveXattr(path, name) => sys::removexattr(at(path), name).map(done),
            Call::SetAcl(path, default, bits) => {
                let name = if *default { "system.posix_acl_default" } else { "system.posix_acl_access" };
                sys::setxattr(at(path), name, &acl(*bits), 0).map(done)
            }
            Call::List(path) => list(&at(path)),
            Call::Times(path, kinds) => sys::utimens(at(path), kinds.map(|kind| sys::time(7, kind)), 0).map(done),
            Call::Tmpfile(slot, path, flags, mode) => {
                self.descriptors[*slot] = None;
                self.descriptors[*slot] = Some(sys::open(at(path), libc::O_TMPFILE | libc::O_RDWR | *flags, *mode)?);
                Ok("opened".to_owned())
            }
            Call::LinkOpen(slot, path) => {
                let fd = self.descriptors[*slot].as_ref().ok_or(sys::Errno(libc::EBADF))?;
                let open = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(fd));
                sys::linkat(open, at(path), libc::AT_SYMLINK_FOLLOW).map(done)
            }
            Call::Listxattr(path) => sys::listxattr(at(path)).map(|mut names| {
                names.sort();
                names.join(" ")
            }),
            Call::SetXattrIf(path, name, flags) => sys::setxattr(at(path), name, b"other", *flags).map(done),
            _ => self.call_on_descriptor(call),
        }
    }

    fn call_on_descriptor(&self, call: &Call) -> Sys<String> {
        let open = |slot: &usize| self.descriptors[*slot].as_ref().ok_or(sys::Errno(libc::EBADF));
        let data = |length: u64| (0..length).map(|index| (index * 7 + length) as u8).collect::<Vec<_>>();
        let count = |count: usize| count.to_string();
        match call {
            Call::Write(slot, at, length) => sys::pwrite(open(slot)?, &data(*length), *at).map(count),
            Call::Append(slot, length) => {
                sys::lseek(open(slot)?, 0, libc::SEEK_END)?;
                sys::write(open(slot)?, &data(*length)).map(count)
            }
            Call::Read(slot, at, length) => {
                let mut buffer = vec![0; *length as usize];
                let read = sys::pread(open(slot)?, &mut buffer, *at)?;
                Ok(format!("{read} bytes, sum {}", sum(&buffer[..read])))
            }
            Call::Ftruncate(slot, size) => sys::ftruncate(open(slot)?, *size).map(|_| "done".to_owned()),
            Call::Fchmod(slot, mode) => {
                sys::fchmod(open(slot)?, *mode)?;
                Ok(show(&sys::fstat(open(slot)?)?))
            }
            Call::Fallocate(slot, mode, at, length) => {
                sys::fallocate(open(slot)?, *mode, *at, *length)?;
                Ok(show(&sys::fstat(open(slot)?)?))
            }
            Call::Fsync(slot) => sys::fsync(open(slot)?).map(|_| "done".to_owned()),
            Call::Copy(from, to, at, to_at, length) => {
                sys::copy_file_range(open(from)?, *at, open(to)?, *to_at, *length as usize).map(count)
            }
            Call::Fchown(slot, uid, gid) => {
                sys::fchown(open(slot)?, *uid, *gid)?;
                Ok(show(&sys::fstat(open(slot)?)?))
            }
            Call::Futimens(slot, kinds) => {
                sys::futimens(open(slot)?, kinds.map(|kind| sys::time(7, kind))).map(|()| "done".to_owned())
            }
            // Where a directory ends is the file system's own affair.
            Call::Seek(slot, ..) if sys::fstat(open(slot)?)?.st_mode & libc::S_IFMT == libc::S_IFDIR => {
                Ok(String::new())
            }
            Call::Seek(slot, at, whence) => sys::lseek(open(slot)?, *at, *whence).map(|at| at.to_string()),
            Call::Store(slot, at, length) => {
                let fd = open(slot)?;
                let size = sys::fstat(fd)?.st_size as usize;
                let mut map = Map::new(fd, size, true, true)?;
                map.set(*at.min(&size), &data((*length).min(size.saturating_sub(*at)) as u64));
                Ok("stored".to_owned())
            }
            Call::Sendfile(to, from, at, length) => {
                sys::sendfile(open(to)?, open(from)?, *at, *length as usize).map(count)
            }
            Call::Fstat(slot) => Ok(show(&sys::fstat(open(slot)?)?)),
            _ => Err(sys::Errno(libc::ENOSYS)),
        }
    }

    /// What lstat(2) and friends say of a path, and whether its times moved since last asked.
    pub fn look(&mut self, path: &str) -> String {
        let full = self.root.join(path);
        let stat = match sys::lstat(&full) {
            Ok(stat) => stat,
            Err(errno) => {
                self.seen.remove(path);
                return errno.to_string();
            }
        };
        let times = [(stat.st_mtime, stat.st_mtime_nsec), (stat.st_ctime, stat.st_ctime_nsec)];
        let mut text = show(&stat);
        // Times of our own making can be compared as they are; others only with the clock.
        if stat.st_mtime < 1_600_000_000 || stat.st_mtime > 4_000_000_000 {
            let _ = write!(text, " mtime {:?}", times[0]);
        }
        if let Some(before) = self.seen.insert(path.to_owned(), times) {
            let moved = |index: usize| if times[index] == before[index] { "stayed" } else { "moved" };
            let _ = write!(text, ", mtime {}, ctime {}", moved(0), moved(1));
        }
        text
    }

    /// Every file below the root, with attributes, content and extended attributes, in order.
    pub fn tree(&self) -> Vec<String> {
        let mut lines = Vec::new();
        self.walk(Path::new("."), &mut lines);
        lines
    }

    fn walk(&self, below: &Path, lines: &mut Vec<String>) {
        let path = self.root.join(below);
        let Ok(stat) = sys::lstat(&path) else {
            lines.push(format!("{}: vanished", below.display()));
            return;
        };
        let mut line = format!("{}: {}", below.display(), show(&stat));
        let mut names = sys::listxattr(&path).unwrap_or_default();
        names.sort();
        for name in names {
            let value = sys::getxattr(&path, &name, 5000).unwrap_or_default();
            let _ = write!(line, " {name}={}:{}", value.len(), sum(&value));
        }
        match stat.st_mode & libc::S_IFMT {
            libc::S_IFREG => {
                let content = content(&path).map(|content| sum(&content));
                let _ = write!(line, " content {content:?}");
            }
            libc::S_IFLNK => {
                let _ = write!(line, " -> {:?}", sys::readlink(&path));
            }
            _ => {}
        }
        lines.push(line);
        if stat.st_mode & libc::S_IFMT == libc::S_IFDIR {
            for name in directory::names(&path).unwrap_or_default() {
                self.walk(&below.join(String::from_utf8_lossy(&name).as_ref()), lines);
            }
        }
    }
}

/// The attributes that must be the same on both sides. A directory's size is the file system's own affair.
fn show(stat: &Stat) -> String {
    let directory = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
    let size = if directory { 0 } else { stat.st_size };
    format!("{:06o} {} {}:{} {size} {:x}", stat.st_mode, stat.st_nlink, stat.st_uid, stat.st_gid, stat.st_rdev)
}

fn sum(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn list(path: &Path) -> Sys<String> {
    let mut entries: Vec<_> = directory::Stream::open(path)?.map(|entry| (entry.name, entry.kind)).collect();
    entries.sort();
    let shown = entries.iter().map(|(name, kind)| format!("{}:{kind}", String::from_utf8_lossy(name)));
    Ok(shown.collect::<Vec<_>>().join(" "))
}

/// An ACL with a named user and a mask of these bits.
fn acl(bits: u16) -> Vec<u8> {
    let entries = [
        (1_u16, 7, u32::MAX),
        (2, bits, crate::check::ALICE.uid),
        (4, 5, u32::MAX),
        (16, bits, u32::MAX),
        (32, 1, u32::MAX),
    ];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(bits.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}
