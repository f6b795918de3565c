//! What may come under another limit by a new name: nothing that something still writes to unseen, since no limit would bind that. Programs
//! then copy it.

use crate::hurry;
use crate::node::Node;
use crate::{Errno, Outcome, Space};
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};
use std::sync::Arc;
use std::time::{Duration, Instant};
use ullage_catalog::Inode;
use ullage_types::Kind;

/// How long the end of a handle may be on its way from the kernel, in steps of a millisecond.
const STEPS: u32 = 100;
/// How long the last look, for which everybody waits who opens a file, waits for those who work on one that moves: as a rule for nobody.
const LAST_LOOK: Duration = Duration::from_millis(300);

/// No limit is set while this is held.
pub(crate) enum Limits<'a> {
    /// There are some, and nobody opens a file.
    #[expect(dead_code, reason = "held")]
    Some(RwLockWriteGuard<'a, ()>),
    /// There are none.
    #[expect(dead_code, reason = "held")]
    None(RwLockReadGuard<'a, ()>),
}

impl Space {
    /// Before something may come under another limit: alone where there are any. Where there are none, nobody sets the first one meanwhile.
    pub(crate) fn keep_limits(&self) -> Outcome<Limits<'_>> {
        if !self.catalog.has_limits() {
            let shared = hurry::shared(&self.headroom.modes)?;
            if !self.catalog.has_limits() {
                return Ok(Limits::None(shared));
            }
        }
        Ok(Limits::Some(hurry::alone(&self.headroom.modes)?))
    }

    /// Before a file or a directory moves: who may still write unseen is waited for, without the lock that everybody who opens a file needs.
    ///
    /// # Errors
    /// EXDEV when it takes too long.
    pub(crate) fn await_unseen(&self, file: &Arc<Inode>, from: &Arc<Inode>, to: &Arc<Inode>) -> Outcome<()> {
        if !self.catalog.differ_in_limits(from, to) {
            return Ok(());
        }
        let mut unseen = self.files_in(file)?;
        unseen.retain(|node| self.is_unseen(node));
        for _ in 0..STEPS {
            if unseen.is_empty() {
                return Ok(());
            }
            hurry::may_wait()?;
            std::thread::sleep(Duration::from_millis(1));
            unseen.retain(|node| self.is_unseen(node));
        }
        Err(Errno::EXDEV)
    }

    /// The last look, while nobody opens a file: EXDEV at once where somebody came meanwhile.
    pub(crate) fn may_move(&self, file: &Arc<Inode>, from: &Arc<Inode>, to: &Arc<Inode>) -> Outcome<()> {
        if !self.catalog.differ_in_limits(from, to) {
            return Ok(());
        }
        let until = Instant::now() + LAST_LOOK;
        let is_seen = |node: &Arc<Node>| {
            node.open.try_lock_until(until).is_some_and(|mut open| !self.may_be_written_unseen(&mut open))
        };
        if self.files_in(file)?.iter().all(is_seen) { Ok(()) } else { Err(Errno::EXDEV) }
    }

    /// A file, or those below a directory. LATER where who works on one of them would have to be waited for.
    fn files_in(&self, inode: &Arc<Inode>) -> Outcome<Vec<Arc<Node>>> {
        let mut nodes = match inode.kind {
            Kind::Regular => self.nodes.find(inode.id).into_iter().collect(),
            // Of many thousands that the kernel knows few are open; where each lies is a walk up.
            Kind::Directory => self.nodes.all().into_iter().filter(may_be_open).collect(),
            _ => Vec::new(),
        };
        nodes.retain(|node| inode.id == node.inode.id || self.lies_below(node, inode));
        nodes.iter().try_for_each(|node| hurry::can_lock(&node.open))?;
        Ok(nodes)
    }
}

