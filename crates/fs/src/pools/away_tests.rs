//! Files that go on in another pool.

use super::*;
use crate::test_kernel::TestKernel;
use crate::{PoolMember, Pools, SpaceOptions};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use ullage_catalog::{Catalog, CatalogNumbers};
use ullage_kv::{EngineKind, Options, Store};
use ullage_policy::choose::Spread;
use ullage_pool::{Access, Binding, Description, Error, Locator, Pool, Suspect, Tree, Usage, Wait};
use ullage_types::{Bytes, FileId, Generation, NodeId};

/// A pool that says itself how much it has free, and cannot give drafts their names if it is told so.
#[derive(Default)]
pub(crate) struct Named {
    numbers: Option<Arc<CatalogNumbers>>,
    free: u64,
    /// The disk that it is on.
    disk: Option<u64>,
    fails: AtomicBool,
    /// It does not say what it has free.
    pub(crate) is_silent: AtomicBool,
    /// How often a file was to be opened.
    pub(crate) opened: AtomicUsize,
    pub(crate) drafted: Mutex<Vec<Generation>>,
    pub(crate) closed: Mutex<Vec<Generation>>,
    /// Bytes that drafts have beside what is written to them.
    beside: AtomicU64,
    /// How many drafts were to be given their names.
    pub(crate) kept: AtomicUsize,
    /// Held by who has drafts, or their names, wait.
    pub(crate) drafts: Mutex<()>,
    pub(crate) keeps: Mutex<()>,
    /// Held by who has those wait that ask what is free, or have it written out.
    pub(crate) usage: Mutex<()>,
    pub(crate) syncs: Mutex<()>,
}

impl Named {
    fn file(&self, file: Option<FileId>) -> Fresh {
        let (new, generation) = self.numbers.as_ref().unwrap().pair();
        let locator = Locator(generation.0.to_le_bytes().into());
        let binding = Binding { file: file.unwrap_or(new), generation, locator };
        Fresh { binding, file: Arc::new(tempfile::tempfile_in("/dev/shm").unwrap()), prepared: None }
    }

    fn none<T>() -> Result<T, Error> {
        Err(Error::Unusable("no such thing".to_owned()))
    }
}

impl Pool for Named {
    fn create(&self, _: Hint) -> Result<Fresh, Error> {
        Ok(self.file(None))
    }

    fn abandon(&self, _: Fresh) {}

    fn open_waiting(&self, _: &Binding, _: Access, _: Wait) -> Result<File, Error> {
        self.opened.fetch_add(1, Relaxed);
        Self::none()
    }

    fn closed(&self, binding: &Binding) {
        self.closed.lock().push(binding.generation);
    }

    fn release(&self, _: Binding) {}

    fn usage(&self) -> Result<Usage, Error> {
        drop(self.usage.lock());
        if self.is_silent.load(Relaxed) {
            return Self::none();
        }
        Ok(Usage { total: Bytes(1 << 40), free: Bytes(self.free), block: Bytes(4096), ..Usage::default() })
    }

    fn suspects(&self, _: &[u8], _: &mut dyn FnMut(Suspect)) -> Result<(), Error> {
        Ok(())
    }

    fn draft(&self, file: FileId, _: Hint) -> Result<Fresh, Error> {
        let draft = self.file(Some(file));
        if let beside @ 1.. = self.beside.load(Relaxed) {
            rustix::fs::fallocate(&draft.file, FallocateFlags::KEEP_SIZE, 0, beside).unwrap();
        }
        self.drafted.lock().push(draft.binding.generation);
        drop(self.drafts.lock());
        Ok(draft)
    }

    fn keep(&self, _: &Fresh) -> Result<(), Error> {
        self.kept.fetch_add(1, Relaxed);
        drop(self.keeps.lock());
        if self.fails.load(Relaxed) { Self::none() } else { Ok(()) }
    }

    fn recreate(&self, _: &Binding) -> Result<File, Error> {
        Self::none()
    }

    fn describe(&self) -> Description {
        Description {
            kind: "named",
            layout: None,
            path: None,
            fs_type: None,
            unit: 4096,
            extents: false,
            abilities: ullage_pool::Abilities::default(),
            notes: Vec::new(),
        }
    }

    fn device(&self) -> Option<u64> {
        self.disk
    }

    fn sync(&self) -> Result<(), Error> {
        drop(self.syncs.lock());
        Ok(())
    }

