//! The `dir` pool: backing files in a directory of any file system, in the `sparse` layout.
//!
//! Crash rules. Every file that is ready, open for writing or being taken back is in a leaf that was marked durably
//! before; a process killed at any point leaves nothing else in doubt. Creating is: file, attribute, hand out. Recycling
//! is: empty, new attribute, new name. A crash between two steps leaves a file whose name or attribute no catalog knows.
//! Marks are cleared after a flush of the whole file system below, and never before recovery is over. The pool notes them too, for a catalog that is older
//! than it ([`notes`]). A synced file is expected to keep its name, which ext4, xfs and btrfs give (creation, rename and
//! attribute are in the log before the file's own flush returns).

mod ahead;
mod clear;
mod config;
mod core;
mod floor;
mod flusher;
mod inbox;
mod known;
mod leaf;
mod marker;
pub(crate) mod name;
mod notes;
mod probe;
mod quarantine;
pub(crate) mod record;
mod retire;
mod series;
mod spare;
mod stats;
mod survey;
mod suspects;
mod worker;
mod written;

pub use clear::clear;
pub use config::{PoolConfig, Uuid};
pub(crate) use floor::Floor;
pub(crate) use leaf::{kind_of, make_own, own_directory};
pub use marker::NAME as MARKER;
pub(crate) use marker::{fuzz as fuzz_marker, open_root};
pub use probe::Abilities;
pub use record::Annotation;
pub use stats::Stats;
pub use survey::{Survey, Surveyed};

use self::core::Core;
use crate::which::Which;
use crate::{
    Access, Binding, Description, Error, Fences, Fresh, Hint, Locator, Marks, Numbers, Pool, Prepare, Suspect, Usage,
    Wait,
};
use inbox::Inbox;
use parking_lot::Mutex;
use quarantine::Quarantine;
use rustix::fd::BorrowedFd;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use stats::count;
use std::fs::File;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;
use ullage_types::{Bytes, FileId};
use worker::Worker;

/// Files that a create without a ready one tries to recycle before it makes one.
const INLINE_TRIES: u32 = 2;

