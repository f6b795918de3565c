//! The nodes that the kernel holds.

use crate::open_file::OpenFile;
use crate::{Errno, Outcome};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use ullage_catalog::Inode;
use ullage_types::{FileId, NodeId, ROOT};

const SHARDS: usize = 64;

/// A file that the kernel knows, or whose backing file is still open here.
#[derive(Debug)]
pub(crate) struct Node {
    pub id: NodeId,
    pub inode: Arc<Inode>,
    lookups: AtomicU64,
    /// Handles and the backing file behind them.
    pub open: Mutex<OpenFile>,
}

impl Node {
    /// Whether the kernel still holds it.
    pub(crate) fn is_known(&self) -> bool {
        self.lookups.load(Relaxed) > 0
    }

    /// Whether the file has no name, and its record is still there.
    pub(crate) fn is_to_be_removed(&self) -> bool {
        let state = self.inode.lock();
        state.record.nlink == 0 && !state.is_removed()
    }

    /// Says that nobody knows now what the file takes. It is measured again later.
    pub(crate) fn not_measured(&self, error: Errno) {
        tracing::error!("inode {} could not be measured: {error:?}", self.inode.id);
    }
}

/// Every node, found by the number the kernel uses.
#[derive(Debug)]
pub(crate) struct Nodes {
    shards: [Mutex<FxHashMap<NodeId, Arc<Node>>>; SHARDS],
    /// The kernel knows none any more.
    over: AtomicBool,
}

impl Nodes {
    pub(crate) fn new(root: Arc<Inode>) -> Self {
        let nodes = Self { shards: std::array::from_fn(|_| Mutex::default()), over: AtomicBool::new(false) };
        nodes.enter(root);
        nodes
    }

    /// A space without views has one node a file, and gives it the file's own number.
    pub(crate) fn id_of(file: FileId) -> NodeId {
        NodeId(file.0)
    }

    /// The file of a node that need not be there.
    pub(crate) fn file_of(node: NodeId) -> FileId {
        FileId(node.0)
    }

    fn shard(&self, node: NodeId) -> &Mutex<FxHashMap<NodeId, Arc<Node>>> {
        &self.shards[node.0 as usize % SHARDS]
    }

    /// The node with this number. ESTALE when the kernel made it up.
    pub(crate) fn get(&self, node: NodeId) -> Outcome<Arc<Node>> {
        self.shard(node).lock().get(&node).cloned().ok_or(Errno::ESTALE)
    }

    /// The node of a file, counted as one look-up more.
    pub(crate) fn enter(&self, inode: Arc<Inode>) -> Arc<Node> {
        let id = Self::id_of(inode.id);
        let mut shard = self.shard(id).lock();
        let node = shard
            .entry(id)
            .or_insert_with(|| Arc::new(Node { id, inode, lookups: AtomicU64::new(0), open: Mutex::default() }));
        node.lookups.fetch_add(1, Relaxed);
        node.clone()
    }

    /// The node of a file, if there is one.
    pub(crate) fn find(&self, file: FileId) -> Option<Arc<Node>> {
        let id = Self::id_of(file);
        self.shard(id).lock().get(&id).cloned()
    }

    /// Every node there is.
    pub(crate) fn all(&self) -> Vec<Arc<Node>> {
        self.shards.iter().flat_map(|shard| shard.lock().values().cloned().collect::<Vec<_>>()).collect()
    }

    /// Takes look-ups away; gives the node back when the kernel has forgotten it.
    pub(crate) fn forget(&self, node: NodeId, count: u64) -> Option<Arc<Node>> {
        if node.0 == ROOT.0 || self.over.load(Relaxed) {
            return None;
        }
        let shard = self.shard(node).lock();
        let found = shard.get(&node)?;
        let before = found.lookups.fetch_sub(count, Relaxed);
        assert!(before >= count, "the kernel forgot node {node} more often than it looked it up");
        (before == count).then(|| found.clone())
    }

    /// The connection is over, and with it all that the kernel held: what it had still to say of that it threw away. Gives back every node.
    pub(crate) fn forget_all(&self) -> Vec<Arc<Node>> {
        self.over.store(true, Relaxed);
        let all = self.all();
        for node in &all {
            node.lookups.store(0, Relaxed);
        }
        all
    }

    /// Whether this is still the node of its number, which a file that comes back gives to another one.
    pub(crate) fn holds(&self, node: &Arc<Node>) -> bool {
        Self::is_in(&self.shard(node.id).lock(), node)
    }

    fn is_in(shard: &FxHashMap<NodeId, Arc<Node>>, node: &Arc<Node>) -> bool {
        shard.get(&node.id).is_some_and(|found| Arc::ptr_eq(found, node))
    }

