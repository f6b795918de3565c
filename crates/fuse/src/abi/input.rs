//! What follows [`super::InHeader`] in a request.

use super::wire;

wire! {
    /// `struct fuse_forget_in`
    ForgetIn { nlookup: u64 }
    /// `struct fuse_forget_one`
    ForgetOne { nodeid: u64, nlookup: u64 }
    /// `struct fuse_batch_forget_in`
    BatchForgetIn { count: u32, dummy: u32 }
    /// `struct fuse_getattr_in`
    GetattrIn { getattr_flags: u32, dummy: u32, fh: u64 }
    /// `struct fuse_statx_in` (7.39)
    StatxIn { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    /// `struct fuse_mknod_in`
    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32 }
    /// `struct fuse_mkdir_in`
    MkdirIn { mode: u32, umask: u32 }
    /// `struct fuse_rename_in`
    RenameIn { newdir: u64 }
    /// `struct fuse_rename2_in`
    Rename2In { newdir: u64, flags: u32, padding: u32 }
    /// `struct fuse_link_in`
    LinkIn { oldnodeid: u64 }
    /// `struct fuse_setattr_in`
    SetattrIn {
        valid: u32,
        padding: u32,
        fh: u64,
        size: u64,
        lock_owner: u64,
        atime: u64,
        mtime: u64,
        ctime: u64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        unused4: u32,
        uid: u32,
        gid: u32,
        unused5: u32,
    }
    /// `struct fuse_open_in`
    OpenIn { flags: u32, open_flags: u32 }
    /// `struct fuse_create_in`
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    /// `struct fuse_release_in`
    ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    /// `struct fuse_flush_in`
    FlushIn { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    /// `struct fuse_read_in`
    ReadIn { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    /// `struct fuse_write_in`
    WriteIn { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    /// `struct fuse_fsync_in`
    FsyncIn { fh: u64, fsync_flags: u32, padding: u32 }
    /// `struct fuse_setxattr_in`; the last two fields only with `FUSE_SETXATTR_EXT`.
    SetxattrIn { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
    /// `struct fuse_getxattr_in`
    GetxattrIn { size: u32, padding: u32 }
    /// `struct fuse_interrupt_in`
    InterruptIn { unique: u64 }
    /// `struct fuse_fallocate_in`
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    /// `struct fuse_lseek_in`
    LseekIn { fh: u64, offset: u64, whence: u32, padding: u32 }
    /// `struct fuse_copy_file_range_in`
    CopyFileRangeIn {
        fh_in: u64,
        off_in: u64,
        nodeid_out: u64,
        fh_out: u64,
        off_out: u64,
        len: u64,
        flags: u64,
    }
    /// `struct fuse_syncfs_in`
    SyncfsIn { padding: u64 }
}

/// Bytes of `struct fuse_setxattr_in` without `FUSE_SETXATTR_EXT`.
pub const COMPAT_SETXATTR_IN: usize = 8;

pub const GETATTR_FH: u32 = 1 << 0;

pub const FATTR_MODE: u32 = 1 << 0;
pub const FATTR_UID: u32 = 1 << 1;
pub const FATTR_GID: u32 = 1 << 2;
pub const FATTR_SIZE: u32 = 1 << 3;
pub const FATTR_ATIME: u32 = 1 << 4;
pub const FATTR_MTIME: u32 = 1 << 5;
pub const FATTR_FH: u32 = 1 << 6;
pub const FATTR_ATIME_NOW: u32 = 1 << 7;
pub const FATTR_MTIME_NOW: u32 = 1 << 8;
pub const FATTR_CTIME: u32 = 1 << 10;
pub const FATTR_KILL_SUIDGID: u32 = 1 << 11;

pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// WRITE: pages of a mapping that are written back.
pub const WRITE_CACHE: u32 = 1;
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
pub const FSYNC_FDATASYNC: u32 = 1 << 0;
pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
