//! A real, small file system: names in memory, data in unnamed files of the host. It offers passthrough when the
//! kernel grants it, and its node handles differ from its inode numbers, so that a transport which mixes them up
//! is seen.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};
use ullage_fs::{
    Attributes, AttributesFor, Caller, Data, Entry, Errno, Filesystem, Kernel, Listed, Opened, Outcome, SetAttributes,
    SetTime, Sink, Statfs, Xattr,
};
use ullage_types::{Bytes, NodeId, Timestamp};

const LIFETIME: Duration = Duration::from_secs(3600);
/// A node's handle is its inode number plus this; the root's is 1, as the protocol has it.
const HANDLE_OFFSET: u64 = 1000;

enum Content {
    Directory(BTreeMap<Vec<u8>, u64>),
    Regular { data: File, backing: Option<u32> },
    Symlink(Vec<u8>),
    Special,
}

struct Inode {
    attributes: Attributes,
    content: Content,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

struct State {
    inodes: BTreeMap<u64, Inode>,
    next: u64,
    kernel: Option<Arc<dyn Kernel>>,
}

/// The file system.
pub struct MemoryFs {
    state: Mutex<State>,
    /// How often `attach` was called.
    pub attached: AtomicU32,
    /// How often `detach` was called.
    pub detached: AtomicU32,
    /// How many READ and WRITE requests came.
    pub data_requests: AtomicU32,
}

fn now() -> Timestamp {
    SystemTime::now().into()
}

fn ino(node: NodeId) -> u64 {
    if node.0 == 1 { 1 } else { node.0 - HANDLE_OFFSET }
}

fn err<T>(errno: i32) -> Outcome<T> {
    Err(Errno(errno))
}

impl Inode {
    fn new(number: u64, mode: u32, caller: Caller, content: Content) -> Self {
        let time = now();
        let attributes = Attributes {
            ino: number,
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            mode,
            nlink: 1,
            uid: caller.uid,
            gid: caller.gid,
            rdev: 0,
            block_size: 4096,
        };
        Self { attributes, content, xattrs: BTreeMap::new() }
    }

    fn fresh(&mut self) -> AttributesFor {
        if let Content::Regular { data, .. } = &self.content {
            self.attributes.size = data.metadata().unwrap().len();
        }
        AttributesFor { attributes: self.attributes, lifetime: LIFETIME }
    }
}

impl State {
    fn inode(&mut self, node: NodeId) -> Outcome<&mut Inode> {
        self.inodes.get_mut(&ino(node)).ok_or(Errno(libc::ESTALE))
    }

    fn names(&mut self, node: NodeId) -> Outcome<&mut BTreeMap<Vec<u8>, u64>> {
        match &mut self.inode(node)?.content {
            Content::Directory(names) => Ok(names),
            _ => err(libc::ENOTDIR),
        }
    }

    fn find(&mut self, parent: NodeId, name: &[u8]) -> Outcome<u64> {
        self.names(parent)?.get(name).copied().ok_or(Errno(libc::ENOENT))
    }

    fn entry(&mut self, number: u64) -> Entry {
        let attributes = self.inodes.get_mut(&number).unwrap().fresh();
        Entry { node: NodeId(number + HANDLE_OFFSET), attributes, lifetime: LIFETIME }
    }

    fn add(&mut self, caller: Caller, parent: NodeId, name: &[u8], mode: u32, content: Content) -> Outcome<Entry> {
        if self.names(parent)?.contains_key(name) {
            return err(libc::EEXIST);
        }
        let number = self.next;
        self.next += 1;
        self.inodes.insert(number, Inode::new(number, mode, caller, content));
        self.names(parent)?.insert(name.to_vec(), number);
        Ok(self.entry(number))
    }

    fn open(&mut self, node: NodeId, truncate: bool) -> Outcome<Opened> {
        let kernel = self.kernel.clone().unwrap();
        let Content::Regular { data, backing } = &mut self.inode(node)?.content else { return err(libc::EISDIR) };
        if truncate {
            data.set_len(0).unwrap();
        }
        if kernel.passthrough() && backing.is_none() {
            *backing = Some(kernel.register(data.as_fd()).expect("a privileged server registers backing files"));
        }
        let data = backing.map_or(Data::Server, Data::Passthrough);
        Ok(Opened { handle: 77, data, keep_cache: true })
    }

    fn remove(&mut self, parent: NodeId, name: &[u8]) -> Outcome<()> {
        let number = self.find(parent, name)?;
        self.names(parent)?.remove(name);
        self.inodes.get_mut(&number).unwrap().attributes.nlink -= 1;
        Ok(())
    }
}

impl MemoryFs {
    pub fn new() -> Arc<Self> {
        let owner =
            Caller { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw(), pid: 0 };
        let root = Inode::new(1, 0o040_755, owner, Content::Directory(BTreeMap::new()));
        let state = State { inodes: BTreeMap::from([(1, root)]), next: 2, kernel: None };
        Arc::new(Self {
            state: Mutex::new(state),
            attached: AtomicU32::new(0),
            detached: AtomicU32::new(0),
            data_requests: AtomicU32::new(0),
        })
    }

