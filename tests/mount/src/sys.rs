//! The system calls that no library has: around mappings, handles, extents.

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};

/// Closes a file, and says what close(2) says.
pub fn close(file: File) -> std::io::Result<()> {
    // SAFETY: the descriptor was the file's, which is gone: nobody else closes it.
    match unsafe { libc::close(file.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Does something in a thread with descriptors of its own. A child that another thread starts has copies of all others for a moment, and its
/// exec(2) closes them: what close(2) tells once it tells nobody then.
pub fn with_own_descriptors<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let own = || {
        // SAFETY: only this thread loses its descriptors, and it has used none yet.
        let outcome = unsafe { libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE as libc::c_int) };
        assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
        work()
    };
    match std::thread::scope(|scope| scope.spawn(own).join()) {
        Ok(outcome) => outcome,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// pwrite(2) as 32-bit programs call it: through their gate, with a stack and a buffer that four bytes can name.
#[cfg(target_arch = "x86_64")]
pub fn write_as_32_bit_program(file: &File, data: &[u8], offset: u64) -> std::io::Result<usize> {
    const PWRITE64: u64 = 181;
    const STACK: usize = 64 << 10;
    let low = MapFlags::PRIVATE | MapFlags::from_bits_retain(libc::MAP_32BIT as u32);
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses the address, so that no memory in use is replaced.
    let memory = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), STACK + data.len(), access, low) }?;
    // SAFETY: it is as long as both; the call reads the buffer alone, the stack is put back right after it, and signals may use the low one.
    let outcome = unsafe {
        let buffer = memory.cast::<u8>().add(STACK);
        std::ptr::copy_nonoverlapping(data.as_ptr(), buffer, data.len());
        let mut outcome = PWRITE64;
        std::arch::asm!(
            "push rbx",
            "mov ebx, r14d",
            "mov r13, rsp",
            "mov rsp, r12",
            "int 0x80",
            "mov rsp, r13",
            "pop rbx",
            inout("rax") outcome,
            in("rcx") buffer,
            in("rdx") data.len(),
            in("rsi") offset & 0xffff_ffff,
            in("rdi") offset >> 32,
            in("r12") buffer.sub(64),
            out("r13") _,
            in("r14") file.as_raw_fd() as u64,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
        rustix::mm::munmap(memory, STACK + data.len())?;
        outcome as i64
    };
    usize::try_from(outcome).map_err(|_| std::io::Error::from_raw_os_error(-outcome as i32))
}

/// There are none here.
#[cfg(not(target_arch = "x86_64"))]
pub fn write_as_32_bit_program(file: &File, data: &[u8], offset: u64) -> std::io::Result<usize> {
    std::os::unix::fs::FileExt::write_at(file, data, offset)
}

/// Maps the start of a file for reading and writing.
pub fn map(file: &File, length: usize) -> std::io::Result<*mut u8> {
    // SAFETY: the kernel chooses the address, so that no memory in use is replaced.
    let at = unsafe {
        rustix::mm::mmap(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)
    }?;
    Ok(at.cast())
}

/// Maps the start of a file for reading.
pub fn map_for_reading(file: &File, length: usize) -> std::io::Result<*mut u8> {
    // SAFETY: the kernel chooses the address, so that no memory in use is replaced.
    let at = unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, file, 0) }?;
    Ok(at.cast())
}

