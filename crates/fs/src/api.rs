//! What a transport calls and what it gets back: the whole surface between `fuse` and `fs`.
//!
//! Every call is synchronous and may come from any thread. The transport decides which thread runs it; calls
//! marked *may block* wait for disks and belong on a worker where the transport has one.

use crate::WaitsFor;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use ullage_types::{Bytes, NodeId, Timestamp};

/// An errno; the only error a transport sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// What every call gives back.
pub type Outcome<T> = Result<T, Errno>;

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Process.
    pub pid: u32,
}

/// What stat(2) shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// `st_ino`.
    pub ino: u64,
    /// Length in bytes.
    pub size: u64,
    /// Allocated 512-byte blocks.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last modification of the data.
    pub mtime: Timestamp,
    /// Last change of data or attributes.
    pub ctime: Timestamp,
    /// Birth.
    pub btime: Timestamp,
    /// Type and permission bits, as `st_mode`.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, as the kernel's 32-bit encoding.
    pub rdev: u32,
    /// Preferred I/O size.
    pub block_size: u32,
}

/// Attributes and how long the kernel may believe them.
#[derive(Clone, Copy, Debug)]
pub struct AttributesFor {
    /// The attributes.
    pub attributes: Attributes,
    /// For this long.
    pub lifetime: Duration,
}

/// A name's node.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The handle the kernel will use; each entry given out counts as one look-up until FORGET. 0: there is no
    /// such name, and the kernel may remember that for `lifetime`.
    pub node: NodeId,
    /// Attributes of the node.
    pub attributes: AttributesFor,
    /// How long the kernel may believe the name.
    pub lifetime: Duration,
}

/// How the data of an open file moves.
#[derive(Clone, Debug)]
pub enum Data {
    /// READ and WRITE requests through the page cache.
    Server,
    /// READ and WRITE requests, page cache bypassed (`FOPEN_DIRECT_IO`).
    Direct,
    /// In the kernel, onto the registered backing file (`FOPEN_PASSTHROUGH`).
    Passthrough(u32),
    /// READ and WRITE requests on an inode that has a registered backing file
    /// (`FOPEN_PASSTHROUGH | FOPEN_DIRECT_IO`): the exact mode beside fast opens.
    Exact(u32),
}

/// An opened file or directory.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The handle, to be given back with every call on this open file.
    pub handle: u64,
    /// How its data moves; `Server` for directories.
    pub data: Data,
    /// Whether pages cached by an earlier open stay (`FOPEN_KEEP_CACHE`).
    pub keep_cache: bool,
}

/// Whether who opens or writes with these flags is answered when all is on disk (`O_DSYNC`, which is part of `O_SYNC`).
pub fn syncs(flags: u32) -> bool {
    flags as i32 & libc::O_DSYNC != 0
}

/// Which time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// This one.
    At(Timestamp),
    /// The current one.
    Now,
}

/// What SETATTR asks for. All `None` and false is a request too: clear setuid, setgid and capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// Change time (only the kernel's write-back cache sends it).
    pub ctime: Option<Timestamp>,
    /// The open file it came through.
    pub handle: Option<u64>,
    /// Clear setuid and setgid with the change (`FATTR_KILL_SUIDGID`).
    pub kill_privileges: bool,
}

/// One entry of a directory listing.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// The name.
    pub name: &'a [u8],
    /// `d_ino`.
    pub ino: u64,
    /// The `S_IFMT` bits.
    pub mode: u32,
    /// Where the listing goes on after this entry.
    pub next: u64,
    /// For READDIRPLUS: the node, counted as one look-up when the sink takes it. `None` for `.` and `..`.
    pub entry: Option<Entry>,
}

/// Takes entries until its buffer is full: false means that this entry was not taken.
pub type Sink<'a> = dyn FnMut(&Listed<'_>) -> bool + 'a;

/// What statfs(2) shows.
#[derive(Clone, Copy, Debug)]
pub struct Statfs {
    /// Block size.
    pub block: Bytes,
    /// All blocks.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Free to ordinary users.
    pub available: u64,
    /// All inodes.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Longest name.
    pub name_max: u32,
}

/// What an extended-attribute call gives back: callers ask for the length (`size` 0) or the bytes.
#[derive(Clone, Debug)]
pub enum Xattr {
    /// How long it is.
    Length(u32),
    /// The bytes.
    Bytes(Vec<u8>),
}

