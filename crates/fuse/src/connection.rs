//! The connection to the kernel: what the file system may ask of it, and how it is broken off.

#[allow(clippy::wildcard_imports, reason = "the protocol's own names, all of them used here")]
use crate::abi::{self, OUT_HEADER, OutHeader, output::*};
use crate::counters::Counters;
use crate::servers::Servers;
use crate::sys;
use rustix::fs::{AtFlags, OFlags, StatxFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, UnmountFlags, fsconfig_create, fsmount, fsopen};
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ullage_fs::{Envoy, Kernel};
use ullage_types::NodeId;

/// A mounted connection.
pub(crate) struct Connection {
    device: OwnedFd,
    mountpoint: PathBuf,
    /// Major and minor number.
    mounted: Option<(u32, u32)>,
    passthrough: AtomicBool,
    counters: Arc<Counters>,
    gone: AtomicBool,
    /// The threads that answer.
    pub servers: Servers,
}

impl Connection {
    /// The connection of `device`, mounted at `mountpoint` just now.
    pub fn new(device: OwnedFd, mountpoint: &Path, counters: Arc<Counters>) -> Self {
        Self {
            device,
            mountpoint: mountpoint.to_owned(),
            mounted: mounted_at(mountpoint),
            passthrough: AtomicBool::new(false),
            counters,
            gone: AtomicBool::new(false),
            servers: Servers::default(),
        }
    }

