//! A space: a catalog and its pools, as one file system.

use crate::ending::departing::Departing;
use crate::ending::leaving::Leaving;
use crate::ending::reaper::Reaper;
use crate::ending::settle::Settler;
use crate::headroom::Headroom;
use crate::headroom::brake::Brake;
use crate::headroom::lend::Lender;
use crate::lazy::Lazy;
use crate::listings::Listings;
use crate::lost::Lost;
use crate::node::{Node, Nodes};
use crate::open_file::OpenFile;
use crate::ops::Listing;
use crate::pools::answering::Call;
use crate::pools::away::Away;
use crate::pools::drain::Drains;
use crate::pools::prepared::Preparer;
use crate::pools::{PoolMember, Pools, pool_of};
use crate::proof::Proofs;
use crate::replaced::Replaced;
use crate::trees::Trees;
use crate::unlisted::Unlisted;
use crate::{AttributesFor, Entry, Kernel, Outcome, WaitsFor, hurry, threads};
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use ullage_catalog::{Catalog, Inode};
use ullage_pool::{Binding, Locator};
use ullage_types::NodeId;

/// How long the kernel may believe what nobody but itself can change: a local space is its own sole authority.
pub(crate) const FOREVER: Duration = Duration::from_secs(1 << 30);

/// How a space is to behave.
#[derive(Clone, Debug)]
pub struct SpaceOptions {
    /// How long a backing file stays open after its last handle.
    pub linger: Duration,
    /// At most this many of them, those included that owe.
    pub linger_max: usize,
    /// Use passthrough where the kernel has it.
    pub passthrough: bool,
    /// A new limit on the size of the space; `Some(None)` lifts it, `None` leaves it as it is.
    pub size: Option<Option<u64>>,
    /// The plain trees of `mirror` pools were left in step with the catalog.
    pub trees_in_step: bool,
}

impl Default for SpaceOptions {
    fn default() -> Self {
        Self { linger: Duration::from_secs(2), linger_max: 65_536, passthrough: true, size: None, trees_in_step: false }
    }
}

/// A space, ready to be attached to a transport. See [`crate::Filesystem`] for what it does.
pub struct Space {
    own: Weak<Self>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) nodes: Nodes,
    pub(crate) options: SpaceOptions,
    pub(crate) reaper: Reaper,
    pub(crate) replaced: Arc<Replaced>,
    pub(crate) lost: Arc<Lost>,
    pub(crate) settler: Settler,
    pub(crate) listing: Listing,
    pub(crate) listings: Listings,
    pub(crate) unlisted: Unlisted,
    pub(crate) headroom: Headroom,
    pub(crate) leaving: Leaving,
    pub(crate) departing: Departing,
    pub(crate) brake: Brake,
    pub(crate) lender: Lender,
    pub(crate) trees: Trees,
    pub(crate) away: Away,
    pub(crate) drains: Drains,
    pub(crate) proofs: Proofs,
    /// Held by who waits for the kernel to write pages back.
    pub(crate) writing_back: Mutex<()>,
    kernel: OnceLock<Arc<dyn Kernel>>,
    /// At the end: the plain trees show what the catalog says.
    pub(crate) trees_in_step: AtomicBool,
    /// Cleared for good when the kernel refuses a registration.
    passthrough: AtomicBool,
    serial: AtomicU64,
    /// How long a flush of the log takes, in nanoseconds: a moving average.
    pub(crate) log_flush: AtomicU64,
}

impl Space {
    /// A space over an open catalog and its pools.
    pub fn new(catalog: Arc<Catalog>, pools: Arc<Pools>, options: SpaceOptions) -> Arc<Self> {
        threads::note_cpus();
        let lost = Arc::new(Lost::default());
        let replaced = Replaced::start(&catalog, &pools, &lost);
        let space = Arc::new_cyclic(|own| Self {
            own: own.clone(),
            replaced,
            lost,
            nodes: Nodes::new(catalog.root().clone()),
            reaper: Reaper::start(catalog.clone(), pools.clone()),
            settler: Settler::default(),
            listing: Listing::default(),
            listings: Listings::default(),
            unlisted: Unlisted::default(),
            headroom: Headroom::default(),
            leaving: Leaving::default(),
            departing: Departing::default(),
            brake: Brake::default(),
            lender: Lender::default(),
            trees: Trees::new(&catalog, &pools, options.trees_in_step),
            away: Away::default(),
            drains: Drains::default(),
            proofs: Proofs::default(),
            writing_back: Mutex::default(),
            passthrough: AtomicBool::new(options.passthrough),
            trees_in_step: AtomicBool::new(false),
            kernel: OnceLock::new(),
            serial: AtomicU64::new(1),
            log_flush: AtomicU64::new(0),
            options,
            catalog,
            pools,
        });
        Settler::start(&space);
        space
    }

