//! Thin wrappers around system calls that no crate we use has.

use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::thread::CapabilitySet;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Bytes of one of the kernel's pages.
pub fn page_size() -> usize {
    // SAFETY: takes a number and touches no memory.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).ok().filter(|&size| size > 0).unwrap_or(4096)
}

/// Has pages of a file in memory as if each had been read through a mapping. EFAULT where it ends before, EINVAL before Linux 5.14.
pub(crate) fn load(file: &File, range: std::ops::Range<u64>) -> io::Result<()> {
    const AT_ONCE: u64 = 64 << 20;
    let mut at = range.start - range.start % page_size() as u64;
    while at < range.end {
        let length = (range.end - at).min(AT_ONCE) as usize;
        // SAFETY: a mapping of its own, which nobody else knows of, and which is not looked into.
        let map =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, file, at)? };
        // SAFETY: the mapping is there, and what is asked for leaves what is in it.
        let loaded = unsafe { rustix::mm::madvise(map, length, Advice::LinuxPopulateRead) };
        // SAFETY: the same mapping, of this length, which nobody uses any more.
        unsafe { rustix::mm::munmap(map, length)? };
        loaded?;
        at += length as u64;
    }
    Ok(())
}

/// Has the kernel begin to write a file's data, and does not wait for it.
pub(crate) fn begin_writing(file: &File) -> io::Result<()> {
    sync_range(file, libc::SYNC_FILE_RANGE_WRITE)
}

/// The same, and waits: all that was written has its place afterwards, though the disk may not have it for good.
pub(crate) fn write_out(file: &File) -> io::Result<()> {
    let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_range(file, all)
}

/// Whether nothing that was written could not be kept, as far as this descriptor was not told before: nothing is written out for that.
pub(crate) fn was_kept(file: &File) -> io::Result<()> {
    sync_part(file, 1, libc::SYNC_FILE_RANGE_WAIT_BEFORE)
}

fn sync_range(file: &File, how: libc::c_uint) -> io::Result<()> {
    sync_part(file, 0, how)
}

/// Of 0 bytes: of all.
fn sync_part(file: &File, bytes: i64, how: libc::c_uint) -> io::Result<()> {
    // SAFETY: the call takes no memory of ours, and the borrow keeps the descriptor open.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), 0, bytes, how) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether this process may see what all others are doing in the kernel.
pub(crate) fn sees_calls() -> bool {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let able = rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE));
    // 3: nobody may.
    let stack = std::fs::read("/proc/self/stack").unwrap_or_default();
    able && scope.trim() != "3" && Path::new("/proc/self/syscall").exists() && !stack.is_empty()
}

/// Has the calling thread run before all that share time, if it may. Gives back whether.
pub(crate) fn go_first() -> bool {
    be_of_class(libc::SCHED_RR)
}

/// Has the calling thread share time with all others, if it may: not wait for them.
pub(crate) fn share_time() {
    be_of_class(libc::SCHED_OTHER);
}

fn be_of_class(class: libc::c_int) -> bool {
    // SAFETY: plain numbers, of which the priority is the only one.
    let mut least: libc::sched_param = unsafe { std::mem::zeroed() };
    least.sched_priority = libc::c_int::from(class == libc::SCHED_RR);
    // SAFETY: the kernel reads one sched_param behind the pointer, which outlives the call; 0 is this thread.
    let done = unsafe { libc::sched_setscheduler(0, class, &raw const least) } == 0;
    if !done {
        tracing::debug!("a thread stays in its scheduling class: {}", io::Error::last_os_error());
    }
    done
}
