//! One request, one call, one reply.

use crate::message::Message;
use crate::reply::{Listing, Reply};
use crate::request::{CopyFileRange, Request};
use std::sync::Arc;
use ullage_fs::{Errno, Filesystem, Kernel, Outcome, SetAttributes, WaitsFor, Xattr};
use ullage_types::NodeId;

/// Where a reply's body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No reply may be sent.
    Silent,
    /// This errno and no body.
    Error(i32),
    /// This many bytes at the front of the buffer handed in.
    Buffer(usize),
    /// All of the scratch vector handed in.
    Scratch,
    /// None yet: what was asked for may not wait here, and is to be handed to a worker.
    Later,
}

/// The file system and what its calls need.
pub struct Dispatcher {
    fs: Arc<dyn Filesystem>,
    kernel: Arc<dyn Kernel>,
}

impl Dispatcher {
    /// A dispatcher for one connection.
    pub fn new(fs: Arc<dyn Filesystem>, kernel: Arc<dyn Kernel>) -> Self {
        Self { fs, kernel }
    }

    /// What a request about this node may have to wait for, which was put `off` by this thread just now or is known to wait.
    pub fn waits_for(&self, node: NodeId, off: bool) -> WaitsFor {
        match self.fs.waits_for(node) {
            WaitsFor::Anything if off => ullage_fs::waits_for(),
            known => known,
        }
    }

    /// Carries out a request. `out` takes the body of the reply and is as long as the largest one allowed;
    /// `scratch` takes the data of READ. [`Answer::Later`] only on a thread that may not wait ([`ullage_fs::hurried`], [`ullage_fs::irreplaceable`]).
    pub fn answer(&self, message: &Message<'_>, request: Request<'_>, out: &mut [u8], scratch: &mut Vec<u8>) -> Answer {
        let silent = request.is_silent();
        match self.call(message, request, out, scratch) {
            Ok(_) if silent => Answer::Silent,
            Ok(answer) => answer,
            Err(Errno::LATER) => Answer::Later,
            // The kernel takes anything outside this range for a protocol error.
            Err(Errno(errno)) => Answer::Error(if (1..512).contains(&errno) { errno } else { libc::EIO }),
        }
    }

