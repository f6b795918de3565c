//! Files that took the names of others by rename(2): what was written to them is on disk before those names are theirs for good, though
//! nobody called fsync(2). ext4 does so (`auto_da_alloc`), and editors count on it: the old file is gone a second later, and after a
//! power cut there would be neither.

use crate::lost::Lost;
use crate::pools::Pools;
use crate::{sys, threads};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Duration;
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

/// The files that wait for that.
pub(crate) struct Replaced {
    pools: Arc<Pools>,
    lost: Arc<Lost>,
    waiting: Mutex<Vec<Arc<Inode>>>,
    /// A thread is at work.
    busy: Arc<AtomicBool>,
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

    /// Begins to write out what waits; gives back how to learn of its end. Where no thread can be started for that it is done here: what is not
    /// written out now would have its name for good before its data.
    fn begin(&self) -> Option<mpsc::Receiver<()>> {
        if self.waiting.lock().is_empty() || self.busy.swap(true, Relaxed) {
            return None;
        }
        let files = Arc::new(std::mem::take(&mut *self.waiting.lock()));
        let (pools, lost, own, busy) = (self.pools.clone(), self.lost.clone(), files.clone(), self.busy.clone());
        let (ends, end) = mpsc::channel();
        let started = threads::start("replaced", move || {
            write_out(&pools, &lost, &own);
            drop((pools, lost, own));
            busy.store(false, Relaxed);
            // Who waited may have gone on.
            let _ = ends.send(());
        });
        if started.is_err() {
            write_out(&self.pools, &self.lost, &files);
            self.busy.store(false, Relaxed);
        }
        Some(end)
    }
}

impl Ahead for Replaced {
    /// Whoever comes meanwhile has his name written with the next ones.
    fn ahead(&self) {
        if let Some(end) = self.begin() {
            let _ = end.recv_timeout(PATIENCE);
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
}
