//! Leaf directories: their descriptors, and which of their files a crash could leave in doubt.

use crate::{Error, Marks, Wait};
use parking_lot::{Mutex, RwLock};
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, DirEntry, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use ullage_policy::place::Sparse;
use ullage_types::Generation;

/// With more leaves in use than this, those that nobody came to for a while are closed.
const MANY: usize = 512;

/// A leaf directory in use.
pub struct Leaf {
    /// Its path relative to the pool's root; what [`Marks`] knows it by.
    pub path: Box<str>,
    /// Its series and number, if it is of the shape that new files get.
    pub place: Option<(usize, u32)>,
    dir: Mutex<Option<Arc<OwnedFd>>>,
    doubt: Mutex<Doubt>,
    used: AtomicBool,
}

/// Invariant: `marked` whenever `busy` is not empty.
struct Doubt {
    /// Generations that are ready, open for writing, or being removed.
    busy: FxHashSet<u64>,
    marked: bool,
    /// When `busy` last changed.
    changed: Instant,
}

impl Leaf {
    /// Notes that a file of this leaf may differ from the catalog from now on; returns when that is durable, and
    /// whether it was not noted already.
    pub fn enter(&self, generation: Generation, marks: &dyn Marks) -> Result<bool, Error> {
        let mut doubt = self.doubt.lock();
        if !doubt.marked {
            marks.mark(&[self.path.as_bytes()])?;
            doubt.marked = true;
        }
        doubt.changed = Instant::now();
        Ok(doubt.busy.insert(generation.0))
    }

    /// Whether it is to be marked, and nobody is just doing that.
    pub fn lacks_mark(&self) -> bool {
        self.doubt.try_lock().is_some_and(|doubt| !doubt.marked)
    }

    /// Whether it is marked, and nobody is just changing that.
    pub fn has_mark(&self) -> bool {
        self.doubt.try_lock().is_some_and(|doubt| doubt.marked)
    }

    /// Whether it is known that files of this leaf may differ from the catalog.
    pub fn is_marked(&self) -> bool {
        self.doubt.lock().marked
    }

    /// The file and the catalog agree again.
    pub fn leave(&self, generation: Generation) {
        let mut doubt = self.doubt.lock();
        if doubt.busy.remove(&generation.0) {
            doubt.changed = Instant::now();
        }
    }

    /// Since when this leaf has been marked for nothing.
    fn idle_since(&self) -> Option<Instant> {
        let doubt = self.doubt.try_lock()?;
        (doubt.marked && doubt.busy.is_empty()).then_some(doubt.changed)
    }

    /// Clears the mark if nothing happened since `idle`.
    fn clear(&self, idle: Instant, marks: &dyn Marks) {
        let mut doubt = self.doubt.lock();
        if doubt.marked && doubt.busy.is_empty() && doubt.changed == idle {
            doubt.marked = false;
            marks.clear(self.path.as_bytes());
        }
    }
}

/// The leaves in use.
pub struct Leaves {
    sparse: Sparse,
    known: RwLock<FxHashMap<Box<str>, Arc<Leaf>>>,
    /// How many are kept open.
    open: AtomicUsize,
    /// Most of them.
    most: usize,
}

impl Leaves {
    /// None yet; of which so many are kept open at most.
    pub fn new(sparse: Sparse, most: usize) -> Self {
        Self { sparse, known: RwLock::default(), open: AtomicUsize::new(0), most }
    }

    /// The directory of a leaf. ENOENT when there is none. Where as many as may be are kept open, it is closed after use.
    pub fn dir(&self, leaf: &Leaf, root: impl AsFd, wait: Wait) -> rustix::io::Result<Arc<OwnedFd>> {
        let mut dir = match wait {
            Wait::Disk => leaf.dir.lock(),
            // Who has it may wait for a disk.
            Wait::Nothing => leaf.dir.try_lock().ok_or(Errno::AGAIN)?,
        };
        if let Some(dir) = &*dir {
            return Ok(Arc::clone(dir));
        }
        let opened = Arc::new(match wait {
            Wait::Disk => open_directory(root, &leaf.path)?,
            Wait::Nothing => open_directory_in(root, &leaf.path, ResolveFlags::CACHED)?,
        });
        let more = |open| (open < self.most).then_some(open + 1);
        if self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok() {
            *dir = Some(Arc::clone(&opened));
        }
        Ok(opened)
    }

