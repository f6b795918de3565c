//! System calls, as they are: no retries, no checks, the errno as the error. The point of the suite is what the
//! kernel says, so nothing here may smooth it over.

use std::ffi::CString;
use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// An errno.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

/// What a system call gives.
pub type Sys<T> = Result<T, Errno>;

/// `struct stat`.
pub type Stat = libc::stat64;

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = std::io::Error::from_raw_os_error(self.0).to_string();
        write!(f, "{}", text.trim_end_matches(')').replace(" (os error ", " #"))
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn last() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

fn check(result: i64) -> Sys<i64> {
    if result < 0 { Err(last()) } else { Ok(result) }
}

fn c(path: impl AsRef<Path>) -> CString {
    CString::new(path.as_ref().as_os_str().as_bytes()).unwrap_or_default()
}

/// Wraps calls that take paths and numbers and give back nothing but success.
macro_rules! path_calls {
    ($($(#[$doc:meta])* $name:ident($($path:ident),+ $(; $($arg:ident: $type:ty),+)?) = |$($c:ident),+| $call:expr;)+) => {$(
        $(#[$doc])*
        pub fn $name($($path: impl AsRef<Path>),+ $(, $($arg: $type),+)?) -> Sys<()> {
            $(let $c = c($path);)+
            $(let $c = $c.as_ptr();)+
            // SAFETY: the strings live until the end of this function and end in NUL; numbers are passed by value.
            check(i64::from(unsafe { $call })).map(drop)
        }
    )+};
}

path_calls! {
    /// mkdir(2).
    mkdir(path; mode: u32) = |path| libc::mkdir(path, mode);
    /// rmdir(2).
    rmdir(path) = |path| libc::rmdir(path);
    /// unlink(2).
    unlink(path) = |path| libc::unlink(path);
    /// mknod(2).
    mknod(path; mode: u32, device: u64) = |path| libc::mknod(path, mode, device);
    /// link(2).
    link(from, to) = |from, to| libc::link(from, to);
    /// linkat(2) with flags.
    linkat(from, to; flags: i32) = |from, to| libc::linkat(libc::AT_FDCWD, from, libc::AT_FDCWD, to, flags);
    /// symlink(2).
    symlink(target, path) = |target, path| libc::symlink(target, path);
    /// rename(2).
    rename(from, to) = |from, to| libc::rename(from, to);
    /// renameat2(2) with flags.
    rename2(from, to; flags: u32) = |from, to| libc::renameat2(libc::AT_FDCWD, from, libc::AT_FDCWD, to, flags);
    /// chmod(2).
    chmod(path; mode: u32) = |path| libc::chmod(path, mode);
    /// chown(2); `u32::MAX` leaves as it is.
    chown(path; uid: u32, gid: u32) = |path| libc::chown(path, uid, gid);
    /// lchown(2).
    lchown(path; uid: u32, gid: u32) = |path| libc::lchown(path, uid, gid);
    /// truncate(2).
    truncate(path; size: i64) = |path| libc::truncate64(path, size);
    /// access(2): with the real ids.
    access(path; mode: i32) = |path| libc::access(path, mode);
    /// chdir(2).
    chdir(path) = |path| libc::chdir(path);
    /// lremovexattr(2).
    removexattr(path, name) = |path, name| libc::lremovexattr(path, name);
}

/// Wraps calls on descriptors and numbers.
macro_rules! fd_calls {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $result:ty = |$fd:ident| $call:expr;)+) => {$(
        $(#[$doc])*
        pub fn $name($fd: &impl AsRawFd $(, $arg: $type)*) -> Sys<$result> {
            let $fd = $fd.as_raw_fd();
            // SAFETY: the descriptor is borrowed for the call; numbers are passed by value.
            check(i64::from(unsafe { $call })).map(|result| result as $result)
        }
    )+};
}

fd_calls! {
    /// fchmod(2).
    fchmod(mode: u32) -> i32 = |fd| libc::fchmod(fd, mode);
    /// fchown(2).
    fchown(uid: u32, gid: u32) -> i32 = |fd| libc::fchown(fd, uid, gid);
    /// ftruncate(2).
    ftruncate(size: i64) -> i32 = |fd| libc::ftruncate64(fd, size);
    /// lseek(2).
    lseek(offset: i64, whence: i32) -> i64 = |fd| libc::lseek64(fd, offset, whence);
    /// fsync(2).
    fsync() -> i32 = |fd| libc::fsync(fd);
    /// fdatasync(2).
    fdatasync() -> i32 = |fd| libc::fdatasync(fd);
    /// syncfs(2).
    syncfs() -> i32 = |fd| libc::syncfs(fd);
    /// fallocate(2).
    fallocate(mode: i32, offset: i64, length: i64) -> i32 = |fd| libc::fallocate64(fd, mode, offset, length);
    /// flock(2).
    flock(operation: i32) -> i32 = |fd| libc::flock(fd, operation);
    /// fcntl(2) with a number.
    fcntl(command: i32, argument: i32) -> i32 = |fd| libc::fcntl(fd, command, argument);
}

/// open(2).
pub fn open(path: impl AsRef<Path>, flags: i32, mode: u32) -> Sys<OwnedFd> {
    let path = c(path);
    // SAFETY: the string lives until the end of this function.
    let fd = check(i64::from(unsafe { libc::open64(path.as_ptr(), flags | libc::O_CLOEXEC, mode) }))?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// openat(2).
pub fn openat(directory: &impl AsRawFd, path: impl AsRef<Path>, flags: i32, mode: u32) -> Sys<OwnedFd> {
    let (path, directory) = (c(path), directory.as_raw_fd());
    // SAFETY: the string lives until the end of this function, and the descriptor is borrowed for it.
    let fd = check(i64::from(unsafe { libc::openat64(directory, path.as_ptr(), flags | libc::O_CLOEXEC, mode) }))?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// posix_fallocate(3), which returns its error instead of setting errno.
pub fn posix_fallocate(fd: &impl AsRawFd, offset: i64, length: i64) -> Sys<()> {
    // SAFETY: the descriptor is borrowed for the call.
    match unsafe { libc::posix_fallocate64(fd.as_raw_fd(), offset, length) } {
        0 => Ok(()),
        errno => Err(Errno(errno)),
    }
}

/// readlink(2).
pub fn readlink(path: impl AsRef<Path>) -> Sys<Vec<u8>> {
    let path = c(path);
    let mut target = vec![0; 4096];
    // SAFETY: the buffer is writable for as long as we say.
    let length = check(unsafe { libc::readlink(path.as_ptr(), target.as_mut_ptr().cast(), target.len()) } as i64)?;
    target.truncate(length as usize);
    Ok(target)
}

fn stat_with(call: impl FnOnce(*mut Stat) -> i32) -> Sys<Stat> {
    let mut stat = MaybeUninit::<Stat>::zeroed();
    check(i64::from(call(stat.as_mut_ptr())))?;
    // SAFETY: all zero is a valid `stat`, and the call succeeded in filling it.
    Ok(unsafe { stat.assume_init() })
}

/// stat(2).
pub fn stat(path: impl AsRef<Path>) -> Sys<Stat> {
    let path = c(path);
    // SAFETY: the string and the place for the answer outlive the call.
    stat_with(|stat| unsafe { libc::stat64(path.as_ptr(), stat) })
}

/// lstat(2).
pub fn lstat(path: impl AsRef<Path>) -> Sys<Stat> {
    let path = c(path);
    // SAFETY: the string and the place for the answer outlive the call.
    stat_with(|stat| unsafe { libc::lstat64(path.as_ptr(), stat) })
}

/// fstat(2).
pub fn fstat(fd: &impl AsRawFd) -> Sys<Stat> {
    // SAFETY: the place for the answer outlives the call.
    stat_with(|stat| unsafe { libc::fstat64(fd.as_raw_fd(), stat) })
}

/// statx(2) with all basic fields and the birth time, not following links.
pub fn statx(path: impl AsRef<Path>) -> Sys<libc::statx> {
    let path = c(path);
    let mut answer = MaybeUninit::<libc::statx>::zeroed();
    let mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the string and the place for the answer outlive the call.
    let result = unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, mask, answer.as_mut_ptr()) };
    check(i64::from(result))?;
    // SAFETY: all zero is a valid `statx`, and the call succeeded in filling it.
    Ok(unsafe { answer.assume_init() })
}

/// statfs(2).
pub fn statfs(path: impl AsRef<Path>) -> Sys<libc::statfs64> {
    let path = c(path);
    let mut answer = MaybeUninit::<libc::statfs64>::zeroed();
    // SAFETY: the string and the place for the answer outlive the call.
    check(i64::from(unsafe { libc::statfs64(path.as_ptr(), answer.as_mut_ptr()) }))?;
    // SAFETY: all zero is a valid `statfs`, and the call succeeded in filling it.
    Ok(unsafe { answer.assume_init() })
}

/// A time for [`utimens`].
pub fn time(seconds: i64, nanoseconds: i64) -> libc::timespec {
    libc::timespec { tv_sec: seconds, tv_nsec: nanoseconds }
}

/// utimensat(2): access and modification time.
pub fn utimens(path: impl AsRef<Path>, times: [libc::timespec; 2], flags: i32) -> Sys<()> {
    let path = c(path);
    // SAFETY: the string and the times outlive the call.
    check(i64::from(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), flags) })).map(drop)
}