    /// The catalog.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The pools.
    pub fn pools(&self) -> &Arc<Pools> {
        &self.pools
    }

    /// Whether, at the end, the plain trees of `mirror` pools show what the catalog says. To be handed to the next start.
    pub fn trees_in_step(&self) -> bool {
        self.trees_in_step.load(Relaxed)
    }

    /// Changes that the plain trees of `mirror` pools do not show yet.
    pub fn trees_behind(&self) -> usize {
        self.trees.waiting()
    }

    /// Whether files are opened in passthrough mode.
    pub fn uses_passthrough(&self) -> bool {
        self.passthrough.load(Relaxed) && self.kernel.get().is_some_and(|kernel| kernel.passthrough())
    }

    pub(crate) fn set_kernel(&self, kernel: Arc<dyn Kernel>) {
        assert!(self.kernel.set(kernel).is_ok(), "a space is attached once");
        for member in self.pools.members() {
            self.prepare(member);
        }
        self.trees.begin();
    }

    fn prepare(&self, member: &PoolMember) {
        member
            .pool
            .prepare_with(Arc::new(Preparer { space: self.own.clone(), in_kernel: member.pool.moves_in_kernel() }));
    }

    /// Gives a space that is in use one more pool, which is empty and has no plain tree: it takes files from now on.
    pub fn add_pool(&self, member: PoolMember) {
        assert!(member.tree.is_none(), "a plain tree is followed from the start on");
        if self.kernel.get().is_some() {
            self.prepare(&member);
        }
        member.pool.begin();
        self.pools.push(member);
    }

    pub(crate) fn own(&self) -> Weak<Self> {
        self.own.clone()
    }

    /// Major and minor number of the mount, once there is one: files in it have them as their device.
    pub fn mounted_as(&self) -> Option<(u32, u32)> {
        self.kernel()?.device()
    }

    pub(crate) fn kernel(&self) -> Option<&Arc<dyn Kernel>> {
        self.kernel.get()
    }

    pub(crate) fn no_passthrough(&self, why: &std::io::Error) {
        if self.passthrough.swap(false, Relaxed) {
            tracing::info!("the kernel refuses passthrough ({why}); files are read and written through the server");
        }
    }

    pub(crate) fn next_serial(&self) -> u64 {
        self.serial.fetch_add(1, Relaxed)
    }

    /// The node of an operation that begins. LATER where who has its file open would have to be waited for.
    pub(crate) fn node(&self, node: NodeId) -> Outcome<Arc<Node>> {
        let node = self.nodes.get(node)?;
        Self::can_lock(&node)?;
        Ok(node)
    }

    /// LATER where the calling thread may not wait, and who has a file open may do so for its pool.
    fn can_lock(node: &Node) -> Outcome<()> {
        hurry::can_lock(&node.open).or_else(|_| hurry::may_wait_for(waits_for(&node.inode)))
    }

    /// What calls about a node wait for that wait for a disk.
    pub(crate) fn waits_for(&self, node: NodeId) -> WaitsFor {
        self.nodes.get(node).map_or(WaitsFor::Anything, |node| waits_for(&node.inode))
    }

    /// LATER where the calling thread may not wait, and a call to the file system that the data of a file is in may have to.
    pub(crate) fn answers_at_once(&self, inode: &Inode, call: Call) -> Outcome<()> {
        if hurry::may_wait().is_ok() {
            return Ok(());
        }
        pool_of(inode).map_or(Ok(()), |pool| self.pools.answers_at_once(pool, call))
    }

    pub(crate) fn inode(&self, node: NodeId) -> Outcome<Arc<Inode>> {
        Ok(self.nodes.get(node)?.inode.clone())
    }

    /// The entry for a file, counted as one look-up.
    pub(crate) fn entry(&self, inode: Arc<Inode>) -> Outcome<Entry> {
        let node = self.nodes.enter(inode);
        self.entry_of(&node, self.attributes_then(&node))
    }

