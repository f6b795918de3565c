//! Who finds no room waits until no write is under way, and all that is only held is given back.

use super::late::late_mark;
use super::lend::{LONG_PATIENCE, PATIENCE};
use crate::node::Node;
use crate::open_file::OpenFile;
use crate::pools::pool_of;
use crate::{Errno, Outcome, Space, hurry};
use parking_lot::RwLockWriteGuard;
use std::sync::Arc;
use std::time::Duration;
use ullage_policy::headroom::{ASK_BACK, CHUNK};

/// What an operation on names may cost at most, and of one that brings whole files or trees under a limit nobody knows it.
pub(crate) const SMALL: u64 = 1 << 20;
pub(crate) const ANY: u64 = u64::MAX;

/// What of a file is waited for, the shorter one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Takes {
    /// It is given blocks.
    Blocks,
    /// It is written out.
    Data,
}

/// How long a disk is waited for while others stand still.
const MOMENT: Duration = Duration::from_secs(1);

/// How long who is refused waits for his own pool to be written out, while others go on. It may have much to write.
pub(super) const SHOWS: Duration = Duration::from_secs(30);
/// How often a pool shows once more what was written to it, while others go on and may write more.
const SHOWN: u32 = 2;

impl Space {
    /// Waits until no write is under way and gives back all that is only held, for somebody who `wanted` so many bytes, by a call to his `own`
    /// file. Before that, while others go on, what was just removed is waited for, and what is lent: who is at a file that it is lent to may
    /// wait for the same.
    pub(crate) fn alone_with_room(
        &self,
        own: Option<&Arc<Node>>,
        wanted: u64,
        patience: Duration,
    ) -> RwLockWriteGuard<'_, ()> {
        self.await_leaving();
        if let Some(node) = own {
            self.show_written(node, wanted, SHOWS);
        }
        let gathering = self.lender.gathers();
        let holders = self.in_the_way(own, wanted);
        self.ask_back_for(&holders, own, wanted, patience);
        // Disks are waited for while others go on: what comes to be written until he is alone is little.
        let their = holders.into_iter().filter(|node| !is_own(own, node));
        let waiting = their.filter_map(|node| Some((self.takes_disk(&node, wanted)?, node))).collect();
        self.give_back_aside(waiting, wanted, if own.is_some() { LONG_PATIENCE } else { MOMENT });
        let mut alone = self.headroom.flow.write();
        drop(gathering);
        self.return_held(own, wanted);
        for _ in 0..SHOWN {
            // What was given back just now counts as written, and may have been shown for long.
            let Some(node) = own.filter(|node| self.may_show_room(node, wanted)) else { break };
            let _gathering = self.lender.gathers();
            drop(alone);
            self.show_written(node, wanted, SHOWS);
            alone = self.headroom.flow.write();
            self.return_held(own, wanted);
        }
        alone
    }

    pub(crate) fn holders(&self) -> Vec<Arc<Node>> {
        self.headroom.holders.lock().values().cloned().collect()
    }

    /// Files that hold something which somebody may lack who `wanted` so many bytes, by a call to his `own`: others are under limits that have
    /// that much left, and what is held for them is of use to them.
    fn in_the_way(&self, own: Option<&Arc<Node>>, wanted: u64) -> Vec<Arc<Node>> {
        let mut holders = self.holders();
        holders.retain(|node| is_own(own, node) || self.may_lack(node, wanted));
        holders
    }

    /// Whether the limits of a file may have less left than so many bytes, and what may be asked back at once beside.
    pub(super) fn may_lack(&self, node: &Node, wanted: u64) -> bool {
        let enough = wanted.saturating_add(ASK_BACK);
        let room = pool_of(&node.inode).map(|pool| self.room_of(&node.inode, pool));
        !room.is_some_and(|room| room.is_ok_and(|room| room.is_none_or(|room| room >= enough)))
    }

    /// Measures every file that may be in his way who `wanted` so many bytes, by a call to his `own` file, and gives back what no write needs.
    fn return_held(&self, own: Option<&Arc<Node>>, wanted: u64) {
        let holders = self.in_the_way(own, wanted);
        self.ask_back_for(&holders, own, wanted, PATIENCE);
        let mut waiting = Vec::new();
        for node in holders {
            if is_own(own, &node) {
                // He may be about to open it.
                Self::write_out_late(&node);
                self.give_back_held(&node, wanted, |open, pays| self.record_measured(&node, open, pays));
            } else if let Some(takes) = self.takes_disk(&node, wanted) {
                waiting.push((takes, node));
            } else {
                self.give_back_held(&node, wanted, |open, pays| self.measure_closely(&node, open, pays).1);
            }
        }
        self.give_back_aside(waiting, wanted, MOMENT);
    }

    /// Gives back what is held for files that have to be written out for that, or given blocks. A disk that hangs is not waited for without end.
    fn give_back_aside(&self, mut files: Vec<(Takes, Arc<Node>)>, wanted: u64, patience: Duration) {
        let Some(space) = self.own().upgrade().filter(|_| !files.is_empty()) else { return };
        files.sort_by_key(|(takes, _)| *takes);
        let nodes = files.into_iter().map(|(_, node)| node).collect();
        let left =
            self.headroom.aside.run(&space, nodes, patience, move |space, node| space.give_back_their(node, wanted));
        if !left.is_empty() {
            tracing::debug!(files = left.len(), "a disk takes its time, and what is held for files on it stays so");
        }
    }

    fn give_back_their(&self, node: &Arc<Node>, wanted: u64) {
        if self.given_is_lacked(node, wanted) != Some(false) {
            self.write_out_bare(node);
        }
        self.give_back_held(node, wanted, |open, pays| self.measure_closely(node, open, pays).1);
    }

    fn give_back_held(&self, node: &Arc<Node>, wanted: u64, measure: impl Fn(&mut OpenFile, bool) -> Outcome<()>) {
        let measured = {
            let mut open = node.open.lock();
            let pays = open.grant.owes();
            measure(&mut open, pays)
        };
        // To measure it may have given it some.
        let given =
            || if self.given_is_lacked(node, wanted) == Some(true) { self.let_go_of_given(node) } else { Ok(()) };
        if let Err(error) = measured.and_then(|()| given()) {
            node.not_measured(error);
        }
    }

    /// What to give back what is held for a file may take of its disk.
    fn takes_disk(&self, node: &Arc<Node>, wanted: u64) -> Option<Takes> {
        // Who has the file now may write it out.
        let Some(open) = node.open.try_lock() else { return Some(Takes::Data) };
        let (owes, late) = (open.grant.owes(), late_mark(&open).is_some());
        drop(open);
        if self.lies_far(node) {
            return Some(Takes::Data);
        }
        if late || self.given_is_lacked(node, wanted).unwrap_or_else(|| self.bare(node).is_some()) {
            return Some(Takes::Data);
        }
        owes.then_some(Takes::Blocks)
    }

    /// Whether what is held for what a file was given, if anything is, may be what somebody lacks who wanted so many bytes. It comes free when
    /// the file was written out, which others are not to wait for without need.
    fn given_is_lacked(&self, node: &Arc<Node>, wanted: u64) -> Option<bool> {
        let pool = {
            let open = node.open.lock();
            open.backing.as_deref().filter(|_| open.grant.given_waits().is_some())?.pool
        };
        let enough = if wanted == ANY { super::writes::PIECE } else { wanted.saturating_add(CHUNK) };
        Some(matches!(self.room_of(&node.inode, pool), Ok(Some(room)) if room < enough))
    }

    /// Runs an operation that asks the limits for `wanted` bytes at most; when they refuse it, once more after all that is only held, or was
    /// just removed, was given back.
    pub(crate) fn asked<T, E>(&self, wanted: u64, work: impl Fn() -> Result<T, E>) -> Outcome<T>
    where
        Errno: From<E>,
    {
        let work = || work().map_err(Errno::from);
        match work() {
            Err(Errno::EDQUOT | Errno::ENOSPC) => {
                if !self.has_just_removed() && self.headroom.holders.lock().is_empty() {
                    // Who held something may have given it back just now.
                    return work();
                }
                hurry::may_wait()?;
                let _alone = self.alone_with_room(None, wanted, PATIENCE);
                work()
            }
            outcome => outcome,
        }
    }
}

