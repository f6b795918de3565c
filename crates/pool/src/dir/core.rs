//! What callers and the worker of a `dir` pool share.

use super::floor::Floor;
use super::flusher::Flusher;
use super::known::Known;
use super::leaf::{self, Leaf, Leaves};
use super::marker::Claim;
use super::notes::Notes;
use super::probe::{self, Abilities};
use super::record::{self, Record};
use super::series::Series;
use super::stats::Counters;
use super::written::Written;
use super::{PoolConfig, name};
use crate::descriptors::Descriptors;
use crate::sys;
use crate::which::Which;
use crate::{Binding, Error, Fences, Fresh, Hint, Marks, Numbers, Prepare, Prepared, Wait};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use std::fs::File;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use ullage_policy::place;
use ullage_policy::ready::Held;
use ullage_types::{FileId, Generation};

/// Most ready files of a pool, however many descriptors there may be.
const MOST_READY: u32 = 8192;

/// Most emptied files of a pool. Using a file again costs less than removing it and making another, on ext4 by far: for
/// minutes it passes over each inode that was deleted, one by one, whenever it makes a file.
pub const MOST_STOCK: u32 = 65_536;

/// Puts a file into a leaf under a name, with its record.
pub type How<'a> = &'a dyn Fn(&OwnedFd, &str, &Record) -> rustix::io::Result<File>;

/// Shared state of a pool.
pub struct Core {
    pub path: PathBuf,
    pub claim: Claim,
    pub config: PoolConfig,
    pub abilities: Abilities,
    /// The name of the file system below.
    pub fs_type: String,
    /// How much the file system below gives a file at once.
    pub unit: u64,
    /// The seconds that it can keep as times.
    pub times: RangeInclusive<i64>,
    /// To how much it cuts them.
    pub granularity: Duration,
    /// See [`probe::extents`].
    pub extents: bool,
    /// The kernel's quota around single files, or why there is none.
    pub fences: Result<Fences, String>,
    pub descriptors: Descriptors,
    /// `st_dev` of the root.
    pub device: u64,
    pub disk: u64,
    pub numbers: Arc<dyn Numbers>,
    pub marks: Notes,
    /// What it leaves to others.
    pub floor: Arc<Floor>,
    pub leaves: Leaves,
    /// Files that are known to be whose their names say.
    pub known: Known,
    pub written: Written,
    pub series: Box<[Series]>,
    /// Ready files of all series; each holds a descriptor.
    pub ready: AtomicU32,
    /// Most of them, by the descriptors that this process may have.
    pub most_ready: u32,
    /// Threads that take files back.
    pub taking: AtomicU32,
    /// Emptied files of all series.
    pub stocked: AtomicU32,
    /// Most of them, by the inodes that are free.
    pub most_stock: AtomicU32,
    /// Marks leaves ahead, and clears the marks of those at rest.
    pub flusher: Flusher,
    /// Nothing is made ready any more.
    pub closing: AtomicBool,
    /// The file system below has no files without names: drafts have another one.
    names_drafts: AtomicBool,
    pub counters: Counters,
    prepare: OnceLock<Arc<dyn Prepare>>,
    random: AtomicU64,
}

impl Core {
    pub fn new(
        path: PathBuf,
        claim: Claim,
        config: PoolConfig,
        abilities: Abilities,
        (device, disk): (u64, u64),
        numbers: Arc<dyn Numbers>,
        marks: Arc<dyn Marks>,
    ) -> Self {
        let series = (0..config.sparse.series()).map(|_| Series::default()).collect();
        let descriptors = Descriptors::of_this_process();
        let floor = Arc::new(Floor::default());
        let marks = Notes::open(&claim.root, marks, floor.clone());
        let fs_type = probe::fs_type(&claim.root);
        let fences = Fences::find(&claim.root, claim.pool, &fs_type);
        let seed = u64::from_le_bytes(claim.pool.0.split_at(8).0.try_into().unwrap_or_default());
        Self {
            device,
            disk,
            unit: probe::unit(&claim.root),
            times: probe::times(&claim.root),
            granularity: probe::granularity(&claim.root),
            extents: probe::extents(&claim.root),
            fences,
            fs_type,
            descriptors,
            leaves: Leaves::new(config.sparse, usize::try_from(descriptors.limit() / 8).unwrap_or(usize::MAX)),
            known: Known::default(),
            written: Written::default(),
            series,
            ready: AtomicU32::new(0),
            most_ready: u32::try_from(descriptors.limit() / 4).unwrap_or(u32::MAX).min(MOST_READY),
            taking: AtomicU32::new(0),
            stocked: AtomicU32::new(0),
            most_stock: AtomicU32::new(0),
            flusher: Flusher::default(),
            closing: AtomicBool::new(false),
            names_drafts: AtomicBool::new(false),
            counters: Counters::default(),
            prepare: OnceLock::new(),
            random: AtomicU64::new(seed ^ u64::from(std::process::id())),
            path,
            claim,
            config,
            abilities,
            numbers,
            marks,
            floor,
        }
    }

