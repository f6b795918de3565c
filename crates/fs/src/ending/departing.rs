//! Files that the kernel has let go of, and that could not go there and then: their pool may not answer, or somebody has them still.
//!
//! Nobody waits for that. So they take none of the threads that others wait for, however many they are: each pool has one for them while
//! there are any, and no file waits for one of another pool.

use crate::node::Node;
use crate::pools::{Whence, pool_of};
use crate::{Space, threads};
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;

/// The files of each pool that are to go. A pool is in it as long as somebody works its files off.
#[derive(Debug, Default)]
pub(crate) struct Departing {
    files: Mutex<FxHashMap<Whence, VecDeque<Arc<Node>>>>,
    gone: Condvar,
}

impl Departing {
    /// Waits until all of them have gone.
    pub(crate) fn wait(&self) {
        let mut files = self.files.lock();
        while !files.is_empty() {
            self.gone.wait(&mut files);
        }
    }

    /// The next file of a pool; the last one was the last to be worked off where there is none.
    fn next(&self, whence: Whence) -> Option<Arc<Node>> {
        let mut files = self.files.lock();
        let next = files.get_mut(&whence).and_then(VecDeque::pop_front);
        if next.is_none() {
            files.remove(&whence);
            self.gone.notify_all();
        }
        next
    }
}

impl Space {
    /// Lets go of a node that the kernel has forgotten: here, or later where the calling thread would have to wait.
    pub(crate) fn let_go_in_time(&self, node: &Arc<Node>) {
        if self.goes_at_once(node).is_ok() {
            return self.let_go(node);
        }
        let whence = pool_of(&node.inode);
        let mut files = self.departing.files.lock();
        if let Some(waiting) = files.get_mut(&whence) {
            waiting.push_back(node.clone());
            return;
        }
        files.insert(whence, VecDeque::from([node.clone()]));
        drop(files);
        let own = self.own();
        let work_off = move || {
            if let Some(space) = own.upgrade() {
                space.work_off(whence);
            }
        };
        if let Err(error) = threads::start("departing", work_off) {
            tracing::warn!("what was removed is waited for, since no thread could be started for it: {error}");
            self.work_off(whence);
        }
    }

    fn work_off(&self, whence: Whence) {
        while let Some(node) = self.departing.next(whence) {
            self.let_go(&node);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::headroom::lend::tests::lending;
    use crate::{Caller, Filesystem, hurried};
    use std::time::Duration;
    use ullage_types::{NodeId, ROOT};

    /// Each took a worker, until there was none left for anything else; and what was let go of in one message with them stayed too.
    #[test]
    fn who_answers_the_kernel_lets_go_of_what_somebody_has_without_him_and_of_what_comes_next_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let (space, held) = lending(dir.path());
        let caller = Caller { uid: 0, gid: 0, pid: 1 };
        let (entry, opened) = space.create(caller, NodeId(ROOT.0), b"next", 0o600, 0, libc::O_RDONLY as u32).unwrap();
        let next = space.node(entry.node).unwrap();
        space.release(next.id, opened.handle);
        for name in [&b"file"[..], b"next"] {
            space.unlink(NodeId(ROOT.0), name).unwrap();
        }
        let mut open = held.open.lock();
        (open.handles, open.writers) = (0, 0);
        let (forgets, forgot) = std::sync::mpsc::channel();
        let (their, ids) = (space.clone(), [held.id, next.id]);
        std::thread::spawn(move || {
            hurried(|| ids.map(|id| their.forget(id, 1)));
            forgets.send(()).unwrap();
        });
        forgot.recv_timeout(Duration::from_secs(20)).expect("it waits for who has the file");
        assert!(next.inode.lock().is_removed() && !held.inode.lock().is_removed());
        drop(open);
        space.departing.wait();
        assert!(held.inode.lock().is_removed() && space.node(held.id).is_err());
    }
}
