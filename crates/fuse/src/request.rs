//! A request, decoded: names and data borrow from the message.

use crate::abi::input::ForgetOne;
use ullage_fs::SetAttributes;
use ullage_types::NodeId;

/// What the kernel asks for. The node and the caller are in the message's header.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Request<'a> {
    Init {
        minor: u32,
        max_readahead: u32,
        flags: u64,
    },
    Lookup {
        name: &'a [u8],
    },
    Forget {
        count: u64,
    },
    BatchForget(Forgets<'a>),
    Getattr {
        handle: Option<u64>,
    },
    Statx {
        handle: Option<u64>,
    },
    Setattr(SetAttributes),
    Readlink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    Mknod {
        name: &'a [u8],
        mode: u32,
        umask: u32,
        rdev: u32,
    },
    Mkdir {
        name: &'a [u8],
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: &'a [u8],
    },
    Rmdir {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        to: NodeId,
        to_name: &'a [u8],
        flags: u32,
    },
    Link {
        node: NodeId,
        name: &'a [u8],
    },
    Open {
        flags: u32,
        kill_privileges: bool,
    },
    /// Carries no `kill_privileges`: a file that is new has only the bits it was asked to have.
    Create {
        name: &'a [u8],
        mode: u32,
        umask: u32,
        flags: u32,
    },
    Tmpfile {
        mode: u32,
        umask: u32,
        flags: u32,
    },
    Read {
        handle: u64,
        offset: u64,
        size: u32,
    },
    Write {
        handle: u64,
        offset: u64,
        data: &'a [u8],
        /// Of open(2), with what the call adds to them.
        flags: u32,
        kill_privileges: bool,
        /// A short count would be taken for all of it: pages of a mapping.
        whole: bool,
    },
    Release {
        handle: u64,
    },
    Flush,
    Fsync {
        handle: u64,
        data_only: bool,
    },
    Opendir,
    Readdir {
        handle: u64,
        offset: u64,
        size: u32,
        plus: bool,
    },
    Releasedir {
        handle: u64,
    },
    Fsyncdir,
    Syncfs,
    Statfs,
    Setxattr {
        name: &'a [u8],
        value: &'a [u8],
        flags: u32,
        kill_setgid: Option<bool>,
    },
    Getxattr {
        name: &'a [u8],
        size: u32,
    },
    Listxattr {
        size: u32,
    },
    Removexattr {
        name: &'a [u8],
    },
    Fallocate {
        handle: u64,
        offset: u64,
        length: u64,
        mode: u32,
    },
    Lseek {
        handle: u64,
        offset: u64,
        whence: u32,
    },
    CopyFileRange(CopyFileRange),
    Interrupt,
    /// The answer to a notification of ours.
    NotifyReply,
    Destroy,
    /// Answered with ENOTTY.
    Ioctl,
    /// No opcode of ours: answered with ENOSYS.
    Unknown,
}

/// What COPY_FILE_RANGE asks for.
#[derive(Clone, Copy, Debug)]
pub struct CopyFileRange {
    /// Open file to read from.
    pub from_handle: u64,
    /// Where to start reading.
    pub from_offset: u64,
    /// Node to write to.
    pub to: NodeId,
    /// Open file to write to.
    pub to_handle: u64,
    /// Where to start writing.
    pub to_offset: u64,
    /// How many bytes.
    pub length: u64,
    /// Whether the reply counts in 64 bits (`FUSE_COPY_FILE_RANGE_64`).
    pub wide: bool,
}

impl Request<'_> {
    /// Whether no reply may be sent.
    pub fn is_silent(&self) -> bool {
        matches!(self, Self::Forget { .. } | Self::BatchForget(_) | Self::NotifyReply)
    }

    /// Whether whoever made the call goes on without an answer.
    pub fn is_unattended(&self) -> bool {
        matches!(self, Self::Release { .. } | Self::Releasedir { .. })
    }

    /// Whether the call waits for disks, so that it must not run on a thread others wait for.
    pub fn blocks(&self, blocking_io: bool) -> bool {
        match self {
            Self::Fsync { .. } | Self::Fsyncdir | Self::Syncfs | Self::Fallocate { .. } | Self::CopyFileRange(_) => {
                true
            }
            // What takes away little is done at once (`ullage_fs::Errno::LATER`).
            Self::Setattr(change) => blocking_io && change.size.is_some(),
            Self::Write { flags, .. } => blocking_io || ullage_fs::syncs(*flags),
            Self::Read { .. } => blocking_io,
            _ => false,
        }
    }
}

/// The entries of a BATCH_FORGET: as many bytes as its count promised.
#[derive(Clone, Copy, Debug)]
pub struct Forgets<'a>(pub(crate) &'a [u8]);

impl Forgets<'_> {
    /// Each node and how many look-ups less.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, u64)> + '_ {
        self.0
            .chunks_exact(size_of::<ForgetOne>())
            .filter_map(crate::abi::read::<ForgetOne>)
            .map(|one| (NodeId(one.nodeid), one.nlookup))
    }
}