    /// The series of a new file.
    pub fn place(&self, hint: Hint) -> usize {
        self.config.sparse.place(self.config.node, hint.parent, hint.pid, self.random())
    }

    /// A random number (splitmix64); it decides between sibling directories and nothing else.
    fn random(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let z = self.random.fetch_add(STEP, Ordering::Relaxed);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Has files prepared from now on.
    pub fn prepare_with(&self, prepare: Arc<dyn Prepare>) {
        assert!(self.prepare.set(prepare).is_ok(), "a pool's files are prepared in one way");
    }

    /// What was prepared, of a file that was moved since.
    pub fn prepared_again(&self, prepared: Option<Prepared>, file: &File) -> Option<Prepared> {
        self.prepare.get()?.moved(prepared?, file)
    }

    /// One more ready file of a series.
    pub fn put(&self, series: usize, mut fresh: Fresh) {
        if fresh.prepared.is_none() {
            fresh.prepared = self.prepare.get().and_then(|prepare| prepare.prepare(&fresh.file));
        }
        self.series[series].put(fresh);
        self.ready.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs what takes files back.
    pub fn takes<T>(&self, work: impl FnOnce() -> T) -> T {
        self.taking.fetch_add(1, Ordering::SeqCst);
        let outcome = work();
        self.taking.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    /// Whether files wait to be taken back, or are.
    pub fn is_taking(&self) -> bool {
        self.series.iter().any(Series::has_released) || self.taking.load(Ordering::SeqCst) > 0
    }

    /// How many files are held ready, for a series to decide by.
    pub fn held(&self, series: usize) -> Held {
        let series = &self.series[series];
        let all = self.ready.load(Ordering::Relaxed);
        Held { ready: series.ready(), target: series.target(), all, most: self.most_ready }
    }

    pub fn root(&self) -> &OwnedFd {
        &self.claim.root
    }

    pub fn full_path(&self, leaf: &str, name: &str) -> PathBuf {
        Path::new(&self.path).join(leaf).join(name)
    }

    /// The directory of a leaf that a binding names.
    pub fn leaf_dir(&self, leaf: &Leaf) -> rustix::io::Result<Arc<OwnedFd>> {
        self.leaves.dir(leaf, self.root(), Wait::Disk)
    }

    pub fn record(&self, file: FileId, generation: Generation) -> Record {
        Record { space: self.config.space.short(), file, generation, annotation: None, inode: None }
    }

    /// Writes the extended attribute, where the file system below has them. Beside a plain tree, where people make copies, it
    /// says of which inode it is.
    pub fn write_record(&self, file: impl AsFd, record: &Record) -> rustix::io::Result<()> {
        if self.abilities.xattrs {
            let mut record = *record;
            if self.config.layout == "mirror" {
                record.inode = Some(Which::of(&file)?);
            }
            rustix::fs::fsetxattr(file, record::NAME, &record.encode(), XattrFlags::empty())?;
        }
        Ok(())
    }

    /// The extended attribute of a backing file of this space, if it has a whole one.
    pub fn read_record(&self, file: impl AsFd) -> rustix::io::Result<Option<Record>> {
        Ok(record::of(file)?.filter(|record| self.config.space.0.starts_with(&record.space)))
    }

    /// Makes a new backing file in this series, in the leaf where the rule says. The leaf is marked before.
    pub fn make(&self, index: usize) -> Result<Fresh, Error> {
        self.floor.admit(self.root()).map_err(Error::io("make a file in", &self.path))?;
        self.bind(index, None, &|leaf, name, record| self.make_file(leaf, name, record))
    }

    /// The same, of a file that `how` puts into the leaf under the name; for a file that there is, or a new one.
    pub fn bind(&self, index: usize, file: Option<FileId>, how: How<'_>) -> Result<Fresh, Error> {
        let mut guard = self.series[index].leaves.lock();
        let (leaves, number, leaf) = self.next_leaf(index, &mut guard)?;
        let fresh = self.make_in(&leaf, file, how)?;
        leaves.took(number);
        Ok(fresh)
    }

    /// The leaf that the next file of a series goes to, and its number; marked, as far as nobody is just doing that.
    pub fn next_leaf<'a>(
        &self,
        index: usize,
        known: &'a mut Option<place::Leaves>,
    ) -> Result<(&'a mut place::Leaves, u32, Arc<Leaf>), Error> {
        let series = &self.series[index];
        let leaves = match known {
            Some(leaves) => leaves,
            none => none.insert(place::Leaves::new(self.config.sparse.entries, self.count_leaves(index)?)),
        };
        let number = loop {
            match leaves.next() {
                place::Next::Use(number) => break number,
                place::Next::Count(number) => {
                    let path = self.config.sparse.leaf(index, number);
                    let files = match self.count_files(&path) {
                        // Where it cannot be read nothing is put either.
                        Err(error) if error.is_damage() => self.config.sparse.entries.into(),
                        counted => counted?,
                    };
                    leaves.learn(number, files);
                }
                place::Next::Make(number) => {
                    self.make_leaf(&self.config.sparse.leaf(index, number))?;
                    leaves.learn(number, 0);
                }
            }
        };
        if series.filling() != Some(number) {
            series.fill(number);
            self.flusher.mark_ahead();
        }
        let leaf = self.leaves.get(&self.config.sparse.leaf(index, number));
        if !leaf.is_marked() {
            self.mark_ahead()?;
        }
        Ok((leaves, number, leaf))
    }

    fn make_in(&self, leaf: &Leaf, file: Option<FileId>, how: How<'_>) -> Result<Fresh, Error> {
        let dir = self.leaf_dir(leaf).map_err(Error::io("open", self.path.join(&*leaf.path)))?;
        let (new, generation) = self.numbers.next();
        let file = file.unwrap_or(new);
        leaf.enter(generation, &self.marks)?;
        let name = name::of(file, generation);
        let made = how(&dir, &name, &self.record(file, generation));
        if made.is_err() {
            leaf.leave(generation);
        }
        let opened = made.map_err(Error::io("create", self.full_path(&leaf.path, &name)))?;
        let binding = Binding { file, generation, locator: name::locator(&leaf.path, &name) };
        Ok(Fresh { binding, file: Arc::new(opened), prepared: None })
    }

    fn make_file(&self, dir: &OwnedFd, name: &str, record: &Record) -> rustix::io::Result<File> {
        // O_EXCL: should numbers ever repeat, nobody gets a file with another's bytes.
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o600))?;
        if let Err(errno) = self.descriptors.admit(&opened).and_then(|()| self.write_record(&opened, record)) {
            // Best effort: the leaf is marked, so a leftover is found again.
            let _ = rustix::fs::unlinkat(dir, name, rustix::fs::AtFlags::empty());
            return Err(errno);
        }
        Ok(opened.into())
    }