/// utimensat(2) without times: both become now.
pub fn utimens_now(path: impl AsRef<Path>) -> Sys<()> {
    let path = c(path);
    // SAFETY: the string outlives the call; no times may be given.
    check(i64::from(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), std::ptr::null(), 0) })).map(drop)
}

/// futimens(3).
pub fn futimens(fd: &impl AsRawFd, times: [libc::timespec; 2]) -> Sys<()> {
    // SAFETY: the times outlive the call.
    check(i64::from(unsafe { libc::futimens(fd.as_raw_fd(), times.as_ptr()) })).map(drop)
}

/// write(2).
pub fn write(fd: &impl AsRawFd, data: &[u8]) -> Sys<usize> {
    // SAFETY: the data are readable for the length given.
    check(unsafe { libc::write(fd.as_raw_fd(), data.as_ptr().cast(), data.len()) } as i64).map(|n| n as usize)
}

/// pwrite(2).
pub fn pwrite(fd: &impl AsRawFd, data: &[u8], offset: i64) -> Sys<usize> {
    // SAFETY: the data are readable for the length given.
    let result = unsafe { libc::pwrite64(fd.as_raw_fd(), data.as_ptr().cast(), data.len(), offset) };
    check(result as i64).map(|n| n as usize)
}

/// read(2).
pub fn read(fd: &impl AsRawFd, into: &mut [u8]) -> Sys<usize> {
    // SAFETY: the buffer is writable for the length given.
    check(unsafe { libc::read(fd.as_raw_fd(), into.as_mut_ptr().cast(), into.len()) } as i64).map(|n| n as usize)
}

