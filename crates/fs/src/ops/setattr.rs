//! SETATTR. The kernel has checked who may (`default_permissions`).

use crate::acl::{ACCESS, Acl};
use crate::headroom::ANY;
use crate::hurry;
use crate::node::Node;
use crate::open_file::{Measure, OpenBacking, OpenFile, set_times};
use crate::pools::PoolMember;
use crate::pools::answering::Call;
use crate::{AttributesFor, Caller, Errno, Outcome, SetAttributes, SetTime, Space, privileges};
use std::ops::RangeInclusive;
use std::sync::Arc;
use ullage_catalog::{Error, Inode, Record, XattrMode};
use ullage_pool::{Access, Binding, Locator};
use ullage_types::{Kind, NodeId, Timestamp};

impl Space {
    pub(crate) fn do_setattr(&self, caller: Caller, node: NodeId, change: SetAttributes) -> Outcome<AttributesFor> {
        let node = self.node(node)?;
        self.will_be_shown_at_once(&node)?;
        node.inode.note_shown_alone();
        let answer =
            if self.is_refresh(caller) { self.refreshed(&node) } else { self.set_attributes(caller, &node, change) };
        if answer.as_ref().is_err_and(|error| *error != Errno::LATER) {
            self.asks_without_mark(&node)?;
            self.closes_unused(&node);
        }
        let mut answer = answer?;
        self.mark(&node, &mut answer);
        Ok(answer)
    }

    fn set_attributes(&self, caller: Caller, node: &Arc<Node>, change: SetAttributes) -> Outcome<AttributesFor> {
        let inode = &node.inode;
        if change
            == (SetAttributes { handle: change.handle, kill_privileges: change.kill_privileges, ..Default::default() })
        {
            if !change.kill_privileges && !Self::may_void(caller, node) {
                return Err(Errno::EPERM);
            }
            if !change.kill_privileges && privileges::leaves_set_id(caller) {
                self.drop_capability(inode)?;
            } else {
                self.kill_privileges(inode, caller)?;
            }
            self.catalog.update(inode, |record| {
                record.ctime = ullage_catalog::after(record.ctime, crate::now());
                Ok(())
            })?;
            return self.attributes_now(node);
        }
        if let Some(size) = change.size {
            if inode.kind != Kind::Regular {
                return Err(if inode.kind == Kind::Directory { Errno::EISDIR } else { Errno::EINVAL });
            }
            self.answers_at_once(inode, Call::Writes)?;
            let _flow = Self::grows(node, size)?.then(|| self.flow_without_gap(node, size, 0)).transpose()?;
            if node.open.lock().grant.counts_on_blocks() {
                // What is never written may be being filled.
                hurry::may_wait()?;
            }
            let mut open = Self::lock_to_cut(node);
            self.back(node, &mut open, true)?;
            if open.backing.as_deref().is_some_and(|backing| takes_long(backing, size)) {
                hurry::may_wait()?;
            }
            let kill = change.kill_privileges.then_some(caller);
            let outcome = self.truncate_locked(node, &mut open, size, kill);
            if open.handles == 0 {
                self.settler.push(node, &mut open);
            }
            outcome?;
            drop(open);
            if (SetAttributes { size: None, handle: None, kill_privileges: false, ..change })
                == SetAttributes::default()
            {
                // Length and times are of one change, and have one time.
                return self.attributes_now(node);
            }
        }
        let owner = change.uid.is_some() || change.gid.is_some();
        let voids = owner && privileges::are_voided_by_owner(&inode.record(), caller);
        if voids {
            self.drop_capability(inode)?;
        }
        let now = crate::now();
        if change.atime.is_some() || change.mtime.is_some() {
            // What is measured from here on is compared with what the backing file says now.
            let mut open = node.open.lock();
            let sets_now = open.backing.is_some() && !Self::may_be_behind(&open);
            if self.trees.any() || sets_now || open.grant.is_loose() {
                self.answers_at_once(inode, Call::Writes)?;
            }
            self.record_measure(node, &mut open)?;
        }
        if change.uid.is_some() && self.catalog.has_limits() {
            // Who works on the file may stand still with its disk, and its pool may not answer: that is waited for before anybody waits for modes.
            self.attributes_now(node)?;
        }
        let comes_under =
            || change.uid.is_some_and(|uid| inode.record().uid != uid && self.catalog.is_user_bounded(uid));
        if let Some(uid) = change.uid.filter(|_| inode.kind == Kind::Regular && comes_under()) {
            let parent = self.catalog.get(inode.record().parent).ok();
            self.before_bringing(inode, parent.and_then(|parent| self.catalog.room(Some(uid), &parent).0))?;
        }
        let taking = if comes_under() { self.before_taking(inode.record().charge().bytes.0)? } else { None };
        let limits = change.uid.map(|_| self.keep_limits()).transpose()?;
        let comes_under = comes_under();
        // Not lent again before it is charged to who owns it from here on.
        let gathering =
            if change.uid.is_some() && inode.kind == Kind::Regular { Some(self.ask_back_here(node)?) } else { None };
        if comes_under {
            // All that was written is the new owner's. The kernel lets nobody write meanwhile.
            self.record_measure(node, &mut node.open.lock())?;
        }
        let range = self.times_kept(inode);
        let change_record = |record: &mut Record| {
            if let Some(mode) = change.mode {
                record.mode = mode & 0o7777;
            }
            if voids && change.mode.is_none() {
                privileges::clear(record, caller);
            }
            if let Some(uid) = change.uid {
                record.uid = uid;
            }
            if let Some(gid) = change.gid {
                record.gid = gid;
            }
            // One change has one time, also where that is a little ahead of the clock.
            let now = ullage_catalog::after(record.ctime, now);
            if let Some(time) = change.atime {
                record.atime = at(time, now, &range);
                record.times_ahead = record.kind == Kind::Regular;
            }
            if let Some(time) = change.mtime {
                record.mtime = at(time, now, &range);
                record.times_ahead = record.kind == Kind::Regular;
            }
            record.ctime = change.ctime.unwrap_or(now);
        };
        let acl = change.mode.map_or(Ok(None), |mode| self.acl_with(inode, mode))?;
        self.asked(ANY, || match &acl {
            Some(acl) => self.catalog.set_xattr(inode, ACCESS, acl, XattrMode::Any, now, change_record),
            None => self.catalog.update(inode, |record| {
                change_record(record);
                Ok(())
            }),
        })?;
        if comes_under && inode.kind == Kind::Regular && self.is_unseen(node) {
            self.brake(node);
        }
        // Its pool is asked once more what it looks like, and may not answer.
        drop((gathering, limits, taking));
        if change.atime.is_some() || change.mtime.is_some() {
            self.times_below(node, change.mtime.is_some())?;
        }
        self.show_in_trees(node, &change)?;
        self.attributes_now(node)
    }

