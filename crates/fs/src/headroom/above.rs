//! What there is above the reserve of a pool: what files hold of it, and what was written and does not show there yet. Pools on one disk have the
//! same room above theirs.
//!
//! btrfs has blocks in use from when it writes them out, long after a file was measured to have them. Until the pool was
//! written out, what was written counts as if it were held still. So it is with those that files lost, or had when they were removed, which are free
//! then: before anybody is refused the pool is written out, where that may be of use to him.

use super::alone::SHOWS;
use crate::node::Node;
use crate::pools::pool_of;
use crate::{Errno, Outcome, Space, hurry};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::time::Duration;
use ullage_types::PoolId;

/// What of the room above the reserves of pools is taken, by their disk.
#[derive(Debug, Default)]
pub(crate) struct Above {
    disks: Mutex<FxHashMap<PoolId, Arc<Disk>>>,
}

/// What is taken of one disk. One that takes its time holds up who wants something of it, and nobody else.
#[derive(Debug, Default)]
struct Disk {
    taken: Mutex<Taken>,
    /// Held while it is written out: who comes meanwhile waits for that.
    writing: Mutex<()>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    /// Held for writes.
    held: u64,
    /// Written, and maybe not in use yet.
    unshown: u64,
}

impl Taken {
    fn all(self) -> u64 {
        self.held.saturating_add(self.unshown)
    }
}

impl Space {
    /// The reserve of a pool, and what is taken above it; none where it has none.
    fn above(&self, pool: PoolId) -> Option<(u64, Arc<Disk>)> {
        let member = self.pools.member(pool).filter(|member| member.reserve.0 > 0)?;
        let disk = self.pools.disk(member);
        Some((member.reserve.0, self.headroom.above.disks.lock().entry(disk).or_default().clone()))
    }

    /// Holds so much of a pool that has a reserve.
    pub(crate) fn hold_in_pool(&self, pool: PoolId, bytes: u64) -> Outcome<()> {
        let Some((reserve, disk)) = self.above(pool) else { return Ok(()) };
        let mut taken = disk.taken.lock();
        // Asked under the lock: what was let go of before is in use by now.
        let free = self.pools.free_or_last(pool)?;
        if free < reserve.saturating_add(taken.all()).saturating_add(bytes) {
            return Err(Errno::ENOSPC);
        }
        taken.held += bytes;
        Ok(())
    }

    /// Lets go of so much, of which so many bytes may have been written.
    pub(crate) fn let_go_in_pool(&self, pool: PoolId, bytes: u64, written: u64) {
        let unshown = if self.pools.shows_late(pool) { written } else { 0 };
        if bytes == 0 && unshown == 0 {
            return;
        }
        if let Some((_, disk)) = self.above(pool) {
            let mut taken = disk.taken.lock();
            taken.held = taken.held.saturating_sub(bytes);
            taken.unshown = taken.unshown.saturating_add(unshown);
        }
    }

    /// What is left above a pool's reserve; none where it has none.
    pub(crate) fn room_in_pool(&self, pool: PoolId) -> Outcome<Option<u64>> {
        let Some((reserve, disk)) = self.above(pool) else { return Ok(None) };
        let taken = *disk.taken.lock();
        Ok(Some(self.pools.free_or_last(pool)?.saturating_sub(reserve.saturating_add(taken.all()))))
    }

    /// Whether less than `wanted` is left above the reserve of a file's pool, and more may be when that has shown what was written to it.
    pub(crate) fn may_show_room(&self, node: &Node, wanted: u64) -> bool {
        let unshown = |pool| self.above(pool).map_or(0, |(_, disk)| disk.taken.lock().unshown);
        let late = |pool| unshown(pool) > 0 || self.pools.unfreed(pool) > 0;
        pool_of(&node.inode).is_some_and(|pool| late(pool) && self.is_short(pool, self.of_use(node, wanted)))
    }

    /// What of that a file's limits may let it have: more room would be of no use.
    fn of_use(&self, node: &Node, wanted: u64) -> u64 {
        if !self.catalog.has_limits() {
            return wanted;
        }
        let unused = self.bounded_by(&node.inode).map(|(uid, directory)| self.catalog.unused(uid, &directory));
        unused.ok().flatten().map_or(wanted, |unused| wanted.min(unused))
    }

    fn is_short(&self, pool: PoolId, wanted: u64) -> bool {
        self.room_in_pool(pool).is_ok_and(|room| room.is_some_and(|room| room < wanted))
    }