/// pread(2).
pub fn pread(fd: &impl AsRawFd, into: &mut [u8], offset: i64) -> Sys<usize> {
    // SAFETY: the buffer is writable for the length given.
    let result = unsafe { libc::pread64(fd.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), offset) };
    check(result as i64).map(|n| n as usize)
}

/// copy_file_range(2) with explicit offsets.
pub fn copy_file_range(from: &impl AsRawFd, at: i64, to: &impl AsRawFd, to_at: i64, length: usize) -> Sys<usize> {
    let (mut at, mut to_at) = (at, to_at);
    let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
    // SAFETY: the offsets outlive the call.
    check(unsafe { libc::copy_file_range(from, &raw mut at, to, &raw mut to_at, length, 0) } as i64).map(|n| n as usize)
}

/// sendfile(2) from an explicit offset.
pub fn sendfile(to: &impl AsRawFd, from: &impl AsRawFd, at: i64, length: usize) -> Sys<usize> {
    let mut at = at;
    // SAFETY: the offset outlives the call.
    let result = unsafe { libc::sendfile64(to.as_raw_fd(), from.as_raw_fd(), &raw mut at, length) };
    check(result as i64).map(|n| n as usize)
}

/// splice(2) at the descriptors' own positions.
pub fn splice(from: &impl AsRawFd, to: &impl AsRawFd, length: usize) -> Sys<usize> {
    let none = std::ptr::null_mut();
    // SAFETY: no offsets are given, so nothing is pointed to.
    check(unsafe { libc::splice(from.as_raw_fd(), none, to.as_raw_fd(), none, length, 0) } as i64).map(|n| n as usize)
}