    /// The same for a file that may be in use. LATER where who has it open, or its pool, would have to be waited for.
    pub(crate) fn entry_in_use(&self, inode: Arc<Inode>) -> Outcome<Entry> {
        let node = self.nodes.enter(inode);
        node.inode.note_shown();
        if let Err(later) = Self::can_lock(&node) {
            self.forget_node(node.id, 1);
            return Err(later);
        }
        self.entry_of(&node, self.attributes(&node))
    }

    fn entry_of(&self, node: &Node, attributes: Outcome<AttributesFor>) -> Outcome<Entry> {
        match attributes {
            Ok(attributes) => Ok(Entry { node: node.id, attributes, lifetime: FOREVER }),
            Err(error) => {
                self.forget_node(node.id, 1);
                Err(error)
            }
        }
    }

    pub(crate) fn forget_node(&self, node: NodeId, count: u64) {
        if let Some(node) = self.nodes.forget(node, count) {
            self.let_go_in_time(&node);
        }
    }

    /// The kernel has forgotten a node: what is open behind it is closed, and a file without a name goes for good.
    pub(crate) fn let_go(&self, node: &Arc<Node>) {
        self.let_go_locked(node, node.open.lock());
    }

    /// The same for who has locked what is open. Waits for no node's lock.
    pub(crate) fn let_go_locked(&self, node: &Arc<Node>, mut open: MutexGuard<'_, OpenFile>) {
        // Who is late, and finds another node of the file, leaves it to that one.
        if open.handles > 0 || node.is_known() || !self.nodes.holds(node) {
            return;
        }
        let unnamed = node.inode.lock().record.nlink == 0;
        if unnamed {
            // What is held goes with the file.
            let held = open.grant.held;
            self.measured(node.inode.id, &mut open, 0, held, false);
            self.end_lending(&mut open, false);
            open.grant = Lazy::default();
            let bytes = Self::bytes_of(node, &open);
            self.doom(node, &mut open);
            match self.catalog.remove(&node.inode) {
                Ok(Some((seq, Some(backing)))) => self.reaper.push(node.inode.id, seq, backing, bytes),
                Ok(_) => {}
                Err(error) => tracing::error!("inode {} could not be removed: {error}", node.inode.id),
            }
            self.leaving.end(node.inode.id);
        } else if open.backing.is_some() {
            // The settler closes it and lets the node go.
            self.settler.push(node, &mut open);
            return;
        }
        self.discard(node, &open);
    }

    /// Lets a node go that nobody holds, for who has locked what is open. That of a file that may have lost its last name a moment ago stays:
    /// who took the name, or had looked it up before, is about to remove it, and knows it by this node.
    pub(crate) fn discard(&self, node: &Arc<Node>, open: &OpenFile) {
        let stays = || node.is_to_be_removed() && !self.catalog.goes_with_its_last_file(node.inode.id);
        self.nodes.discard(node, || open.handles == 0 && open.backing.is_none() && !stays());
    }

    /// What a file takes, also where the record does not know yet.
    fn bytes_of(node: &Node, open: &OpenFile) -> u64 {
        let keeps = open.backing.as_deref().is_some_and(|backing| !backing.discards);
        let blocks = if keeps { open.unrecorded() } else { None };
        512 * blocks.unwrap_or_else(|| node.inode.lock().record.blocks)
    }

    /// Closes the backing file of a file about to be removed, and has it marked durably before: no crash
    /// between the removal and the return of the backing file may leak it.
    fn doom(&self, node: &Node, open: &mut OpenFile) {
        let binding = match open.backing.take() {
            Some(mut backing) => {
                self.unregister(&mut backing);
                self.end_fence(&mut backing);
                if backing.claimed {
                    return;
                }
                (backing.pool, backing.binding)
            }
            None => match node.inode.record().backing {
                None => return,
                Some(place) => (
                    place.pool,
                    Binding { file: node.inode.id, generation: place.generation, locator: Locator(place.locator) },
                ),
            },
        };
        // Whoever waits to close a file comes here too, maybe when it is gone and its mark is cleared.
        if node.inode.lock().is_removed() {
            return;
        }
        let Ok(pool) = self.pools.get(binding.0) else { return };
        let doom = || pool.doom(&binding.1);
        let marked = pool.is_marked(&binding.1.locator);
        if let Err(error) = if marked { doom() } else { self.pools.call(binding.0, Call::Flushes, doom) } {
            tracing::error!("the removal of inode {} could not be announced: {error}", node.inode.id);
        }
    }
}

/// What who waits for a disk with a file waits for.
fn waits_for(inode: &Inode) -> WaitsFor {
    pool_of(inode).map_or(WaitsFor::Anything, WaitsFor::Pool)
}