    /// The leaf with this path, whether or not there is such a directory.
    pub fn get(&self, path: &str) -> Arc<Leaf> {
        if let Some(leaf) = self.known.read().get(path) {
            leaf.used.store(true, Ordering::Relaxed);
            return Arc::clone(leaf);
        }
        let make = || {
            let doubt = Doubt { busy: FxHashSet::default(), marked: false, changed: Instant::now() };
            Arc::new(Leaf {
                path: path.into(),
                place: self.sparse.parse(path),
                dir: Mutex::default(),
                doubt: Mutex::new(doubt),
                used: AtomicBool::new(true),
            })
        };
        Arc::clone(self.known.write().entry(path.into()).or_insert_with(make))
    }

    /// Clears the marks of leaves that were idle for this long, but those to be `kept`. What they hold is flushed first, by `sync`: a file that
    /// is recorded as closed with a size that a power cut takes away would be wrong in an unmarked leaf.
    pub fn clear_idle(
        &self,
        idle_for: Duration,
        kept: impl Fn(&Leaf) -> bool,
        marks: &dyn Marks,
        sync: impl FnOnce() -> bool,
    ) {
        let idle = |leaf: &Arc<Leaf>| {
            leaf.idle_since().filter(|since| since.elapsed() >= idle_for).map(|since| (Arc::clone(leaf), since))
        };
        let idle: Vec<_> = self.known.read().values().filter(|leaf| !kept(leaf)).filter_map(idle).collect();
        if !idle.is_empty() && sync() {
            for (leaf, since) in idle {
                leaf.clear(since, marks);
            }
        }
    }

    /// Closes the leaves that were not used since the last time, and forgets those of them that are not marked, once there are
    /// many or no more may be open.
    pub fn trim(&self) {
        let mut leaves = self.known.write();
        if leaves.len() > MANY || self.open.load(Ordering::Relaxed) >= self.most {
            leaves.retain(|_, leaf| {
                if leaf.used.swap(false, Ordering::Relaxed) || Arc::strong_count(leaf) > 1 {
                    return true;
                }
                if leaf.dir.lock().take().is_some() {
                    self.open.fetch_sub(1, Ordering::Relaxed);
                }
                leaf.doubt.lock().marked
            });
        }
    }
}

/// Marks those that are not marked, and that nobody else is just marking, with one flush.
pub fn mark_all(leaves: &[Arc<Leaf>], marks: &dyn Marks) -> Result<(), Error> {
    let mut doubts = Vec::new();
    let mut paths = Vec::new();
    for leaf in leaves {
        if let Some(doubt) = leaf.doubt.try_lock()
            && !doubt.marked
        {
            doubts.push(doubt);
            paths.push(leaf.path.as_bytes());
        }
    }
    if !paths.is_empty() {
        marks.mark(&paths)?;
    }
    for doubt in &mut doubts {
        doubt.marked = true;
        doubt.changed = Instant::now();
    }
    Ok(())
}

/// Opens a directory below the root; symbolic links are not followed, anywhere on the path.
pub fn open_directory(root: impl AsFd, path: &str) -> rustix::io::Result<OwnedFd> {
    open_directory_in(root, path, ResolveFlags::empty())
}

fn open_directory_in(root: impl AsFd, path: &str, resolve: ResolveFlags) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = resolve | ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)
}

/// What an entry is. Not every file system says so in its directories; unknown is what is gone by now.
pub fn kind_of(dir: impl AsFd, entry: &DirEntry) -> rustix::io::Result<FileType> {
    if entry.file_type() != FileType::Unknown {
        return Ok(entry.file_type());
    }
    match rustix::fs::statat(dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(FileType::from_raw_mode(stat.st_mode)),
        Err(Errno::NOENT) => Ok(FileType::Unknown),
        Err(errno) => Err(errno),
    }
}

/// Opens a directory of the pool's own right below the root; makes it where there is none.
pub fn own_directory(root: impl AsFd, name: &str) -> rustix::io::Result<OwnedFd> {
    match make_own(&root, name) {
        Ok(()) | Err(Errno::EXIST) => open_directory(root, name),
        Err(errno) => Err(errno),
    }
}