    /// Lets a node go if the kernel has forgotten it and nothing is open behind it. `idle` is asked under the lock.
    pub(crate) fn discard(&self, node: &Arc<Node>, idle: impl FnOnce() -> bool) -> bool {
        let mut shard = self.shard(node.id).lock();
        let gone = Self::is_in(&shard, node) && !node.is_known() && idle();
        // Held until the lock is released: dropping the last one may enter other locks.
        let removed = if gone { shard.remove(&node.id) } else { None };
        drop(shard);
        removed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Filesystem;
    use crate::api::{Caller, SetAttributes};
    use crate::headroom::lend::tests::lending;
    use crate::space::Space;
    use ullage_catalog::{Limit, Subject};

    /// Of a million files that the kernel knows most are closed, and each took 1.1 KB here.
    #[test]
    fn a_file_that_is_only_known_takes_little_memory_and_nothing_is_noted_where_no_limit_is() {
        assert!(size_of::<Node>() <= 128, "{}", size_of::<Node>());
        assert!(size_of::<Inode>() <= 304, "{}", size_of::<Inode>());
        let dir = tempfile::tempdir().unwrap();
        let (space, limited) = lending(dir.path());
        space.set_limit(Subject::Directory(ROOT), Limit::default()).unwrap();
        space.release(limited.id, 1);
        let caller = Caller { uid: 0, gid: 0, pid: 1 };
        let create = |name: &[u8]| space.create(caller, NodeId(ROOT.0), name, 0o600, 0, libc::O_RDWR as u32).unwrap();
        let (entry, opened) = create(b"free");
        let node = space.node(entry.node).unwrap();
        let blank = |after| assert!(node.open.lock().grant.is_blank(), "after {after}");
        blank("create");
        space.write(node.id, opened.handle, 0, &[1; 10_000], 0, None).unwrap();
        blank("write");
        space.fsync(node.id, opened.handle, false).unwrap();
        blank("fsync");
        space.setattr(caller, node.id, SetAttributes { size: Some(5), ..SetAttributes::default() }).unwrap();
        blank("truncate");
        space.release(node.id, opened.handle);
        space.measure_closed();
        blank("release");
    }

    /// A file that the kernel forgot, and the forgetting of whose first node is late.
    fn forgotten() -> (tempfile::TempDir, Arc<Space>, Arc<Node>) {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending(dir.path());
        {
            let mut open = node.open.lock();
            (open.handles, open.writers, open.backing) = (0, 0, None);
        }
        assert!(space.nodes.forget(node.id, 1).is_some());
        // Somebody else looks the file up, forgets it, and is faster.
        space.nodes.enter(node.inode.clone());
        space.forget(node.id, 1);
        assert!(space.node(node.id).is_err());
        (dir, space, node)
    }

    /// It took the file's next node away: requests for what was open there failed, and its close ended the process.
    #[test]
    fn who_is_late_to_discard_a_node_leaves_its_successor_alone() {
        let (_dir, space, late) = forgotten();
        let next = space.nodes.enter(late.inode.clone());
        assert!(!space.nodes.discard(&late, || true));
        assert!(Arc::ptr_eq(&space.node(next.id).unwrap(), &next));
    }

    /// Its record stayed, and its blocks with it, until the next start.
    #[test]
    fn who_is_late_to_discard_a_node_leaves_a_file_that_lost_its_name_meanwhile_to_who_removes_it() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending(dir.path());
        {
            let mut open = node.open.lock();
            (open.handles, open.writers, open.backing) = (0, 0, None);
        }
        // Who lets go of it has seen its name, and stands still.
        space.catalog.unlink(space.catalog.root(), b"file", crate::now()).unwrap();
        let removes = space.nodes.forget(node.id, 1).unwrap();
        space.discard(&node, &node.open.lock());
        space.let_go(&removes);
        assert!(node.inode.lock().is_removed() && space.node(node.id).is_err());
    }

    /// The file went for good while it was open by its next node.
    #[test]
    fn who_is_late_to_let_a_node_go_leaves_a_file_alone_that_is_open_by_the_next_one() {
        let (_dir, space, late) = forgotten();
        let root = NodeId(ROOT.0);
        let next = space.lookup(root, b"file").unwrap();
        let opened = space.open(Caller { uid: 0, gid: 0, pid: 1 }, next.node, libc::O_RDONLY as u32).unwrap();
        space.unlink(root, b"file").unwrap();
        space.let_go(&late);
        assert!(!late.inode.lock().is_removed());
        space.release(next.node, opened.handle);
        space.forget(next.node, 1);
        assert!(late.inode.lock().is_removed());
    }
}