    /// Has the pool of a file show all that was written to it, where less than `wanted` is left otherwise. The disk is waited for no longer than
    /// `patience`, and with nothing locked that others wait for.
    pub(crate) fn show_written(&self, node: &Arc<Node>, wanted: u64, patience: Duration) {
        if !self.may_show_room(node, wanted) {
            return;
        }
        let Some(space) = self.own().upgrade() else { return };
        let show = move |space: &Self, node: &Arc<Node>| {
            if let Some(pool) = pool_of(&node.inode) {
                space.show(pool, space.of_use(node, wanted));
            }
        };
        if !self.headroom.aside.run(&space, vec![node.clone()], patience, show).is_empty() {
            tracing::debug!("a disk takes its time, and what is free there is not known");
        }
    }

    /// The same of pools that somebody wants so much of for a file that is not there yet. Gives back whether any was asked.
    pub(crate) fn show_pools(&self, pools: &[PoolId], wanted: u64) -> Outcome<bool> {
        let late = |pool: &&PoolId| self.pools.unfreed(**pool) > 0 && self.is_short(**pool, wanted);
        let Some(space) = self.own().upgrade() else { return Ok(false) };
        let late: Vec<_> = pools.iter().filter(late).copied().collect();
        if late.is_empty() {
            return Ok(false);
        }
        hurry::may_wait()?;
        if !self.headroom.aside.run_at(&space, &late, SHOWS, move |space, pool| space.show(pool, wanted)) {
            tracing::debug!("a disk takes its time, and what is free there is not known");
        }
        Ok(true)
    }

    fn show(&self, pool: PoolId, wanted: u64) {
        let Some((_, disk)) = self.above(pool) else { return };
        let _turn = disk.writing.lock();
        let written = disk.taken.lock().unshown;
        if written == 0 && self.pools.unfreed(pool) == 0 || !self.is_short(pool, wanted) {
            return;
        }
        let frees = self.pools.frees(pool);
        let synced = self.pools.get(pool).and_then(|pool| Ok(pool.sync()?));
        if let Err(error) = synced.and_then(|()| self.pools.ask_usage_beside(pool)) {
            tracing::warn!("pool {pool} could not be written out: what is free there is not known ({error:?})");
            return;
        }
        // More may have come meanwhile.
        disk.taken.lock().unshown -= written;
        frees();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pools::away::tests::space_on;
    use crate::{Caller, Filesystem};
    use std::sync::mpsc;
    use std::time::Duration;
    use ullage_types::NodeId;

    const GIB: u64 = 1 << 30;
    const ONE: PoolId = PoolId(0);
    const OTHER: PoolId = PoolId(1);
    const SOON: Duration = Duration::from_secs(10);

    /// Each pool was promised the same room: what was reserved was gone when both had written.
    #[test]
    fn pools_on_one_disk_are_promised_what_is_free_there_once() {
        let dir = tempfile::tempdir().unwrap();
        let (space, _) = space_on(dir.path(), &[7, 7], 3 * GIB, GIB);
        space.hold_in_pool(ONE, GIB).unwrap();
        space.hold_in_pool(OTHER, GIB).unwrap();
        assert_eq!(space.hold_in_pool(OTHER, 1), Err(Errno::ENOSPC));
        assert_eq!(space.hold_in_pool(ONE, 1), Err(Errno::ENOSPC));
        assert_eq!((space.room_in_pool(ONE), space.room_in_pool(OTHER)), (Ok(Some(0)), Ok(Some(0))));
        // Nobody knows whether what was written is in use yet.
        space.let_go_in_pool(OTHER, GIB, GIB / 2);
        assert_eq!(space.room_in_pool(ONE), Ok(Some(GIB / 2)));
        space.hold_in_pool(ONE, GIB / 2).unwrap();
        assert_eq!(space.hold_in_pool(OTHER, 1), Err(Errno::ENOSPC));
    }

    #[test]
    fn pools_on_other_disks_have_what_is_free_there() {
        let dir = tempfile::tempdir().unwrap();
        let (space, _) = space_on(dir.path(), &[7, 8], 3 * GIB, GIB);
        space.hold_in_pool(ONE, 2 * GIB).unwrap();
        space.hold_in_pool(OTHER, 2 * GIB).unwrap();
        assert_eq!(space.hold_in_pool(ONE, 1), Err(Errno::ENOSPC));
    }

    /// Regression: after much was removed from a pool on btrfs writes were refused until that wrote itself out, half a minute later.
    #[test]
    fn what_was_removed_is_written_out_before_anybody_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (space, _) = space_on(dir.path(), &[7, 7], 3 * GIB, GIB);
        let node = refused(&space, b"file");
        space.hold_in_pool(ONE, 2 * GIB).unwrap();
        assert!(!space.may_show_room(&node, 1));
        space.pools.gave_back(OTHER, GIB);
        assert!(space.may_show_room(&node, 1));
        space.show_written(&node, 1, SOON);
        assert!(!space.may_show_room(&node, 1), "it was written out");
    }

