//! A space on a directory of its own.

use rustix::fs::XattrFlags;
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use ullage_catalog::{Catalog, CatalogMarks, CatalogNumbers, verify};
use ullage_fs::{Caller, Filesystem, PoolMember, Pools, Space, SpaceOptions};
use ullage_kv::{EngineKind, Options, Room, Store};
use ullage_policy::choose::Spread;
use ullage_policy::place::Sparse;
use ullage_pool::{DirPool, Error, Locator, Marks, Numbers, Pool, PoolConfig, Stats, Uuid};
use ullage_types::{Bytes, FileId, Generation, NodeId, PoolId};

pub const ROOT: NodeId = NodeId(1);
pub const CALLER: Caller = Caller { uid: 0, gid: 0, pid: 77 };
const ID: PoolId = PoolId(0);

struct NumbersOf(Arc<CatalogNumbers>);

impl Numbers for NumbersOf {
    fn next(&self) -> (FileId, Generation) {
        self.0.pair()
    }
}

struct MarksOf(Arc<CatalogMarks>);

impl Marks for MarksOf {
    fn mark(&self, leaves: &[&[u8]]) -> Result<(), Error> {
        self.0.mark(leaves).map_err(|error| Error::Unusable(error.to_string()))
    }

    fn clear(&self, leaf: &[u8]) {
        self.0.clear(leaf).unwrap();
    }
}

/// Few files to a leaf, so that a test has many leaves.
const SPARSE: Sparse = Sparse { depth: 2, entries: 8, random_bits: 0, buckets: 1 };

/// Much shorter than those of a space in use, if not said otherwise.
#[derive(Clone, Copy)]
pub struct Times {
    /// After which a leaf has come to rest.
    pub clear_after: Duration,
    /// After which a file nobody has open is closed.
    pub linger: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self { clear_after: Duration::from_millis(50), linger: Duration::from_millis(5) }
    }
}

pub struct Bed {
    dir: TempDir,
    pool: Option<Arc<DirPool>>,
    uuid: Option<Uuid>,
    times: Times,
    marks: Option<Arc<CatalogMarks>>,
    store: Option<Arc<Store>>,
    space: Option<Arc<Space>>,
}

impl Bed {
    pub fn new() -> Self {
        Self::with(Times::default())
    }

