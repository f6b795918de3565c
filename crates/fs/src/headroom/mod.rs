//! Headroom: what a write may take is held in the ledger before it is made, so that no limit is ever passed; what it did
//! not take is given back when the file is measured (DESIGN, "Exact limits on a data path we don't see").
//!
//! Files that a limit bounds are opened so that every write comes here. Each holds some room in advance, so that a write
//! costs no more than two additions while there is plenty. Who finds no room waits until no write is under way, takes
//! back all that is held in advance, and counts the holes it would fill.

pub(crate) mod above;
pub(crate) mod alone;
pub(crate) mod asking;
pub(crate) mod brake;
pub(crate) mod bring;
pub(crate) mod fence;
pub(crate) mod given;
pub(crate) mod grant;
pub(crate) mod holes;
pub(crate) mod late;
pub(crate) mod lend;
pub(crate) mod limit;
pub(crate) mod loads;
pub(crate) mod mark;
pub(crate) mod moves;
pub(crate) mod one_block;
pub(crate) mod owing;
pub(crate) mod patience;
pub(crate) mod placing;
pub(crate) mod refresh;
pub(crate) mod removed;
pub(crate) mod solid;
pub(crate) mod splits;
pub(crate) mod taking;
pub(crate) mod untold;
pub(crate) mod waiting;
pub(crate) mod writes;

use self::above::Above;
use self::grant::Keep;
use crate::aside::Aside;
use crate::node::Node;
use crate::open_file::OpenFile;
use crate::{Errno, Outcome, Space};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use ullage_catalog::Inode;
use ullage_policy::headroom::{Counting, IN_INODE};
use ullage_types::{FileId, Kind, PoolId};

pub(crate) use self::alone::{ANY, SMALL};
pub(crate) use self::writes::{Range, Work};

/// State of the headroom of a space.
#[derive(Default)]
pub(crate) struct Headroom {
    /// Held shared while a file is opened in the mode that suits its limits, exclusively while limits, or the place of open
    /// files under them, change.
    pub modes: RwLock<()>,
    /// Held shared by every write, exclusively by who found no room.
    pub flow: RwLock<()>,
    /// Files that hold something.
    holders: Mutex<FxHashMap<FileId, Arc<Node>>>,
    /// What is taken of pools that have a reserve.
    pub above: Above,
    /// Who writes files out for somebody who found no room.
    pub aside: Arc<Aside>,
}

/// When a pool's file system finds blocks for what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocks {
    /// With the write; it counts no others.
    AtOnce,
    /// Later, and counts those of the map of extents too: they are asked for before the file is measured, so that what is
    /// measured is all (ext4).
    Later,
    /// Later, and more of them than were asked for, unless they are asked for before the write, or the file takes one at a time
    /// (`one_block.rs`; xfs).
    Ahead,
    /// Nobody knows: they are asked for before the write.
    Unknown,
}

impl Blocks {
    /// Whether the file system has one journal for all files, as those that give blocks later do.
    pub(crate) fn has_journal(self) -> bool {
        matches!(self, Self::Later | Self::Ahead)
    }

    pub(crate) fn of(fs_type: Option<&str>) -> Self {
        match fs_type {
            Some("tmpfs" | "btrfs") => Self::AtOnce,
            Some("ext4") => Self::Later,
            Some("xfs") => Self::Ahead,
            _ => Self::Unknown,
        }
    }

    /// What it counts for a file with blocks and units of this size, where files have extents or may not.
    pub(crate) fn counting(self, block: u64, unit: u64, extents: bool) -> Counting {
        let in_inode = if extents { IN_INODE } else { 0 };
        Counting { block, unit: unit.max(block), map: self != Self::AtOnce, in_inode }
    }
}

impl Space {
    /// Whether some limit may bound files of a pool.
    pub(crate) fn may_bound(&self, pool: PoolId) -> bool {
        self.catalog.has_limits() || self.pools.reserve(pool) > 0
    }

    /// Whether some limit bounds a file: every write to it must come to the server.
    pub(crate) fn is_bounded(&self, inode: &Inode) -> Outcome<bool> {
        let (uid, parent, pool) = {
            let state = inode.lock();
            let pool = state.record.backing.as_ref().map(|place| place.pool);
            (state.record.uid, state.record.parent, pool)
        };
        if pool.is_some_and(|pool| self.pools.reserve(pool) > 0) {
            return Ok(true);
        }
        Ok(self.catalog.has_limits() && self.catalog.is_bounded(uid, &self.catalog.get(parent)?))
    }

