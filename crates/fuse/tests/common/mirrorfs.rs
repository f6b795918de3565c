//! A file system for the tests: a directory on another file system, shown as it is. Real I/O, real passthrough.

use parking_lot::Mutex;
use rustix::fs::{
    self, AtFlags, CWD, FileType, Mode, OFlags, RawMode, RenameFlags, ResolveFlags, SeekFrom, StatxFlags,
};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use ullage_fs::{
    Attributes, AttributesFor, Caller, Data, Entry, Errno, Filesystem, Kernel, Listed, Opened, Outcome, SetAttributes,
    SetTime, Sink, Statfs, Xattr,
};
use ullage_types::{Bytes, NodeId, Timestamp};

/// How the test file system behaves; changed while it is mounted.
#[derive(Default)]
pub struct Knobs {
    /// Open files in passthrough mode.
    pub passthrough: AtomicBool,
    /// Open files in direct mode.
    pub direct: AtomicBool,
    /// Attributes and names are never believed.
    pub no_cache: AtomicBool,
    /// GETATTR of all but the root is answered from memory, with what the first one found.
    pub canned: AtomicBool,
    /// fsync of files and directories hangs while this is set.
    pub stuck: AtomicBool,
    /// How many fsyncs hang just now.
    pub hanging: AtomicUsize,
    /// The name of the thread that carried out the last fsync of a file, and its scheduling class.
    pub synced_by: parking_lot::Mutex<(String, i32)>,
    /// The names of the threads that released the handles, one after the other.
    pub released_by: parking_lot::Mutex<Vec<String>>,
    /// `attach` and `detach` calls, FORGETs.
    pub attached: AtomicUsize,
    pub detached: AtomicUsize,
    pub forgotten: AtomicU64,
}

fn thread_name() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

struct Node {
    path: Arc<OwnedFd>,
    key: (u64, u64),
    lookups: u64,
    backing: Option<(u32, usize)>,
}

struct Open {
    file: OwnedFd,
    node: NodeId,
    backing: Option<u32>,
}

/// Name, inode and type of a directory entry.
type Name = (Vec<u8>, u64, u32);

#[derive(Default)]
struct Tables {
    nodes: HashMap<u64, Node>,
    by_key: HashMap<(u64, u64), u64>,
    opens: HashMap<u64, Arc<Open>>,
    listings: HashMap<u64, Arc<Vec<Name>>>,
    next: u64,
}

/// The file system.
pub struct MirrorFs {
    tables: Mutex<Tables>,
    kernel: OnceLock<Arc<dyn Kernel>>,
    canned: OnceLock<AttributesFor>,
    pub knobs: Arc<Knobs>,
}

fn errno(error: rustix::io::Errno) -> Errno {
    Errno(error.raw_os_error())
}

const FOREVER: Duration = Duration::MAX;

