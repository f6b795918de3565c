//! One method per request: decode, call, reply.

use crate::abi::opcode;
use crate::fuser_adapter::carry_out::Parts;
use crate::fuser_adapter::carry_out::Waits::{self, Always, Maybe};
use crate::fuser_adapter::line::{Line, Turn};
use crate::fuser_adapter::wire::{Body, requested_time};
use crate::negotiate::{CONGESTED, MAX_BACKGROUND};
use crate::workers::Workers;
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
    Caller, Entry, Filesystem, Listed, Opened, Outcome, SetAttributes, SetTime, Xattr, hurried, keeps_set_id,
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
    pub(super) parts: Parts,
    pub(super) workers: Arc<Workers>,
    line: Line,
}

impl Adapter {
    /// For a session of so many threads, and others.
    pub(super) fn new(parts: Parts, workers: Arc<Workers>, threads: usize) -> Self {
        let line = Line::of(threads, &parts.connection);
        Self { parts, workers, line }
    }

    pub(super) fn turn(&self, request: &Request, opcode: u32) -> Turn {
        self.line.turn(request.pid(), opcode)
    }

    /// What is answered with nothing.
    fn plain(
        &self,
        request: &Request,
        opcode: u32,
        waits: Waits,
        bytes: &[u8],
        reply: ReplyEmpty,
        call: impl Fn(&dyn Filesystem, &[u8]) -> Outcome<()> + Send + 'static,
    ) {
        self.carry_out(request, opcode, waits, bytes, call, |_, outcome| empty(reply, outcome));
    }

    /// What is answered with an entry.
    fn entry(
        &self,
        request: &Request,
        opcode: u32,
        bytes: &[u8],
        reply: ReplyEntry,
        call: impl Fn(&dyn Filesystem, &[u8]) -> Outcome<Entry> + Send + 'static,
    ) {
        self.carry_out(request, opcode, Maybe, bytes, call, |to, outcome| to.entry(reply, outcome));
    }
}

fn node(ino: INodeNo) -> NodeId {
    NodeId(ino.0)
}

