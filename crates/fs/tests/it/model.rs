//! Generated operations on a space and on maps of names and bytes.

use crate::bed::{Bed, CALLER, ROOT};
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use ullage_fs::{Errno, Filesystem, SetAttributes, Xattr};
use ullage_types::NodeId;

#[derive(Clone, Debug)]
pub enum Op {
    Create(u8),
    Tmpfile { link: u8 },
    Open { at: u8, write: bool, truncate: bool },
    Release(u8),
    Write { handle: u8, offset: u16, length: u16, byte: u8 },
    Read { handle: u8, offset: u16, length: u16 },
    Truncate { at: u8, size: u16 },
    Fallocate { handle: u8, length: u16 },
    Unlink(u8),
    Rename { from: u8, to: u8, flags: u8 },
    Link { from: u8, to: u8 },
    Chmod { at: u8, mode: u16 },
    SetXattr { at: u8, name: u8, length: u16 },
    RemoveXattr { at: u8, name: u8 },
    Fsync(u8),
    Stat(u8),
    List(u8),
    Reopen,
}

#[derive(Clone, Debug, Default)]
struct File {
    data: Vec<u8>,
    mode: u32,
    xattrs: BTreeMap<String, Vec<u8>>,
}

struct Handle {
    node: NodeId,
    number: u64,
    file: u64,
    writes: bool,
}

const DIRECTORIES: u8 = 3;
const NAMES: u8 = 15;

pub struct Run {
    bed: Bed,
    files: BTreeMap<u64, File>,
    /// Which file each of the names is, the directory being the name's number modulo three.
    names: BTreeMap<u8, u64>,
    handles: Vec<Handle>,
    directories: [NodeId; DIRECTORIES as usize],
}

impl Run {
    pub fn new() -> Self {
        let bed = Bed::new();
        for name in ["d1", "d2"] {
            let entry = bed.space().mkdir(CALLER, ROOT, name.as_bytes(), 0o755, 0).unwrap();
            bed.space().forget(entry.node, 1);
        }
        let mut run = Self {
            bed,
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            handles: Vec::new(),
            directories: [ROOT; DIRECTORIES as usize],
        };
        run.find_directories();
        run
    }

    fn find_directories(&mut self) {
        let find = |name: &[u8]| self.bed.space().lookup(ROOT, name).unwrap().node;
        self.directories = [ROOT, find(b"d1"), find(b"d2")];
    }

    fn place(&self, choice: u8) -> (u8, NodeId, Vec<u8>) {
        let at = choice % NAMES;
        (at, self.directories[(at % DIRECTORIES) as usize], format!("name{at}").into_bytes())
    }

    /// Looks a name up and forgets it after `work`.
    fn with<T>(&self, choice: u8, work: impl FnOnce(NodeId, u64) -> T) -> Option<T> {
        let (at, parent, name) = self.place(choice);
        let space = self.bed.space();
        let entry = space.lookup(parent, &name).unwrap();
        let expected = self.names.get(&at).copied();
        assert_eq!((entry.node.0 != 0).then_some(entry.attributes.attributes.ino), expected, "what name{at} is");
        let done = expected.map(|file| work(entry.node, file));
        if entry.node.0 != 0 {
            space.forget(entry.node, 1);
        }
        done
    }

    fn handle(&self, choice: u8) -> Option<&Handle> {
        if self.handles.is_empty() { None } else { Some(&self.handles[choice as usize % self.handles.len()]) }
    }

    /// A file without a name and without a handle is gone.
    fn collect(&mut self) {
        let named: BTreeSet<u64> =
            self.names.values().copied().chain(self.handles.iter().map(|handle| handle.file)).collect();
        self.files.retain(|file, _| named.contains(file));
    }