impl MirrorFs {
    pub fn new(root: &Path, knobs: Arc<Knobs>) -> Arc<Self> {
        let path = fs::open(root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let it = fs::fstat(&path).unwrap();
        let key = (it.st_dev, it.st_ino);
        let mut tables = Tables { next: 2, ..Tables::default() };
        tables.nodes.insert(1, Node { path: Arc::new(path), key, lookups: 1, backing: None });
        tables.by_key.insert(key, 1);
        Arc::new(Self { tables: Mutex::new(tables), kernel: OnceLock::new(), canned: OnceLock::new(), knobs })
    }

    fn path(&self, node: NodeId) -> Outcome<Arc<OwnedFd>> {
        self.tables.lock().nodes.get(&node.0).map(|node| Arc::clone(&node.path)).ok_or(Errno(libc::ESTALE))
    }

    fn open_file(&self, handle: u64) -> Outcome<Arc<Open>> {
        self.tables.lock().opens.get(&handle).cloned().ok_or(Errno(libc::EBADF))
    }

    fn lifetime(&self) -> Duration {
        if self.knobs.no_cache.load(Ordering::Relaxed) { Duration::ZERO } else { FOREVER }
    }

    fn attributes(&self, at: BorrowedFd<'_>) -> Outcome<AttributesFor> {
        let it = fs::statx(at, "", AtFlags::EMPTY_PATH, StatxFlags::ALL).map_err(errno)?;
        let time = |t: fs::StatxTimestamp| Timestamp { seconds: t.tv_sec, nanoseconds: t.tv_nsec };
        let attributes = Attributes {
            ino: it.stx_ino,
            size: it.stx_size,
            blocks: it.stx_blocks,
            atime: time(it.stx_atime),
            mtime: time(it.stx_mtime),
            ctime: time(it.stx_ctime),
            btime: time(it.stx_btime),
            mode: u32::from(it.stx_mode),
            nlink: it.stx_nlink,
            uid: it.stx_uid,
            gid: it.stx_gid,
            rdev: (it.stx_rdev_minor & 0xff) | (it.stx_rdev_major << 8) | ((it.stx_rdev_minor & !0xff) << 12),
            block_size: it.stx_blksize,
        };
        Ok(AttributesFor { attributes, lifetime: self.lifetime() })
    }

    fn entry(&self, path: OwnedFd) -> Outcome<Entry> {
        let it = fs::fstat(&path).map_err(errno)?;
        let attributes = self.attributes(path.as_fd())?;
        let key = (it.st_dev, it.st_ino);
        let mut tables = self.tables.lock();
        let id = if let Some(&id) = tables.by_key.get(&key) {
            id
        } else {
            let id = tables.next;
            tables.next += 1;
            tables.nodes.insert(id, Node { path: Arc::new(path), key, lookups: 0, backing: None });
            tables.by_key.insert(key, id);
            id
        };
        tables.nodes.get_mut(&id).unwrap().lookups += 1;
        Ok(Entry { node: NodeId(id), attributes, lifetime: self.lifetime() })
    }

    fn look(&self, parent: BorrowedFd<'_>, name: &[u8]) -> Outcome<Entry> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let path = fs::openat2(parent, OsStr::from_bytes(name), flags, Mode::empty(), how).map_err(errno)?;
        self.entry(path)
    }

    /// A new name's owner is its caller; the daemon is root.
    fn own(caller: Caller, parent: BorrowedFd<'_>, name: &[u8]) -> Outcome<()> {
        fs::chownat(
            parent,
            OsStr::from_bytes(name),
            Some(fs::Uid::from_raw(caller.uid)),
            Some(fs::Gid::from_raw(caller.gid)),
            AtFlags::SYMLINK_NOFOLLOW,
        )
        .map_err(errno)
    }

    /// As a stuck disk: for as long as the test wants.
    fn hang(&self) {
        self.knobs.hanging.fetch_add(1, Ordering::SeqCst);
        while self.knobs.stuck.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.knobs.hanging.fetch_sub(1, Ordering::SeqCst);
    }

    fn proc(path: &OwnedFd) -> String {
        format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(path))
    }

    fn opened(&self, node: NodeId, file: OwnedFd) -> Outcome<Opened> {
        let mut tables = self.tables.lock();
        let handle = tables.next;
        tables.next += 1;
        let mut backing = None;
        let mut data = Data::Server;
        if self.knobs.passthrough.load(Ordering::Relaxed)
            && let Some(kernel) = self.kernel.get().filter(|kernel| kernel.passthrough())
        {
            // One backing id per node while it is open.
            let entry = tables.nodes.get_mut(&node.0).ok_or(Errno(libc::ESTALE))?;
            let id = match &mut entry.backing {
                Some((id, count)) => {
                    *count += 1;
                    *id
                }
                none => {
                    let both = fs::open(Self::proc(&entry.path), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
                        .map_err(errno)?;
                    let id = kernel.register(both.as_fd()).map_err(|e| Errno(e.raw_os_error().unwrap_or(libc::EIO)))?;
                    *none = Some((id, 1));
                    id
                }
            };
            backing = Some(id);
            data = Data::Passthrough(id);
        } else if self.knobs.direct.load(Ordering::Relaxed) {
            data = Data::Direct;
        }
        tables.opens.insert(handle, Arc::new(Open { file, node, backing }));
        Ok(Opened { handle, data, keep_cache: false })
    }
}

impl Filesystem for MirrorFs {
    fn attach(&self, kernel: Arc<dyn Kernel>) {
        self.knobs.attached.fetch_add(1, Ordering::Relaxed);
        let _ = self.kernel.set(kernel);
    }

