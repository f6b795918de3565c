//! RENAME2.

use crate::headroom::ANY;
use crate::headroom::moves::Limits;
use crate::node::Node;
use crate::{Caller, Errno, Outcome, Space};
use std::sync::Arc;
use ullage_catalog::{Inode, New};
use ullage_types::{Class, Kind, NodeId};

/// Whether a file may move from one directory to another.
type Look<'a> = dyn FnMut(&Arc<Inode>, &Arc<Inode>, &Arc<Inode>) -> Outcome<()> + 'a;

impl Space {
    pub(crate) fn do_rename(
        &self,
        caller: Caller,
        (from, name): (NodeId, &[u8]),
        (to, to_name): (NodeId, &[u8]),
        flags: u32,
    ) -> Outcome<()> {
        let from = self.inode(from)?;
        let to = self.inode(to)?;
        let now = crate::now();
        let each_moved =
            |look: &mut Look<'_>| self.each_moved((&from, name), (&to, to_name), flags == libc::RENAME_EXCHANGE, look);
        let mut taking = Vec::new();
        each_moved(&mut |file, from, to| {
            self.await_unseen(file, from, to)?;
            if self.catalog.differ_in_limits(from, to) {
                taking.push(self.before_taking_all(file)?);
                self.before_bringing(file, self.catalog.room(None, to).0)?;
            }
            Ok(())
        })?;
        let limits = self.keep_limits()?;
        if matches!(limits, Limits::Some(_)) {
            each_moved(&mut |file, from, to| self.may_move(file, from, to))?;
        }
        if flags & (libc::RENAME_EXCHANGE | libc::RENAME_NOREPLACE) == 0 {
            self.will_replace((&from, name), (&to, to_name))?;
        }
        let exchange = flags == libc::RENAME_EXCHANGE;
        let directories =
            self.trees.any() && (self.is_directory(&from, name)? || exchange && self.is_directory(&to, to_name)?);
        let mut held = if directories { self.trees.hold()? } else { None };
        let renamed = match flags {
            0 => self.asked(ANY, || self.catalog.rename((&from, name), (&to, to_name), false, now))?,
            libc::RENAME_NOREPLACE => {
                self.asked(ANY, || self.catalog.rename((&from, name), (&to, to_name), true, now))?
            }
            libc::RENAME_EXCHANGE => self.asked(ANY, || self.catalog.exchange((&from, name), (&to, to_name), now))?,
            _ if flags & !libc::RENAME_NOREPLACE == libc::RENAME_WHITEOUT => {
                let keep = flags & libc::RENAME_NOREPLACE != 0;
                let left = self.whiteout(&from, caller)?;
                self.asked(ANY, || self.catalog.rename_leaving((&from, name), (&to, to_name), keep, Some(&left), now))?
            }
            _ => return Err(Errno::EINVAL),
        };
        if let Some(held) = &mut held {
            held.moves(&renamed.moved, from.id, name);
            if let Some(exchanged) = &renamed.exchanged {
                held.moves(exchanged, to.id, to_name);
            }
        }
        self.changed(&from);
        self.changed(&to);
        for moved in [Some(&renamed.moved), renamed.exchanged.as_ref()].into_iter().flatten() {
            match moved.is_directory() {
                // What is listed anew is looked at anew, too.
                true if from.id != to.id => self.list_anew(moved),
                true => self.show_anew(moved),
                false => self.changed(moved),
            }
        }
        self.trees.name(from.id, name);
        self.trees.name(to.id, to_name);
        drop(held);
        if let Some(replaced) = renamed.replaced {
            self.after_unlink(replaced);
        }
        Ok(())
    }

    /// The kernel keeps what a directory was listed with, and sees no change in one that went elsewhere: `..` would stay as it was. It waits
    /// for nobody here: whoever lists the directory has its lock, which the rename has by now (since Linux 6.5). The first page is enough, as whoever looks for his
    /// place comes by it; without the last one the kernel could not go on with what it has begun to keep, and would keep nothing any more.
    fn list_anew(&self, moved: &Inode) {
        if self.nodes.find(moved.id).is_some() {
            self.drop_listing(moved);
        }
    }

    fn is_directory(&self, parent: &Inode, name: &[u8]) -> Outcome<bool> {
        Ok(self.catalog.lookup(parent, name)?.is_some_and(|file| file.is_directory()))
    }

    /// Where a regular file takes the name of another, it is queued before that can be durable: to have its data on disk first.
    fn will_replace(&self, (from, name): (&Inode, &[u8]), (to, to_name): (&Inode, &[u8])) -> Outcome<()> {
        let regular = |directory, name| -> Outcome<_> {
            Ok(self.catalog.lookup(directory, name)?.filter(|file| file.kind == Kind::Regular))
        };
        let Some(_) = regular(to, to_name)? else { return Ok(()) };
        let Some(moved) = regular(from, name)? else { return Ok(()) };
        // Whoever works on it is not waited for, nor is its pool.
        let is_synced =
            |node: Arc<Node>| node.open.try_lock().is_some_and(|open| self.is_shown_at_once(&open) && open.is_synced());
        if !self.nodes.find(moved.id).is_some_and(is_synced) {
            self.replaced.push(moved);
        }
        Ok(())
    }

    /// What the upper layer of an overlay leaves in the place of a name that moved: a device that no driver has.
    fn whiteout(&self, directory: &Arc<Inode>, caller: Caller) -> Outcome<New> {
        let inherited = self.inherit(directory, caller, Kind::CharDevice, 0, 0)?;
        Ok(New {
            id: self.catalog.numbers().pair().0,
            kind: Kind::CharDevice,
            class: Class::Persistent,
            mode: inherited.mode,
            uid: caller.uid,
            gid: inherited.gid,
            rdev: 0,
            target: Box::default(),
            backing: None,
            xattrs: inherited.xattrs,
            brought: None,
        })
    }

    /// Looks at what moves from one directory to another.
    fn each_moved(
        &self,
        (from, name): (&Arc<Inode>, &[u8]),
        (to, to_name): (&Arc<Inode>, &[u8]),
        exchange: bool,
        look: &mut Look<'_>,
    ) -> Outcome<()> {
        if from.id == to.id || !self.catalog.has_limits() {
            return Ok(());
        }
        if let Some(file) = self.catalog.lookup(from, name)? {
            look(&file, from, to)?;
        }
        if exchange && let Some(file) = self.catalog.lookup(to, to_name)? {
            look(&file, to, from)?;
        }
        Ok(())
    }
}
