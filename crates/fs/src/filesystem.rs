//! The space as a transport sees it: each call goes to its operation.

use crate::{
    AttributesFor, Caller, Entry, Errno, Filesystem, Kernel, Opened, Outcome, SetAttributes, Sink, Space, Statfs,
    WaitsFor, Xattr,
};
use std::sync::Arc;
use ullage_types::NodeId;

impl Filesystem for Space {
    fn attach(&self, kernel: Arc<dyn Kernel>) {
        self.set_kernel(kernel);
    }

    fn waits_for(&self, node: NodeId) -> WaitsFor {
        Self::waits_for(self, node)
    }

    fn lookup(&self, parent: NodeId, name: &[u8]) -> Outcome<Entry> {
        self.do_lookup(parent, name)
    }

    fn forget(&self, node: NodeId, count: u64) {
        self.forget_node(node, count);
    }

    fn getattr(&self, node: NodeId, _handle: Option<u64>) -> Outcome<AttributesFor> {
        self.do_getattr(node)
    }

    fn setattr(&self, caller: Caller, node: NodeId, change: SetAttributes) -> Outcome<AttributesFor> {
        self.do_setattr(caller, node, change)
    }

    fn readlink(&self, node: NodeId) -> Outcome<Vec<u8>> {
        self.do_readlink(node)
    }

    fn mknod(&self, caller: Caller, parent: NodeId, name: &[u8], mode: u32, umask: u32, rdev: u32) -> Outcome<Entry> {
        self.do_mknod(caller, parent, name, mode, umask, rdev)
    }

    fn mkdir(&self, caller: Caller, parent: NodeId, name: &[u8], mode: u32, umask: u32) -> Outcome<Entry> {
        self.do_mkdir(caller, parent, name, mode, umask)
    }

    fn symlink(&self, caller: Caller, parent: NodeId, name: &[u8], target: &[u8]) -> Outcome<Entry> {
        self.do_symlink(caller, parent, name, target)
    }

    fn link(&self, node: NodeId, parent: NodeId, name: &[u8]) -> Outcome<Entry> {
        self.do_link(node, parent, name)
    }

    fn unlink(&self, parent: NodeId, name: &[u8]) -> Outcome<()> {
        self.do_unlink(parent, name)
    }

    fn rmdir(&self, parent: NodeId, name: &[u8]) -> Outcome<()> {
        self.do_rmdir(parent, name)
    }

    fn rename(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        to: NodeId,
        to_name: &[u8],
        flags: u32,
    ) -> Outcome<()> {
        self.do_rename(caller, (parent, name), (to, to_name), flags)
    }

    fn open(&self, caller: Caller, node: NodeId, flags: u32) -> Outcome<Opened> {
        self.do_open(caller, node, flags)
    }

    fn create(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        mode: u32,
        umask: u32,
        flags: u32,
    ) -> Outcome<(Entry, Opened)> {
        self.do_create(caller, parent, name, mode, umask, flags)
    }

    fn tmpfile(&self, caller: Caller, parent: NodeId, mode: u32, umask: u32, flags: u32) -> Outcome<(Entry, Opened)> {
        self.do_tmpfile(caller, parent, mode, umask, flags)
    }

    fn read(&self, node: NodeId, _handle: u64, offset: u64, size: u32, into: &mut Vec<u8>) -> Outcome<()> {
        self.do_read(node, offset, size, into)
    }

    fn write(
        &self,
        node: NodeId,
        _handle: u64,
        offset: u64,
        data: &[u8],
        flags: u32,
        stranger: Option<Caller>,
    ) -> Outcome<u32> {
        let written = self.do_write(node, offset, data, stranger)?;
        self.sync_written(node, flags)?;
        Ok(written)
    }

    fn may_release(&self, node: NodeId) -> Outcome<()> {
        self.releases_at_once(node)
    }

    fn release(&self, node: NodeId, handle: u64) {
        if let Err(error) = self.do_release(node, handle) {
            tracing::error!("node {node} could not be released: {error:?}");
        }
    }

    fn fsync(&self, node: NodeId, _handle: u64, data_only: bool) -> Outcome<()> {
        self.do_fsync(node, data_only)
    }

    /// Directories need no handles: the kernel, once told, opens them without asking and caches their listings.
    fn opendir(&self, _node: NodeId) -> Outcome<Opened> {
        Err(Errno::ENOSYS)
    }

    fn readdir(&self, node: NodeId, _handle: u64, offset: u64, plus: bool, sink: &mut Sink<'_>) -> Outcome<()> {
        self.do_readdir(node, offset, plus, sink)
    }

    fn releasedir(&self, _node: NodeId, _handle: u64) {}

    fn fsyncdir(&self, node: NodeId) -> Outcome<()> {
        self.do_fsyncdir(node)
    }

    fn syncfs(&self) -> Outcome<()> {
        self.do_syncfs()
    }

    fn statfs(&self, node: NodeId) -> Outcome<Statfs> {
        self.do_statfs(node)
    }

    fn setxattr(
        &self,
        caller: Caller,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        flags: u32,
        kill_setgid: Option<bool>,
    ) -> Outcome<()> {
        self.do_setxattr(caller, node, name, value, flags, kill_setgid)
    }

    fn getxattr(&self, _caller: Caller, node: NodeId, name: &[u8], size: u32) -> Outcome<Xattr> {
        self.do_getxattr(node, name, size)
    }

    fn listxattr(&self, caller: Caller, node: NodeId, size: u32) -> Outcome<Xattr> {
        self.do_listxattr(caller, node, size)
    }

    fn removexattr(&self, caller: Caller, node: NodeId, name: &[u8]) -> Outcome<()> {
        self.do_removexattr(caller, node, name)
    }

    fn fallocate(&self, node: NodeId, _handle: u64, offset: u64, length: u64, mode: u32) -> Outcome<()> {
        self.do_fallocate(node, offset, length, mode)
    }

    fn lseek(&self, node: NodeId, _handle: u64, offset: u64, whence: u32) -> Outcome<u64> {
        self.do_lseek(node, offset, whence)
    }

    fn copy_file_range(
        &self,
        from: NodeId,
        _from_handle: u64,
        from_offset: u64,
        to: NodeId,
        _to_handle: u64,
        to_offset: u64,
        length: u64,
    ) -> Outcome<u64> {
        self.do_copy_file_range((from, from_offset), (to, to_offset), length)
    }

    fn detach(&self) {
        self.do_detach();
    }
}
