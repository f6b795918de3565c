//! CREATE, TMPFILE, MKNOD, MKDIR, SYMLINK.

use crate::acl::{ACCESS, Acl, DEFAULT};
use crate::headroom::SMALL;
use crate::hurry;
use crate::node::Node;
use crate::open_file::{Measure, OpenBacking, OpenFile};
use crate::pools::place_of;
use crate::pools::prepared::Ahead;
use crate::space::FOREVER;
use crate::{Caller, Entry, Errno, Opened, Outcome, Space};
use std::cell::Cell;
use std::sync::Arc;
use ullage_catalog::{Error, Inode, New};
use ullage_pool::{Fresh, Hint};
use ullage_types::{Class, Kind, NodeId, PoolId};

const SETGID: u32 = 0o2000;

/// A backing file that was asked for ahead; given back if nobody takes it.
struct Fetched<'a> {
    space: &'a Space,
    file: Cell<Option<(PoolId, Fresh)>>,
}

impl Drop for Fetched<'_> {
    fn drop(&mut self) {
        if let Some((pool, fresh)) = self.file.take()
            && let Ok(pool) = self.space.pools.get(pool)
        {
            pool.abandon(fresh);
        }
    }
}

/// What a new file inherits from its directory.
pub(super) struct Inherited {
    pub mode: u32,
    pub gid: u32,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Space {
    /// Mode, group and ACLs of a file made in `parent`: as on ext4, group and setgid come from a setgid
    /// directory, and a default ACL stands in the place of the umask.
    pub(super) fn inherit(
        &self,
        parent: &Arc<Inode>,
        caller: Caller,
        kind: Kind,
        mode: u32,
        umask: u32,
    ) -> Outcome<Inherited> {
        let (parent_mode, parent_gid, has_xattrs) = {
            let state = parent.lock();
            (state.record.mode, state.record.gid, state.record.xattrs > 0)
        };
        let mut mode = mode & 0o7777;
        let setgid = parent_mode & SETGID != 0;
        let gid = if setgid { parent_gid } else { caller.gid };
        let mut xattrs = Vec::new();
        let default = if has_xattrs && kind != Kind::Symlink {
            match self.catalog.xattr(parent, DEFAULT) {
                Ok(bytes) => Some((Acl::decode(&bytes)?, bytes)),
                Err(Error::NoAttribute) => None,
                Err(error) => return Err(error.into()),
            }
        } else {
            None
        };
        if let Some((default, bytes)) = default {
            let (access, inherited) = default.inherited(mode);
            mode = inherited;
            if !access.is_mode() {
                xattrs.push((ACCESS.to_vec(), access.encode()));
            }
            if kind == Kind::Directory {
                xattrs.push((DEFAULT.to_vec(), bytes));
            }
        } else if kind != Kind::Symlink {
            mode &= !umask;
        }
        if setgid && kind == Kind::Directory {
            mode |= SETGID;
        }
        Ok(Inherited { mode, gid, xattrs })
    }

    fn fresh(&self, parent: &Inode, caller: Caller) -> Outcome<(PoolId, Fresh)> {
        let hint = Hint { parent: parent.id, pid: caller.pid };
        let create = || {
            if self.lender.is_tried_by(caller) { self.pools.create_in_kernel(hint) } else { self.pools.create(hint) }
        };
        self.with_files(create, crate::ending::settle::is_full)?.ok_or(Errno::LATER)
    }

    /// A new file that has no data of its own.
    #[allow(clippy::too_many_arguments)]
    fn make_plain(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        kind: Kind,
        mode: u32,
        umask: u32,
        rdev: u32,
        target: &[u8],
    ) -> Outcome<Entry> {
        let parent = self.inode(parent)?;
        let inherited = self.inherit(&parent, caller, kind, mode, umask)?;
        let (id, _) = self.catalog.numbers().pair();
        let new = New {
            id,
            kind,
            class: Class::Persistent,
            mode: inherited.mode,
            uid: caller.uid,
            gid: inherited.gid,
            rdev,
            target: target.into(),
            backing: None,
            xattrs: inherited.xattrs,
            brought: None,
        };
        let made = self.asked(SMALL, || self.catalog.create(&parent, name, new.clone(), crate::now()))?;
        self.changed(&parent);
        self.trees.name(parent.id, name);
        self.entry(made)
    }

    pub(crate) fn do_mkdir(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        mode: u32,
        umask: u32,
    ) -> Outcome<Entry> {
        self.make_plain(caller, parent, name, Kind::Directory, mode, umask, 0, b"")
    }

    pub(crate) fn do_symlink(&self, caller: Caller, parent: NodeId, name: &[u8], target: &[u8]) -> Outcome<Entry> {
        if target.is_empty() {
            return Err(Errno::ENOENT);
        }
        if target.len() > 4095 {
            return Err(Errno::ENAMETOOLONG);
        }
        self.make_plain(caller, parent, name, Kind::Symlink, 0o777, 0, 0, target)
    }

    pub(crate) fn do_mknod(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        mode: u32,
        umask: u32,
        rdev: u32,
    ) -> Outcome<Entry> {
        match Kind::from_mode(mode).ok_or(Errno::EINVAL)? {
            Kind::Regular => {
                let parent = self.inode(parent)?;
                let ahead = self.fetched(&parent, caller)?;
                let (inode, pool, fresh) = self.make_regular(caller, &parent, Some(name), mode, umask, &ahead)?;
                self.changed(&parent);
                self.trees.name(parent.id, name);
                let entry = self.entry(inode)?;
                let node = self.nodes.get(entry.node)?;
                let mut open = node.open.lock();
                let backed = self.back_new(&node, &mut open, pool, fresh);
                self.settler.push(&node, &mut open);
                drop(open);
                if backed.is_err() {
                    self.forget_node(entry.node, 1);
                }
                backed.map(|()| entry)
            }
            kind @ (Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice) => {
                let rdev = if matches!(kind, Kind::CharDevice | Kind::BlockDevice) { rdev } else { 0 };
                self.make_plain(caller, parent, name, kind, mode, umask, rdev, b"")
            }
            Kind::Directory | Kind::Symlink => Err(Errno::EINVAL),
        }
    }

    /// What a new file is to be.
    fn new_regular(
        &self,
        parent: &Arc<Inode>,
        caller: Caller,
        mode: u32,
        umask: u32,
        ahead: &Fetched<'_>,
    ) -> Outcome<(PoolId, Fresh, New)> {
        let inherited = self.inherit(parent, caller, Kind::Regular, mode, umask)?;
        let (pool, fresh) = ahead.file.take().map_or_else(|| self.fresh(parent, caller), Ok)?;
        let new = New {
            id: fresh.binding.file,
            kind: Kind::Regular,
            class: Class::Persistent,
            mode: inherited.mode,
            uid: caller.uid,
            gid: inherited.gid,
            rdev: 0,
            target: Box::default(),
            backing: Some(place_of(pool, &fresh.binding)),
            xattrs: inherited.xattrs,
            brought: None,
        };
        Ok((pool, fresh, new))
    }

    /// A file with a backing file, with a name or without.
    fn make_regular(
        &self,
        caller: Caller,
        parent: &Arc<Inode>,
        name: Option<&[u8]>,
        mode: u32,
        umask: u32,
        ahead: &Fetched<'_>,
    ) -> Outcome<(Arc<Inode>, PoolId, Fresh)> {
        // Once more, where room is lacking, while nobody else may write.
        self.asked(SMALL, || {
            let (pool, fresh, new) = self.new_regular(parent, caller, mode, umask, ahead)?;
            let made = match name {
                Some(name) => self.catalog.create(parent, name, new, crate::now()),
                None => self.catalog.create_unnamed(parent, new, crate::now()),
            };
            match made {
                Ok(inode) => Ok((inode, pool, fresh)),
                Err(error) => Err(self.give_back(pool, fresh, error)),
            }
        })
    }

    /// The backing file of a new file, also where inodes of removed ones are on their way. Asked for before modes: who waits for those may not
    /// wait for a disk.
    fn fetched(&self, parent: &Inode, caller: Caller) -> Outcome<Fetched<'_>> {
        let file = match self.with_inode(|| self.fresh(parent, caller)) {
            Err(Errno::LATER) => return Err(Errno::LATER),
            // Of another failure is told who makes the file.
            fetched => fetched.ok(),
        };
        Ok(Fetched { space: self, file: Cell::new(file) })
    }

