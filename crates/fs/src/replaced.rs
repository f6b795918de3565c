//! Files that took the names of others by rename(2): what was written to them is on disk before those names are theirs for good, though
//! nobody called fsync(2). ext4 does so (`auto_da_alloc`), and editors count on it: the old file is gone a second later, and after a
//! power cut there would be neither.

use crate::lost::Lost;
use crate::pools::Pools;
use crate::{sys, threads};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use ullage_catalog::{Catalog, Inode};
use ullage_kv::Ahead;
use ullage_pool::{Access, Binding, Locator};
use ullage_types::PoolId;

/// For so long the log waits, and with it everybody: a pool may hang.
const PATIENCE: Duration = Duration::from_secs(1);
/// Of more than so many the later ones are left to the file system below.
const MOST: usize = 65_536;
/// How many are open at once.
const OPEN: usize = 128;
/// Threads at work for one pool: who comes while a large file is written out is not passed over for it. Where all are, it hangs, or is as good as that.
const WRITERS: usize = 4;

/// The files that wait for that.
pub(crate) struct Replaced {
    pools: Arc<Pools>,
    lost: Arc<Lost>,
    waiting: Mutex<Vec<Arc<Inode>>>,
    /// Threads at work, by pool.
    busy: Arc<Mutex<FxHashMap<PoolId, usize>>>,
}

impl Replaced {
    pub(crate) fn start(catalog: &Catalog, pools: &Arc<Pools>, lost: &Arc<Lost>) -> Arc<Self> {
        let (pools, lost) = (pools.clone(), lost.clone());
        let replaced = Arc::new(Self { pools, lost, waiting: Mutex::default(), busy: Arc::default() });
        let ahead: Arc<dyn Ahead> = replaced.clone();
        catalog.kv().set_ahead(Arc::downgrade(&ahead));
        replaced
    }

    /// This regular file took the name of another.
    pub(crate) fn push(&self, file: Arc<Inode>) {
        let mut waiting = self.waiting.lock();
        if waiting.len() < MOST {
            waiting.push(file);
        }
    }

    /// Begins to write out what waits, each pool by itself; gives back how to learn of the ends. Where no thread can be started for that it is done
    /// here: what is not written out now would have its name for good before its data.
    fn begin(&self) -> Vec<mpsc::Receiver<()>> {
        let mut by_pool: FxHashMap<PoolId, Vec<Arc<Inode>>> = FxHashMap::default();
        for file in std::mem::take(&mut *self.waiting.lock()) {
            let pool = file.lock().record.backing.as_ref().map(|place| place.pool);
            if let Some(pool) = pool {
                by_pool.entry(pool).or_default().push(file);
            }
        }
        by_pool.into_iter().filter_map(|(pool, files)| self.begin_in(pool, files)).collect()
    }

    fn begin_in(&self, pool: PoolId, files: Vec<Arc<Inode>>) -> Option<mpsc::Receiver<()>> {
        let own = Busy::enter(&self.busy, pool);
        let Some(own) = own else {
            for file in files {
                self.push(file);
            }
            return None;
        };
        let files = Arc::new(files);
        let (pools, lost, theirs) = (self.pools.clone(), self.lost.clone(), files.clone());
        let (ends, end) = mpsc::channel();
        let started = threads::start("replaced", move || {
            write_out(&pools, &lost, &theirs);
            drop((pools, lost, theirs, own));
            // Who waited may have gone on.
            let _ = ends.send(());
        });
        if started.is_err() {
            write_out(&self.pools, &self.lost, &files);
        }
        Some(end)
    }
}

/// One thread at work for a pool, until it is dropped.
struct Busy(Arc<Mutex<FxHashMap<PoolId, usize>>>, PoolId);