    /// Makes a backing file without its name: without any, where the file system below has such files, else under another one.
    pub fn make_draft(&self, dir: &OwnedFd, name: &str, record: &Record) -> rustix::io::Result<File> {
        let opened = match sys::unnamed(dir) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::ISDIR | Errno::INVAL) => {
                self.names_drafts.store(true, Ordering::Relaxed);
                return self.make_file(dir, &name::of_draft(name), record);
            }
            opened => opened?,
        };
        self.descriptors.admit(&opened)?;
        self.write_record(&opened, record)?;
        Ok(opened.into())
    }

    /// Gives it the name that its binding says.
    pub fn keep_draft(&self, draft: &Fresh) -> Result<(), Error> {
        let (path, name) = name::split_binding(&draft.binding)?;
        let fail = |errno| Error::io("create", self.full_path(path, name))(errno);
        let leaf = self.leaves.get(path);
        let dir = self.leaf_dir(&leaf).map_err(fail)?;
        let names = self.names_drafts.load(Ordering::Relaxed);
        if names {
            rustix::fs::renameat(&dir, name::of_draft(name), &dir, name).map_err(fail)?;
        } else {
            let own = sys::by_descriptor(&draft.file);
            rustix::fs::linkat(rustix::fs::CWD, own, &dir, name, AtFlags::SYMLINK_FOLLOW).map_err(fail)?;
        }
        let flushed = rustix::fs::fsync(&draft.file);
        let flushed = flushed.and_then(|()| if names { rustix::fs::fsync(&dir) } else { Ok(()) });
        flushed.map_err(|errno| {
            // The file goes on where it was. What has its number and the newer generation would be taken for it should its record be lost.
            let left = rustix::fs::unlinkat(&dir, name, AtFlags::empty());
            // That is on disk before the leaf's mark goes, as all is. What cannot be taken away stays in doubt, under a number that nobody ends.
            let kept = if left.is_err() { leaf.enter(self.numbers.next().1, &self.marks).map(drop) } else { Ok(()) };
            if let Err(error) = kept {
                tracing::warn!(%error, "a copy that was not finished may stay in the pool");
            }
            fail(errno)
        })
    }

    /// Takes a draft away that was not kept.
    pub fn drop_draft(&self, binding: &Binding) {
        let Ok((path, name)) = name::split_binding(binding) else { return };
        let leaf = self.leaves.get(path);
        if self.names_drafts.load(Ordering::Relaxed) {
            let gone = self.leaf_dir(&leaf).and_then(|dir| {
                match rustix::fs::unlinkat(&dir, name::of_draft(name), AtFlags::empty()) {
                    Err(Errno::NOENT) => Ok(()),
                    gone => gone,
                }
            });
            if let Err(error) = gone {
                // Its leaf stays marked: the next start finds it.
                tracing::warn!(%error, "a copy that was not finished stays in the pool until the next start");
                return;
            }
        }
        leaf.leave(binding.generation);
    }

    /// Gives a file that is there a second name in a leaf, and its record. It is named first: without a name no crash can
    /// find a record on it that nobody knows.
    pub fn link_file(
        &self,
        above: BorrowedFd<'_>,
        old: &[u8],
        dir: &OwnedFd,
        name: &str,
        record: &Record,
    ) -> rustix::io::Result<File> {
        rustix::fs::linkat(above, old, dir, name, AtFlags::empty())?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let written = rustix::fs::openat(dir, name, flags, Mode::empty())
            .and_then(|opened| self.write_record(&opened, record).map(|()| opened));
        if written.is_err() {
            // Best effort: the leaf is marked, so a leftover is found again.
            let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
        }
        Ok(written?.into())
    }

    /// Makes the lost file of a binding again, empty.
    pub fn recreate(&self, binding: &Binding) -> Result<File, Error> {
        let (path, name) = name::split_binding(binding)?;
        self.make_leaf(path)?;
        let leaf = self.leaves.get(path);
        let dir = self.leaf_dir(&leaf).map_err(Error::io("open", self.path.join(path)))?;
        let entered = leaf.enter(binding.generation, &self.marks)?;
        // The series counts anew when it next needs a leaf; this one may exceed its entries until then.
        let made = self.make_file(&dir, name, &self.record(binding.file, binding.generation));
        if made.is_err() && entered {
            leaf.leave(binding.generation);
        }
        made.map_err(Error::io("create", self.full_path(path, name)))
    }

    /// How many leaves a series has: they are made in order and never removed.
    pub fn count_leaves(&self, index: usize) -> Result<u32, Error> {
        let exists = |number: u32| {
            let path = self.config.sparse.leaf(index, number);
            match rustix::fs::statat(self.root(), &path, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => Ok(true),
                Err(Errno::NOENT) => Ok(false),
                Err(errno) => Err(Error::io("look for", self.path.join(path))(errno)),
            }
        };
        let mut above = 1;
        while exists(above - 1)? {
            above *= 2;
        }
        // The first that is missing lies in (above / 2 - 1, above - 1].
        let (mut low, mut high) = (above / 2, above - 1);
        while low < high {
            let middle = low.midpoint(high);
            if exists(middle)? {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// How many files there are in a leaf.
    pub fn count_files(&self, path: &str) -> Result<u32, Error> {
        let fail = |errno| Error::io("list", self.path.join(path))(errno);
        let dir = leaf::open_directory(self.root(), path).map_err(fail)?;
        let mut files = 0;
        for entry in rustix::fs::Dir::read_from(&dir).map_err(fail)? {
            let kind = leaf::kind_of(&dir, &entry.map_err(fail)?).map_err(fail)?;
            files += u32::from(kind != rustix::fs::FileType::Directory);
        }
        Ok(files)
    }

    /// Makes a leaf and what is above it, so that they are there when a file in it is flushed: once per `entries` files.
    fn make_leaf(&self, path: &str) -> Result<(), Error> {
        for (at, _) in path.match_indices('/').chain([(path.len(), "")]) {
            let part = &path[..at];
            match leaf::make_own(self.root(), part) {
                Ok(()) if self.abilities.ordered => {}
                Ok(()) => {
                    let above = part.rsplit_once('/').map_or(".", |(above, _)| above);
                    let above =
                        leaf::open_directory(self.root(), above).map_err(Error::io("open", self.path.join(above)))?;
                    rustix::fs::fsync(above).map_err(Error::io("flush", self.path.join(part)))?;
                }
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(Error::io("create", self.path.join(part))(errno)),
            }
        }
        Ok(())
    }
}
