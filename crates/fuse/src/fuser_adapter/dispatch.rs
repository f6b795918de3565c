//! One method per request: decode, call, reply.

use crate::fuser_adapter::kernel::Connection;
use crate::fuser_adapter::line::{Line, Turn};
use crate::fuser_adapter::wire::{Body, requested_time};
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, FileType, FopenFlags, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek,
    ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use ullage_fs::{
    AttributesFor, Caller, Entry, Filesystem, Listed, Opened, Outcome, SetAttributes, SetTime, Xattr, hurried,
};
use ullage_types::{Kind, NodeId};

const WRITE_BYTES_MAX: u32 = 1 << 20;

/// The kernel asks for at least a page of listing; `fuser` does not say for how much more.
const LISTING_BYTES: usize = 4096;

thread_local! {
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What `fuser` calls.
pub(super) struct Adapter {
    fs: Arc<dyn Filesystem>,
    connection: Arc<Connection>,
    line: Line,
}

impl Adapter {
    /// For a session of so many threads, and others.
    pub(super) fn new(fs: Arc<dyn Filesystem>, connection: Arc<Connection>, threads: usize) -> Self {
        let line = Line::of(threads, connection.servers.clone());
        Self { fs, connection, line }
    }

    fn turn(&self, request: &Request) -> Turn {
        self.line.turn(request.pid())
    }

    /// Replies ourselves in place of a reply object of `fuser`, which would otherwise answer EIO when dropped.
    /// Forgetting it leaks one count on the session's descriptor, and no memory.
    fn send<R>(&self, request: &Request, reply: R, body: &Body) -> io::Result<()> {
        std::mem::forget(reply);
        self.connection.reply(request, body.bytes())
    }

    fn entry(&self, request: &Request, reply: ReplyEntry, outcome: Outcome<Entry>) {
        match outcome {
            Ok(entry) => {
                if self.send(request, reply, &Body::default().entry(&entry)).is_err() {
                    self.fs.forget(entry.node, 1);
                }
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn attributes(&self, request: &Request, reply: ReplyAttr, outcome: Outcome<AttributesFor>) {
        match outcome {
            Ok(answer) => drop(self.send(request, reply, &Body::default().attributes(&answer))),
            Err(error) => reply.error(errno(error)),
        }
    }
}

fn node(ino: INodeNo) -> NodeId {
    NodeId(ino.0)
}

fn errno(error: ullage_fs::Errno) -> Errno {
    Errno::from_i32(error.0)
}

fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), pid: request.pid() }
}

fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::SpecificTime(time) => SetTime::At(requested_time(time)),
        TimeOrNow::Now => SetTime::Now,
    }
}

fn file_type(mode: u32) -> FileType {
    match Kind::from_mode(mode) {
        Some(Kind::Directory) => FileType::Directory,
        Some(Kind::Symlink) => FileType::Symlink,
        Some(Kind::Fifo) => FileType::NamedPipe,
        Some(Kind::Socket) => FileType::Socket,
        Some(Kind::CharDevice) => FileType::CharDevice,
        Some(Kind::BlockDevice) => FileType::BlockDevice,
        Some(Kind::Regular) | None => FileType::RegularFile,
    }
}

