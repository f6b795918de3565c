//! Message to request. Total: any bytes give a request or an errno, never a panic.

#[allow(clippy::wildcard_imports, reason = "the protocol's own names, all of them used here")]
use crate::abi::{self, init, input::*, opcode};
use crate::message::{Dialect, Message};
use crate::request::{CopyFileRange, Forgets, Request};
use ullage_fs::{Errno, SetAttributes, SetTime};
use ullage_types::{NodeId, Timestamp};

const INVALID: Errno = Errno(libc::EINVAL);

/// Decodes a message.
pub fn decode<'a>(message: &Message<'a>, dialect: Dialect) -> Result<Request<'a>, Errno> {
    let mut rest = Rest(message.rest);
    Ok(match message.header.opcode {
        opcode::INIT => init(message)?,
        opcode::LOOKUP => Request::Lookup { name: rest.name()? },
        opcode::FORGET => Request::Forget { count: message.argument::<ForgetIn>()?.nlookup },
        opcode::BATCH_FORGET => {
            let count = message.argument::<BatchForgetIn>()?.count as usize;
            let length = count.checked_mul(size_of::<ForgetOne>()).ok_or(INVALID)?;
            Request::BatchForget(Forgets(message.rest.get(..length).ok_or(INVALID)?))
        }
        opcode::GETATTR => {
            let argument: GetattrIn = message.argument()?;
            Request::Getattr { handle: (argument.getattr_flags & GETATTR_FH != 0).then_some(argument.fh) }
        }
        opcode::STATX => {
            let argument: StatxIn = message.argument()?;
            Request::Statx { handle: (argument.getattr_flags & GETATTR_FH != 0).then_some(argument.fh) }
        }
        opcode::SETATTR => Request::Setattr(set_attributes(&message.argument()?)),
        opcode::READLINK => Request::Readlink,
        opcode::SYMLINK => Request::Symlink { name: rest.name()?, target: rest.name()? },
        opcode::MKNOD => {
            let MknodIn { mode, rdev, umask, .. } = message.argument()?;
            Request::Mknod { name: rest.name()?, mode, umask, rdev }
        }
        opcode::MKDIR => {
            let MkdirIn { mode, umask } = message.argument()?;
            Request::Mkdir { name: rest.name()?, mode, umask }
        }
        opcode::UNLINK => Request::Unlink { name: rest.name()? },
        opcode::RMDIR => Request::Rmdir { name: rest.name()? },
        opcode::RENAME => {
            let RenameIn { newdir } = message.argument()?;
            Request::Rename { name: rest.name()?, to: NodeId(newdir), to_name: rest.name()?, flags: 0 }
        }
        opcode::RENAME2 => {
            let Rename2In { newdir, flags, .. } = message.argument()?;
            Request::Rename { name: rest.name()?, to: NodeId(newdir), to_name: rest.name()?, flags }
        }
        opcode::LINK => {
            let LinkIn { oldnodeid } = message.argument()?;
            Request::Link { node: NodeId(oldnodeid), name: rest.name()? }
        }
        opcode::OPEN => {
            let OpenIn { flags, open_flags } = message.argument()?;
            Request::Open { flags, kill_privileges: open_flags & OPEN_KILL_SUIDGID != 0 }
        }
        opcode::OPENDIR => Request::Opendir,
        opcode::CREATE => {
            let CreateIn { flags, mode, umask, .. } = message.argument()?;
            Request::Create { name: rest.name()?, mode, umask, flags }
        }
        opcode::TMPFILE => {
            // The name that follows is the kernel's own invention and means nothing.
            let CreateIn { flags, mode, umask, .. } = message.argument()?;
            Request::Tmpfile { mode, umask, flags }
        }
        opcode::READ => {
            let ReadIn { fh, offset, size, .. } = message.argument()?;
            Request::Read { handle: fh, offset, size }
        }
        code @ (opcode::READDIR | opcode::READDIRPLUS) => {
            let ReadIn { fh, offset, size, .. } = message.argument()?;
            Request::Readdir { handle: fh, offset, size, plus: code == opcode::READDIRPLUS }
        }
        opcode::WRITE => {
            let WriteIn { fh, offset, size, write_flags, flags, .. } = message.argument()?;
            if message.rest.len() != size as usize {
                return Err(INVALID);
            }
            let kill_privileges = write_flags & WRITE_KILL_SUIDGID != 0;
            let whole = write_flags & WRITE_CACHE != 0;
            Request::Write { handle: fh, offset, data: message.rest, flags, kill_privileges, whole }
        }
        opcode::RELEASE => Request::Release { handle: message.argument::<ReleaseIn>()?.fh },
        opcode::RELEASEDIR => Request::Releasedir { handle: message.argument::<ReleaseIn>()?.fh },
        opcode::FLUSH => Request::Flush,
        opcode::FSYNC => {
            let FsyncIn { fh, fsync_flags, .. } = message.argument()?;
            Request::Fsync { handle: fh, data_only: fsync_flags & FSYNC_FDATASYNC != 0 }
        }
        opcode::FSYNCDIR => Request::Fsyncdir,
        opcode::SYNCFS => Request::Syncfs,
        opcode::STATFS => Request::Statfs,
        opcode::SETXATTR => setxattr(message, dialect)?,
        opcode::GETXATTR => Request::Getxattr { size: message.argument::<GetxattrIn>()?.size, name: rest.name()? },
        opcode::LISTXATTR => Request::Listxattr { size: message.argument::<GetxattrIn>()?.size },
        opcode::REMOVEXATTR => Request::Removexattr { name: rest.name()? },
        opcode::FALLOCATE => {
            let FallocateIn { fh, offset, length, mode, .. } = message.argument()?;
            Request::Fallocate { handle: fh, offset, length, mode }
        }
        opcode::LSEEK => {
            let LseekIn { fh, offset, whence, .. } = message.argument()?;
            Request::Lseek { handle: fh, offset, whence }
        }
        code @ (opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64) => {
            let argument: CopyFileRangeIn = message.argument()?;
            Request::CopyFileRange(CopyFileRange {
                from_handle: argument.fh_in,
                from_offset: argument.off_in,
                to: NodeId(argument.nodeid_out),
                to_handle: argument.fh_out,
                to_offset: argument.off_out,
                length: argument.len,
                wide: code == opcode::COPY_FILE_RANGE_64,
            })
        }
        opcode::INTERRUPT => Request::Interrupt,
        opcode::NOTIFY_REPLY => Request::NotifyReply,
        opcode::DESTROY => Request::Destroy,
        opcode::IOCTL => Request::Ioctl,
        _ => Request::Unknown,
    })
}