    pub fn step(&mut self, op: &Op) {
        let space = self.bed.space();
        match *op {
            Op::Create(choice) => {
                let (at, parent, name) = self.place(choice);
                let made = space.create(CALLER, parent, &name, 0o666, 0o022, libc::O_RDWR as u32);
                if self.names.contains_key(&at) {
                    assert_eq!(made.err(), Some(Errno::EEXIST));
                    return;
                }
                let (entry, opened) = made.unwrap();
                let file = entry.attributes.attributes.ino;
                assert!(self.files.insert(file, File { mode: 0o644, ..File::default() }).is_none());
                self.names.insert(at, file);
                self.handles.push(Handle { node: entry.node, number: opened.handle, file, writes: true });
            }
            Op::Tmpfile { link } => {
                let (at, parent, name) = self.place(link);
                let (entry, opened) = space.tmpfile(CALLER, parent, 0o600, 0, libc::O_RDWR as u32).unwrap();
                let file = entry.attributes.attributes.ino;
                self.files.insert(file, File { mode: 0o600, ..File::default() });
                self.handles.push(Handle { node: entry.node, number: opened.handle, file, writes: true });
                let linked = space.link(entry.node, parent, &name);
                match self.names.entry(at) {
                    Entry::Occupied(_) => assert_eq!(linked.err(), Some(Errno::EEXIST)),
                    Entry::Vacant(name) => {
                        space.forget(linked.unwrap().node, 1);
                        name.insert(file);
                    }
                }
            }
            Op::Open { at, write, truncate } => {
                let opened = self.with(at, |node, file| {
                    let truncate = if truncate && write { libc::O_TRUNC } else { 0 };
                    let flags = if write { libc::O_RDWR } else { libc::O_RDONLY } | truncate;
                    let opened = space.open(CALLER, node, flags as u32).unwrap();
                    // The look-up that goes with the handle.
                    let (_, parent, name) = self.place(at);
                    assert_eq!(space.lookup(parent, &name).unwrap().node, node);
                    Handle { node, number: opened.handle, file, writes: write }
                });
                if let Some(handle) = opened {
                    if truncate && write {
                        self.files.get_mut(&handle.file).unwrap().data.clear();
                    }
                    self.handles.push(handle);
                }
            }
            Op::Release(choice) => {
                if !self.handles.is_empty() {
                    let handle = self.handles.swap_remove(choice as usize % self.handles.len());
                    space.release(handle.node, handle.number);
                    space.forget(handle.node, 1);
                    self.collect();
                }
            }
            Op::Write { handle, offset, length, byte } => {
                let Some(handle) = self.handle(handle).filter(|handle| handle.writes) else { return };
                let bytes = vec![byte; length as usize];
                let written = space.write(handle.node, handle.number, offset.into(), &bytes, 0, None).unwrap();
                assert_eq!(written as usize, bytes.len());
                let file = handle.file;
                let data = &mut self.files.get_mut(&file).unwrap().data;
                let (start, end) = (offset as usize, offset as usize + bytes.len());
                if !bytes.is_empty() {
                    data.resize(data.len().max(end), 0);
                    data[start..end].copy_from_slice(&bytes);
                }
            }
            Op::Read { handle, offset, length } => {
                let Some(handle) = self.handle(handle) else { return };
                let mut read = Vec::new();
                space.read(handle.node, handle.number, offset.into(), length.into(), &mut read).unwrap();
                let data = &self.files[&handle.file].data;
                let start = data.len().min(offset as usize);
                let end = data.len().min(offset as usize + length as usize);
                assert_eq!(read, data[start..end]);
            }
            Op::Truncate { at, size } => {
                let change = SetAttributes { size: Some(size.into()), ..SetAttributes::default() };
                let file = self.with(at, |node, file| {
                    let after = space.setattr(CALLER, node, change).unwrap();
                    assert_eq!(after.attributes.size, u64::from(size));
                    file
                });
                if let Some(file) = file {
                    self.files.get_mut(&file).unwrap().data.resize(size.into(), 0);
                }
            }
            Op::Fallocate { handle, length } => {
                let Some(handle) = self.handle(handle).filter(|handle| handle.writes) else { return };
                let length = length.max(1);
                space.fallocate(handle.node, handle.number, 0, length.into(), 0).unwrap();
                let file = handle.file;
                let data = &mut self.files.get_mut(&file).unwrap().data;
                data.resize(data.len().max(length.into()), 0);
            }
            Op::Unlink(choice) => {
                let (at, parent, name) = self.place(choice);
                let gone = space.unlink(parent, &name);
                assert_eq!(gone.err(), if self.names.remove(&at).is_some() { None } else { Some(Errno::ENOENT) });
                self.collect();
            }
            Op::Rename { from, to, flags } => self.rename(from, to, u32::from(flags % 3)),
            Op::Link { from, to } => {
                let (at, parent, name) = self.place(to);
                let linked = self.with(from, |node, file| (file, space.link(node, parent, &name)));
                match linked {
                    Some((_, Err(error))) => {
                        assert_eq!((error, self.names.contains_key(&at)), (Errno::EEXIST, true));
                    }
                    Some((file, Ok(entry))) => {
                        space.forget(entry.node, 1);
                        assert_eq!(self.names.insert(at, file), None);
                    }
                    None => {}
                }
            }
            Op::Chmod { at, mode } => {
                let mode = u32::from(mode) & 0o777;
                let change = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
                if let Some(file) = self.with(at, |node, file| {
                    space.setattr(CALLER, node, change).unwrap();
                    file
                }) {
                    self.files.get_mut(&file).unwrap().mode = mode;
                }
            }
            Op::SetXattr { at, name, length } => {
                let (name, value) = (format!("user.{}", name % 3), vec![3; length as usize]);
                if let Some(file) = self.with(at, |node, file| {
                    space.setxattr(CALLER, node, name.as_bytes(), &value, 0, None).unwrap();
                    file
                }) {
                    self.files.get_mut(&file).unwrap().xattrs.insert(name, value);
                }
            }
            Op::RemoveXattr { at, name } => {
                let name = format!("user.{}", name % 3);
                if let Some((file, done)) =
                    self.with(at, |node, file| (file, space.removexattr(CALLER, node, name.as_bytes())))
                {
                    let there = self.files.get_mut(&file).unwrap().xattrs.remove(&name).is_some();
                    assert_eq!(done.err(), if there { None } else { Some(Errno::ENODATA) });
                }
            }
            Op::Fsync(choice) => {
                if let Some(handle) = self.handle(choice) {
                    space.fsync(handle.node, handle.number, choice.is_multiple_of(2)).unwrap();
                }
            }
            Op::Stat(at) => {
                self.with(at, |node, file| self.stat(node, file));
            }
            Op::List(directory) => self.list(directory % DIRECTORIES),
            Op::Reopen => {
                drop(space);
                self.reopen();
            }
        }
    }