pub(super) fn is_own(own: Option<&Arc<Node>>, node: &Arc<Node>) -> bool {
    own.is_some_and(|own| Arc::ptr_eq(own, node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headroom::grant::Taken;
    use crate::headroom::lend::tests::{lending, lending_file};
    use crate::{Caller, Filesystem};
    use std::cell::Cell;
    use std::time::Instant;
    use ullage_catalog::{Limit, Subject};
    use ullage_types::{FileId, NodeId, PoolId};

    /// What was set aside for it was called used until the next look: whoever came in between was refused with that much left.
    #[test]
    fn who_finds_no_room_waits_for_the_end_of_writes_that_asked() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending_file(dir.path(), 0);
        {
            let mut open = node.open.lock();
            open.backing.as_deref_mut().unwrap().unseen = true;
            space.brake.engage(&mut open);
        }
        let caller = Caller { uid: 0, gid: 0, pid: 1 };
        let (entry, _) = space.create(caller, NodeId(1), b"other", 0o600, 0, libc::O_WRONLY as u32).unwrap();
        let other = space.node(entry.node).unwrap();
        let room = space.room_of(&node.inode, PoolId(0)).unwrap().unwrap();
        space.take_just(&node, PoolId(0), room - 4096).unwrap();
        node.open.lock().grant.let_go(room - 4096);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let until = Instant::now() + Duration::from_secs(20);
                while node.open.lock().refresher.is_none() && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(1));
                }
                // The write is over: the kernel asks what a refresh asks.
                space.refreshed(&node).unwrap();
            });
            space.asked(SMALL, || space.hold_for(&other, PoolId(0), 1 << 20)).unwrap();
        });
        space.brake.stop();
    }

    /// Between the refusal and the look at who holds something it had been given back.
    #[test]
    fn who_finds_no_room_tries_once_more_where_nobody_holds_any() {
        let dir = tempfile::tempdir().unwrap();
        let (space, _) = lending(dir.path());
        space.set_limit(Subject::Directory(FileId(1)), Limit::NONE).unwrap();
        let tries = Cell::new(0);
        let work = || {
            tries.set(tries.get() + 1);
            if tries.get() == 1 { Err(Errno::EDQUOT) } else { Ok(()) }
        };
        space.asked(SMALL, work).unwrap();
        assert_eq!(tries.get(), 2);
    }

    /// Whoever was refused had all files measured, and each write to those had to ask for room anew: up to thousands under other limits.
    #[test]
    fn who_finds_no_room_takes_none_from_files_under_limits_that_have_plenty() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending_file(dir.path(), 4096);
        let caller = Caller { uid: 0, gid: 0, pid: 1 };
        let full = space.mkdir(caller, NodeId(1), b"full", 0o700, 0).unwrap().node;
        let limit = Limit { bytes: Some(1 << 20), inodes: None };
        space.set_limit(Subject::Directory(FileId(full.0)), limit).unwrap();
        let (entry, _) = space.create(caller, full, b"other", 0o600, 0, libc::O_WRONLY as u32).unwrap();
        let other = space.node(entry.node).unwrap();
        let holds = |node| {
            space.take_more(node, &mut node.open.lock(), PoolId(0), 0, 1 << 16).unwrap();
            node.open.lock().grant.ended(Taken::Held(0));
        };
        holds(&node);
        let refused = space.asked(SMALL, || space.hold_for(&other, PoolId(0), 1 << 20));
        assert_eq!((refused, node.open.lock().grant.held), (Err(Errno::ENOSPC), 1 << 16));
        // Where it may be what is lacking it is given back.
        let room = space.room_of(&node.inode, PoolId(0)).unwrap().unwrap();
        let refused = space.asked(room, || space.hold_for(&other, PoolId(0), room));
        assert_eq!((refused, node.open.lock().grant.held), (Err(Errno::ENOSPC), 0));
    }
}