    #[allow(clippy::too_many_lines)]
    fn call(
        &self,
        message: &Message<'_>,
        request: Request<'_>,
        out: &mut [u8],
        scratch: &mut Vec<u8>,
    ) -> Outcome<Answer> {
        let (fs, node, caller) = (&self.fs, message.node(), message.caller());
        let mut reply = |it: Reply<'_>| it.encode(out).map(Answer::Buffer);
        let done = |()| Answer::Buffer(0);
        match request {
            // INIT is answered before the first dispatch; another one is a breach of the protocol.
            Request::Init { .. } => Err(Errno(libc::EIO)),
            Request::Lookup { name } => reply(Reply::Entry(&fs.lookup(node, name)?)),
            Request::Forget { count } => {
                fs.forget(node, count);
                Ok(Answer::Silent)
            }
            Request::BatchForget(forgets) => {
                forgets.iter().for_each(|(node, count)| fs.forget(node, count));
                Ok(Answer::Silent)
            }
            Request::Getattr { handle } => reply(Reply::Attributes(&fs.getattr(node, handle)?)),
            Request::Statx { handle } => reply(Reply::Statx(&fs.getattr(node, handle)?)),
            Request::Setattr(change) => reply(Reply::Attributes(&fs.setattr(caller, node, change)?)),
            Request::Readlink => reply(Reply::Bytes(&fs.readlink(node)?)),
            Request::Symlink { name, target } => reply(Reply::Entry(&fs.symlink(caller, node, name, target)?)),
            Request::Mknod { name, mode, umask, rdev } => {
                reply(Reply::Entry(&fs.mknod(caller, node, name, mode, umask, rdev)?))
            }
            Request::Mkdir { name, mode, umask } => reply(Reply::Entry(&fs.mkdir(caller, node, name, mode, umask)?)),
            Request::Unlink { name } => fs.unlink(node, name).map(done),
            Request::Rmdir { name } => fs.rmdir(node, name).map(done),
            Request::Rename { name, to, to_name, flags } => fs.rename(caller, node, name, to, to_name, flags).map(done),
            Request::Link { node: target, name } => reply(Reply::Entry(&fs.link(target, node, name)?)),
            Request::Open { flags, kill_privileges } => {
                let opened = fs.open(caller, node, flags)?;
                if kill_privileges {
                    self.kill_privileges(message, opened.handle);
                }
                reply(Reply::Opened(&opened, flags))
            }
            Request::Create { name, mode, umask, flags } => {
                let (entry, opened) = fs.create(caller, node, name, mode, umask, flags)?;
                reply(Reply::Created(&entry, &opened, flags))
            }
            Request::Tmpfile { mode, umask, flags } => {
                let (entry, opened) = fs.tmpfile(caller, node, mode, umask, flags)?;
                reply(Reply::Created(&entry, &opened, flags))
            }
            Request::Read { handle, offset, size } => {
                scratch.clear();
                let size = (size as usize).min(out.len());
                fs.read(node, handle, offset, size as u32, scratch)?;
                scratch.truncate(size);
                Ok(Answer::Scratch)
            }
            Request::Write { handle, offset, data, flags, kill_privileges, whole } => {
                let written = fs.write(node, handle, offset, data, flags, kill_privileges.then_some(caller))?;
                if whole && (written as usize) < data.len() {
                    return Err(Errno(libc::ENOSPC));
                }
                reply(Reply::Written(written))
            }
            Request::Release { handle } => {
                fs.may_release(node)?;
                fs.release(node, handle);
                Ok(done(()))
            }
            Request::Fsync { handle, data_only } => fs.fsync(node, handle, data_only).map(done),
            Request::Opendir => reply(Reply::OpenedDirectory(&fs.opendir(node)?)),
            Request::Readdir { handle, offset, size, plus } => {
                let room = (size as usize).min(out.len());
                let mut listing = Listing::new(&mut out[..room], plus);
                fs.readdir(node, handle, offset, plus, &mut |entry| listing.push(entry))?;
                Ok(Answer::Buffer(listing.used()))
            }
            Request::Releasedir { handle } => {
                fs.releasedir(node, handle);
                Ok(done(()))
            }
            Request::Fsyncdir => fs.fsyncdir(node).map(done),
            Request::Syncfs => fs.syncfs().map(done),
            Request::Statfs => reply(Reply::Statfs(&fs.statfs(node)?)),
            Request::Setxattr { name, value, flags, kill_setgid } => {
                fs.setxattr(caller, node, name, value, flags, kill_setgid).map(done)
            }
            Request::Getxattr { name, size } => reply(xattr(&fs.getxattr(caller, node, name, size)?, size)?),
            Request::Listxattr { size } => reply(xattr(&fs.listxattr(caller, node, size)?, size)?),
            Request::Removexattr { name } => fs.removexattr(caller, node, name).map(done),
            Request::Fallocate { handle, offset, length, mode } => {
                fs.fallocate(node, handle, offset, length, mode).map(done)
            }
            Request::Lseek { handle, offset, whence } => reply(Reply::Offset(fs.lseek(node, handle, offset, whence)?)),
            Request::CopyFileRange(CopyFileRange {
                from_handle,
                from_offset,
                to,
                to_handle,
                to_offset,
                length,
                wide,
            }) => {
                // The narrow reply counts in 32 bits, and the kernel takes a short copy for what it is.
                let length = if wide { length } else { length.min(0xffff_f000) };
                let copied = fs.copy_file_range(node, from_handle, from_offset, to, to_handle, to_offset, length)?;
                reply(if wide { Reply::Copied(copied) } else { Reply::Written(copied as u32) })
            }
            Request::NotifyReply => Ok(Answer::Silent),
            Request::Destroy => Ok(done(())),
            Request::Ioctl => Err(Errno(libc::ENOTTY)),
            // ENOSYS makes the kernel stop sending these: no call of ours can be broken off, and what close(2) has to tell the
            // kernel knows itself.
            Request::Interrupt | Request::Flush | Request::Unknown => Err(Errno(libc::ENOSYS)),
        }
    }

    /// An open that truncates on behalf of a stranger clears setuid, setgid and capabilities. The kernel keeps the
    /// mode it knows, so it is told to ask again.
    fn kill_privileges(&self, message: &Message<'_>, handle: u64) {
        let change = SetAttributes { kill_privileges: true, handle: Some(handle), ..SetAttributes::default() };
        if let Err(error) = self.fs.setattr(message.caller(), message.node(), change) {
            tracing::warn!(node = message.node().0, ?error, "clearing setuid and setgid at a truncating open failed");
        }
        if let Err(error) = self.kernel.invalidate_node(message.node(), -1, 0) {
            tracing::debug!(node = message.node().0, %error, "the kernel kept the attributes of a truncated file");
        }
    }
}

/// The reply to a request for a length or for the bytes. Bytes longer than asked for are ERANGE.
fn xattr(it: &Xattr, asked: u32) -> Outcome<Reply<'_>> {
    match it {
        Xattr::Length(length) => Ok(Reply::Length(*length)),
        Xattr::Bytes(bytes) if asked == 0 => Ok(Reply::Length(bytes.len() as u32)),
        Xattr::Bytes(bytes) if bytes.len() > asked as usize => Err(Errno(libc::ERANGE)),
        Xattr::Bytes(bytes) => Ok(Reply::Bytes(bytes)),
    }
}