/// A pool in a directory, in the `sparse` layout.
pub struct DirPool {
    core: Arc<Core>,
    inbox: Arc<Inbox>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl DirPool {
    /// Opens the pool in this directory; at first use (`config.pool` is `None`) the directory must be empty.
    ///
    /// [`Error::Unusable`] says what is wrong with the directory and what to do about it.
    pub fn open(
        path: &Path,
        config: PoolConfig,
        numbers: Arc<dyn Numbers>,
        marks: Arc<dyn Marks>,
    ) -> Result<Self, Error> {
        config.sparse.validate().map_err(|why| Error::Unusable(format!("the pool {}: {why}", path.display())))?;
        let claim = marker::claim(path, config.space, config.pool)?;
        let (space, own, first) = (config.space, claim.pool, claim.first);
        let opened = Self::open_claimed(path, claim, config, numbers, marks);
        if first
            && opened.is_err()
            && let Err(error) = clear(path, space, own, &[])
        {
            tracing::warn!(pool = %path.display(), "it could not be made a pool, and is not as it was: {error}");
        }
        opened
    }

    fn open_claimed(
        path: &Path,
        claim: marker::Claim,
        config: PoolConfig,
        numbers: Arc<dyn Numbers>,
        marks: Arc<dyn Marks>,
    ) -> Result<Self, Error> {
        let abilities = probe::abilities(&claim.root, path)?;
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if !abilities.xattrs {
            tracing::warn!(
                pool = %path.display(),
                "no user extended attributes here: the pool works, but a lost catalog can be rebuilt without owners only"
            );
        }
        let device = rustix::fs::fstat(&claim.root).map_err(Error::io("look at", &path))?.st_dev;
        let disk = crate::disk_of(&claim.root).map_err(Error::io("look at", &path))?;
        let core = Arc::new(Core::new(path, claim, config, abilities, (device, disk), numbers, marks));
        let quarantine = Quarantine::load(&core).map_err(Error::io("look through quarantine of", &core.path))?;
        let inbox = Arc::new(Inbox::default());
        let opened = Self { core, inbox, threads: Mutex::default() };
        let (core, inbox) = (Arc::clone(&opened.core), Arc::clone(&opened.inbox));
        opened.start("ullage-pool", move || Worker::new(&core, quarantine).run(&inbox))?;
        let core = Arc::clone(&opened.core);
        opened.start("pool-flusher", move || core.flusher.run(&core))?;
        Ok(opened)
    }

    /// Refuses a directory that [`DirPool::open`] would refuse for a pool of this space, unless it is only in use now. Nothing is
    /// changed.
    pub fn examine(path: &Path, space: Uuid, pool: Option<Uuid>) -> Result<(), Error> {
        marker::examine(path, space, pool)
    }

    /// Makes an empty directory a pool of this space that is not used yet: nothing else is taken for it then. Which pool it is.
    pub fn found(path: &Path, space: Uuid) -> Result<Uuid, Error> {
        marker::claim(path, space, None).map(|claim| claim.pool)
    }

    /// Whether a directory is a pool already, of whatever space.
    ///
    /// # Errors
    /// Those of stat(2), but for ENOENT: its disk may fail.
    pub fn is_in(path: &Path) -> std::io::Result<bool> {
        path.join(marker::NAME).try_exists()
    }

    /// Which pool this is: to be expected at the next use.
    pub fn uuid(&self) -> Uuid {
        self.core.claim.pool
    }

    /// Whether this is the directory's first use as a pool.
    pub fn is_first_use(&self) -> bool {
        self.core.claim.first
    }

    /// Counters since the pool was opened.
    pub fn stats(&self) -> Stats {
        self.core.counters.read()
    }

    /// Backing files that are ready now.
    pub fn ready(&self) -> u32 {
        self.core.ready.load(Ordering::Relaxed)
    }

    /// The attribute is read at every open: name and attribute together then rule out a file that was moved or restored by
    /// hand, and an open still takes 2.9 µs (1.2 µs for a plain one on the same ext4). Who may not wait takes the inode in which it was read before.
    fn open_at(
        &self,
        binding: &Binding,
        leaf: &leaf::Leaf,
        name: &str,
        access: Access,
        wait: Wait,
    ) -> Result<File, Error> {
        let fail = |errno| match errno {
            Errno::NOENT | Errno::LOOP => name::mismatch(binding),
            errno => Error::io("open", self.core.full_path(&leaf.path, name))(errno),
        };
        let (xattrs, known) = (self.core.abilities.xattrs, &self.core.known);
        let which = match wait {
            Wait::Nothing if xattrs => Some(known.which(binding.generation).ok_or(Errno::AGAIN).map_err(fail)?),
            _ => None,
        };
        let dir = self.core.leaves.dir(leaf, self.core.root(), wait).map_err(fail)?;
        let access = match access {
            Access::Read => OFlags::RDONLY,
            Access::Write => OFlags::RDWR,
        };
        let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if wait == Wait::Nothing {
            let file = rustix::fs::openat2(&*dir, name, flags, Mode::empty(), ResolveFlags::CACHED).map_err(fail)?;
            self.core.descriptors.admit(&file).map_err(fail)?;
            return match which {
                Some(which) if Which::of(&file) != Ok(which) => Err(fail(Errno::AGAIN)),
                _ => Ok(file.into()),
            };
        }
        let file = rustix::fs::openat(&*dir, name, flags, Mode::empty()).map_err(fail)?;
        self.core.descriptors.admit(&file).map_err(fail)?;
        if xattrs {
            let record = self.core.read_record(&file).map_err(fail)?;
            if record.map(|record| (record.file, record.generation)) != Some((binding.file, binding.generation)) {
                return Err(name::mismatch(binding));
            }
            known.learn(binding.generation, &file);
        }
        Ok(file.into())
    }

    fn start(&self, name: &str, what: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(what);
        self.threads.lock().push(thread.map_err(Error::io("start a thread for", &self.core.path))?);
        Ok(())
    }

    fn stop(&self) -> bool {
        let threads = std::mem::take(&mut *self.threads.lock());
        if threads.is_empty() {
            return false;
        }
        self.core.closing.store(true, Ordering::Relaxed);
        self.inbox.stop();
        self.core.flusher.stop();
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a background thread of the pool failed; marked leaves stay marked");
            }
        }
        true
    }
}