    /// The device, for reading requests and writing replies.
    pub fn device(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    /// Another descriptor of this connection, with its own queue of requests being handled.
    pub fn clone_device(&self) -> io::Result<OwnedFd> {
        let fresh = OwnedFd::from(File::options().read(true).write(true).open("/dev/fuse")?);
        sys::clone_device(fresh.as_fd(), self.device())?;
        Ok(fresh)
    }

    /// Notes that passthrough was negotiated.
    pub fn set_passthrough(&self, on: bool) {
        self.passthrough.store(on, Ordering::Relaxed);
    }

    /// Where it is mounted.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Whether a thread has seen the end of the connection.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Notes the end of the connection.
    pub fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Breaks the connection off: every waiting caller gets an error, and so does every later one.
    pub fn abort(&self) {
        if self.is_gone() {
            return;
        }
        let Err(error) = self.abort_by_number() else { return };
        tracing::debug!(%error, "no control file system; forcing the unmount");
        if mounted_at(&self.mountpoint) != self.mounted {
            return;
        }
        // A forced unmount aborts first of all, whether or not it may unmount.
        if let Err(error) = rustix::mount::unmount(&self.mountpoint, UnmountFlags::FORCE) {
            tracing::debug!(mountpoint = %self.mountpoint.display(), %error, "the broken mount stays");
        }
    }

    /// Aborts through the FUSE control file system, on a mount of it that nobody else sees: it need not be mounted
    /// anywhere, and no path of the connection's own is walked.
    fn abort_by_number(&self) -> io::Result<()> {
        let number = number_of(self.mounted.ok_or(io::ErrorKind::NotFound)?);
        let control = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(control.as_fd())?;
        let root = fsmount(control.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
        let file = rustix::fs::openat(
            root,
            format!("{number}/abort"),
            OFlags::WRONLY | OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )?;
        rustix::io::write(file, b"1")?;
        Ok(())
    }

    /// Makes the kernel send a NOTIFY_REPLY to the calling thread's CPU, by asking for no bytes of `node`, which has to
    /// be a regular file that the kernel knows.
    pub fn poke(&self, node: NodeId) -> io::Result<()> {
        // Even, as all identities of requests, and far above those the kernel counts up.
        static NEXT: AtomicU64 = AtomicU64::new(1 << 62);
        let notify_unique = NEXT.fetch_add(2, Ordering::Relaxed);
        let body = NotifyRetrieve { notify_unique, nodeid: node.0, offset: 0, size: 0, padding: 0 };
        self.notify(NOTIFY_RETRIEVE, &[zerocopy::IntoBytes::as_bytes(&body)])
    }

    fn notify(&self, code: i32, parts: &[&[u8]]) -> io::Result<()> {
        self.counters.notified();
        let len = (OUT_HEADER + parts.iter().map(|part| part.len()).sum::<usize>()) as u32;
        let header = OutHeader { len, error: code, unique: 0 };
        let mut slices = Vec::with_capacity(parts.len() + 1);
        slices.push(IoSlice::new(zerocopy::IntoBytes::as_bytes(&header)));
        slices.extend(parts.iter().map(|part| IoSlice::new(part)));
        rustix::io::writev(self.device(), &slices)?;
        Ok(())
    }
}

impl Kernel for Connection {
    fn register(&self, file: BorrowedFd<'_>) -> io::Result<u32> {
        ullage_fs::without_reserve(|| sys::backing_open(self.device(), file))
    }

    fn unregister(&self, backing: u32) {
        if let Err(error) = sys::backing_close(self.device(), backing)
            && !self.is_gone()
        {
            tracing::warn!(backing, %error, "ending the registration of a backing file failed");
        }
    }

    fn invalidate_node(&self, node: NodeId, offset: i64, length: i64) -> io::Result<()> {
        let body = NotifyInvalInode { ino: node.0, off: offset, len: length };
        unknown_is_fine(self.notify(NOTIFY_INVAL_INODE, &[zerocopy::IntoBytes::as_bytes(&body)]))
    }

    fn invalidate_name(&self, parent: NodeId, name: &[u8]) -> io::Result<()> {
        let body = NotifyInvalEntry { parent: parent.0, namelen: name.len() as u32, flags: 0 };
        unknown_is_fine(self.notify(NOTIFY_INVAL_ENTRY, &[zerocopy::IntoBytes::as_bytes(&body), name, &[0]]))
    }

    fn envoy(&self) -> io::Result<Box<dyn Envoy>> {
        let device = self.mounted.ok_or(io::ErrorKind::NotConnected)?;
        crate::envoy::start(&self.mountpoint, device, self.servers.clone())
    }

    fn passthrough(&self) -> bool {
        self.passthrough.load(Ordering::Relaxed)
    }

    fn device(&self) -> Option<(u32, u32)> {
        self.mounted
    }
}

/// Whether backing files may be registered with a connection, once passthrough was negotiated: root of a user namespace may not, whatever
/// INIT said.
pub(crate) fn may_register(device: BorrowedFd<'_>) -> bool {
    // No regular file: for who may, there is nothing to be registered.
    let tried = File::open("/dev/null").and_then(|file| sys::backing_open(device, file.as_fd()));
    let refused = tried.err().filter(|error| error.raw_os_error() == Some(libc::EPERM));
    if let Some(why) = &refused {
        tracing::info!("the kernel refuses passthrough ({why}); files are read and written through the server");
    }
    refused.is_none()
}

/// The numbers of the device that is seen there; of one too that nobody serves any more.
pub fn mounted_at(mountpoint: &Path) -> Option<(u32, u32)> {
    // DONT_SYNC: no request may be sent, nobody may answer.
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let root = rustix::fs::statx(rustix::fs::CWD, mountpoint, flags, StatxFlags::empty()).ok()?;
    Some((root.stx_dev_major, root.stx_dev_minor))
}

/// The number of a device's connection under `/sys/fs/fuse/connections`: the kernel's own for the device, which has 20 bits for the minor one.
fn number_of((major, minor): (u32, u32)) -> u32 {
    major << 20 | minor
}

/// What the kernel does not know it has not cached.
fn unknown_is_fine(done: io::Result<()>) -> io::Result<()> {
    done.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// Breaks the connection off when the thread holding it panics: callers get an error, not an endless wait.
pub(crate) struct DeathWatch(pub Arc<Connection>);

impl Drop for DeathWatch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(
                thread = std::thread::current().name().unwrap_or("?"),
                "a transport thread died; breaking the connection off"
            );
            self.0.abort();
        }
    }
}

/// Writes a reply to the descriptor its request was read from.
pub(crate) fn write_reply(device: BorrowedFd<'_>, unique: u64, errno: i32, body: &[u8]) -> rustix::io::Result<()> {
    let header = OutHeader { len: (OUT_HEADER + body.len()) as u32, error: -errno, unique };
    let mut bytes = [0; OUT_HEADER];
    let _ = abi::write(&header, &mut bytes);
    if body.is_empty() {
        rustix::io::write(device, &bytes).map(drop)
    } else {
        rustix::io::writev(device, &[IoSlice::new(&bytes), IoSlice::new(body)]).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 257th mount of a machine, and every later one, could not be broken off by its number: stat(2) splits it otherwise.
    #[test]
    fn a_connection_has_the_number_that_the_kernel_gives_it() {
        assert_eq!([number_of((0, 39)), number_of((0, 321)), number_of((0, 70_000))], [39, 321, 70_000]);
    }
}