    fn give_back(&self, pool: PoolId, fresh: Fresh, error: Error) -> Errno {
        if let Ok(pool) = self.pools.get(pool) {
            pool.abandon(fresh);
        }
        error.into()
    }

    pub(crate) fn do_create(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        mode: u32,
        umask: u32,
        flags: u32,
    ) -> Outcome<(Entry, Opened)> {
        let parent = self.inode(parent)?;
        Self::may_sync_names(flags)?;
        self.await_removed()?;
        let ahead = self.fetched(&parent, caller)?;
        let _modes = hurry::shared(&self.headroom.modes)?;
        let (inode, pool, fresh) = self.make_regular(caller, &parent, Some(name), mode, umask, &ahead)?;
        self.changed(&parent);
        self.trees.name(parent.id, name);
        self.sync_names(flags)?;
        self.open_new(caller, inode, pool, fresh, flags)
    }

    pub(crate) fn do_tmpfile(
        &self,
        caller: Caller,
        parent: NodeId,
        mode: u32,
        umask: u32,
        flags: u32,
    ) -> Outcome<(Entry, Opened)> {
        let parent = self.inode(parent)?;
        // Before it is made: it has no name yet, and what could not be opened nobody would remove.
        self.sync_names(flags)?;
        self.await_removed()?;
        let ahead = self.fetched(&parent, caller)?;
        let _modes = hurry::shared(&self.headroom.modes)?;
        let made = self.make_regular(caller, &parent, None, mode, umask, &ahead);
        // A directory that is removed: the kernel asks before any name is made there, but not before this. As ext4 says it.
        let (inode, pool, fresh) = made.map_err(|error| if error == Errno::ENOENT { Errno::EPERM } else { error })?;
        self.open_new(caller, inode, pool, fresh, flags)
    }