    pub fn with(times: Times) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        std::fs::create_dir(dir.path().join("pool")).unwrap();
        Self::on(dir, None, times)
    }

    fn on(dir: TempDir, uuid: Option<Uuid>, times: Times) -> Self {
        let mut bed = Self { dir, pool: None, uuid, times, marks: None, store: None, space: None };
        bed.open();
        bed
    }

    /// A copy of what is on disk of the catalog now; [`Self::after_a_crash`] goes on from it.
    pub fn copy_catalog(&self) {
        copy(&self.dir.path().join("catalog"), &self.dir.path().join("catalog.old"));
    }

    /// Another space of what is on disk of the pool now, and of the catalog's copy.
    pub fn after_a_crash(&self) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        copy(&self.dir.path().join("catalog.old"), &dir.path().join("catalog"));
        copy(&self.dir.path().join("pool"), &dir.path().join("pool"));
        Self::on(dir, self.uuid, self.times)
    }

    /// Leaves that the catalog has marked.
    pub fn marked(&self) -> Vec<Box<[u8]>> {
        self.marks.as_ref().unwrap().marked()
    }

    /// What the pool did.
    pub fn counters(&self) -> Stats {
        self.pool.as_ref().unwrap().stats()
    }

    /// Leaves that hold files.
    pub fn leaves(&self) -> BTreeSet<Box<[u8]>> {
        let pool = self.dir.path().join("pool");
        let leaf = |file: &PathBuf| file.parent().unwrap().strip_prefix(&pool).unwrap().as_os_str().as_bytes().into();
        files(&pool).iter().map(leaf).collect()
    }

    /// From here on until the next start, the catalog has room on its disk where this one says so.
    pub fn set_room(&self, room: Arc<dyn Room>) {
        self.store.as_ref().unwrap().set_room(room);
    }

    fn open(&mut self) {
        let options = Options { log_bytes: 1 << 20, ..Options::default() };
        let store = Arc::new(Store::open(&self.dir.path().join("catalog"), EngineKind::Fjall, options).unwrap());
        let catalog = Catalog::open(store.clone(), 0, 0, ullage_fs::now()).unwrap();
        let marks = Arc::new(catalog.marks(ID).unwrap());
        let config = PoolConfig {
            clear_after: self.times.clear_after,
            sparse: SPARSE,
            ..PoolConfig::new(Uuid([7; 16]), self.uuid)
        };
        let numbers = Arc::new(NumbersOf(catalog.numbers()));
        let pool = DirPool::open(&self.dir.path().join("pool"), config, numbers, Arc::new(MarksOf(marks.clone())));
        let pool = Arc::new(pool.unwrap());
        self.uuid = Some(pool.uuid());
        let member = PoolMember { id: ID, name: "one".into(), pool: pool.clone(), reserve: Bytes(0), tree: None };
        let pools = Arc::new(Pools::new(vec![member], "first-fit".parse::<Spread>().unwrap(), None));
        let options = SpaceOptions { linger: self.times.linger, ..SpaceOptions::default() };
        let space = Space::new(catalog, pools, options);
        space.recover(&[(ID, &marks)]).unwrap();
        pool.begin();
        (self.pool, self.marks, self.store, self.space) = (Some(pool), Some(marks), Some(store), Some(space));
    }

    pub fn space(&self) -> Arc<Space> {
        self.space.clone().unwrap()
    }

    /// Ends the space, checks what it left, and opens it again.
    pub fn reopen(&mut self) {
        self.space.take().unwrap().detach();
        let pool = self.pool.take().unwrap();
        let store = self.store.take().unwrap();
        let marks = self.marks.take().unwrap();
        let none: [Box<[u8]>; 0] = [];
        assert_eq!(marks.marked(), none, "leaves that the catalog still has marked");
        assert_eq!(pool.noted().unwrap(), none, "leaves that the pool still notes");
        let report = verify(&*store).unwrap();
        assert_eq!(report.findings, []);
        assert_eq!(report.orphans, 0);
        let due: BTreeSet<PathBuf> =
            report.due.into_values().map(|due| pool.backing_path(&Locator(due.locator)).unwrap()).collect();
        assert_eq!(files(&self.dir.path().join("pool")), due, "what is in the pool and what should be");
        drop((pool, marks));
        let store = until(store);
        store.close().unwrap();
        self.open();
    }
}

/// A space that nobody detached goes on: thousands of them took all descriptors that there are.
impl Drop for Bed {
    fn drop(&mut self) {
        if let Some(space) = self.space.take().filter(|_| !std::thread::panicking()) {
            space.detach();
        }
    }
}

fn copy(from: &Path, to: &Path) {
    // Fails where a file goes while it is copied.
    while copy_tree(from, to).is_err() {
        std::fs::remove_dir_all(to).unwrap();
    }
}

/// Not by `cp`: what a program that is just being started has inherited counts as open for writing, and files that nobody
/// needs would go into quarantine instead of away.
fn copy_tree(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_tree(&from, &to)?;
        } else {
            std::fs::copy(&from, &to)?;
            let mut names = [0; 4096];
            let length = rustix::fs::listxattr(&from, &mut names[..])?;
            for name in names[..length].split_inclusive(|byte| *byte == 0).filter(|name| name.starts_with(b"user.")) {
                let name = CStr::from_bytes_with_nul(name).unwrap();
                let mut value = [0; 4096];
                let length = rustix::fs::getxattr(&from, name, &mut value[..])?;
                rustix::fs::setxattr(&to, name, &value[..length], XattrFlags::empty())?;
            }
        }
    }
    Ok(())
}

/// Waits until it holds.
pub fn eventually(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The space's threads let go of it when they have ended.
fn until(mut store: Arc<Store>) -> Store {
    for _ in 0..2000 {
        match Arc::try_unwrap(store) {
            Ok(store) => return store,
            Err(shared) => store = shared,
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("something holds the store after the end of the space");
}

fn files(root: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut todo = vec![root.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                // The pool's own marker and notes.
            } else if entry.file_type().unwrap().is_dir() {
                todo.push(entry.path());
            } else {
                found.insert(entry.path());
            }
        }
    }
    found
}
