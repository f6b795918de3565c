//! The nodes that the kernel holds.

use crate::open_file::OpenFile;
use crate::{Errno, Outcome};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
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
}

/// Every node, found by the number the kernel uses.
#[derive(Debug)]
pub(crate) struct Nodes {
    shards: [Mutex<FxHashMap<NodeId, Arc<Node>>>; SHARDS],
}

impl Nodes {
    pub(crate) fn new(root: Arc<Inode>) -> Self {
        let nodes = Self { shards: std::array::from_fn(|_| Mutex::default()) };
        nodes.enter(root);
        nodes
    }

    /// A space without views has one node a file, and gives it the file's own number.
    fn id_of(file: FileId) -> NodeId {
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
        if node.0 == ROOT.0 {
            return None;
        }
        let shard = self.shard(node).lock();
        let found = shard.get(&node)?;
        let before = found.lookups.fetch_sub(count, Relaxed);
        assert!(before >= count, "the kernel forgot node {node} more often than it looked it up");
        (before == count).then(|| found.clone())
    }

    /// Lets a node go if the kernel has forgotten it and nothing is open behind it. `idle` is asked under the lock.
    pub(crate) fn discard(&self, node: &Arc<Node>, idle: impl FnOnce() -> bool) -> bool {
        let mut shard = self.shard(node.id).lock();
        let gone = !node.is_known() && idle();
        // Held until the lock is released: dropping the last one may enter other locks.
        let removed = if gone { shard.remove(&node.id) } else { None };
        drop(shard);
        removed.is_some()
    }
}
