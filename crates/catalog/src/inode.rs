//! A file in memory: a cache of its records, alive while somebody holds it.

use crate::Result;
use crate::account::Delta;
use crate::directory::{Directory, Dirent};
use crate::ledger::Totals;
use crate::record::Record;
use crate::table::Table;
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use ullage_kv::Kv;
use ullage_types::{FileId, Kind};

const TWICE: u8 = 2;

/// A file of any kind. Locks are taken in the order of file ids (`lock_in_order`), all below the catalog's gate.
#[derive(Debug)]
pub struct Inode {
    /// The file.
    pub id: FileId,
    /// Its kind, which never changes.
    pub kind: Kind,
    /// For directories other than the root: the parent, so that ancestors are always in memory.
    pub(crate) parent: RwLock<Option<Arc<Inode>>>,
    /// For directories: what lies below. Others have none, and it takes no room there.
    totals: OnceLock<Box<Totals>>,
    state: Mutex<State>,
    table: Weak<Table>,
    /// How often somebody who keeps it was shown the record, since that was last asked.
    shown: AtomicU8,
}

/// What changes about a file.
#[derive(Debug)]
pub struct State {
    /// The inode record as of the last commit.
    pub record: Record,
    /// For directories: the entries known in memory.
    pub(crate) directory: Directory,
    /// Bytes held for writes under way ([`crate::Catalog::hold`]).
    pub(crate) held: u64,
    /// No name and no handle leads here any more: the record is gone.
    pub(crate) removed: bool,
}

impl Inode {
    /// Somebody is about to be shown the record, who keeps it.
    pub fn note_shown(&self) {
        if self.shown.load(Relaxed) < TWICE {
            self.shown.store(TWICE, Relaxed);
        }
    }

    /// The same, and this counts once only.
    pub fn note_shown_once(&self) {
        if self.shown.load(Relaxed) < TWICE {
            self.shown.fetch_add(1, Relaxed);
        }
    }

    /// He is shown it while nobody else can change it.
    pub fn note_shown_alone(&self) {
        self.shown.fetch_max(1, Relaxed);
    }

    /// Whether it was shown twice since this was last asked, to make it or otherwise: who changes the record asks afterwards.
    pub fn take_shown(&self) -> bool {
        self.shown.load(Relaxed) > 0 && self.shown.swap(0, Relaxed) >= TWICE
    }

    pub(crate) fn new(
        id: FileId,
        record: Record,
        directory: Directory,
        parent: Option<Arc<Inode>>,
        totals: Option<Totals>,
        table: Weak<Table>,
    ) -> Self {
        Self {
            id,
            kind: record.kind,
            parent: RwLock::new(parent),
            totals: totals.map(|totals| OnceLock::from(Box::new(totals))).unwrap_or_default(),
            state: Mutex::new(State { record, directory, held: 0, removed: false }),
            table,
            shown: AtomicU8::new(1),
        }
    }

    /// The file's state, locked. Hold no other inode's lock: two are taken by the catalog only, in order.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// A copy of the record.
    pub fn record(&self) -> Record {
        self.lock().record.clone()
    }

    /// This file as a holder of totals, where it is a directory.
    pub(crate) fn as_directory(self: &Arc<Self>) -> Option<Arc<Self>> {
        self.is_directory().then(|| self.clone())
    }

    /// Whether this is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }

    /// For directories: what lies below, itself included.
    pub fn totals(&self) -> &Totals {
        self.totals.get_or_init(Box::default)
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            table.gone(self.id);
        }
        // The ancestors that only this one held go one after the other: a tree may be deeper than a stack.
        let mut parent = self.parent.get_mut().take();
        while let Some(mut inode) = parent.and_then(Arc::into_inner) {
            parent = inode.parent.get_mut().take();
        }
    }
}

impl State {
    /// Whether it was removed for good ([`crate::Catalog::remove`]).
    pub fn is_removed(&self) -> bool {
        self.removed
    }

    /// What the file weighs in the ledger: its charge and what is held for it.
    pub(crate) fn weight(&self) -> Delta {
        Delta::plus(self.record.charge()) + Delta::holding(self.held)
    }

    /// Its weight by class: what a directory gains that it moves to.
    pub(crate) fn gain(&self) -> [Delta; 3] {
        let mut gain = [Delta::default(); 3];
        gain[self.record.class as usize] = self.weight();
        gain
    }

    /// The entry of this name in this directory.
    pub(crate) fn find(&mut self, kv: &dyn Kv, directory: FileId, name: &[u8]) -> Result<Option<Dirent>> {
        self.directory.find(kv, directory, self.record.entries, name)
    }
}

/// Locks several files in the order of their ids; the guards come back in the order of the arguments.
/// No file may be named twice.
pub(crate) fn lock_in_order<'a, const N: usize>(inodes: [&'a Inode; N]) -> [MutexGuard<'a, State>; N] {
    let mut order: [usize; N] = std::array::from_fn(|index| index);
    order.sort_unstable_by_key(|&index| inodes[index].id);
    let mut guards: [Option<MutexGuard<'a, State>>; N] = std::array::from_fn(|_| None);
    for index in order {
        guards[index] = Some(inodes[index].lock());
    }
    guards.map(|guard| guard.expect("every file was locked"))
}