impl Pool for DirPool {
    fn create(&self, hint: Hint) -> Result<Fresh, Error> {
        let core = &self.core;
        let index = core.place(hint);
        let (ready, low) = core.series[index].take();
        if low {
            self.inbox.poke();
        }
        if let Some(fresh) = ready {
            core.ready.fetch_sub(1, Ordering::Relaxed);
            count(&core.counters.hits);
            return Ok(fresh);
        }
        if let Some(fresh) = core.move_ready(index) {
            return Ok(fresh);
        }
        count(&core.counters.misses);
        // The worker has fallen behind: take over one of the files that wait for it. That is as quick as making one, and
        // keeps those who create and remove faster than it from piling up work.
        if core.config.ready && core.abilities.leases {
            for _ in 0..INLINE_TRIES {
                let series = &core.series[index];
                let taken = core.takes(|| {
                    if let Some(binding) = series.next_released() {
                        Some((core.retire(&binding), binding))
                    } else {
                        series.unstock().map(|binding| (core.reuse(&binding), binding))
                    }
                });
                let Some((fate, binding)) = taken else { break };
                match fate {
                    Ok(retire::Fate::Held) => self.inbox.held(name::of(binding.file, binding.generation)),
                    Ok(_) => {}
                    Err(error) => core.keep(&error),
                }
                if let Some(fresh) = core.series[index].pop() {
                    core.ready.fetch_sub(1, Ordering::Relaxed);
                    return Ok(fresh);
                }
            }
        }
        match core.make(index) {
            Err(error) if error.is_full() => core.make_of_others(index, error),
            made => made,
        }
    }

    fn take_ready(&self, hint: Hint) -> Option<Fresh> {
        let core = &self.core;
        let (fresh, low) = core.series[core.place(hint)].take_ready()?;
        if low {
            self.inbox.poke();
        }
        core.ready.fetch_sub(1, Ordering::Relaxed);
        count(&core.counters.hits);
        Some(fresh)
    }

    fn begin(&self) {
        self.core.flusher.begin();
    }

    fn prepare_with(&self, prepare: Arc<dyn Prepare>) {
        self.core.prepare_with(prepare);
    }

    fn abandon(&self, fresh: Fresh) {
        self.inbox.abandon(fresh);
    }

    fn open_waiting(&self, binding: &Binding, access: Access, wait: Wait) -> Result<File, Error> {
        let (path, name) = name::split_binding(binding)?;
        let leaf = self.core.leaves.get(path);
        match access {
            Access::Read => self.open_at(binding, &leaf, name, access, wait),
            Access::Write => {
                let entered = leaf.enter(binding.generation, &self.core.marks)?;
                let opened = self.open_at(binding, &leaf, name, access, wait);
                if opened.is_err() && entered {
                    leaf.leave(binding.generation);
                }
                opened
            }
        }
    }

    fn closed(&self, binding: &Binding) {
        if let Some((path, _)) = name::split(&binding.locator) {
            self.core.leaves.get(path).leave(binding.generation);
        }
    }

    fn doom(&self, binding: &Binding) -> Result<(), Error> {
        let (path, _) = name::split_binding(binding)?;
        self.core.leaves.get(path).enter(binding.generation, &self.core.marks).map(|_| ())
    }

    fn doubt(&self, leaf: &[u8]) -> Result<(), Error> {
        let path = str::from_utf8(leaf).map_err(|_| Error::Unusable(format!("a leaf is called {leaf:?}")))?;
        // Under a number that nobody ends.
        self.core.leaves.get(path).enter(self.core.numbers.next().1, &self.core.marks).map(drop)
    }

    fn is_marked(&self, locator: &Locator) -> bool {
        name::split(locator).is_none_or(|(path, _)| self.core.leaves.get(path).has_mark())
    }

    fn release(&self, binding: Binding) {
        let place = name::split(&binding.locator).and_then(|(leaf, _)| self.core.leaves.get(leaf).place);
        match place {
            Some((series, _)) => self.inbox.released(self.core.series[series].release(binding)),
            None => self.inbox.release(binding),
        }
    }

    fn is_freeing(&self) -> bool {
        self.core.is_taking()
    }

    fn leave_inodes(&self, least: u64) {
        self.core.floor.set(least);
    }

    fn least_inodes(&self) -> u64 {
        self.core.floor.least()
    }

    fn usage(&self) -> Result<Usage, Error> {
        let stat = rustix::fs::fstatvfs(self.core.root()).map_err(Error::io("measure", &self.core.path))?;
        Ok(Usage {
            total: Bytes(stat.f_blocks.saturating_mul(stat.f_frsize)),
            free: Bytes(stat.f_bavail.saturating_mul(stat.f_frsize)),
            inodes_total: stat.f_files,
            inodes_free: stat.f_favail.saturating_sub(self.core.floor.least()),
            block: Bytes(stat.f_bsize),
        })
    }

    fn suspects(&self, leaf: &[u8], visit: &mut dyn FnMut(Suspect)) -> Result<(), Error> {
        self.core.suspects(leaf, visit)
    }

    fn noted(&self) -> Result<Vec<Box<[u8]>>, Error> {
        self.core.marks.noted().map_err(Error::io("read the notes of", &self.core.path))
    }