    fn close(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// A space of a pool that is nearly full and others that are not, and a file in the first.
pub(crate) fn space_of(dir: &std::path::Path, others: usize) -> (Arc<Space>, Vec<Arc<Named>>, Arc<Node>) {
    space_with(dir, others, None)
}

/// The same, with a plain tree of the last one.
pub(crate) fn space_with(
    dir: &std::path::Path,
    others: usize,
    tree: Option<Arc<Tree>>,
) -> (Arc<Space>, Vec<Arc<Named>>, Arc<Node>) {
    let store = Arc::new(Store::open(dir, EngineKind::Memory, Options::default()).unwrap());
    let catalog = Catalog::open(store, 0, 0, crate::now()).unwrap();
    let named = |free| Arc::new(Named { numbers: Some(catalog.numbers()), free, ..Named::default() });
    let all: Vec<_> = (0..=others as u64).map(|n| named((n << 30) + NEARLY / 2)).collect();
    let member = |(n, pool): (usize, &Arc<Named>)| PoolMember {
        id: PoolId(n as u16),
        name: n.to_string(),
        pool: pool.clone(),
        reserve: Bytes(0),
        tree: tree.clone().filter(|_| n == others),
    };
    let members = all.iter().enumerate().map(member).collect();
    let pools = Arc::new(Pools::new(members, "first-fit".parse::<Spread>().unwrap(), None));
    let space = Space::new(catalog, pools, SpaceOptions::default());
    let caller = Caller { uid: 0, gid: 0, pid: 1 };
    let (entry, _) = space.do_create(caller, NodeId(1), b"file", 0o600, 0, libc::O_WRONLY as u32).unwrap();
    let node = space.node(entry.node).unwrap();
    assert_eq!(lies_in(&node), Some(PoolId(0)));
    node.open.lock().backing.as_deref().unwrap().file.write_all_at(b"data", 0).unwrap();
    (space, all, node)
}

/// A space of pools on these disks, each with so much free, and reserved.
pub(crate) fn space_on(dir: &std::path::Path, disks: &[u64], free: u64, reserve: u64) -> (Arc<Space>, Vec<Arc<Named>>) {
    let store = Arc::new(Store::open(dir, EngineKind::Memory, Options::default()).unwrap());
    let catalog = Catalog::open(store, 0, 0, crate::now()).unwrap();
    let named =
        |&disk| Arc::new(Named { numbers: Some(catalog.numbers()), free, disk: Some(disk), ..Named::default() });
    let all: Vec<_> = disks.iter().map(named).collect();
    let member = |(n, pool): (usize, &Arc<Named>)| PoolMember {
        id: PoolId(n as u16),
        name: n.to_string(),
        pool: pool.clone(),
        reserve: Bytes(reserve),
        tree: None,
    };
    let members = all.iter().enumerate().map(member).collect();
    let pools = Arc::new(Pools::new(members, "first-fit".parse::<Spread>().unwrap(), None));
    (Space::new(catalog, pools, SpaceOptions::default()), all)
}

/// Each write to a file of a full pool left one more number in the leaf, whose mark stayed for good.
#[test]
fn a_copy_that_could_not_be_named_leaves_nothing_in_doubt() {
    let dir = tempfile::tempdir().unwrap();
    let (space, pools, node) = space_of(dir.path(), 1);
    pools[1].fails.store(true, Relaxed);
    for tries in 1..=2 {
        assert!(!space.goes_elsewhere(&node, PoolId(0), 4096, false).unwrap());
        assert_eq!(pools[1].drafted.lock().len(), tries);
        assert_eq!(*pools[1].closed.lock(), *pools[1].drafted.lock());
    }
    pools[1].fails.store(false, Relaxed);
    assert!(space.goes_elsewhere(&node, PoolId(0), 4096, false).unwrap());
    assert_eq!((lies_in(&node), pools[1].closed.lock().len()), (Some(PoolId(1)), 2));
}

/// They waited for each other, also where one that would never end went to another disk.
#[test]
fn who_goes_elsewhere_waits_for_no_other_disk_and_for_nobody_without_end() {
    let dir = tempfile::tempdir().unwrap();
    let (space, _, node) = space_of(dir.path(), 2);
    let copied = space.away.disks.take(PoolId(2)).unwrap();
    let began = Instant::now();
    let other = space.away.disks.take(PoolId(1)).unwrap();
    assert!(!space.goes_elsewhere(&node, PoolId(0), 4096, false).unwrap());
    assert!((PATIENCE..PATIENCE + WRITES.rest + WRITES.busy).contains(&began.elapsed()), "{:?}", began.elapsed());
    drop(other);
    assert!(space.goes_elsewhere(&node, PoolId(0), 4096, false).unwrap());
    assert_eq!(lies_in(&node), Some(PoolId(1)));
    drop(copied);
}

/// Who had asked before was told what it had taken in the old one, for good: the kernel keeps what it knows of a closed file, and no look found
/// the record wrong.
#[test]
fn the_kernel_forgets_how_many_blocks_a_file_had_when_it_has_others_in_another_pool() {
    let dir = tempfile::tempdir().unwrap();
    let (space, pools, node) = space_of(dir.path(), 2);
    let kernel = Arc::new(TestKernel::default());
    space.set_kernel(kernel.clone());
    space.do_fsync(node.id, false).unwrap();
    let blocks = || node.inode.lock().record.blocks;
    for (to, beside, dropped) in [(2, 0, 0), (1, 1 << 16, 1)] {
        pools[to].beside.store(beside, Relaxed);
        let (blocks_before, before) = (blocks(), kernel.dropped.load(Relaxed));
        assert!(space.move_away(&node, lies_in(&node).unwrap(), 0, None).unwrap());
        assert_eq!((lies_in(&node), blocks() > blocks_before), (Some(PoolId(to as u16)), dropped > 0));
        assert_eq!(kernel.dropped.load(Relaxed) - before, dropped);
    }
}