    fn lookup(&self, parent: NodeId, name: &[u8]) -> Outcome<Entry> {
        assert!(name != b"panic", "a queue thread dies, as the test wants it");
        self.look(self.path(parent)?.as_fd(), name)
    }

    fn forget(&self, node: NodeId, count: u64) {
        self.knobs.forgotten.fetch_add(count, Ordering::Relaxed);
        let mut tables = self.tables.lock();
        if node.0 == 1 {
            return;
        }
        let entry = tables.nodes.get_mut(&node.0).expect("FORGET of a node never given out");
        entry.lookups = entry.lookups.checked_sub(count).expect("more FORGETs than look-ups");
        if entry.lookups == 0 {
            let node = tables.nodes.remove(&node.0).unwrap();
            tables.by_key.remove(&node.key);
        }
    }

    fn getattr(&self, node: NodeId, _handle: Option<u64>) -> Outcome<AttributesFor> {
        if node.0 != 1 && self.knobs.canned.load(Ordering::Relaxed) {
            if let Some(&canned) = self.canned.get() {
                return Ok(canned);
            }
            return Ok(*self.canned.get_or_init(|| self.attributes(self.path(node).unwrap().as_fd()).unwrap()));
        }
        self.attributes(self.path(node)?.as_fd())
    }

    fn setattr(&self, _caller: Caller, node: NodeId, change: SetAttributes) -> Outcome<AttributesFor> {
        let path = self.path(node)?;
        if change.uid.is_some() || change.gid.is_some() {
            fs::chownat(
                &path,
                "",
                change.uid.map(fs::Uid::from_raw),
                change.gid.map(fs::Gid::from_raw),
                AtFlags::EMPTY_PATH,
            )
            .map_err(errno)?;
        }
        if let Some(mode) = change.mode {
            fs::chmod(Self::proc(&path), Mode::from_raw_mode(mode as RawMode)).map_err(errno)?;
        }
        if change.kill_privileges || change == SetAttributes::default() {
            let mode = fs::fstat(&path).map_err(errno)?.st_mode & 0o7777;
            let setgid = if mode & 0o010 == 0 { 0 } else { 0o2000 };
            fs::chmod(Self::proc(&path), Mode::from_raw_mode(mode & !(0o4000 | setgid))).map_err(errno)?;
        }
        if let Some(size) = change.size {
            let file = fs::open(Self::proc(&path), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).map_err(errno)?;
            fs::ftruncate(&file, size).map_err(errno)?;
        }
        if change.atime.is_some() || change.mtime.is_some() {
            let time = |it: Option<SetTime>| match it {
                None => fs::Timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT as _ },
                Some(SetTime::Now) => fs::Timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW as _ },
                Some(SetTime::At(at)) => fs::Timespec { tv_sec: at.seconds, tv_nsec: at.nanoseconds as _ },
            };
            let times = fs::Timestamps { last_access: time(change.atime), last_modification: time(change.mtime) };
            fs::utimensat(CWD, Self::proc(&path), &times, AtFlags::empty()).map_err(errno)?;
        }
        self.attributes(path.as_fd())
    }

    fn readlink(&self, node: NodeId) -> Outcome<Vec<u8>> {
        fs::readlinkat(self.path(node)?, "", Vec::new()).map(std::ffi::CString::into_bytes).map_err(errno)
    }

    fn mknod(&self, caller: Caller, parent: NodeId, name: &[u8], mode: u32, umask: u32, rdev: u32) -> Outcome<Entry> {
        let parent = self.path(parent)?;
        let kind = FileType::from_raw_mode(mode);
        let bits = Mode::from_raw_mode(mode & 0o7777 & !umask);
        let device = fs::makedev((rdev >> 8) & 0xfff, (rdev & 0xff) | ((rdev >> 12) & 0xfff00));
        fs::mknodat(&parent, OsStr::from_bytes(name), kind, bits, device).map_err(errno)?;
        Self::own(caller, parent.as_fd(), name)?;
        self.look(parent.as_fd(), name)
    }

    fn mkdir(&self, caller: Caller, parent: NodeId, name: &[u8], mode: u32, umask: u32) -> Outcome<Entry> {
        let parent = self.path(parent)?;
        fs::mkdirat(&parent, OsStr::from_bytes(name), Mode::from_raw_mode(mode & 0o7777 & !umask)).map_err(errno)?;
        Self::own(caller, parent.as_fd(), name)?;
        self.look(parent.as_fd(), name)
    }

    fn symlink(&self, caller: Caller, parent: NodeId, name: &[u8], target: &[u8]) -> Outcome<Entry> {
        let parent = self.path(parent)?;
        fs::symlinkat(OsStr::from_bytes(target), &parent, OsStr::from_bytes(name)).map_err(errno)?;
        Self::own(caller, parent.as_fd(), name)?;
        self.look(parent.as_fd(), name)
    }

    fn link(&self, node: NodeId, parent: NodeId, name: &[u8]) -> Outcome<Entry> {
        let (path, parent) = (self.path(node)?, self.path(parent)?);
        fs::linkat(CWD, Self::proc(&path), &parent, OsStr::from_bytes(name), AtFlags::SYMLINK_FOLLOW).map_err(errno)?;
        self.look(parent.as_fd(), name)
    }

    fn unlink(&self, parent: NodeId, name: &[u8]) -> Outcome<()> {
        fs::unlinkat(self.path(parent)?, OsStr::from_bytes(name), AtFlags::empty()).map_err(errno)
    }

    fn rmdir(&self, parent: NodeId, name: &[u8]) -> Outcome<()> {
        fs::unlinkat(self.path(parent)?, OsStr::from_bytes(name), AtFlags::REMOVEDIR).map_err(errno)
    }

    fn rename(&self, _: Caller, from: NodeId, name: &[u8], to: NodeId, to_name: &[u8], flags: u32) -> Outcome<()> {
        fs::renameat_with(
            self.path(from)?,
            OsStr::from_bytes(name),
            self.path(to)?,
            OsStr::from_bytes(to_name),
            RenameFlags::from_bits_retain(flags),
        )
        .map_err(errno)
    }

    fn open(&self, _caller: Caller, node: NodeId, flags: u32) -> Outcome<Opened> {
        let path = self.path(node)?;
        // O_APPEND is the kernel's to keep: requests carry their offsets.
        let keep = OFlags::RDWR | OFlags::WRONLY | OFlags::TRUNC;
        let flags = (OFlags::from_bits_retain(flags) & keep) | OFlags::CLOEXEC;
        self.opened(node, fs::open(Self::proc(&path), flags, Mode::empty()).map_err(errno)?)
    }

    fn create(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        mode: u32,
        umask: u32,
        _flags: u32,
    ) -> Outcome<(Entry, Opened)> {
        let parent = self.path(parent)?;
        let mode = Mode::from_raw_mode(mode & 0o7777 & !umask);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let file = fs::openat(&parent, OsStr::from_bytes(name), flags, mode).map_err(errno)?;
        Self::own(caller, parent.as_fd(), name)?;
        let entry = self.look(parent.as_fd(), name)?;
        Ok((entry, self.opened(entry.node, file)?))
    }

    fn tmpfile(&self, _: Caller, parent: NodeId, mode: u32, umask: u32, _: u32) -> Outcome<(Entry, Opened)> {
        let parent = self.path(parent)?;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = fs::openat(&parent, ".", flags, Mode::from_raw_mode(mode & 0o7777 & !umask)).map_err(errno)?;
        let path = fs::open(Self::proc(&file), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(errno)?;
        let entry = self.entry(path)?;
        Ok((entry, self.opened(entry.node, file)?))
    }

    fn read(&self, _: NodeId, handle: u64, offset: u64, size: u32, into: &mut Vec<u8>) -> Outcome<()> {
        let open = self.open_file(handle)?;
        into.resize(size as usize, 0);
        let mut done = 0;
        while done < into.len() {
            match rustix::io::pread(&open.file, &mut into[done..], offset + done as u64).map_err(errno)? {
                0 => break,
                count => done += count,
            }
        }
        into.truncate(done);
        Ok(())
    }

    fn write(&self, _: NodeId, handle: u64, offset: u64, data: &[u8], _: u32, _: Option<Caller>) -> Outcome<u32> {
        let open = self.open_file(handle)?;
        rustix::io::pwrite(&open.file, data, offset).map(|count| count as u32).map_err(errno)
    }

    fn release(&self, _node: NodeId, handle: u64) {
        self.knobs.released_by.lock().push(thread_name());
        let mut tables = self.tables.lock();
        let open = tables.opens.remove(&handle).expect("RELEASE of a handle never given out");
        if open.backing.is_some()
            && let Some(node) = tables.nodes.get_mut(&open.node.0)
            && let Some((id, count)) = &mut node.backing
        {
            *count -= 1;
            if *count == 0 {
                self.kernel.get().unwrap().unregister(*id);
                node.backing = None;
            }
        }
    }

    fn fsync(&self, _: NodeId, handle: u64, data_only: bool) -> Outcome<()> {
        self.hang();
        // SAFETY: takes a thread's number, 0 for this one, and touches no memory.
        let class = unsafe { libc::sched_getscheduler(0) };
        *self.knobs.synced_by.lock() = (thread_name(), class);
        let open = self.open_file(handle)?;
        if data_only { fs::fdatasync(&open.file) } else { fs::fsync(&open.file) }.map_err(errno)
    }

    fn opendir(&self, node: NodeId) -> Outcome<Opened> {
        let path = self.path(node)?;
        let dir = fs::open(Self::proc(&path), OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(errno)?;
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&dir).map_err(errno)? {
            let entry = entry.map_err(errno)?;
            names.push((entry.file_name().to_bytes().to_vec(), entry.ino(), entry.file_type().as_raw_mode()));
        }
        let mut tables = self.tables.lock();
        let handle = tables.next;
        tables.next += 1;
        tables.listings.insert(handle, Arc::new(names));
        Ok(Opened { handle, data: Data::Server, keep_cache: false })
    }

    fn readdir(&self, node: NodeId, handle: u64, offset: u64, plus: bool, sink: &mut Sink<'_>) -> Outcome<()> {
        let names = self.tables.lock().listings.get(&handle).cloned().ok_or(Errno(libc::EBADF))?;
        let parent = self.path(node)?;
        for (index, (name, ino, mode)) in names.iter().enumerate().skip(offset as usize) {
            let dots = name == b"." || name == b"..";
            let entry = if plus && !dots {
                match self.look(parent.as_fd(), name) {
                    Ok(entry) => Some(entry),
                    Err(Errno(libc::ENOENT)) => continue,
                    Err(error) => return Err(error),
                }
            } else {
                None
            };
            if !sink(&Listed { name, ino: *ino, mode: *mode, next: index as u64 + 1, entry }) {
                if let Some(entry) = entry {
                    self.forget(entry.node, 1);
                }
                break;
            }
        }
        Ok(())
    }

    fn releasedir(&self, _: NodeId, handle: u64) {
        self.tables.lock().listings.remove(&handle).expect("RELEASEDIR of a handle never given out");
    }

    fn fsyncdir(&self, node: NodeId) -> Outcome<()> {
        self.hang();
        let path = self.path(node)?;
        let dir = fs::open(Self::proc(&path), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(errno)?;
        fs::fsync(&dir).map_err(errno)
    }

    fn syncfs(&self) -> Outcome<()> {
        Ok(())
    }

    fn statfs(&self, node: NodeId) -> Outcome<Statfs> {
        let it = fs::fstatvfs(self.path(node)?).map_err(errno)?;
        Ok(Statfs {
            block: Bytes(it.f_frsize),
            blocks: it.f_blocks,
            free: it.f_bfree,
            available: it.f_bavail,
            files: it.f_files,
            files_free: it.f_ffree,
            name_max: it.f_namemax as u32,
        })
    }

    fn setxattr(&self, _: Caller, node: NodeId, name: &[u8], value: &[u8], flags: u32, _: Option<bool>) -> Outcome<()> {
        let path = self.path(node)?;
        fs::setxattr(Self::proc(&path), OsStr::from_bytes(name), value, fs::XattrFlags::from_bits_retain(flags))
            .map_err(errno)
    }

    fn getxattr(&self, _: Caller, node: NodeId, name: &[u8], _size: u32) -> Outcome<Xattr> {
        let path = self.path(node)?;
        let mut value = vec![0; 65536];
        let length = fs::getxattr(Self::proc(&path), OsStr::from_bytes(name), &mut value[..]).map_err(errno)?;
        value.truncate(length);
        Ok(Xattr::Bytes(value))
    }

    fn listxattr(&self, _: Caller, node: NodeId, _size: u32) -> Outcome<Xattr> {
        let path = self.path(node)?;
        let mut list = vec![0u8; 65536];
        let length = fs::listxattr(Self::proc(&path), &mut list[..]).map_err(errno)?;
        list.truncate(length);
        Ok(Xattr::Bytes(list))
    }

    fn removexattr(&self, _: Caller, node: NodeId, name: &[u8]) -> Outcome<()> {
        let path = self.path(node)?;
        fs::removexattr(Self::proc(&path), OsStr::from_bytes(name)).map_err(errno)
    }

    fn fallocate(&self, _: NodeId, handle: u64, offset: u64, length: u64, mode: u32) -> Outcome<()> {
        let open = self.open_file(handle)?;
        fs::fallocate(&open.file, fs::FallocateFlags::from_bits_retain(mode), offset, length).map_err(errno)
    }

    fn lseek(&self, _: NodeId, handle: u64, offset: u64, whence: u32) -> Outcome<u64> {
        let open = self.open_file(handle)?;
        let to = match whence as i32 {
            libc::SEEK_HOLE => SeekFrom::Hole(offset),
            libc::SEEK_DATA => SeekFrom::Data(offset),
            _ => return Err(Errno(libc::EINVAL)),
        };
        fs::seek(&open.file, to).map_err(errno)
    }

    fn copy_file_range(
        &self,
        _: NodeId,
        from_handle: u64,
        mut from_offset: u64,
        _: NodeId,
        to_handle: u64,
        mut to_offset: u64,
        length: u64,
    ) -> Outcome<u64> {
        let (from, to) = (self.open_file(from_handle)?, self.open_file(to_handle)?);
        fs::copy_file_range(&from.file, Some(&mut from_offset), &to.file, Some(&mut to_offset), length as usize)
            .map(|count| count as u64)
            .map_err(errno)
    }

    fn detach(&self) {
        self.knobs.detached.fetch_add(1, Ordering::Relaxed);
    }
}