/// Whether the backing file of a node is open, or somebody works on it.
fn may_be_open(node: &Arc<Node>) -> bool {
    node.open.try_lock().is_none_or(|open| open.backing.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Caller;
    use crate::headroom::lend::tests::lending;
    use ullage_catalog::{Limit, Subject};
    use ullage_types::{FileId, NodeId};

    const ROOT: NodeId = NodeId(1);

    /// One that answers the kernel stood still with a disk, and whoever came to open a file waited for the last look.
    #[test]
    fn who_moves_a_file_under_another_limit_waits_for_nobody_who_works_on_it() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending(dir.path());
        let caller = Caller { uid: 0, gid: 0, pid: 1 };
        let limited = space.do_mkdir(caller, ROOT, b"less", 0o755, 0).unwrap().node;
        let limit = Limit { bytes: Some(1 << 30), inodes: None };
        space.set_limit(Subject::Directory(FileId(limited.0)), limit).unwrap();
        let [from, to] = [ROOT, limited].map(|node| space.inode(node).unwrap());
        let held = node.open.lock();
        for look in [Space::await_unseen, Space::may_move] {
            assert_eq!(hurry::hurried(|| look(&space, &node.inode, &from, &to)), Err(Errno::LATER));
        }
        assert_eq!(space.may_move(&node.inode, &from, &to), Err(Errno::EXDEV));
        drop(held);
        space.may_move(&node.inode, &from, &to).unwrap();
    }

    /// It lay below the limit then, and was written in the kernel without anybody looking at it.
    #[test]
    fn the_first_limit_of_a_space_is_not_set_while_something_moves() {
        let dir = tempfile::tempdir().unwrap();
        let (space, _) = lending(dir.path());
        let root = Subject::Directory(space.catalog.root().id);
        space.set_limit(root, Limit::NONE).unwrap();
        let caller = Caller { uid: 0, gid: 0, pid: 1 };
        let to = space.do_mkdir(caller, ROOT, b"to", 0o755, 0).unwrap().node;
        let limit = Limit { bytes: Some(1 << 30), inodes: None };
        let inode = space.inode(to).unwrap();
        std::thread::scope(|scope| {
            // The move stands still.
            let held = inode.lock();
            let moving = scope.spawn(|| space.do_rename(caller, (ROOT, b"file"), (to, b"file"), 0));
            let until = Instant::now() + Duration::from_secs(20);
            while space.headroom.modes.try_write().is_some() {
                assert!(Instant::now() < until, "it keeps nobody from setting one");
                std::thread::sleep(Duration::from_millis(1));
            }
            let setting = scope.spawn(|| space.set_limit(Subject::Directory(inode.id), limit));
            std::thread::sleep(Duration::from_millis(100));
            assert!(!space.catalog.has_limits() && !moving.is_finished() && !setting.is_finished());
            drop(held);
            moving.join().unwrap().unwrap();
            setting.join().unwrap().unwrap();
        });
    }

    /// A log that was written could not be rotated out of a limited directory where the space had a limit too, which had bound it all the time.
    #[test]
    fn what_is_written_unseen_goes_where_fewer_limits_bound_it() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending(dir.path());
        let caller = Caller { uid: 0, gid: 0, pid: 1 };
        let limited = space.do_mkdir(caller, ROOT, b"less", 0o755, 0).unwrap().node;
        let rename = |from, to| space.do_rename(caller, (from, b"file"), (to, b"file"), 0);
        rename(ROOT, limited).unwrap();
        for (id, bytes) in [(space.catalog.root().id, 1 << 40), (FileId(limited.0), 1 << 30)] {
            space.set_limit(Subject::Directory(id), Limit { bytes: Some(bytes), inodes: None }).unwrap();
        }
        node.open.lock().backing.as_deref_mut().unwrap().unseen = true;
        rename(limited, ROOT).unwrap();
        assert_eq!(rename(ROOT, limited), Err(Errno::EXDEV));
    }

    /// All who came to open a file waited for it, and whoever did it again and again let nobody.
    #[test]
    fn nobody_waits_for_who_moves_what_is_written_unseen() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending(dir.path());
        let caller = Caller { uid: 0, gid: 0, pid: 1 };
        let [tree, limited] = [b"tree", b"less"].map(|name| space.do_mkdir(caller, ROOT, name, 0o755, 0).unwrap().node);
        let limit = Limit { bytes: Some(1 << 30), inodes: None };
        space.set_limit(Subject::Directory(FileId(limited.0)), limit).unwrap();
        node.open.lock().backing.as_deref_mut().unwrap().unseen = true;
        let rename = |from, to| space.do_rename(caller, from, to, 0);
        rename((ROOT, b"file"), (tree, b"file")).unwrap();
        let link = || space.do_link(node.id, limited, b"name").map(drop);
        let below = || rename((tree, b"file"), (limited, b"file"));
        let above = || rename((ROOT, b"tree"), (limited, b"tree"));
        let moves: [&(dyn Fn() -> Outcome<()> + Sync); 3] = [&link, &below, &above];
        for (n, moves) in moves.into_iter().enumerate() {
            std::thread::scope(|scope| {
                let moving = scope.spawn(moves);
                while !moving.is_finished() {
                    assert!(space.headroom.modes.try_read().is_some(), "move {n}");
                    std::thread::yield_now();
                }
                assert_eq!(moving.join().unwrap(), Err(Errno::EXDEV), "move {n}");
            });
        }
        // A handle whose end is on its way is waited for, for as long as that takes as a rule.
        let waited = (0..10).any(|_| {
            node.open.lock().backing.as_deref_mut().unwrap().unseen = true;
            std::thread::scope(|scope| {
                let moving = scope.spawn(|| rename((ROOT, b"tree"), (limited, b"tree")));
                std::thread::sleep(Duration::from_millis(10));
                let waits = !moving.is_finished();
                node.open.lock().backing.as_deref_mut().unwrap().unseen = false;
                moving.join().unwrap() == Ok(()) && waits
            })
        });
        assert!(waited);
    }
}