    fn regular() -> Content {
        Content::Regular { data: tempfile::tempfile().unwrap(), backing: None }
    }
}

impl Filesystem for MemoryFs {
    fn attach(&self, kernel: Arc<dyn Kernel>) {
        self.attached.fetch_add(1, Ordering::SeqCst);
        self.state.lock().kernel = Some(kernel);
    }
    fn lookup(&self, parent: NodeId, name: &[u8]) -> Outcome<Entry> {
        let mut state = self.state.lock();
        assert!(state.kernel.is_some(), "attached before the first request");
        let number = state.find(parent, name)?;
        Ok(state.entry(number))
    }
    fn forget(&self, _: NodeId, _: u64) {}
    fn getattr(&self, node: NodeId, _: Option<u64>) -> Outcome<AttributesFor> {
        Ok(self.state.lock().inode(node)?.fresh())
    }
    fn setattr(&self, _: Caller, node: NodeId, change: SetAttributes) -> Outcome<AttributesFor> {
        let mut state = self.state.lock();
        let inode = state.inode(node)?;
        let attributes = &mut inode.attributes;
        if let Some(mode) = change.mode {
            attributes.mode = attributes.mode & 0o170_000 | mode & 0o7777;
        }
        attributes.uid = change.uid.unwrap_or(attributes.uid);
        attributes.gid = change.gid.unwrap_or(attributes.gid);
        for (wanted, time) in [(change.atime, &mut attributes.atime), (change.mtime, &mut attributes.mtime)] {
            match wanted {
                Some(SetTime::At(at)) => *time = at,
                Some(SetTime::Now) => *time = now(),
                None => {}
            }
        }
        if let (Some(size), Content::Regular { data, .. }) = (change.size, &inode.content) {
            data.set_len(size).unwrap();
        }
        Ok(inode.fresh())
    }
    fn readlink(&self, node: NodeId) -> Outcome<Vec<u8>> {
        match &self.state.lock().inode(node)?.content {
            Content::Symlink(target) => Ok(target.clone()),
            _ => err(libc::EINVAL),
        }
    }
    fn mknod(&self, caller: Caller, parent: NodeId, name: &[u8], mode: u32, umask: u32, rdev: u32) -> Outcome<Entry> {
        let regular = mode & 0o170_000 == 0o100_000;
        let content = if regular { Self::regular() } else { Content::Special };
        let mut state = self.state.lock();
        let entry = state.add(caller, parent, name, mode & !umask, content)?;
        state.inode(entry.node)?.attributes.rdev = rdev;
        Ok(entry)
    }
    fn mkdir(&self, caller: Caller, parent: NodeId, name: &[u8], mode: u32, umask: u32) -> Outcome<Entry> {
        let content = Content::Directory(BTreeMap::new());
        self.state.lock().add(caller, parent, name, 0o040_000 | mode & !umask, content)
    }
    fn symlink(&self, caller: Caller, parent: NodeId, name: &[u8], target: &[u8]) -> Outcome<Entry> {
        self.state.lock().add(caller, parent, name, 0o120_777, Content::Symlink(target.to_vec()))
    }
    fn link(&self, node: NodeId, parent: NodeId, name: &[u8]) -> Outcome<Entry> {
        let mut state = self.state.lock();
        state.names(parent)?.insert(name.to_vec(), ino(node));
        state.inode(node)?.attributes.nlink += 1;
        Ok(state.entry(ino(node)))
    }
    fn unlink(&self, parent: NodeId, name: &[u8]) -> Outcome<()> {
        self.state.lock().remove(parent, name)
    }
    fn rmdir(&self, parent: NodeId, name: &[u8]) -> Outcome<()> {
        self.state.lock().remove(parent, name)
    }
    fn rename(&self, _: Caller, parent: NodeId, name: &[u8], to: NodeId, to_name: &[u8], flags: u32) -> Outcome<()> {
        let mut state = self.state.lock();
        let number = state.find(parent, name)?;
        if flags & libc::RENAME_NOREPLACE != 0 && state.find(to, to_name).is_ok() {
            return err(libc::EEXIST);
        }
        state.names(parent)?.remove(name);
        state.names(to)?.insert(to_name.to_vec(), number);
        Ok(())
    }
    fn open(&self, _: Caller, node: NodeId, flags: u32) -> Outcome<Opened> {
        self.state.lock().open(node, flags & libc::O_TRUNC as u32 != 0)
    }
    fn create(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        mode: u32,
        umask: u32,
        _: u32,
    ) -> Outcome<(Entry, Opened)> {
        let mut state = self.state.lock();
        let entry = state.add(caller, parent, name, 0o100_000 | mode & !umask, Self::regular())?;
        let opened = state.open(entry.node, false)?;
        Ok((entry, opened))
    }
    fn tmpfile(&self, _: Caller, _: NodeId, _: u32, _: u32, _: u32) -> Outcome<(Entry, Opened)> {
        err(libc::EOPNOTSUPP)
    }
    fn read(&self, node: NodeId, handle: u64, offset: u64, size: u32, into: &mut Vec<u8>) -> Outcome<()> {
        assert_eq!(handle, 77);
        self.data_requests.fetch_add(1, Ordering::SeqCst);
        let mut state = self.state.lock();
        let Content::Regular { data, .. } = &state.inode(node)?.content else { return err(libc::EISDIR) };
        into.resize(size as usize, 0);
        let read = data.read_at(into, offset).map_err(|_| Errno(libc::EIO))?;
        into.truncate(read);
        Ok(())
    }
    fn write(&self, node: NodeId, handle: u64, offset: u64, bytes: &[u8], _: u32, _: Option<Caller>) -> Outcome<u32> {
        assert_eq!(handle, 77);
        self.data_requests.fetch_add(1, Ordering::SeqCst);
        let mut state = self.state.lock();
        let Content::Regular { data, .. } = &state.inode(node)?.content else { return err(libc::EISDIR) };
        data.write_all_at(bytes, offset).map_err(|_| Errno(libc::EIO))?;
        Ok(bytes.len() as u32)
    }
    fn release(&self, _: NodeId, _: u64) {}
    fn fsync(&self, _: NodeId, _: u64, _: bool) -> Outcome<()> {
        Ok(())
    }
    fn opendir(&self, _: NodeId) -> Outcome<Opened> {
        Ok(Opened { handle: 88, data: Data::Server, keep_cache: true })
    }
    fn readdir(&self, node: NodeId, handle: u64, offset: u64, plus: bool, sink: &mut Sink<'_>) -> Outcome<()> {
        assert_eq!(handle, 88);
        let mut state = self.state.lock();
        let names = state.names(node)?.clone();
        for (index, (name, number)) in names.iter().enumerate().skip(offset as usize) {
            let entry = state.entry(*number);
            let mode = entry.attributes.attributes.mode;
            let listed = Listed {
                name,
                ino: *number,
                mode,
                next: index as u64 + 1,
                entry: if plus { Some(entry) } else { None },
            };
            if !sink(&listed) {
                break;
            }
        }
        Ok(())
    }
    fn releasedir(&self, _: NodeId, _: u64) {}
    fn fsyncdir(&self, _: NodeId) -> Outcome<()> {
        Ok(())
    }
    fn syncfs(&self) -> Outcome<()> {
        Ok(())
    }
    fn statfs(&self, _: NodeId) -> Outcome<Statfs> {
        Ok(Statfs {
            block: Bytes(4096),
            blocks: 1000,
            free: 900,
            available: 800,
            files: 100,
            files_free: 50,
            name_max: 255,
        })
    }
    fn setxattr(&self, _: Caller, node: NodeId, name: &[u8], value: &[u8], _: u32, _: Option<bool>) -> Outcome<()> {
        self.state.lock().inode(node)?.xattrs.insert(name.to_vec(), value.to_vec());
        Ok(())
    }
    fn getxattr(&self, _: Caller, node: NodeId, name: &[u8], size: u32) -> Outcome<Xattr> {
        let mut state = self.state.lock();
        let value = state.inode(node)?.xattrs.get(name).cloned().ok_or(Errno(libc::ENODATA))?;
        Ok(if size == 0 { Xattr::Length(value.len() as u32) } else { Xattr::Bytes(value) })
    }
    fn listxattr(&self, _: Caller, node: NodeId, size: u32) -> Outcome<Xattr> {
        let mut state = self.state.lock();
        let all: Vec<u8> = state.inode(node)?.xattrs.keys().flat_map(|name| name.iter().copied().chain([0])).collect();
        Ok(if size == 0 { Xattr::Length(all.len() as u32) } else { Xattr::Bytes(all) })
    }
    fn removexattr(&self, _: Caller, node: NodeId, name: &[u8]) -> Outcome<()> {
        self.state.lock().inode(node)?.xattrs.remove(name).map(drop).ok_or(Errno(libc::ENODATA))
    }
    fn fallocate(&self, _: NodeId, _: u64, _: u64, _: u64, _: u32) -> Outcome<()> {
        err(libc::EOPNOTSUPP)
    }
    fn lseek(&self, _: NodeId, _: u64, _: u64, _: u32) -> Outcome<u64> {
        err(libc::ENXIO)
    }
    fn copy_file_range(&self, _: NodeId, _: u64, _: u64, _: NodeId, _: u64, _: u64, _: u64) -> Outcome<u64> {
        err(libc::EXDEV)
    }
    fn detach(&self) {
        self.detached.fetch_add(1, Ordering::SeqCst);
    }
}