    /// Regression: whoever was refused by his own limit had the whole pool written out, as often as he liked.
    #[test]
    fn who_is_refused_by_his_own_limit_has_no_pool_written_out() {
        let dir = tempfile::tempdir().unwrap();
        let (space, _) = space_on(dir.path(), &[7], 3 * GIB, GIB);
        let node = refused(&space, b"file");
        space.pools.gave_back(ONE, GIB);
        assert!(space.may_show_room(&node, 1 << 40));
        let limit = |bytes| {
            let limit = ullage_catalog::Limit { bytes: Some(bytes), inodes: None };
            space.set_limit(ullage_catalog::Subject::Directory(ullage_types::FileId(1)), limit).unwrap();
        };
        limit(1 << 20);
        assert!(!space.may_show_room(&node, 1 << 40));
        // More room in the pool would be of use then.
        limit(4 * GIB);
        assert!(space.may_show_room(&node, 1 << 40));
    }

    /// Regression: what was removed from other pools was no room for a new file, or for one that goes there, until they wrote themselves out.
    #[test]
    fn what_was_given_back_to_pools_shows_before_a_file_is_refused_that_is_not_there_yet() {
        let dir = tempfile::tempdir().unwrap();
        let (space, _) = space_on(dir.path(), &[7, 8], GIB, GIB);
        assert_eq!(space.show_pools(&[ONE, OTHER], 1), Ok(false), "nothing was given back");
        space.pools.gave_back(OTHER, GIB);
        assert_eq!(hurry::hurried(|| space.show_pools(&[ONE, OTHER], 1)), Err(Errno::LATER));
        assert_eq!(space.show_pools(&[ONE, OTHER], 1), Ok(true));
        assert_eq!(space.pools.unfreed(OTHER), 0, "it was written out");
    }

    /// Every write to a pool with a reserve waited for it.
    #[test]
    fn a_pool_that_does_not_say_what_is_free_keeps_nobody_from_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let (space, pools) = space_on(dir.path(), &[7, 8], 3 * GIB, GIB);
        let (tells, told) = mpsc::channel();
        std::thread::scope(|scope| {
            let silent = pools[1].usage.lock();
            scope.spawn(|| space.hold_in_pool(OTHER, 1).unwrap());
            std::thread::sleep(Duration::from_millis(100));
            scope.spawn(|| tells.send(space.hold_in_pool(ONE, 1)).unwrap());
            let outcome = told.recv_timeout(SOON);
            drop(silent);
            outcome.unwrap().unwrap();
        });
    }

    fn refused(space: &Space, name: &[u8]) -> std::sync::Arc<crate::node::Node> {
        let caller = Caller { uid: 0, gid: 0, pid: 1 };
        let (entry, _) = space.create(caller, NodeId(1), name, 0o600, 0, libc::O_WRONLY as u32).unwrap();
        space.node(entry.node).unwrap()
    }

    /// He waited for all pools that had too little, and all who write with him.
    #[test]
    fn who_is_refused_waits_for_the_disk_of_his_file_alone_and_others_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let (space, pools) = space_on(dir.path(), &[7, 8], 3 * GIB, GIB);
        let node = refused(&space, b"file");
        for (hangs, pool) in [(1, OTHER), (0, ONE)] {
            space.hold_in_pool(pool, GIB).unwrap();
            space.let_go_in_pool(pool, GIB, GIB);
            let (tells, told) = mpsc::channel();
            std::thread::scope(|scope| {
                let hanging = pools[hangs].syncs.lock();
                for tells in [tells.clone(), tells] {
                    let (space, node) = (&space, &node);
                    scope.spawn(move || {
                        drop(space.alone_with_room(Some(node), 8 * GIB, Duration::from_millis(300)));
                        tells.send(()).unwrap();
                    });
                }
                std::thread::sleep(Duration::from_millis(200));
                let others_go_on = space.headroom.flow.try_read_for(SOON / 2).is_some();
                let answer = told.recv_timeout(if hangs == 0 { SOON / 50 } else { SOON });
                drop(hanging);
                assert_eq!((others_go_on, answer.is_ok()), (true, hangs != 0));
                assert!((0..2).all(|n| n < usize::from(answer.is_ok()) || told.recv_timeout(SOON).is_ok()));
            });
        }
        space.headroom.aside.wait();
        // It was done for who came then.
        assert_eq!(space.room_in_pool(ONE), Ok(Some(2 * GIB)));
    }
}