/// pipe2(2).
pub fn pipe() -> Sys<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: there is room for two descriptors.
    check(i64::from(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }))?;
    // SAFETY: the kernel has just given us these descriptors.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// A record lock: `command` is F_SETLK, F_SETLKW or F_OFD_SETLK; `kind` F_RDLCK, F_WRLCK or F_UNLCK.
pub fn lock(fd: &impl AsRawFd, command: i32, kind: i32, start: i64, length: i64) -> Sys<()> {
    lock_query(fd, command, kind, start, length).map(drop)
}

/// As [`lock`], giving back the lock as the kernel left it (for F_GETLK).
pub fn lock_query(fd: &impl AsRawFd, command: i32, kind: i32, start: i64, length: i64) -> Sys<libc::flock64> {
    let whence = libc::SEEK_SET as i16;
    let mut lock = libc::flock64 { l_type: kind as i16, l_whence: whence, l_start: start, l_len: length, l_pid: 0 };
    // SAFETY: the lock outlives the call.
    check(i64::from(unsafe { libc::fcntl(fd.as_raw_fd(), command, &raw mut lock) }))?;
    Ok(lock)
}

/// lsetxattr(2).
pub fn setxattr(path: impl AsRef<Path>, name: &str, value: &[u8], flags: i32) -> Sys<()> {
    let (path, name) = (c(path), c(name));
    // SAFETY: strings and value outlive the call.
    let result = unsafe { libc::lsetxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), flags) };
    check(i64::from(result)).map(drop)
}

/// lgetxattr(2) into a buffer of `room` bytes; 0 asks for the length, given as a value of that length.
pub fn getxattr(path: impl AsRef<Path>, name: &str, room: usize) -> Sys<Vec<u8>> {
    let (path, name) = (c(path), c(name));
    let mut value = vec![0; room];
    // SAFETY: the buffer is writable for the length given.
    let result = unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), room) };
    let length = check(result as i64)?;
    value.resize(length as usize, 0);
    Ok(value)
}