/// Makes a directory of the pool's own. A default ACL of the one above would be that of every backing file.
pub fn make_own(root: impl AsFd, name: &str) -> rustix::io::Result<()> {
    rustix::fs::mkdirat(&root, name, Mode::from_raw_mode(0o700))?;
    if name.contains('/') {
        return Ok(());
    }
    let made = open_directory(root, name)?;
    for acl in ["system.posix_acl_default", "system.posix_acl_access"] {
        match rustix::fs::fremovexattr(&made, acl) {
            Ok(()) | Err(Errno::NODATA | Errno::NOTSUP) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dir::written::Written;
    use crate::testing::NoMarks;
    use std::fs::File;
    use std::sync::mpsc;

    /// Looks at a leaf from another thread while it is being marked.
    struct Looking(Arc<Leaf>, Mutex<Option<bool>>);

    impl Marks for Looking {
        fn mark(&self, _: &[&[u8]]) -> Result<(), Error> {
            let (leaf, (told, tells)) = (Arc::clone(&self.0), mpsc::channel());
            std::thread::spawn(move || told.send(leaf.lacks_mark()));
            *self.1.lock() = tells.recv_timeout(Duration::from_secs(5)).ok();
            Ok(())
        }

        fn clear(&self, _: &[u8]) {}
    }

    /// Who read files in many leaves left no descriptors for anybody.
    #[test]
    fn few_leaves_stay_open_and_marked_ones_are_closed_as_well() {
        let root = tempfile::tempdir().unwrap();
        let top = File::open(root.path()).unwrap();
        let leaves = Leaves::new(Sparse::default(), 3);
        let open = |number: u32| {
            let leaf = leaves.get(&Sparse::default().leaf(0, number));
            std::fs::create_dir_all(root.path().join(&*leaf.path)).unwrap();
            leaf.enter(Generation(1), &NoMarks).unwrap();
            assert!(rustix::fs::fstat(leaves.dir(&leaf, &top, Wait::Disk).unwrap()).is_ok());
        };
        let is_open = |number: u32| leaves.get(&Sparse::default().leaf(0, number)).dir.lock().is_some();
        (0..20).for_each(open);
        assert_eq!((0..20).filter(|number| is_open(*number)).count(), 3);
        leaves.trim();
        leaves.trim();
        (10..13).for_each(open);
        assert_eq!((0..20).filter(|number| is_open(*number)).collect::<Vec<_>>(), [10, 11, 12]);
        assert!((0..20).all(|number| leaves.get(&Sparse::default().leaf(0, number)).is_marked()));
    }

    /// syncfs(2) fails once: a second later the marks were gone, and nobody found what a reboot took of the files there.
    #[test]
    fn a_leaf_stays_marked_once_something_could_not_be_written() {
        let (leaves, written) = (Leaves::new(Sparse::default(), 8), Written::default());
        let clear = |sync: &mut dyn FnMut() -> rustix::io::Result<()>| {
            leaves.clear_idle(Duration::ZERO, |_| false, &NoMarks, || written.out(sync).is_ok() && written.all());
        };
        let leaf = leaves.get("2-512/000.0/000");
        let mark = || mark_all(&[Arc::clone(&leaf)], &NoMarks).unwrap();
        mark();
        clear(&mut || Ok(()));
        assert!(!leaf.is_marked());
        mark();
        clear(&mut || Err(Errno::IO));
        clear(&mut || Ok(()));
        assert!(leaf.is_marked());
    }

    /// Who marked leaves ahead for one series waited for the flush of another's.
    #[test]
    fn nobody_waits_for_a_mark_that_is_being_set_to_learn_that_it_is() {
        let leaf = Leaves::new(Sparse::default(), 8).get("2-512/000.0/000");
        assert!(leaf.lacks_mark());
        let looking = Looking(Arc::clone(&leaf), Mutex::default());
        mark_all(&[Arc::clone(&leaf)], &looking).unwrap();
        assert_eq!(*looking.1.lock(), Some(false));
        assert!(leaf.is_marked() && !leaf.lacks_mark());
    }
}