pub(super) fn errno(error: ullage_fs::Errno) -> Errno {
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

fn directory(reply: ReplyDirectory, outcome: Outcome<()>) {
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
            self.parts.connection.set_passthrough(set.is_ok());
        }
        let refused = |value| io::Error::other(format!("fuser refused a limit, and offers {value:?}"));
        config.set_max_write(WRITE_BYTES_MAX).map_err(|offer| refused(u64::from(offer)))?;
        config.set_max_background(MAX_BACKGROUND).map_err(|offer| refused(u64::from(offer)))?;
        config.set_congestion_threshold(CONGESTED).map_err(|offer| refused(u64::from(offer)))?;
        config.set_time_granularity(Duration::from_nanos(1)).map_err(|offer| refused(offer.as_nanos() as u64))?;
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let parent = node(parent);
        self.entry(request, opcode::LOOKUP, name.as_bytes(), reply, move |fs, name| fs.lookup(parent, name));
    }

    // No turn ends here: one message may bring many of them.
    fn forget(&self, _: &Request, ino: INodeNo, count: u64) {
        self.line.count(opcode::FORGET);
        hurried(|| self.parts.fs.forget(node(ino), count));
    }

    fn getattr(&self, request: &Request, ino: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let (node, handle) = (node(ino), handle.map(|handle| handle.0));
        self.carry_out(
            request,
            opcode::GETATTR,
            Maybe,
            &[],
            move |fs, _| fs.getattr(node, handle),
            |to, outcome| to.attributes(reply, outcome),
        );
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
        // `fuser` hides FATTR_KILL_SUIDGID. The kernel sets it with every change of owner or group (of what is not
        // a directory), and with a new length unless the caller has CAP_FSETID.
        let owner_changes = uid.is_some() || gid.is_some();
        let change = SetAttributes {
            mode,
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
            ctime: ctime.map(requested_time),
            handle: handle.map(|handle| handle.0),
            kill_privileges: owner_changes,
        };
        let (caller, node) = (caller(request), node(ino));
        self.carry_out(
            request,
            opcode::SETATTR,
            Maybe,
            &[],
            move |fs, _| {
                let kill_privileges = change.kill_privileges || size.is_some() && !keeps_set_id(caller);
                fs.setattr(caller, node, SetAttributes { kill_privileges, ..change })
            },
            |to, outcome| to.attributes(reply, outcome),
        );
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        let node = node(ino);
        self.carry_out(
            request,
            opcode::READLINK,
            Maybe,
            &[],
            move |fs, _| fs.readlink(node),
            |_, outcome| match outcome {
                Ok(target) => reply.data(&target),
                Err(error) => reply.error(errno(error)),
            },
        );
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
        let (caller, parent) = (caller(request), node(parent));
        let call = move |fs: &dyn Filesystem, name: &[u8]| fs.mknod(caller, parent, name, mode, umask, rdev);
        self.entry(request, opcode::MKNOD, name.as_bytes(), reply, call);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let (caller, parent) = (caller(request), node(parent));
        self.entry(request, opcode::MKDIR, name.as_bytes(), reply, move |fs, name| {
            fs.mkdir(caller, parent, name, mode, umask)
        });
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let parent = node(parent);
        self.plain(request, opcode::UNLINK, Maybe, name.as_bytes(), reply, move |fs, name| fs.unlink(parent, name));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let parent = node(parent);
        self.plain(request, opcode::RMDIR, Maybe, name.as_bytes(), reply, move |fs, name| fs.rmdir(parent, name));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let (caller, parent) = (caller(request), node(parent));
        let target = target.as_os_str().as_bytes().to_vec();
        self.entry(request, opcode::SYMLINK, name.as_bytes(), reply, move |fs, name| {
            fs.symlink(caller, parent, name, &target)
        });
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
        let (caller, parent, to) = (caller(request), node(parent), node(to));
        let (to_name, flags) = (to_name.as_bytes().to_vec(), flags.bits());
        let call = move |fs: &dyn Filesystem, name: &[u8]| fs.rename(caller, parent, name, to, &to_name, flags);
        let opcode = if flags == 0 { opcode::RENAME } else { opcode::RENAME2 };
        self.plain(request, opcode, Maybe, name.as_bytes(), reply, call);
    }

    fn link(&self, request: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (node, parent) = (node(ino), node(parent));
        self.entry(request, opcode::LINK, name.as_bytes(), reply, move |fs, name| fs.link(node, parent, name));
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (caller, node, flags) = (caller(request), node(ino), flags.0 as u32);
        self.carry_out(
            request,
            opcode::OPEN,
            Maybe,
            &[],
            move |fs, _| fs.open(caller, node, flags),
            move |to, outcome| match outcome {
                Ok(opened) => {
                    if to.send(reply, &Body::default().opened(&opened, flags)).is_err() {
                        to.fs.release(node, opened.handle);
                    }
                }
                Err(error) => reply.error(errno(error)),
            },
        );
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
        let (caller, parent, flags) = (caller(request), node(parent), flags as u32);
        self.carry_out(
            request,
            opcode::CREATE,
            Maybe,
            name.as_bytes(),
            move |fs, name| fs.create(caller, parent, name, mode, umask, flags),
            move |to, outcome| match outcome {
                Ok((entry, opened)) => {
                    if to.send(reply, &Body::default().entry(&entry).opened(&opened, flags)).is_err() {
                        to.fs.release(entry.node, opened.handle);
                        to.fs.forget(entry.node, 1);
                    }
                }
                Err(error) => reply.error(errno(error)),
            },
        );
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
        let (node, handle) = (node(ino), handle.0);
        self.carry_out(
            request,
            opcode::READ,
            Maybe,
            &[],
            move |fs, _| {
                READ_BUFFER.with_borrow_mut(|buffer| {
                    buffer.clear();
                    fs.read(node, handle, offset, size, buffer)
                })
            },
            |_, outcome| match outcome {
                Ok(()) => READ_BUFFER.with_borrow(|buffer| reply.data(buffer)),
                Err(error) => reply.error(errno(error)),
            },
        );
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
        let (node, handle, open_flags) = (node(ino), handle.0, open_flags.0 as u32);
        let stranger = flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID).then(|| caller(request));
        // Pages of a mapping: the kernel takes a short count for all of it.
        let least = if flags.contains(WriteFlags::FUSE_WRITE_CACHE) { data.len() } else { 0 };
        self.carry_out(
            request,
            opcode::WRITE,
            if ullage_fs::syncs(open_flags) { Always(node) } else { Maybe },
            data,
            move |fs, data| fs.write(node, handle, offset, data, open_flags, stranger),
            move |_, outcome| match outcome {
                Ok(taken) if (taken as usize) < least => reply.error(errno(ullage_fs::Errno::ENOSPC)),
                Ok(taken) => reply.written(taken),
                Err(error) => reply.error(errno(error)),
            },
        );
    }

    /// Not sent again: what close(2) has to tell the kernel knows itself.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        self.line.count(opcode::FLUSH);
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
        let (node, handle) = (node(ino), handle.0);
        self.plain(request, opcode::RELEASE, Maybe, &[], reply, move |fs, _| {
            fs.may_release(node)?;
            fs.release(node, handle);
            Ok(())
        });
    }

    fn fsync(&self, request: &Request, ino: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        let (node, handle) = (node(ino), handle.0);
        self.plain(request, opcode::FSYNC, Always(node), &[], reply, move |fs, _| fs.fsync(node, handle, data_only));
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let _turn = self.turn(request, opcode::OPENDIR);
        match self.parts.fs.opendir(node(ino)) {
            Ok(Opened { handle, .. }) => {
                reply.opened(FileHandle(handle), FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdir(&self, request: &Request, ino: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let _turn = self.turn(request, opcode::READDIR);
        let (node, handle) = (node(ino), handle.0);
        let list = move |fs: &dyn Filesystem, reply: &mut ReplyDirectory| {
            fs.readdir(node, handle, offset, false, &mut |listed: &Listed<'_>| {
                let name = OsStr::from_bytes(listed.name);
                !reply.add(INodeNo(listed.ino), listed.next, file_type(listed.mode), name)
            })
        };
        match hurried(|| list(&*self.parts.fs, &mut reply)) {
            Err(ullage_fs::Errno::LATER) => {
                let fs = Arc::clone(&self.parts.fs);
                self.workers.submit(ullage_fs::waits_for(), move |_| {
                    let outcome = list(&*fs, &mut reply);
                    directory(reply, outcome);
                });
            }
            outcome => directory(reply, outcome),
        }
    }

    fn readdirplus(&self, request: &Request, ino: INodeNo, handle: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        let (node, handle) = (node(ino), handle.0);
        self.carry_out(
            request,
            opcode::READDIRPLUS,
            Maybe,
            &[],
            move |fs, _| {
                let (mut body, mut given) = (Body::default(), Vec::new());
                fs.readdir(node, handle, offset, true, &mut |listed: &Listed<'_>| {
                    let taken = body.listed(listed, LISTING_BYTES);
                    if taken {
                        given.extend(listed.entry.map(|entry| entry.node));
                    }
                    taken
                })?;
                Ok((body, given))
            },
            |to, outcome| match outcome {
                Ok((body, given)) => {
                    if to.send(reply, &body).is_err() {
                        for node in given {
                            to.fs.forget(node, 1);
                        }
                    }
                }
                Err(error) => reply.error(errno(error)),
            },
        );
    }

    fn releasedir(&self, request: &Request, ino: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        let _turn = self.turn(request, opcode::RELEASEDIR);
        self.parts.fs.releasedir(node(ino), handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, request: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let node = node(ino);
        self.plain(request, opcode::FSYNCDIR, Always(node), &[], reply, move |fs, _| fs.fsyncdir(node));
    }

    fn statfs(&self, request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let node = node(ino);
        self.carry_out(
            request,
            opcode::STATFS,
            Maybe,
            &[],
            move |fs, _| fs.statfs(node),
            |_, outcome| match outcome {
                Ok(s) => {
                    let block = s.block.0 as u32;
                    reply.statfs(s.blocks, s.free, s.available, s.files, s.files_free, block, s.name_max, block);
                }
                Err(error) => reply.error(errno(error)),
            },
        );
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
        let (caller, node, flags) = (caller(request), node(ino), flags as u32);
        let name = name.as_bytes().to_vec();
        let call = move |fs: &dyn Filesystem, value: &[u8]| fs.setxattr(caller, node, &name, value, flags, None);
        self.plain(request, opcode::SETXATTR, Maybe, value, reply, call);
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let (caller, node) = (caller(request), node(ino));
        self.carry_out(
            request,
            opcode::GETXATTR,
            Maybe,
            name.as_bytes(),
            move |fs, name| fs.getxattr(caller, node, name, size),
            |_, outcome| xattr(reply, outcome),
        );
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let (caller, node) = (caller(request), node(ino));
        self.carry_out(
            request,
            opcode::LISTXATTR,
            Maybe,
            &[],
            move |fs, _| fs.listxattr(caller, node, size),
            |_, outcome| xattr(reply, outcome),
        );
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (caller, node) = (caller(request), node(ino));
        self.plain(request, opcode::REMOVEXATTR, Maybe, name.as_bytes(), reply, move |fs, name| {
            fs.removexattr(caller, node, name)
        });
    }

    fn access(&self, request: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        let _turn = self.turn(request, opcode::ACCESS);
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
        let (node, handle, mode) = (node(ino), handle.0, mode as u32);
        self.plain(request, opcode::FALLOCATE, Always(node), &[], reply, move |fs, _| {
            fs.fallocate(node, handle, offset, length, mode)
        });
    }

    fn lseek(&self, request: &Request, ino: INodeNo, handle: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        let (node, handle, whence) = (node(ino), handle.0, whence as u32);
        self.carry_out(
            request,
            opcode::LSEEK,
            Maybe,
            &[],
            move |fs, _| fs.lseek(node, handle, offset, whence),
            |_, outcome| match outcome {
                Ok(found) => reply.offset(found as i64),
                Err(error) => reply.error(errno(error)),
            },
        );
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
        // The reply counts in 32 bits.
        let length = length.min(u64::from(!4095_u32));
        let (from, to, from_handle, to_handle) = (node(from), node(to), from_handle.0, to_handle.0);
        self.carry_out(
            request,
            opcode::COPY_FILE_RANGE,
            Always(to),
            &[],
            move |fs, _| fs.copy_file_range(from, from_handle, from_offset, to, to_handle, to_offset, length),
            |_, outcome| match outcome {
                Ok(copied) => reply.written(copied as u32),
                Err(error) => reply.error(errno(error)),
            },
        );
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
        let _turn = self.turn(request, opcode::IOCTL);
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
        let _turn = self.turn(request, opcode::POLL);
        // Files are always ready; after this answer the kernel knows and never asks again.
        reply.error(Errno::ENOSYS);
    }
}