/// llistxattr(2): the names.
pub fn listxattr(path: impl AsRef<Path>) -> Sys<Vec<String>> {
    let path = c(path);
    let mut names = vec![0_u8; 65536];
    // SAFETY: the buffer is writable for the length given.
    let result = unsafe { libc::llistxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    names.truncate(check(result as i64)? as usize);
    let names = names.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

/// umask(2): gives back the old mask.
pub fn umask(mask: u32) -> u32 {
    // SAFETY: takes and gives a number.
    unsafe { libc::umask(mask) }
}

/// Makes *this thread* another user: the raw calls, unlike the C library's, do not tell the other threads.
pub fn become_user(uid: u32, gid: u32, groups: &[u32]) -> Sys<()> {
    // SAFETY: the list of groups outlives the calls, which otherwise take numbers.
    unsafe {
        check(libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()))?;
        check(libc::syscall(libc::SYS_setresgid, gid, gid, gid))?;
        check(libc::syscall(libc::SYS_setresuid, uid, uid, uid))?;
    }
    Ok(())
}

/// Makes *this thread* another user with these capabilities, as far as it has them, and no others.
pub fn become_capable(uid: u32, gid: u32, capabilities: u64) -> Sys<()> {
    const VERSION_3: u32 = 0x2008_0522;
    let mut head = [VERSION_3, 0];
    // Effective, permitted, inheritable; twice 32 bits.
    let mut sets = [0_u32; 6];
    // SAFETY: takes numbers.
    check(i64::from(unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0) }))?;
    become_user(uid, gid, &[])?;
    // SAFETY: head and sets are as the kernel has them, and outlive the calls.
    unsafe {
        check(libc::syscall(libc::SYS_capget, head.as_mut_ptr(), sets.as_mut_ptr()))?;
        let (low, high) = (sets[1] & capabilities as u32, sets[4] & (capabilities >> 32) as u32);
        sets = [low, low, 0, high, high, 0];
        check(libc::syscall(libc::SYS_capset, head.as_mut_ptr(), sets.as_ptr())).map(drop)
    }
}

/// The effective user of this thread.
pub fn user() -> u32 {
    // SAFETY: takes nothing.
    unsafe { libc::geteuid() }
}

/// Calls by path with an address that no process has: each gives EFAULT. Name of the call and its outcome.
pub fn calls_with_bad_addresses() -> Vec<(&'static str, Sys<i64>)> {
    let bad = usize::MAX as *const libc::c_char;
    // SAFETY: the kernel checks the address and refuses; nothing here reads through it.
    let results = unsafe {
        [
            ("open", i64::from(libc::open(bad, libc::O_RDONLY)), last()),
            ("mkdir", i64::from(libc::mkdir(bad, 0o755)), last()),
            ("rmdir", i64::from(libc::rmdir(bad)), last()),
            ("unlink", i64::from(libc::unlink(bad)), last()),
            ("chmod", i64::from(libc::chmod(bad, 0o644)), last()),
            ("chown", i64::from(libc::chown(bad, 0, 0)), last()),
            ("link", i64::from(libc::link(bad, bad)), last()),
            ("symlink", i64::from(libc::symlink(bad, bad)), last()),
            ("rename", i64::from(libc::rename(bad, bad)), last()),
            ("truncate", i64::from(libc::truncate(bad, 0)), last()),
            ("mknod", i64::from(libc::mknod(bad, libc::S_IFIFO | 0o600, 0)), last()),
        ]
    };
    results.into_iter().map(|(name, result, errno)| (name, if result < 0 { Err(errno) } else { Ok(result) })).collect()
}

/// read(2), or write(2), between the file and an address that no process has.
pub fn transfer_with_bad_address(fd: &impl AsRawFd, write: bool) -> Sys<i64> {
    let bad = (usize::MAX - 4096) as *mut libc::c_void;
    // SAFETY: the kernel checks the address and refuses.
    check(unsafe { if write { libc::write(fd.as_raw_fd(), bad, 100) } else { libc::read(fd.as_raw_fd(), bad, 100) } }
        as i64)
}

/// The running kernel's version: what FUSE can do depends on it.
pub fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Runs `part` in a child process, and gives back what it returned (0 to 255).
pub fn in_child(part: impl FnOnce() -> i32) -> Sys<i32> {
    // SAFETY: the callers have no other thread at this point, so the child may run ordinary code; it ends with
    // _exit, which runs nothing of the parent's.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = part();
        // SAFETY: ends the process.
        unsafe { libc::_exit(code) };
    }
    check(i64::from(child))?;
    let mut status = 0;
    // SAFETY: the place for the status outlives the call.
    check(i64::from(unsafe { libc::waitpid(child, &raw mut status, 0) }))?;
    Ok(libc::WEXITSTATUS(status))
}