impl Busy {
    /// None where there are enough.
    fn enter(busy: &Arc<Mutex<FxHashMap<PoolId, usize>>>, pool: PoolId) -> Option<Self> {
        let mut all = busy.lock();
        let here = all.entry(pool).or_default();
        (*here < WRITERS).then(|| {
            *here += 1;
            Self(busy.clone(), pool)
        })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(here) = self.0.lock().get_mut(&self.1) {
            *here -= 1;
        }
    }
}

impl Ahead for Replaced {
    /// Whoever comes meanwhile has his name written with the next ones.
    fn ahead(&self) {
        let until = Instant::now() + PATIENCE;
        for end in self.begin() {
            let _ = end.recv_timeout(until.saturating_duration_since(Instant::now()));
        }
    }
}

fn write_out(pools: &Pools, lost: &Lost, files: &[Arc<Inode>]) {
    let mut journals = BTreeSet::new();
    for files in files.chunks(OPEN) {
        let open: Vec<(PoolId, Binding, File)> = files.iter().filter_map(|file| open(pools, file)).collect();
        for (.., file) in &open {
            let _ = sys::begin_writing(file);
        }
        for (pool, binding, file) in &open {
            let written = if pools.blocks(*pool).has_journal() {
                journals.insert(*pool);
                sys::write_out(file)
            } else {
                rustix::fs::fdatasync(file).map_err(std::io::Error::from)
            };
            if let Err(error) = written {
                tracing::warn!(%error, "a file that was renamed over another is not on disk yet");
                lost.note(binding.file, binding.generation, error.into());
            }
        }
    }
    // Where the places of all their data are written down.
    for pool in journals {
        let written = pools.get(pool).map(|pool| pool.write_journal());
        if let Ok(Err(error)) = written {
            tracing::warn!(%error, "files that were renamed over others are not on disk yet");
        }
    }
}

/// The backing file, by a descriptor of its own: no lock is taken that somebody may hold who waits for the log. That of a file that was replaced itself
/// since, too: the log that is about to be written may still have its name.
fn open(pools: &Pools, file: &Inode) -> Option<(PoolId, Binding, File)> {
    let place = file.lock().record.backing.clone()?;
    let pool = pools.get(place.pool).ok().filter(|pool| !pool.discards())?;
    let binding = Binding { file: file.id, generation: place.generation, locator: Locator(place.locator) };
    let file = pool.open(&binding, Access::Read).ok()?;
    Some((place.pool, binding, file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pools::away::tests::space_of;
    use crate::threads::tests::NONE_LEFT;
    use std::sync::atomic::Ordering::Relaxed;

    /// They were forgotten, and had their names for good long before their data was on disk.
    #[test]
    fn what_took_a_name_is_written_out_where_no_thread_can_be_started() {
        let dir = tempfile::tempdir().unwrap();
        let (space, pools, node) = space_of(dir.path(), 1);
        NONE_LEFT.set(true);
        for count in 1..=2 {
            space.replaced.push(node.inode.clone());
            space.replaced.ahead();
            assert_eq!(pools[0].opened.load(Relaxed), count);
        }
        NONE_LEFT.set(false);
    }

    /// While one file took its time, or its pool did not answer, all that came had their names for good before their data.
    #[test]
    fn who_comes_while_another_is_written_out_is_not_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let (space, pools, node) = space_of(dir.path(), 1);
        let here = node.inode.record().backing.unwrap().pool;
        let hanging: Vec<Busy> = (1..WRITERS).filter_map(|_| Busy::enter(&space.replaced.busy, here)).collect();
        space.replaced.push(node.inode.clone());
        space.replaced.ahead();
        assert_eq!(pools[0].opened.load(Relaxed), 1);
        let last = Busy::enter(&space.replaced.busy, here);
        space.replaced.push(node.inode.clone());
        space.replaced.ahead();
        assert_eq!(pools[0].opened.load(Relaxed), 1, "there are enough");
        drop((hanging, last));
        space.replaced.ahead();
        assert_eq!(pools[0].opened.load(Relaxed), 2, "it was forgotten");
    }
}
