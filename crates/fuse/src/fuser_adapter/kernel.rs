//! The kernel's side of a connection: replies that `fuser` cannot express, notifications, backing files.

use crate::connection::{may_register, mounted_at};
use crate::counters::Counters;
use crate::fuser_adapter::{dispatch::Adapter, sys};
use crate::servers::Servers;
use fuser::{BackingId, INodeNo, Notifier, Session};
use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use ullage_fs::{Envoy, Kernel};
use ullage_types::NodeId;

/// One connection. Made before the handshake, because `fuser` owns the adapter from then on; opened after it.
#[derive(Debug)]
pub(super) struct Connection {
    channel: OnceLock<(OwnedFd, Notifier)>,
    passthrough: AtomicBool,
    mountpoint: PathBuf,
    mounted: OnceLock<Option<(u32, u32)>>,
    pub(super) counters: Arc<Counters>,
    /// The threads that answer.
    pub(super) servers: Servers,
}

impl Connection {
    pub(super) fn new(mountpoint: &Path) -> Self {
        Self {
            channel: OnceLock::new(),
            passthrough: AtomicBool::new(false),
            mountpoint: mountpoint.to_owned(),
            mounted: OnceLock::new(),
            counters: Arc::default(),
            servers: Servers::default(),
        }
    }

    /// Takes a descriptor of the session's own queue: a reply must come by the queue that gave the request.
    pub(super) fn open(&self, session: &Session<Adapter>) -> io::Result<()> {
        self.mounted.get_or_init(|| mounted_at(&self.mountpoint));
        let device = session.as_fd().try_clone_to_owned()?;
        self.set_passthrough(self.passthrough() && may_register(device.as_fd()));
        self.channel.set((device, session.notifier())).map_err(|_| io::Error::other("the connection is open already"))
    }

    pub(super) fn set_passthrough(&self, negotiated: bool) {
        self.passthrough.store(negotiated, Ordering::Relaxed);
    }

    /// Sends a successful reply to the request of this number. Fails with ENOENT when nobody waits for it any more.
    pub(super) fn reply(&self, unique: u64, body: &[u8]) -> io::Result<()> {
        let mut header = [0; 16];
        let length = (header.len() + body.len()) as u32;
        header[..4].copy_from_slice(&length.to_ne_bytes());
        header[8..].copy_from_slice(&unique.to_ne_bytes());
        rustix::io::writev(self.device()?, &[IoSlice::new(&header), IoSlice::new(body)])?;
        Ok(())
    }

    fn device(&self) -> io::Result<BorrowedFd<'_>> {
        Ok(self.channel()?.0.as_fd())
    }

    fn channel(&self) -> io::Result<&(OwnedFd, Notifier)> {
        self.channel.get().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Kernel for Connection {
    fn register(&self, file: BorrowedFd<'_>) -> io::Result<u32> {
        ullage_fs::without_reserve(|| BackingId::create_raw(self.device()?, file))
    }

    fn unregister(&self, backing: u32) {
        if let Err(error) = self.device().and_then(|device| sys::close_backing(device, backing)) {
            tracing::warn!(backing, %error, "closing a backing file");
        }
    }

    fn invalidate_node(&self, node: NodeId, offset: i64, length: i64) -> io::Result<()> {
        self.counters.notified();
        self.channel()?.1.inval_inode(INodeNo(node.0), offset, length)
    }

    fn invalidate_name(&self, parent: NodeId, name: &[u8]) -> io::Result<()> {
        self.counters.notified();
        self.channel()?.1.inval_entry(INodeNo(parent.0), OsStr::from_bytes(name))
    }

    fn envoy(&self) -> io::Result<Box<dyn Envoy>> {
        let device = Kernel::device(self).ok_or(io::ErrorKind::NotConnected)?;
        crate::envoy::start(&self.mountpoint, device, self.servers.clone())
    }

    fn passthrough(&self) -> bool {
        self.passthrough.load(Ordering::Relaxed)
    }

    fn device(&self) -> Option<(u32, u32)> {
        *self.mounted.get()?
    }
}