fn empty(reply: ReplyEmpty, outcome: Outcome<()>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

fn xattr(reply: ReplyXattr, outcome: Outcome<Xattr>) {
    match outcome {
        Ok(Xattr::Length(length)) => reply.size(length),
        Ok(Xattr::Bytes(bytes)) => reply.data(&bytes),
        Err(error) => reply.error(errno(error)),
    }
}

impl fuser::Filesystem for Adapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wanted = InitFlags::FUSE_DONT_MASK
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_POSIX_ACL
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_EXPORT_SUPPORT
            | InitFlags::FUSE_EXPLICIT_INVAL_DATA;
        if rustix::process::geteuid().is_root() {
            wanted |= InitFlags::FUSE_PASSTHROUGH;
        }
        let granted = wanted & config.capabilities();
        config
            .add_capabilities(granted)
            .map_err(|missing| io::Error::other(format!("the kernel took back {missing:?}")))?;
        if granted.contains(InitFlags::FUSE_PASSTHROUGH) {
            let set = config.set_max_stack_depth(1);
            self.connection.set_passthrough(set.is_ok());
        }
        let refused = |value| io::Error::other(format!("fuser refused a limit, and offers {value:?}"));
        config.set_max_write(WRITE_BYTES_MAX).map_err(|offer| refused(u64::from(offer)))?;
        config.set_time_granularity(Duration::from_nanos(1)).map_err(|offer| refused(offer.as_nanos() as u64))?;
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _turn = self.turn(request);
        self.entry(request, reply, self.fs.lookup(node(parent), name.as_bytes()));
    }

    // No turn ends here: one message may bring many of them.
    fn forget(&self, _: &Request, ino: INodeNo, count: u64) {
        hurried(|| self.fs.forget(node(ino), count));
    }

    fn getattr(&self, request: &Request, ino: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let _turn = self.turn(request);
        self.attributes(request, reply, self.fs.getattr(node(ino), handle.map(|handle| handle.0)));
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let _turn = self.turn(request);
        // `fuser` hides FATTR_KILL_SUIDGID. The kernel sets it with every change of owner or group (of what is not
        // a directory), and with a new length unless the caller has CAP_FSETID, which here means root.
        let owner_changes = uid.is_some() || gid.is_some();
        let kill_privileges = owner_changes || (size.is_some() && request.uid() != 0);
        let change = SetAttributes {
            mode,
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
            ctime: ctime.map(requested_time),
            handle: handle.map(|handle| handle.0),
            kill_privileges,
        };
        self.attributes(request, reply, self.fs.setattr(caller(request), node(ino), change));
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        let _turn = self.turn(request);
        match self.fs.readlink(node(ino)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let _turn = self.turn(request);
        let outcome = self.fs.mknod(caller(request), node(parent), name.as_bytes(), mode, umask, rdev);
        self.entry(request, reply, outcome);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let _turn = self.turn(request);
        let outcome = self.fs.mkdir(caller(request), node(parent), name.as_bytes(), mode, umask);
        self.entry(request, reply, outcome);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.turn(request);
        empty(reply, self.fs.unlink(node(parent), name.as_bytes()));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.turn(request);
        empty(reply, self.fs.rmdir(node(parent), name.as_bytes()));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let _turn = self.turn(request);
        let target = target.as_os_str().as_bytes();
        self.entry(request, reply, self.fs.symlink(caller(request), node(parent), name.as_bytes(), target));
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turn(request);
        let (name, to_name) = (name.as_bytes(), to_name.as_bytes());
        empty(reply, self.fs.rename(caller(request), node(parent), name, node(to), to_name, flags.bits()));
    }

    fn link(&self, request: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _turn = self.turn(request);
        self.entry(request, reply, self.fs.link(node(ino), node(parent), name.as_bytes()));
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let _turn = self.turn(request);
        match self.fs.open(caller(request), node(ino), flags.0 as u32) {
            Ok(opened) => {
                if self.send(request, reply, &Body::default().opened(&opened, flags.0 as u32)).is_err() {
                    self.fs.release(node(ino), opened.handle);
                }
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let _turn = self.turn(request);
        match self.fs.create(caller(request), node(parent), name.as_bytes(), mode, umask, flags as u32) {
            Ok((entry, opened)) => {
                if self.send(request, reply, &Body::default().entry(&entry).opened(&opened, flags as u32)).is_err() {
                    self.fs.release(entry.node, opened.handle);
                    self.fs.forget(entry.node, 1);
                }
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let _turn = self.turn(request);
        READ_BUFFER.with_borrow_mut(|buffer| {
            buffer.clear();
            match self.fs.read(node(ino), handle.0, offset, size, buffer) {
                Ok(()) => reply.data(buffer),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        open_flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let _turn = self.turn(request);
        let stranger = flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID).then(|| caller(request));
        match self.fs.write(node(ino), handle.0, offset, data, open_flags.0 as u32, stranger) {
            // Pages of a mapping: the kernel takes a short count for all of it.
            Ok(taken) if flags.contains(WriteFlags::FUSE_WRITE_CACHE) && (taken as usize) < data.len() => {
                reply.error(errno(ullage_fs::Errno::ENOSPC));
            }
            Ok(taken) => reply.written(taken),
            Err(error) => reply.error(errno(error)),
        }
    }

    /// Not sent again: what close(2) has to tell the kernel knows itself.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn release(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turn(request);
        self.fs.release(node(ino), handle.0);
        reply.ok();
    }

    fn fsync(&self, request: &Request, ino: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        let _turn = self.turn(request);
        empty(reply, self.fs.fsync(node(ino), handle.0, data_only));
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let _turn = self.turn(request);
        match self.fs.opendir(node(ino)) {
            Ok(Opened { handle, .. }) => {
                reply.opened(FileHandle(handle), FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdir(&self, request: &Request, ino: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let _turn = self.turn(request);
        let mut sink = |listed: &Listed<'_>| {
            let name = OsStr::from_bytes(listed.name);
            !reply.add(INodeNo(listed.ino), listed.next, file_type(listed.mode), name)
        };
        match self.fs.readdir(node(ino), handle.0, offset, false, &mut sink) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdirplus(&self, request: &Request, ino: INodeNo, handle: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        let _turn = self.turn(request);
        let mut body = Body::default();
        let mut given = Vec::new();
        let mut sink = |listed: &Listed<'_>| {
            let taken = body.listed(listed, LISTING_BYTES);
            if taken {
                given.extend(listed.entry.map(|entry| entry.node));
            }
            taken
        };
        match self.fs.readdir(node(ino), handle.0, offset, true, &mut sink) {
            Ok(()) => {
                if self.send(request, reply, &body).is_err() {
                    for node in given {
                        self.fs.forget(node, 1);
                    }
                }
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn releasedir(&self, request: &Request, ino: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        let _turn = self.turn(request);
        self.fs.releasedir(node(ino), handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, request: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let _turn = self.turn(request);
        empty(reply, self.fs.fsyncdir(node(ino)));
    }

    fn statfs(&self, request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let _turn = self.turn(request);
        match self.fs.statfs(node(ino)) {
            Ok(s) => {
                let block = s.block.0 as u32;
                reply.statfs(s.blocks, s.free, s.available, s.files, s.files_free, block, s.name_max, block);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turn(request);
        let name = name.as_bytes();
        empty(reply, self.fs.setxattr(caller(request), node(ino), name, value, flags as u32, false));
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let _turn = self.turn(request);
        xattr(reply, self.fs.getxattr(caller(request), node(ino), name.as_bytes(), size));
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let _turn = self.turn(request);
        xattr(reply, self.fs.listxattr(caller(request), node(ino), size));
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.turn(request);
        empty(reply, self.fs.removexattr(caller(request), node(ino), name.as_bytes()));
    }

    fn access(&self, request: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        let _turn = self.turn(request);
        // The kernel checks (`default_permissions`); after this answer it never asks again.
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turn(request);
        empty(reply, self.fs.fallocate(node(ino), handle.0, offset, length, mode as u32));
    }

    fn lseek(&self, request: &Request, ino: INodeNo, handle: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let _turn = self.turn(request);
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        match self.fs.lseek(node(ino), handle.0, offset, whence as u32) {
            Ok(found) => reply.offset(found as i64),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn copy_file_range(
        &self,
        request: &Request,
        from: INodeNo,
        from_handle: FileHandle,
        from_offset: u64,
        to: INodeNo,
        to_handle: FileHandle,
        to_offset: u64,
        length: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let _turn = self.turn(request);
        // The reply counts in 32 bits.
        let length = length.min(u64::from(!4095_u32));
        let (from, to) = (node(from), node(to));
        match self.fs.copy_file_range(from, from_handle.0, from_offset, to, to_handle.0, to_offset, length) {
            Ok(copied) => reply.written(copied as u32),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn ioctl(
        &self,
        request: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        let _turn = self.turn(request);
        reply.error(Errno::ENOTTY);
    }

    fn poll(
        &self,
        request: &Request,
        _: INodeNo,
        _: FileHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        let _turn = self.turn(request);
        // Files are always ready; after this answer the kernel knows and never asks again.
        reply.error(Errno::ENOSYS);
    }
}
