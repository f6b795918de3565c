//! What follows [`super::OutHeader`] in a reply or a notification, and the arguments of the device's ioctls.

use super::wire;

wire! {
    /// `struct fuse_attr`
    Attr {
        ino: u64,
        size: u64,
        blocks: u64,
        atime: u64,
        mtime: u64,
        ctime: u64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        nlink: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        blksize: u32,
        flags: u32,
    }
    /// `struct fuse_attr_out`
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    /// `struct fuse_entry_out`
    EntryOut {
        nodeid: u64,
        generation: u64,
        entry_valid: u64,
        attr_valid: u64,
        entry_valid_nsec: u32,
        attr_valid_nsec: u32,
        attr: Attr,
    }
    /// `struct fuse_open_out`; `backing_id` since 7.40.
    OpenOut { fh: u64, open_flags: u32, backing_id: i32 }
    /// Reply to CREATE and TMPFILE.
    CreateOut { entry: EntryOut, open: OpenOut }
    /// `struct fuse_write_out`
    WriteOut { size: u32, padding: u32 }
    /// `struct fuse_kstatfs`
    Kstatfs {
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
        padding: u32,
        spare: [u32; 6],
    }
    /// `struct fuse_getxattr_out`
    GetxattrOut { size: u32, padding: u32 }
    /// `struct fuse_lseek_out`
    LseekOut { offset: u64 }
    /// `struct fuse_copy_file_range_out` (7.45)
    CopyFileRangeOut { bytes_copied: u64 }
    /// `struct fuse_dirent` without its name.
    Dirent { ino: u64, off: u64, namelen: u32, r#type: u32 }
    /// `struct fuse_direntplus` without its name.
    Direntplus { entry_out: EntryOut, dirent: Dirent }
    /// `struct fuse_sx_time` (7.39)
    SxTime { tv_sec: i64, tv_nsec: u32, __reserved: i32 }
    /// `struct fuse_statx` (7.39)
    Statx {
        mask: u32,
        blksize: u32,
        attributes: u64,
        nlink: u32,
        uid: u32,
        gid: u32,
        mode: u16,
        __spare0: u16,
        ino: u64,
        size: u64,
        blocks: u64,
        attributes_mask: u64,
        atime: SxTime,
        btime: SxTime,
        ctime: SxTime,
        mtime: SxTime,
        rdev_major: u32,
        rdev_minor: u32,
        dev_major: u32,
        dev_minor: u32,
        __spare2: [u64; 14],
    }
    /// `struct fuse_statx_out` (7.39)
    StatxOut { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx }
    /// `struct fuse_notify_inval_inode_out`
    NotifyInvalInode { ino: u64, off: i64, len: i64 }
    /// `struct fuse_notify_inval_entry_out`; the name and a NUL follow.
    NotifyInvalEntry { parent: u64, namelen: u32, flags: u32 }
    /// `struct fuse_notify_retrieve_out`
    NotifyRetrieve { notify_unique: u64, nodeid: u64, offset: u64, size: u32, padding: u32 }
    /// `struct fuse_backing_map` (7.40)
    BackingMap { fd: i32, flags: u32, padding: u64 }
}

pub const NOTIFY_INVAL_INODE: i32 = 2;
pub const NOTIFY_INVAL_ENTRY: i32 = 3;
pub const NOTIFY_RETRIEVE: i32 = 5;

pub const FOPEN_DIRECT_IO: u32 = 1 << 0;
pub const FOPEN_KEEP_CACHE: u32 = 1 << 1;
pub const FOPEN_CACHE_DIR: u32 = 1 << 3;
pub const FOPEN_NOFLUSH: u32 = 1 << 5;
pub const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
/// Since 7.40.
pub const FOPEN_PASSTHROUGH: u32 = 1 << 7;