    fn rename(&mut self, from: u8, to: u8, flags: u32) {
        let ((here, parent, name), (there, to_parent, to_name)) = (self.place(from), self.place(to));
        let renamed = self.bed.space().rename(CALLER, parent, &name, to_parent, &to_name, flags);
        let (file, other) = (self.names.get(&here).copied(), self.names.get(&there).copied());
        let expected = match (file, other, flags) {
            (None, ..) | (_, None, libc::RENAME_EXCHANGE) => Err(Errno::ENOENT),
            (_, Some(_), libc::RENAME_NOREPLACE) => Err(Errno::EEXIST),
            (Some(file), _, _) => Ok(file),
        };
        assert_eq!(renamed.err(), expected.err());
        let Ok(file) = expected else { return };
        // Two names of one file stay as they are.
        if other != Some(file) {
            match other {
                Some(other) if flags == libc::RENAME_EXCHANGE => self.names.insert(here, other),
                _ => self.names.remove(&here),
            };
            self.names.insert(there, file);
        }
        self.collect();
    }

    fn stat(&self, node: NodeId, file: u64) {
        let space = self.bed.space();
        let shown = space.getattr(node, None).unwrap().attributes;
        let model = &self.files[&file];
        let links = self.names.values().filter(|other| **other == file).count();
        assert_eq!((shown.ino, shown.size, shown.nlink), (file, model.data.len() as u64, links as u32));
        assert_eq!(shown.mode, 0o100_000 | model.mode);
        for (name, value) in &model.xattrs {
            match space.getxattr(CALLER, node, name.as_bytes(), 65536).unwrap() {
                Xattr::Bytes(bytes) => assert_eq!(bytes, *value),
                Xattr::Length(_) => panic!("bytes were asked for"),
            }
        }
    }

    fn list(&self, directory: u8) {
        let space = self.bed.space();
        let node = self.directories[directory as usize];
        // Directories need no open.
        assert_eq!(space.opendir(node).err(), Some(Errno::ENOSYS));
        let (mut found, mut after) = (BTreeMap::new(), 0);
        loop {
            let mut room = 3;
            let before = after;
            let mut known = Vec::new();
            space
                .readdir(node, 0, after, directory == 1, &mut |listed| {
                    if room == 0 {
                        return false;
                    }
                    room -= 1;
                    after = listed.next;
                    known.extend(listed.entry.map(|entry| entry.node));
                    if listed.name.starts_with(b"name") {
                        found.insert(String::from_utf8(listed.name.to_vec()).unwrap(), listed.ino);
                    }
                    true
                })
                .unwrap();
            for node in known {
                space.forget(node, 1);
            }
            if after == before {
                break;
            }
        }
        let expected: BTreeMap<String, u64> = self
            .names
            .iter()
            .filter(|(at, _)| **at % DIRECTORIES == directory)
            .map(|(at, file)| (format!("name{at}"), *file))
            .collect();
        assert_eq!(found, expected);
    }

    fn reopen(&mut self) {
        let space = self.bed.space();
        for handle in std::mem::take(&mut self.handles) {
            space.release(handle.node, handle.number);
            space.forget(handle.node, 1);
        }
        self.collect();
        self.directories[1..].iter().for_each(|node| space.forget(*node, 1));
        drop(space);
        self.bed.reopen();
        self.find_directories();
        self.compare();
    }

    /// Everything there is, read back.
    fn compare(&self) {
        let space = self.bed.space();
        for at in 0..NAMES {
            self.with(at, |node, file| {
                self.stat(node, file);
                let opened = space.open(CALLER, node, libc::O_RDONLY as u32).unwrap();
                let mut data = Vec::new();
                space.read(node, opened.handle, 0, 1 << 20, &mut data).unwrap();
                space.release(node, opened.handle);
                assert!(data == self.files[&file].data, "the bytes of file {file}");
            });
        }
        (0..DIRECTORIES).for_each(|directory| self.list(directory));
    }

    pub fn all(&mut self, ops: &[Op]) {
        for op in ops {
            self.step(op);
        }
        self.compare();
        self.reopen();
    }
}
