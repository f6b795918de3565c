//! One request as it arrived, taken apart into header, argument and the rest, whichever transport brought it.
//!
//! Over the device the three are contiguous; over io_uring the argument has an area of its own.

#[allow(clippy::wildcard_imports, reason = "the protocol's own names, all of them used here")]
use crate::abi::{self, IN_HEADER, InHeader, init, input::*, opcode, ring::ReqHeader};
use ullage_fs::{Caller, Errno};
use ullage_types::NodeId;

/// A request, not yet decoded.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Who asks for what.
    pub header: InHeader,
    /// The fixed structure of the opcode; empty where it has none.
    pub argument: &'a [u8],
    /// Names and data.
    pub rest: &'a [u8],
}

/// A message too broken to be decoded. With `unique`, the kernel waits for an answer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The request's identity, where one could be read.
    pub unique: Option<u64>,
}

/// What was settled at INIT and decides how requests look.
#[derive(Clone, Copy, Debug)]
pub struct Dialect {
    /// SETXATTR carries its extended structure.
    pub setxattr_ext: bool,
}

impl Message<'_> {
    /// Takes apart what was read from the device.
    pub fn from_device(bytes: &[u8], dialect: Dialect) -> Result<Message<'_>, Malformed> {
        let header: InHeader = abi::read(bytes).ok_or(Malformed { unique: None })?;
        if header.len as usize != bytes.len() {
            return Err(Malformed { unique: Some(header.unique) });
        }
        let body = bytes.get(IN_HEADER..).unwrap_or_default();
        let length = argument_length(header.opcode, body.len(), dialect);
        let (argument, rest) = body.split_at_checked(length).ok_or(Malformed { unique: Some(header.unique) })?;
        Ok(Message { header, argument, rest })
    }

    /// Takes apart what the kernel left in a ring entry's buffers.
    pub fn from_ring<'a>(area: &'a ReqHeader, payload: &'a [u8]) -> Result<Message<'a>, Malformed> {
        let header: InHeader = abi::read(&area.in_out).ok_or(Malformed { unique: None })?;
        let broken = Malformed { unique: Some(header.unique) };
        let used = area.ring_ent_in_out.payload_sz as usize;
        let rest = payload.get(..used).ok_or(broken)?;
        let length = (header.len as usize).checked_sub(IN_HEADER + used).ok_or(broken)?;
        let argument = area.op_in.get(..length).ok_or(broken)?;
        Ok(Message { header, argument, rest })
    }

    /// Who asks.
    pub fn caller(&self) -> Caller {
        Caller { uid: self.header.uid, gid: self.header.gid, pid: self.header.pid }
    }

    /// What it is asked of.
    pub fn node(&self) -> NodeId {
        NodeId(self.header.nodeid)
    }

    /// The argument as a structure. It may be longer than we know (a newer kernel), never shorter.
    pub(crate) fn argument<T: zerocopy::FromBytes + zerocopy::KnownLayout + zerocopy::Immutable>(
        &self,
    ) -> Result<T, Errno> {
        abi::read(self.argument).ok_or(Errno(libc::EINVAL))
    }
}

/// How many bytes of a device message's body are the opcode's structure.
fn argument_length(opcode: u32, body: usize, dialect: Dialect) -> usize {
    match opcode {
        opcode::INIT if body < size_of::<init::InitIn>() => init::COMPAT_INIT_IN,
        opcode::INIT => size_of::<init::InitIn>(),
        opcode::FORGET => size_of::<ForgetIn>(),
        opcode::BATCH_FORGET => size_of::<BatchForgetIn>(),
        opcode::GETATTR => size_of::<GetattrIn>(),
        opcode::STATX => size_of::<StatxIn>(),
        opcode::SETATTR => size_of::<SetattrIn>(),
        opcode::MKNOD => size_of::<MknodIn>(),
        opcode::MKDIR => size_of::<MkdirIn>(),
        opcode::RENAME => size_of::<RenameIn>(),
        opcode::RENAME2 => size_of::<Rename2In>(),
        opcode::LINK => size_of::<LinkIn>(),
        opcode::OPEN | opcode::OPENDIR => size_of::<OpenIn>(),
        opcode::CREATE | opcode::TMPFILE => size_of::<CreateIn>(),
        opcode::READ | opcode::READDIR | opcode::READDIRPLUS => size_of::<ReadIn>(),
        opcode::WRITE => size_of::<WriteIn>(),
        opcode::RELEASE | opcode::RELEASEDIR => size_of::<ReleaseIn>(),
        opcode::FLUSH => size_of::<FlushIn>(),
        opcode::FSYNC | opcode::FSYNCDIR => size_of::<FsyncIn>(),
        opcode::SETXATTR if !dialect.setxattr_ext => COMPAT_SETXATTR_IN,
        opcode::SETXATTR => size_of::<SetxattrIn>(),
        opcode::GETXATTR | opcode::LISTXATTR => size_of::<GetxattrIn>(),
        opcode::FALLOCATE => size_of::<FallocateIn>(),
        opcode::LSEEK => size_of::<LseekIn>(),
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => size_of::<CopyFileRangeIn>(),
        opcode::SYNCFS => size_of::<SyncfsIn>(),
        opcode::INTERRUPT => size_of::<InterruptIn>(),
        _ => 0,
    }
}