/// How many pages of a mapping are in memory, as mincore(2) tells the calling thread's user.
pub fn resident(at: *mut u8, length: usize) -> std::io::Result<usize> {
    let mut pages = vec![0_u8; length.div_ceil(4096)];
    // SAFETY: there is room for a byte a page, and nothing mapped is looked into.
    match unsafe { libc::mincore(at.cast(), length, pages.as_mut_ptr()) } {
        0 => Ok(pages.iter().filter(|page| *page & 1 != 0).count()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Unmaps.
pub fn unmap(at: *mut u8, length: usize) {
    // SAFETY: `map` gave the address with this length, and its only owner gives it up.
    let _ = unsafe { rustix::mm::munmap(at.cast(), length) };
}

/// The project that a file belongs to (`FS_IOC_FSGETXATTR`).
pub fn project(file: &File) -> std::io::Result<u32> {
    const FS_IOC_FSGETXATTR: libc::c_ulong = 0x801c_581f;
    // Flags, size and number of extents, project, and 12 bytes of others.
    let mut attributes = [0u32; 7];
    // SAFETY: the kernel writes 28 bytes, which outlive the call.
    match unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FSGETXATTR, attributes.as_mut_ptr()) } {
        0 => Ok(attributes[3]),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Stores a word; the caller has checked that it lies in the mapping and is aligned.
#[expect(clippy::cast_ptr_alignment, reason = "the caller checked it")]
pub fn store(at: *mut u8, offset: usize, value: u64) {
    // SAFETY: inside the mapping and aligned; volatile, since other programs look at it.
    unsafe { at.add(offset).cast::<u64>().write_volatile(value) };
}

/// Loads a word; the caller has checked that it lies in the mapping and is aligned.
#[expect(clippy::cast_ptr_alignment, reason = "the caller checked it")]
pub fn load(at: *mut u8, offset: usize) -> u64 {
    // SAFETY: inside the mapping and aligned; volatile, since other programs change it.
    unsafe { at.add(offset).cast::<u64>().read_volatile() }
}

/// Stores bytes; the caller has checked that they lie in the mapping.
pub fn copy(at: *mut u8, offset: usize, data: &[u8]) {
    // SAFETY: inside the mapping, which `data` cannot overlap: nobody hands out references into it.
    unsafe { at.add(offset).copy_from_nonoverlapping(data.as_ptr(), data.len()) };
}

/// One write by io_uring at an offset; gives back how much was written.
pub fn ring_write(file: &File, data: &[u8], offset: u64) -> std::io::Result<usize> {
    let mut ring = io_uring::IoUring::new(2)?;
    let descriptor = io_uring::types::Fd(file.as_raw_fd());
    let entry = io_uring::opcode::Write::new(descriptor, data.as_ptr(), data.len() as u32).offset(offset).build();
    // SAFETY: `data` and `file` outlive the request, whose end is waited for below.
    unsafe { ring.submission().push(&entry) }.map_err(std::io::Error::other)?;
    ring.submit_and_wait(1)?;
    let result = ring.completion().next().map_or(-libc::EIO, |entry| entry.result());
    usize::try_from(result).map_err(|_| std::io::Error::from_raw_os_error(-result))
}

/// A process that lists a directory.
#[derive(Debug)]
pub struct Lister(libc::pid_t);

/// Starts one that reads what comes next of a directory into a mapping. A process of its own: a thread that waits for such memory would keep all
/// others of ours from getting any.
pub fn list_into(directory: &File, memory: &crate::map::Map) -> std::io::Result<Lister> {
    let (directory, (at, length)) = (directory.as_raw_fd(), memory.range());
    // SAFETY: the child makes system calls alone, with numbers and the address of memory that nobody here looks into.
    let child = unsafe {
        let child = libc::fork();
        if child == 0 {
            // What others have open is not to be open in it for long.
            libc::dup2(directory, 3);
            libc::close_range(4, libc::c_uint::MAX, 0);
            libc::_exit(i32::from(libc::syscall(libc::SYS_getdents64, 3, at, length) <= 0));
        }
        child
    };
    if child < 0 { Err(std::io::Error::last_os_error()) } else { Ok(Lister(child)) }
}

impl Lister {
    /// Whether it waits for what no signal ends.
    pub fn is_stuck(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('D'))
    }

    /// Waits until it has read something.
    pub fn wait(self) {
        let mut status = 0;
        // SAFETY: a child of ours that nobody else waits for; its status is written behind the pointer.
        let ended = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        assert_eq!((ended, status), (self.0, 0), "it read nothing");
    }
}

/// madvise(2) with MADV_REMOVE.
pub fn remove(at: *mut u8, offset: usize, length: usize) -> std::io::Result<()> {
    // SAFETY: `map` gave the address, of a mapping that reaches so far.
    unsafe { rustix::mm::madvise(at.add(offset).cast(), length, rustix::mm::Advice::LinuxRemove) }.map_err(Into::into)
}

/// msync(2), waiting.
pub fn sync(at: *mut u8, length: usize) -> std::io::Result<()> {
    // SAFETY: `map` gave the address with this length.
    unsafe { rustix::mm::msync(at.cast(), length, MsyncFlags::SYNC) }.map_err(Into::into)
}

/// What name_to_handle_at(2) gives for a file, and servers of NFS hand to their clients: length, type, bytes.
#[derive(Clone, Copy)]
pub struct Handle([u32; 2 + 128 / 4]);

/// A file's handle.
pub fn handle_of(path: &std::path::Path) -> std::io::Result<Handle> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // Room for the longest there is.
    let mut handle = [0u32; 2 + 128 / 4];
    handle[0] = 128;
    let mut mount = 0;
    // SAFETY: the path ends with a zero, and the handle has the room that its first word says.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            libc::AT_FDCWD,
            path.as_ptr(),
            handle.as_mut_ptr(),
            &raw mut mount,
            0,
        )
    };
    if outcome == 0 { Ok(Handle(handle)) } else { Err(std::io::Error::last_os_error()) }
}

/// Opens the file that a handle is of, with open(2)'s flags; `mount` is open on the same file system.
pub fn open_handle(mount: &File, handle: &Handle, flags: i32) -> std::io::Result<File> {
    let mut handle = *handle;
    // SAFETY: the handle is as `handle_of` got it, and nobody else owns the descriptor that comes back.
    unsafe {
        let opened = libc::syscall(libc::SYS_open_by_handle_at, mount.as_raw_fd(), handle.0.as_mut_ptr(), flags);
        match i32::try_from(opened) {
            Ok(fd) if fd >= 0 => Ok(File::from_raw_fd(fd)),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

/// Whether FIEMAP tells where a file lies.
pub fn has_extent_map(file: &File) -> bool {
    ullage_extents::extents(file, 0..1).is_ok()
}

/// Whether the file system has not chosen a place yet for what a file begins with (delayed allocation).
pub fn is_delayed(file: &File) -> bool {
    let all = ullage_extents::extents(file, 0..u64::MAX >> 1);
    all.is_ok_and(|all| all.first().is_some_and(ullage_extents::Extent::is_delayed))
}

/// Has the calling thread come before all others on its CPU, if it may. Gives back whether.
pub fn come_first() -> bool {
    // SAFETY: plain numbers, of which the priority is the only one.
    let mut highest: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: asks for a number.
    highest.sched_priority = unsafe { libc::sched_get_priority_max(libc::SCHED_FIFO) };
    // SAFETY: the kernel reads one sched_param behind the pointer, which outlives the call; 0 is this thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const highest) == 0 }
}