    /// Holds `more` for a file that was just measured, or at least `need`, which is set aside.
    pub(crate) fn take_more(
        &self,
        node: &Arc<Node>,
        open: &mut OpenFile,
        pool: PoolId,
        need: u64,
        more: u64,
    ) -> Outcome<()> {
        let held = match self.hold(&node.inode, pool, more) {
            Err(Errno::EDQUOT | Errno::ENOSPC) if more > need => self.hold(&node.inode, pool, need).map(|()| need),
            outcome => outcome.map(|()| more),
        }?;
        open.grant.add(held);
        if held > 0 {
            self.headroom.holders.lock().insert(node.inode.id, node.clone());
        }
        self.move_fence(open);
        assert!(open.grant.spend(need), "what was just held for a write is there");
        Ok(())
    }

    /// Holds this for a file until nobody can have it mapped any more.
    pub(crate) fn keep(&self, node: &Arc<Node>, pool: PoolId, keep: Keep) -> Outcome<()> {
        self.hold(&node.inode, pool, keep.bytes)?;
        node.open.lock().grant.keep(keep);
        if keep.bytes > 0 {
            self.headroom.holders.lock().insert(node.inode.id, node.clone());
        }
        Ok(())
    }

    /// Holds so much for a file, whose grant the caller has.
    pub(crate) fn hold_for(&self, node: &Arc<Node>, pool: PoolId, bytes: u64) -> Outcome<()> {
        self.hold(&node.inode, pool, bytes)?;
        self.headroom.holders.lock().insert(node.inode.id, node.clone());
        Ok(())
    }

    fn hold(&self, inode: &Arc<Inode>, pool: PoolId, bytes: u64) -> Outcome<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.hold_in_pool(pool, bytes)?;
        self.catalog.hold(inode, bytes).map_err(|error| {
            self.let_go_in_pool(pool, bytes, 0);
            error.into()
        })
    }

    /// A file was measured to have grown by so much, and what it held beyond writes under way was let go of in the ledger, but
    /// for what writes that are over may take later where it `keeps` that.
    pub(crate) fn measured(&self, file: FileId, open: &mut OpenFile, grown: u64, released: u64, keeps: bool) {
        if let Some(backing) = &open.backing {
            // What is written again takes other blocks, and those of before are free later.
            let written = grown.max(open.grant.shows(keeps));
            self.let_go_in_pool(backing.pool, released, written);
        }
        if let Some(grant) = open.grant.changed() {
            grant.measured(released, keeps);
        }
        if open.grant.held == 0 && released > 0 {
            self.headroom.holders.lock().remove(&file);
        }
    }

    /// Bytes that a file may still grow by; none without a limit.
    pub(crate) fn room_of(&self, inode: &Arc<Inode>, pool: PoolId) -> Outcome<Option<u64>> {
        let limits = self.room_in_limits(inode)?;
        let above = self.room_in_pool(pool)?;
        Ok(limits.into_iter().chain(above).min())
    }

    /// The same, whatever its pool has.
    pub(crate) fn room_in_limits(&self, inode: &Inode) -> Outcome<Option<u64>> {
        if !self.catalog.has_limits() {
            return Ok(None);
        }
        let (uid, directory) = self.bounded_by(inode)?;
        Ok(self.catalog.room(Some(uid), &directory).0)
    }

    /// The user and the directory whose limits bound a file.
    pub(crate) fn bounded_by(&self, inode: &Inode) -> Outcome<(u32, Arc<Inode>)> {
        let (uid, parent) = {
            let state = inode.lock();
            (state.record.uid, state.record.parent)
        };
        Ok((uid, self.catalog.get(parent)?))
    }

    /// Whether something may write to a file without being seen here: it was opened before a limit bounded it.
    pub(crate) fn is_unseen(&self, node: &Arc<Node>) -> bool {
        self.may_be_written_unseen(&mut node.open.lock())
    }

    /// The same for who has locked it.
    pub(crate) fn may_be_written_unseen(&self, open: &mut OpenFile) -> bool {
        let (handles, writers) = (open.handles, open.writers);
        if !open.backing.as_deref().is_some_and(|backing| backing.unseen) {
            return false;
        }
        // Without handles, a mapping may be left.
        writers > 0 || handles > 0 || !self.is_settled(open)
    }

    pub(crate) fn lies_below(&self, node: &Arc<Node>, directory: &Arc<Inode>) -> bool {
        if node.inode.kind != Kind::Regular {
            return false;
        }
        let parent = node.inode.lock().record.parent;
        self.catalog.get(parent).is_ok_and(|parent| self.catalog.is_below(&parent, directory))
    }
}