    /// Opens what was just made. With the lock on modes held since before that.
    fn open_new(
        &self,
        caller: Caller,
        inode: Arc<Inode>,
        pool: PoolId,
        fresh: Fresh,
        flags: u32,
    ) -> Outcome<(Entry, Opened)> {
        let node = self.nodes.enter(inode);
        let open = || {
            let bounded = self.is_bounded(&node.inode)?;
            let mut open = node.open.lock();
            self.back_new(&node, &mut open, pool, fresh)?;
            Ok(self.opened(caller, &node, &mut open, flags as i32, bounded))
        };
        let opened = match open() {
            Ok(opened) => opened,
            Err(error) => {
                // The kernel is not told of it.
                self.forget_node(node.id, 1);
                return Err(error);
            }
        };
        // Nobody can have written to it yet, and what the kernel writes makes it ask again.
        let attributes = crate::attributes::forever(node.inode.id, &node.inode.lock().record);
        Ok((Entry { node: node.id, attributes, lifetime: FOREVER }, opened))
    }

    /// Gives an open file that was just made its backing file. Whoever guessed its number may have done that already; then what is known
    /// of that one stays: its registration, and what was lent to it.
    fn back_new(&self, node: &Arc<Node>, open: &mut OpenFile, pool: PoolId, fresh: Fresh) -> Outcome<()> {
        if open.backing.is_some() {
            return self.back(node, open, true);
        }
        let mut fresh = backing(pool, fresh)?;
        fresh.discards = self.pools.get(pool)?.discards();
        open.backing = Some(Box::new(fresh));
        Ok(())
    }
}

fn backing(pool: PoolId, fresh: Fresh) -> Outcome<OpenBacking> {
    let mut ahead = fresh.prepared.and_then(|prepared| prepared.downcast::<Ahead>().ok());
    let baseline = match &ahead {
        Some(ahead) => ahead.measure,
        None => Measure::of(&fresh.file)?,
    };
    let registered = ahead.as_mut().and_then(|ahead| ahead.take_registration());
    Ok(OpenBacking { registered, ..OpenBacking::new(pool, fresh.binding, fresh.file, baseline, true) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headroom::lend::tests::lending;

    const CALLER: Caller = Caller { uid: 0, gid: 0, pid: 1 };

    /// A file that was made, and is not open yet.
    fn made(space: &Space) -> (Arc<Inode>, PoolId, Fresh) {
        let parent = space.inode(NodeId(1)).unwrap();
        let ahead = space.fetched(&parent, CALLER).unwrap();
        space.make_regular(CALLER, &parent, Some(b"new"), 0o600, 0, &ahead).unwrap()
    }

    /// What was known of the backing file was forgotten: its registration was never ended, and room that was lent was not known of.
    #[test]
    fn who_guesses_the_number_of_a_file_and_opens_it_first_keeps_its_backing_file() {
        let dir = tempfile::tempdir().unwrap();
        let (space, _) = lending(dir.path());
        let (inode, pool, fresh) = made(&space);
        let guessed = space.nodes.enter(inode.clone());
        let earlier = space.do_open(CALLER, guessed.id, libc::O_RDONLY as u32).unwrap();
        let file = |node: &Node| node.open.lock().backing.as_deref().map(|backing| (backing.writable, backing.unseen));
        guessed.open.lock().backing.as_deref_mut().unwrap().unseen = true;
        let (entry, opened) = space.open_new(CALLER, inode, pool, fresh, libc::O_WRONLY as u32).unwrap();
        assert_eq!(entry.node, guessed.id);
        assert_eq!(file(&guessed), Some((true, true)));
        for handle in [earlier.handle, opened.handle] {
            space.do_release(guessed.id, handle).unwrap();
        }
    }

    /// It was held for the kernel, which did not know of it, and stayed when its name was removed.
    #[test]
    fn a_file_that_could_be_made_and_not_opened_is_not_held_for_anybody() {
        let dir = tempfile::tempdir().unwrap();
        let (space, _) = lending(dir.path());
        let (inode, pool, fresh) = made(&space);
        let above = std::mem::replace(&mut inode.lock().record.parent, ullage_types::FileId(u64::MAX));
        assert!(space.open_new(CALLER, inode.clone(), pool, fresh, libc::O_WRONLY as u32).is_err());
        inode.lock().record.parent = above;
        assert!(space.nodes.find(inode.id).is_none_or(|node| !node.is_known()));
        space.do_unlink(NodeId(1), b"new").unwrap();
        assert!(inode.lock().is_removed());
    }
}