/// A process apart that makes calls in the mount, one at a time. It may wait for us without harm: when we end, so do its calls.
pub trait Envoy: Send {
    /// Its number, by which its calls are known.
    fn process(&self) -> i32;
    /// Makes the kernel take the attributes of a node that it knows from the answer to a SETATTR, while nobody writes to it: the
    /// next write asks for file capabilities then. Those who answer it go before all others meanwhile. Where the mount has no path any more,
    /// this process, 0 if none is known, most likely has the file open.
    fn refresh(&mut self, node: NodeId, opener: u32) -> io::Result<()>;
    /// Looks at the root of the mount, as stat(2) does.
    fn look(&mut self) -> io::Result<()>;
    /// Opens a file without a name in the root of the mount; gives back its inode.
    fn unnamed(&mut self) -> io::Result<u64>;
    /// Tries twice to write to that file, which takes no room by it, and closes it. Gives back what the second write was told.
    fn write(&mut self) -> io::Result<()>;
}

/// What the kernel can do for the file system; the transport implements it and hands it to [`Filesystem::attach`].
pub trait Kernel: Send + Sync {
    /// Registers a backing file; gives back its id. EPERM without CAP_SYS_ADMIN.
    fn register(&self, file: BorrowedFd<'_>) -> io::Result<u32>;
    /// Ends a registration.
    fn unregister(&self, backing: u32);
    /// Makes the kernel drop cached attributes (and pages from `offset` on, unless negative) of a node.
    fn invalidate_node(&self, node: NodeId, offset: i64, length: i64) -> io::Result<()>;
    /// Makes the kernel drop a cached name. Takes the directory's lock in the kernel: never from a call on it.
    fn invalidate_name(&self, parent: NodeId, name: &[u8]) -> io::Result<()>;
    /// Starts a process that makes calls in the mount: a thread of ours would wait for ourselves.
    fn envoy(&self) -> io::Result<Box<dyn Envoy>>;
    /// Whether passthrough was negotiated.
    fn passthrough(&self) -> bool;
    /// The numbers of the mount's device, major and minor, by which stat(2) knows its files. None where they could not be found out.
    fn device(&self) -> Option<(u32, u32)>;
}

/// The file system, as a transport sees it. See the module's page for threads; names are raw bytes.
pub trait Filesystem: Send + Sync + 'static {
    /// Called once, after the connection is negotiated and before the first call.
    fn attach(&self, kernel: Arc<dyn Kernel>);
    /// What calls about this node wait for that wait for a disk.
    fn waits_for(&self, node: NodeId) -> WaitsFor {
        let _ = node;
        WaitsFor::Anything
    }
    /// LOOKUP.
    fn lookup(&self, parent: NodeId, name: &[u8]) -> Outcome<Entry>;
    /// FORGET: `count` look-ups less. What would have to wait, and may not on the calling thread, is done later.
    fn forget(&self, node: NodeId, count: u64);
    /// GETATTR.
    fn getattr(&self, node: NodeId, handle: Option<u64>) -> Outcome<AttributesFor>;
    /// SETATTR. May block when it changes the length.
    fn setattr(&self, caller: Caller, node: NodeId, change: SetAttributes) -> Outcome<AttributesFor>;
    /// READLINK.
    fn readlink(&self, node: NodeId) -> Outcome<Vec<u8>>;
    /// MKNOD: `mode` with its type bits; `umask` is not yet applied (`FUSE_DONT_MASK`).
    fn mknod(&self, caller: Caller, parent: NodeId, name: &[u8], mode: u32, umask: u32, rdev: u32) -> Outcome<Entry>;
    /// MKDIR.
    fn mkdir(&self, caller: Caller, parent: NodeId, name: &[u8], mode: u32, umask: u32) -> Outcome<Entry>;
    /// SYMLINK.
    fn symlink(&self, caller: Caller, parent: NodeId, name: &[u8], target: &[u8]) -> Outcome<Entry>;
    /// LINK: another name for `node`.
    fn link(&self, node: NodeId, parent: NodeId, name: &[u8]) -> Outcome<Entry>;
    /// UNLINK.
    fn unlink(&self, parent: NodeId, name: &[u8]) -> Outcome<()>;
    /// RMDIR.
    fn rmdir(&self, parent: NodeId, name: &[u8]) -> Outcome<()>;
    /// RENAME2 with `RENAME_NOREPLACE` and `RENAME_EXCHANGE` in `flags`.
    fn rename(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        to: NodeId,
        to_name: &[u8],
        flags: u32,
    ) -> Outcome<()>;
    /// OPEN with the flags of open(2). `O_TRUNC` comes as a SETATTR afterwards: with `FUSE_ATOMIC_O_TRUNC` the kernel has a running
    /// program truncated before it refuses the open with ETXTBSY.
    fn open(&self, caller: Caller, node: NodeId, flags: u32) -> Outcome<Opened>;
    /// CREATE: as MKNOD of a regular file and OPEN in one.
    fn create(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        mode: u32,
        umask: u32,
        flags: u32,
    ) -> Outcome<(Entry, Opened)>;
    /// TMPFILE: a file without a name in `parent`'s file system, opened.
    fn tmpfile(&self, caller: Caller, parent: NodeId, mode: u32, umask: u32, flags: u32) -> Outcome<(Entry, Opened)>;
    /// READ: appends at most `size` bytes to `into`; fewer only at the end of the file. May block.
    fn read(&self, node: NodeId, handle: u64, offset: u64, size: u32, into: &mut Vec<u8>) -> Outcome<()>;
    /// WRITE with the flags of open(2) and of the call: gives back how many bytes were taken. A `stranger`'s write clears setuid and
    /// setgid. May block, and waits for disks where it [`syncs`].
    fn write(
        &self,
        node: NodeId,
        handle: u64,
        offset: u64,
        data: &[u8],
        flags: u32,
        stranger: Option<Caller>,
    ) -> Outcome<u32>;
    /// Whether RELEASE of a node may be carried out here: LATER where that would have to wait.
    fn may_release(&self, node: NodeId) -> Outcome<()> {
        let _ = node;
        Ok(())
    }
    /// RELEASE of a handle from `open`, `create` or `tmpfile`.
    fn release(&self, node: NodeId, handle: u64);
    /// FSYNC. Blocks.
    fn fsync(&self, node: NodeId, handle: u64, data_only: bool) -> Outcome<()>;
    /// OPENDIR.
    fn opendir(&self, node: NodeId) -> Outcome<Opened>;
    /// READDIR and READDIRPLUS (`plus`): entries after `offset` (0 at first) until the sink is full. Fails only before the sink has
    /// taken any: a reply that is an error brings no look-ups.
    fn readdir(&self, node: NodeId, handle: u64, offset: u64, plus: bool, sink: &mut Sink<'_>) -> Outcome<()>;
    /// RELEASEDIR.
    fn releasedir(&self, node: NodeId, handle: u64);
    /// FSYNCDIR. Blocks.
    fn fsyncdir(&self, node: NodeId) -> Outcome<()>;
    /// SYNCFS. Blocks.
    fn syncfs(&self) -> Outcome<()>;
    /// STATFS.
    fn statfs(&self, node: NodeId) -> Outcome<Statfs>;
    /// SETXATTR with `XATTR_CREATE` and `XATTR_REPLACE` in `flags`; `kill_setgid` is `FUSE_SETXATTR_ACL_KILL_SGID`, where the kernel says it.
    fn setxattr(
        &self,
        caller: Caller,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        flags: u32,
        kill_setgid: Option<bool>,
    ) -> Outcome<()>;
    /// GETXATTR; `size` 0 asks for the length.
    fn getxattr(&self, caller: Caller, node: NodeId, name: &[u8], size: u32) -> Outcome<Xattr>;
    /// LISTXATTR; `size` 0 asks for the length.
    fn listxattr(&self, caller: Caller, node: NodeId, size: u32) -> Outcome<Xattr>;
    /// REMOVEXATTR.
    fn removexattr(&self, caller: Caller, node: NodeId, name: &[u8]) -> Outcome<()>;
    /// FALLOCATE with the mode bits of fallocate(2). May block.
    fn fallocate(&self, node: NodeId, handle: u64, offset: u64, length: u64, mode: u32) -> Outcome<()>;
    /// LSEEK with `SEEK_HOLE` or `SEEK_DATA`.
    fn lseek(&self, node: NodeId, handle: u64, offset: u64, whence: u32) -> Outcome<u64>;
    /// COPY_FILE_RANGE. Blocks.
    #[allow(clippy::too_many_arguments)]
    fn copy_file_range(
        &self,
        from: NodeId,
        from_handle: u64,
        from_offset: u64,
        to: NodeId,
        to_handle: u64,
        to_offset: u64,
        length: u64,
    ) -> Outcome<u64>;
    /// The connection is gone: let go of everything. Blocks until all is on disk.
    fn detach(&self);
}
