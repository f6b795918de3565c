//! What goes back, as bytes in a buffer of the caller's.

#[allow(clippy::wildcard_imports, reason = "the protocol's own names, all of them used here")]
use crate::abi::{self, output::*};
use std::time::Duration;
use ullage_fs::{Attributes, AttributesFor, Data, Entry, Errno, Listed, Opened, Statfs};
use ullage_types::Timestamp;

/// A typed reply; [`Reply::encode`] makes it bytes.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Reply<'a> {
    Entry(&'a Entry),
    Attributes(&'a AttributesFor),
    Statx(&'a AttributesFor),
    /// With the flags of open(2).
    Opened(&'a Opened, u32),
    OpenedDirectory(&'a Opened),
    Created(&'a Entry, &'a Opened, u32),
    Bytes(&'a [u8]),
    Written(u32),
    Statfs(&'a Statfs),
    Length(u32),
    Offset(u64),
    Copied(u64),
}

impl Reply<'_> {
    /// Writes the reply's body to the front of `into`; EIO when it does not fit.
    pub fn encode(&self, into: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Entry(it) => abi::write(&entry_out(it), into),
            Self::Attributes(it) => abi::write(&attr_out(it), into),
            Self::Statx(it) => abi::write(&statx_out(it), into),
            Self::Opened(it, flags) => abi::write(&open_out(it, *flags), into),
            Self::OpenedDirectory(it) => abi::write(&opendir_out(it), into),
            Self::Created(it, opened, flags) => {
                abi::write(&CreateOut { entry: entry_out(it), open: open_out(opened, *flags) }, into)
            }
            Self::Bytes(bytes) => into.get_mut(..bytes.len()).map(|to| {
                to.copy_from_slice(bytes);
                bytes.len()
            }),
            Self::Written(size) => abi::write(&WriteOut { size: *size, padding: 0 }, into),
            Self::Statfs(it) => abi::write(&statfs_out(it), into),
            Self::Length(size) => abi::write(&GetxattrOut { size: *size, padding: 0 }, into),
            Self::Offset(offset) => abi::write(&LseekOut { offset: *offset }, into),
            Self::Copied(bytes_copied) => abi::write(&CopyFileRangeOut { bytes_copied: *bytes_copied }, into),
        }
        .ok_or(Errno(libc::EIO))
    }
}

/// Lifetimes end in the kernel's jiffies: more than this many seconds is for ever.
const LONGEST_LIFETIME_SECONDS: u64 = u32::MAX as u64;

fn lifetime(lifetime: Duration) -> (u64, u32) {
    (lifetime.as_secs().min(LONGEST_LIFETIME_SECONDS), lifetime.subsec_nanos())
}

fn attr(it: &Attributes) -> Attr {
    Attr {
        ino: it.ino,
        size: it.size,
        blocks: it.blocks,
        atime: it.atime.seconds as u64,
        mtime: it.mtime.seconds as u64,
        ctime: it.ctime.seconds as u64,
        atimensec: it.atime.nanoseconds,
        mtimensec: it.mtime.nanoseconds,
        ctimensec: it.ctime.nanoseconds,
        mode: it.mode,
        nlink: it.nlink,
        uid: it.uid,
        gid: it.gid,
        rdev: it.rdev,
        blksize: it.block_size,
        flags: 0,
    }
}

fn attr_out(it: &AttributesFor) -> AttrOut {
    let (attr_valid, attr_valid_nsec) = lifetime(it.lifetime);
    AttrOut { attr_valid, attr_valid_nsec, dummy: 0, attr: attr(&it.attributes) }
}

fn entry_out(it: &Entry) -> EntryOut {
    let (entry_valid, entry_valid_nsec) = lifetime(it.lifetime);
    let (attr_valid, attr_valid_nsec) = lifetime(it.attributes.lifetime);
    EntryOut {
        nodeid: it.node.0,
        // A node is never used for another file, so one generation is enough.
        generation: 0,
        entry_valid,
        attr_valid,
        entry_valid_nsec,
        attr_valid_nsec,
        attr: attr(&it.attributes.attributes),
    }
}

fn statx_out(it: &AttributesFor) -> StatxOut {
    let (attr_valid, attr_valid_nsec) = lifetime(it.lifetime);
    let time = |t: Timestamp| SxTime { tv_sec: t.seconds, tv_nsec: t.nanoseconds, __reserved: 0 };
    let a = &it.attributes;
    let stat = Statx {
        mask: libc::STATX_BASIC_STATS | libc::STATX_BTIME,
        blksize: a.block_size,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        mode: a.mode as u16,
        ino: a.ino,
        size: a.size,
        blocks: a.blocks,
        atime: time(a.atime),
        btime: time(a.btime),
        ctime: time(a.ctime),
        mtime: time(a.mtime),
        // The kernel's 32-bit encoding: minor 8 low bits, major 12, minor 12 high bits.
        rdev_major: (a.rdev >> 8) & 0xfff,
        rdev_minor: (a.rdev & 0xff) | ((a.rdev >> 12) & 0xfff00),
        ..Statx::default()
    };
    StatxOut { attr_valid, attr_valid_nsec, flags: 0, spare: [0; 2], stat }
}

/// Whether close(2) writes back what was stored into mappings, and fails when that found no room: where their pages are ours, and
/// for those only who may have stored. The error is told once: others would take it away from them.
pub(crate) fn close_tells(data: &Data, flags: u32) -> bool {
    matches!(data, Data::Server | Data::Direct) && flags as i32 & libc::O_ACCMODE == libc::O_RDWR
}

fn open_out(it: &Opened, opened_with: u32) -> OpenOut {
    let (flags, backing_id) = match it.data {
        Data::Passthrough(backing) => (FOPEN_PASSTHROUGH, backing as i32),
        Data::Exact(backing) => (FOPEN_PASSTHROUGH | FOPEN_DIRECT_IO, backing as i32),
        Data::Direct => (FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES, 0),
        Data::Server if it.keep_cache => (FOPEN_KEEP_CACHE, 0),
        Data::Server => (0, 0),
    };
    let no_flush = if close_tells(&it.data, opened_with) { 0 } else { FOPEN_NOFLUSH };
    OpenOut { fh: it.handle, open_flags: flags | no_flush, backing_id }
}

fn opendir_out(it: &Opened) -> OpenOut {
    let keep = if it.keep_cache { FOPEN_KEEP_CACHE } else { 0 };
    OpenOut { fh: it.handle, open_flags: FOPEN_CACHE_DIR | keep, backing_id: 0 }
}

fn statfs_out(it: &Statfs) -> Kstatfs {
    let block = u32::try_from(it.block.0).unwrap_or(4096);
    Kstatfs {
        blocks: it.blocks,
        bfree: it.free,
        bavail: it.available,
        files: it.files,
        ffree: it.files_free,
        bsize: block,
        namelen: it.name_max,
        frsize: block,
        ..Kstatfs::default()
    }
}

/// A directory listing under construction in a buffer.
pub struct Listing<'a> {
    into: &'a mut [u8],
    used: usize,
    plus: bool,
}

impl<'a> Listing<'a> {
    /// An empty listing; `plus` carries attributes with every name.
    pub fn new(into: &'a mut [u8], plus: bool) -> Self {
        Self { into, used: 0, plus }
    }

    /// Adds an entry; false when it does not fit.
    pub fn push(&mut self, entry: &Listed<'_>) -> bool {
        let dirent = Dirent {
            ino: entry.ino,
            off: entry.next,
            namelen: entry.name.len() as u32,
            r#type: (entry.mode & libc::S_IFMT) >> 12,
        };
        let head = if self.plus { size_of::<Direntplus>() } else { size_of::<Dirent>() };
        let end = head + entry.name.len();
        let padded = end.next_multiple_of(8);
        let Some(to) = self.into.get_mut(self.used..self.used + padded) else { return false };
        let written = if self.plus {
            let entry_out = entry.entry.as_ref().map(entry_out).unwrap_or_default();
            abi::write(&Direntplus { entry_out, dirent }, to)
        } else {
            abi::write(&dirent, to)
        };
        if written.is_none() {
            return false;
        }
        to[head..end].copy_from_slice(entry.name);
        to[end..].fill(0);
        self.used += padded;
        true
    }

    /// How many bytes were written.
    pub fn used(&self) -> usize {
        self.used
    }
}