    fn forget_note(&self, leaf: &[u8]) {
        self.core.marks.forget(leaf);
    }

    fn newest_leaves(&self) -> Result<Vec<Box<[u8]>>, Error> {
        self.core.newest_leaves()
    }

    /// By the name, since an attribute may already carry the next numbers.
    fn stray(&self, suspect: Suspect) -> Option<Binding> {
        let numbers = name::split(&suspect.locator).and_then(|(_, name)| name::parse(name));
        if numbers.is_none() {
            tracing::warn!(?suspect, "a file that is no backing file of ours is left alone");
        }
        numbers.map(|(file, generation)| Binding { file, generation, locator: suspect.locator })
    }

    fn adopt(&self, hint: Hint, above: BorrowedFd<'_>, name: &[u8]) -> Result<Binding, Error> {
        let core = &self.core;
        let index = core.place(hint);
        Ok(core.bind(index, None, &|leaf, new, record| core.link_file(above, name, leaf, new, record))?.binding)
    }

    fn draft(&self, file: FileId, hint: Hint) -> Result<Fresh, Error> {
        let core = &self.core;
        core.floor.admit(core.root()).map_err(Error::io("make a file in", &core.path))?;
        core.bind(core.place(hint), Some(file), &|leaf, name, record| core.make_draft(leaf, name, record))
    }

    fn keep(&self, draft: &Fresh) -> Result<(), Error> {
        self.core.keep_draft(draft)
    }

    fn drop_draft(&self, draft: Fresh) {
        let Fresh { binding, file, .. } = draft;
        drop(file);
        self.core.drop_draft(&binding);
    }

    fn recreate(&self, binding: &Binding) -> Result<File, Error> {
        self.core.recreate(binding)
    }

    fn annotate(&self, binding: &Binding, annotation: Annotation) -> Result<(), Error> {
        let file = self.open(binding, Access::Read)?;
        let record =
            record::Record { annotation: Some(annotation), ..self.core.record(binding.file, binding.generation) };
        self.core.write_record(&file, &record).map_err(Error::io("annotate", &self.core.path))
    }

    fn annotation(&self, binding: &Binding) -> Result<Option<Annotation>, Error> {
        let file = self.open(binding, Access::Read)?;
        if !self.core.abilities.xattrs {
            return Ok(None);
        }
        let record = self.core.read_record(&file).map_err(Error::io("read", &self.core.path))?;
        Ok(record.and_then(|record| record.annotation))
    }

    fn device(&self) -> Option<u64> {
        Some(self.core.device)
    }

    fn disk(&self) -> Option<u64> {
        Some(self.core.disk)
    }

    fn fences(&self) -> Result<&Fences, &str> {
        self.core.fences.as_ref().map_err(String::as_str)
    }

    fn times(&self) -> RangeInclusive<i64> {
        self.core.times.clone()
    }

    fn granularity(&self) -> Duration {
        self.core.granularity
    }

    fn moves_in_kernel(&self) -> bool {
        probe::moves_in_kernel(&self.core.fs_type)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.stats().named()
    }

    fn describe(&self) -> Description {
        let core = &self.core;
        let mut notes = Vec::new();
        if !core.abilities.xattrs {
            notes.push("no user extended attributes: a lost catalog can be rebuilt without owners only".to_owned());
        }
        if !core.abilities.leases {
            notes.push("no leases: backing files are removed, never used again".to_owned());
        }
        if !self.moves_in_kernel() {
            notes.push(format!("over {}: its data moves through the server", core.fs_type));
        }
        Description {
            kind: "dir",
            layout: Some(core.config.layout),
            path: Some(core.path.clone()),
            fs_type: Some(core.fs_type.clone()),
            unit: core.unit,
            extents: core.extents,
            abilities: core.abilities,
            notes,
        }
    }

    fn backing_path(&self, locator: &Locator) -> Option<PathBuf> {
        name::split(locator).map(|(leaf, name)| self.core.full_path(leaf, name))
    }

    fn write_journal(&self) -> Result<(), Error> {
        self.core.write_journal()
    }

    fn sync(&self) -> Result<(), Error> {
        self.core.sync()
    }

    fn close(&self) -> Result<(), Error> {
        if !self.stop() {
            return Ok(());
        }
        self.core.sync()?;
        if self.core.flusher.has_begun() {
            self.core.leaves.clear_idle(Duration::ZERO, |_| false, &self.core.marks, || self.core.written.all());
        }
        Ok(())
    }
}

impl Drop for DirPool {
    fn drop(&mut self) {
        self.stop();
    }
}
