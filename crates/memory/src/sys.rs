//! Thin wrappers around system calls that have no safe form.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// The user whose rights count.
pub fn effective_user() -> u32 {
    // SAFETY: geteuid has no arguments, no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

/// Sends a signal to one process.
pub fn signal(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: kill takes two integers and touches no memory of ours.
    if unsafe { libc::kill(pid, signal) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Begins a session; `false` for the leader of a group, which is in one of its shell's.
pub fn begin_session() -> bool {
    // SAFETY: setsid has no arguments and touches no memory of ours.
    unsafe { libc::setsid() >= 0 }
}

/// Keeps all files that are open but the standard ones from programs that are started from now on; before Linux 5.11 not.
pub fn keep_files() -> bool {
    // SAFETY: close_range takes integers; with this flag it closes nothing, so no descriptor of ours is invalid afterwards.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) == 0 }
}

/// Is scheduled as most programs are, whatever it was started with, as far as that is allowed. So is what it starts.
pub fn schedule_as_others() {
    let ordinary = libc::sched_param { sched_priority: 0 };
    // SAFETY: `ordinary` outlives the call, which is about this thread alone.
    let _not_allowed = unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const ordinary) };
    // SAFETY: setpriority takes integers and touches no memory of ours.
    let _not_allowed = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 0) };
    // SAFETY: ioprio_set takes integers: this process, and no class of its own, so that its disk accesses follow what is set above.
    let _not_allowed = unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, 0) };
}

/// From `linux/ioprio.h`.
const IOPRIO_WHO_PROCESS: libc::c_int = 1;

/// CPU time this thread has used.
pub fn thread_cpu() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time this process has used.
pub fn process_cpu() -> Duration {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Time since boot that does not jump.
pub fn monotonic() -> Duration {
    clock(libc::CLOCK_MONOTONIC)
}

fn clock(id: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec that outlives the call.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Asks the kernel to page out a range of another process. Needs `CAP_SYS_NICE`.
pub fn page_out(pid: i32, start: u64, bytes: u64) -> io::Result<()> {
    // SAFETY: pidfd_open takes two integers; the descriptor is closed below.
    let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if pidfd < 0 {
        return Err(io::Error::last_os_error());
    }
    let range = libc::iovec { iov_base: start as *mut libc::c_void, iov_len: bytes as usize };
    // SAFETY: `range` lives through the call; its address belongs to the other process and is only
    // a number to us. MADV_PAGEOUT changes no contents, so a range that is gone is just an error.
    let done = unsafe { libc::syscall(libc::SYS_process_madvise, pidfd, &raw const range, 1, libc::MADV_PAGEOUT, 0) };
    let result = if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    // SAFETY: the descriptor was opened above and is used nowhere else.
    unsafe { libc::close(pidfd as i32) };
    result
}

/// Pages that follow each other (`struct page_region`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PageRegion {
    /// First address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    categories: u64,
}

/// Finds pages that exist, in memory or swapped out, in a range of the process whose `pagemap` is given. Gives how many regions
/// were found, and up to which address. Since Linux 6.7.
pub fn scan_pages(pagemap: &File, range: Range<u64>, regions: &mut [PageRegion]) -> io::Result<(usize, u64)> {
    /// `struct pm_scan_arg`.
    #[repr(C)]
    #[derive(Default)]
    struct Scan {
        size: u64,
        flags: u64,
        start: u64,
        end: u64,
        walk_end: u64,
        regions: u64,
        count: u64,
        max_pages: u64,
        category_inverted: u64,
        category_mask: u64,
        category_anyof_mask: u64,
        return_mask: u64,
    }
    const SIZE: u64 = size_of::<Scan>() as u64;
    /// `PAGEMAP_SCAN`, which is `_IOWR('f', 16, struct pm_scan_arg)`.
    const REQUEST: u64 = 3 << 30 | SIZE << 16 | (b'f' as u64) << 8 | 16;
    const PRESENT_OR_SWAPPED: u64 = 1 << 3 | 1 << 4;
    let mut scan = Scan {
        size: SIZE,
        start: range.start,
        end: range.end,
        regions: regions.as_mut_ptr() as u64,
        count: regions.len() as u64,
        category_anyof_mask: PRESENT_OR_SWAPPED,
        return_mask: PRESENT_OR_SWAPPED,
        ..Scan::default()
    };
    // SAFETY: the descriptor is open while `pagemap` is borrowed, and `scan` and the regions it names outlive the call.
    let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), REQUEST as _, &raw mut scan) };
    if found < 0 { Err(io::Error::last_os_error()) } else { Ok((found as usize, scan.walk_end)) }
}

/// Whether the effective user may write to a path.
pub fn may_write(path: &std::path::Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: `path` is a valid C string that outlives the call.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK, libc::AT_EACCESS) == 0 }
}

/// Whether a path lies in a control group hierarchy, of either version.
pub fn is_cgroup(path: &std::path::Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    let mut found = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `path` is a valid C string and `found` is room for the answer; both outlive the call.
    if unsafe { libc::statfs(path.as_ptr(), found.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: a call that succeeded has filled it in.
    let kind = unsafe { found.assume_init() }.f_type;
    kind == libc::CGROUP_SUPER_MAGIC || kind == libc::CGROUP2_SUPER_MAGIC
}

/// Locks a file that is open for writing, for as long as it stays open; `false` if somebody else has.
pub fn lock(file: &File) -> io::Result<bool> {
    match record_lock(file, libc::F_OFD_SETLK, libc::F_WRLCK) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gives such a lock up, whoever else has a copy of the descriptor.
pub fn unlock(file: &File) {
    let _never_fails = record_lock(file, libc::F_OFD_SETLK, libc::F_UNLCK);
}

/// Whether somebody has locked a file. Asking holds no lock, so it is in nobody's way.
pub fn is_locked(file: &File) -> bool {
    record_lock(file, libc::F_OFD_GETLK, libc::F_WRLCK).is_ok_and(|found| i32::from(found.l_type) != libc::F_UNLCK)
}

fn record_lock(file: &File, command: i32, kind: i32) -> io::Result<libc::flock> {
    let mut lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open while `file` is borrowed; `lock` outlives the call.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if done == 0 { Ok(lock) } else { Err(io::Error::last_os_error()) }
}