    /// The seconds that the file system below keeps as a file's times.
    fn times_kept(&self, inode: &Inode) -> RangeInclusive<i64> {
        let place = inode.record().backing;
        let pool = place.and_then(|place| self.pools.get(place.pool).ok());
        pool.map_or(i64::MIN..=i64::MAX, |pool| pool.times())
    }

    /// Times that were set are the backing file's, too, before the next read there: at once where somebody can read, or sees its other
    /// names, else when the file is opened next.
    fn times_below(&self, node: &Node, with_mtime: bool) -> Outcome<()> {
        let mut open = node.open.lock();
        let (behind, written) = (Self::may_be_behind(&open) && !self.trees.any(), open.writers > 0);
        let Some(backing) = open.backing.as_deref_mut().filter(|backing| !backing.discards) else { return Ok(()) };
        if behind {
            backing.times_behind = true;
            return Ok(());
        }
        let with_mtime = with_mtime || backing.times_behind && !written;
        let pool = backing.pool;
        self.pools.call(pool, Call::Writes, || backing.follow_times(&node.inode.record(), with_mtime, written))
    }

    /// Whether nobody sees the times of the backing file until it is opened next.
    fn may_be_behind(open: &OpenFile) -> bool {
        open.handles == open.writers && open.backing.as_deref().is_some_and(|backing| !backing.mappable)
    }

    /// Times of data are set on the backing file, beside whose other names they can be seen. One that is open has them by now.
    fn show_in_trees(&self, node: &Node, change: &SetAttributes) -> Outcome<()> {
        if !self.trees.any() {
            return Ok(());
        }
        if node.inode.kind == Kind::Regular && (change.atime.is_some() || change.mtime.is_some()) {
            let open = node.open.lock();
            let record = node.inode.record();
            if let (None, Some(place)) = (&open.backing, record.backing) {
                let member = self.pools.member(place.pool).filter(|member| member.tree.is_some());
                if let Some(PoolMember { pool, .. }) = member {
                    let generation = place.generation;
                    let binding = Binding { file: node.inode.id, generation, locator: Locator(place.locator) };
                    let file = pool.open(&binding, Access::Read)?;
                    set_times(&file, Some(record.atime), Some(record.mtime))?;
                }
            }
        }
        self.trees.attributes(node.inode.id);
        Ok(())
    }

    /// The access ACL of a file as it follows the permission bits, where there is one.
    fn acl_with(&self, inode: &Arc<Inode>, mode: u32) -> Outcome<Option<Vec<u8>>> {
        let bytes = match self.catalog.xattr(inode, ACCESS) {
            Ok(bytes) => bytes,
            Err(Error::NoAttribute) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut acl = Acl::decode(&bytes)?;
        acl.chmod(mode);
        Ok(Some(acl.encode()))
    }
}

/// Whether others may not be kept waiting for a file being cut to this length.
fn takes_long(backing: &OpenBacking, size: u64) -> bool {
    const LITTLE: u64 = 1 << 20;
    !backing.discards && Measure::of(&backing.file).is_ok_and(|now| (now.blocks * 512).saturating_sub(size) > LITTLE)
}

/// A time as the pool keeps it, where not even fractions lie beyond the first and the last second.
fn at(time: SetTime, now: Timestamp, range: &RangeInclusive<i64>) -> Timestamp {
    let SetTime::At(time) = time else { return now };
    let seconds = time.seconds.clamp(*range.start(), *range.end());
    let ends = [*range.start(), *range.end()].contains(&seconds);
    Timestamp { seconds, nanoseconds: if ends { 0 } else { time.nanoseconds } }
}