/// INIT of kernels before 7.36 is 16 bytes long and has no high flags.
fn init<'a>(message: &Message<'a>) -> Result<Request<'a>, Errno> {
    let mut bytes = [0; size_of::<init::InitIn>()];
    let known = message.argument.len().min(bytes.len());
    if known < init::COMPAT_INIT_IN {
        return Err(INVALID);
    }
    bytes[..known].copy_from_slice(&message.argument[..known]);
    let argument: init::InitIn = abi::read(&bytes).ok_or(INVALID)?;
    if argument.major != abi::MAJOR {
        return Err(Errno(libc::EPROTO));
    }
    let flags = u64::from(argument.flags) | (u64::from(argument.flags2) << 32);
    Ok(Request::Init { minor: argument.minor, max_readahead: argument.max_readahead, flags })
}

fn setxattr<'a>(message: &Message<'a>, dialect: Dialect) -> Result<Request<'a>, Errno> {
    let mut bytes = [0; size_of::<SetxattrIn>()];
    let known = if dialect.setxattr_ext { bytes.len() } else { COMPAT_SETXATTR_IN };
    bytes[..known].copy_from_slice(message.argument.get(..known).ok_or(INVALID)?);
    let argument: SetxattrIn = abi::read(&bytes).ok_or(INVALID)?;
    let mut rest = Rest(message.rest);
    let name = rest.name()?;
    if rest.0.len() != argument.size as usize {
        return Err(INVALID);
    }
    let kill_setgid = dialect.setxattr_ext.then_some(argument.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0);
    Ok(Request::Setxattr { name, value: rest.0, flags: argument.flags, kill_setgid })
}

fn set_attributes(argument: &SetattrIn) -> SetAttributes {
    let asked = |bit: u32| argument.valid & bit != 0;
    let time = |seconds: u64, nanoseconds: u32| Timestamp {
        seconds: seconds as i64,
        nanoseconds: nanoseconds.min(999_999_999),
    };
    let set_time = |bit, now, seconds, nanoseconds| {
        if asked(now) { Some(SetTime::Now) } else { asked(bit).then(|| SetTime::At(time(seconds, nanoseconds))) }
    };
    SetAttributes {
        mode: asked(FATTR_MODE).then_some(argument.mode & 0o7777),
        uid: asked(FATTR_UID).then_some(argument.uid),
        gid: asked(FATTR_GID).then_some(argument.gid),
        size: asked(FATTR_SIZE).then_some(argument.size),
        atime: set_time(FATTR_ATIME, FATTR_ATIME_NOW, argument.atime, argument.atimensec),
        mtime: set_time(FATTR_MTIME, FATTR_MTIME_NOW, argument.mtime, argument.mtimensec),
        ctime: asked(FATTR_CTIME).then(|| time(argument.ctime, argument.ctimensec)),
        handle: asked(FATTR_FH).then_some(argument.fh),
        kill_privileges: asked(FATTR_KILL_SUIDGID),
    }
}

/// What is left of a message: names, each ended by a NUL.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn name(&mut self) -> Result<&'a [u8], Errno> {
        let end = self.0.iter().position(|&byte| byte == 0).ok_or(INVALID)?;
        let (name, rest) = self.0.split_at(end);
        if name.is_empty() {
            return Err(INVALID);
        }
        self.0 = rest.get(1..).unwrap_or_default();
        Ok(name)
    }
}
