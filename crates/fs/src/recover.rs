//! After an unclean end: only what was recorded as being changed is looked at again, never the whole tree
//! (DESIGN, invariant 5). The catalog's records of files are gone through once, to find what is due in doubtful leaves and not there.

mod shown;

use crate::open_file::Measure;
use crate::pools::{place_of, pool_of};
use crate::{Errno, Outcome, Space};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use ullage_catalog::{CatalogMarks, Error, Inode, Record};
use ullage_pool::{Access, Annotation, Binding, Locator, Suspect, leaf_of};
use ullage_types::{FileId, Generation, PoolId};

/// What recovery did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Recovered {
    /// Leaf directories that had been marked.
    pub leaves: u64,
    /// Backing files looked at in them.
    pub files: u64,
    /// Files whose size, blocks or times were brought up to their backing file.
    pub measured: u64,
    /// Backing files that no file of the catalog is bound to, given back to their pool.
    pub discarded: u64,
    /// Backing files that cannot be read, left as they are.
    pub unreadable: u64,
    /// Files without a name, removed.
    pub orphans: u64,
    /// Files that went to another pool, which lost the copy with the power: they have what they went from again.
    pub rebound: u64,
    /// Files whose backing file only a plain tree had a name for.
    pub brought_back: u64,
    /// Files that were never flushed and whose backing file did not survive a power cut: made again, empty.
    pub emptied: u64,
}

/// A file bound to a backing file in a leaf that was being changed, of which there is none.
struct Gone {
    pool: PoolId,
    binding: Binding,
    /// It was there once and could not be read: others were made and never flushed.
    unreadable: bool,
}

impl Gone {
    fn numbers(&self) -> (FileId, Generation) {
        (self.binding.file, self.binding.generation)
    }
}

impl Space {
    /// Has files without a name go, where names were taken away. Call before the space is attached.
    pub fn let_unnamed_go(&self) -> Outcome<()> {
        for file in self.catalog.orphans()? {
            let node = self.nodes.enter(self.catalog.get(file)?);
            self.forget_node(node.id, 1);
        }
        Ok(())
    }

    /// Brings catalog and pools into agreement. Call before the space is attached.
    pub fn recover(&self, marks: &[(PoolId, &CatalogMarks)]) -> Outcome<Recovered> {
        let mut done = Recovered::default();
        // Leaves whose marks stay: where a file is still to be given back, or made again, or is being written to. This process
        // may be killed before that is over.
        let mut kept: HashSet<(PoolId, Box<[u8]>)> = HashSet::new();
        for file in self.catalog.orphans()? {
            let inode = self.catalog.get(file)?;
            kept.extend(inode.record().backing.map(|place| (place.pool, leaf_of(&place.locator).into())));
            let node = self.nodes.enter(inode);
            self.forget_node(node.id, 1);
            done.orphans += 1;
        }
        let mut strays = Vec::new();
        let mut there = HashSet::new();
        let mut busy = Vec::new();
        let mut doubtful: BTreeSet<(PoolId, Box<[u8]>)> = BTreeSet::new();
        for &(id, marks) in marks {
            let pool = self.pools.get(id)?;
            let mut leaves: BTreeSet<Box<[u8]>> = marks.marked().into_iter().collect();
            if leaves.is_empty() {
                // An orderly end: notes are of a pool that was put back from a copy, and say nothing of this catalog.
                for leaf in pool.noted()? {
                    pool.forget_note(&leaf);
                }
            } else {
                leaves.extend(pool.noted()?);
                doubtful.extend(leaves.iter().map(|leaf| (id, leaf.clone())));
                leaves.extend(pool.newest_leaves()?);
                if self.catalog.has_limits() {
                    // What has no place yet may take blocks that no measurement shows.
                    pool.sync()?;
                }
            }
            for leaf in leaves {
                done.leaves += 1;
                let mut suspects = Vec::new();
                match pool.suspects(&leaf, &mut |suspect| suspects.push(suspect)) {
                    Err(error) if error.is_damage() => {
                        tracing::warn!(
                            "{error}: what lies there is left as it is; take the space down and run fsck on the pool's disk"
                        );
                        // Nobody knows what of it is missing. Each start looks at it again.
                        pool.doubt(&leaf)?;
                        doubtful.remove(&(id, leaf.clone()));
                        kept.insert((id, leaf));
                        done.unreadable += 1;
                        continue;
                    }
                    looked => looked?,
                }
                for suspect in suspects {
                    done.files += 1;
                    there.insert((id, suspect.locator.clone()));
                    if suspect.unreadable {
                        done.unreadable += 1;
                        // Whoever it belongs to keeps it. Each start looks at it again.
                        if let Some(binding) = pool.stray(suspect) {
                            self.note_unreadable(id, &binding)?;
                            pool.doom(&binding)?;
                            kept.insert((id, leaf.clone()));
                        }
                        continue;
                    }
                    let stray = self.compare(id, suspect, &mut done, &mut busy)?.and_then(|stray| pool.stray(stray));
                    strays.extend(stray.map(|binding| (id, binding)));
                }
            }
        }
        // What a file that lies in a pool that is not there went from, or to, may be all that is left of it.
        let (mut waiting, mut strays): (Vec<_>, Vec<_>) =
            strays.into_iter().partition(|(_, binding)| self.is_away(binding.file));
        let mut gone = self.missing(&doubtful, &there)?;
        waiting.extend(self.bring_back(&mut gone, &mut done, &mut busy)?);
        for (id, binding) in waiting {
            self.pools.get(id)?.doom(&binding)?;
            kept.insert((id, binding.locator.leaf().into()));
        }
        let (lost, missing): (Vec<_>, Vec<_>) = gone.into_iter().partition(|gone| gone.unreadable);
        let mut missing: Vec<_> = missing.into_iter().map(|gone| (gone.pool, gone.binding)).collect();
        let before = missing.len();
        self.rebind(&mut missing, &mut strays)?;
        done.rebound = (before - missing.len()) as u64;
        done.discarded = strays.len() as u64;
        for Gone { pool: id, binding, .. } in lost {
            tracing::warn!(
                "the backing file of inode {} could not be read, and is gone now: its data is lost. Remove the file, or have \
                 `ullage check --repair` do so while the space is down",
                binding.file
            );
            self.pools.get(id)?.doom(&binding)?;
            kept.insert((id, binding.locator.leaf().into()));
        }
        for (id, binding) in &strays {
            self.pools.get(*id)?.doom(binding)?;
        }
        for (id, binding) in strays.iter().chain(&missing) {
            kept.insert((*id, binding.locator.leaf().into()));
        }
        let places = busy.iter().filter_map(|inode: &Arc<Inode>| inode.record().backing);
        kept.extend(places.map(|place| (place.pool, leaf_of(&place.locator).into())));
        for &(id, marks) in marks {
            let pool = self.pools.get(id)?;
            let settled: Vec<_> = doubtful.iter().filter(|leaf| leaf.0 == id && !kept.contains(*leaf)).collect();
            if !settled.is_empty() {
                // What was measured may be in memory only: without its mark nobody would find what a power cut takes of it.
                pool.sync()?;
            }
            for (_, leaf) in settled {
                marks.clear(leaf).map_err(Errno::from)?;
                pool.forget_note(leaf);
            }
        }
        for inode in busy {
            self.watch(inode)?;
        }
        for (id, binding) in missing {
            match self.make_empty(id, &binding) {
                Err(Errno::ENOSPC | Errno::EDQUOT) => {
                    tracing::warn!(
                        "inode {} was never flushed, and its data is lost with the power: there is no room to make it again, empty, before the next start",
                        binding.file
                    );
                    self.pools.get(id)?.doom(&binding)?;
                }
                made => {
                    made?;
                    done.emptied += 1;
                }
            }
        }
        for (id, binding) in strays {
            self.pools.get(id)?.release(binding);
        }
        self.catalog.sync()?;
        if done != Recovered::default() {
            tracing::info!(
                leaves = done.leaves,
                files = done.files,
                measured = done.measured,
                discarded = done.discarded,
                unreadable = done.unreadable,
                orphans = done.orphans,
                rebound = done.rebound,
                brought_back = done.brought_back,
                emptied = done.emptied,
                "recovered from an unclean end"
            );
        }
        Ok(done)
    }

    /// Says of the file that a backing file belongs to, if it does to any, that this could not be read.
    fn note_unreadable(&self, id: PoolId, binding: &Binding) -> Outcome<()> {
        let inode = match self.catalog.get(binding.file) {
            Ok(inode) => inode,
            Err(Error::NotFound) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if is_bound(&inode, id, binding) && !inode.record().unreadable {
            self.catalog.update(&inode, |record| {
                record.unreadable = true;
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Whether a file lies in a pool that is not there.
    fn is_away(&self, file: FileId) -> bool {
        let pool = self.catalog.get(file).ok().and_then(|inode| pool_of(&inode));
        pool.is_some_and(|pool| self.pools.get(pool).is_ok_and(|pool| !pool.is_there()))
    }

    /// What is gone of what is bound to backing files in these leaves.
    fn missing(
        &self,
        doubtful: &BTreeSet<(PoolId, Box<[u8]>)>,
        there: &HashSet<(PoolId, Locator)>,
    ) -> Outcome<Vec<Gone>> {
        let mut missing = Vec::new();
        if doubtful.is_empty() {
            return Ok(missing);
        }
        self.catalog.each_backing(&mut |file, backing| {
            let binding = Binding { file, generation: backing.generation, locator: Locator(backing.locator.clone()) };
            let place = (backing.pool, binding.locator.clone());
            if doubtful.contains(&(backing.pool, leaf_of(&backing.locator).into())) && !there.contains(&place) {
                missing.push(Gone { pool: backing.pool, binding, unreadable: false });
            }
        })?;
        for gone in &mut missing {
            gone.unreadable = self.catalog.get(gone.binding.file)?.record().unreadable;
        }
        Ok(missing)
    }

    /// Binds files whose copies are missing to what they were copied from, or went to ([`crate::away`]): the last of those that are still there.
    fn rebind(&self, missing: &mut Vec<(PoolId, Binding)>, strays: &mut Vec<(PoolId, Binding)>) -> Outcome<()> {
        let wanted: HashSet<FileId> = missing.iter().map(|(_, gone)| gone.file).collect();
        let (mut there, others): (Vec<_>, Vec<_>) =
            std::mem::take(strays).into_iter().partition(|(_, binding)| wanted.contains(&binding.file));
        *strays = others;
        there.sort_by_key(|(_, binding)| binding.generation.0);
        let mut bound = HashSet::new();
        for (pool, binding) in there.into_iter().rev() {
            let open = || self.pools.get(pool).ok()?.open(&binding, Access::Read).ok();
            let Some(file) = (!bound.contains(&binding.file)).then(open).flatten() else {
                strays.push((pool, binding));
                continue;
            };
            let (inode, now) = (self.catalog.get(binding.file)?, Measure::of(&file)?);
            tracing::warn!(
                "inode {} has what it had before it went to another pool: its copy is lost with the power",
                inode.id
            );
            self.catalog.update(&inode, |record| {
                record.backing = Some(place_of(pool, &binding));
                measured(record, now);
                Ok(())
            })?;
            bound.insert(binding.file);
        }
        missing.retain(|(_, gone)| !bound.contains(&gone.file));
        Ok(())
    }

    /// Descriptors and mappings outlive the daemon that gave them out and still write: the file is measured until they are
    /// gone, and is like one that was opened before a limit bounded it. So do those of before an import.
    pub fn watch(&self, inode: Arc<Inode>) -> Outcome<()> {
        let node = self.nodes.enter(inode);
        let mut open = node.open.lock();
        let opened = self.back(&node, &mut open, true);
        if let (Ok(()), Some(backing)) = (&opened, &mut open.backing) {
            backing.written = true;
            backing.mappable = true;
            backing.unseen = true;
            // The record may already be behind.
            backing.baseline = Measure { block: backing.baseline.block, ..Measure::default() };
        }
        drop(open);
        // It goes to the settler, as any other that is no longer known.
        self.forget_node(node.id, 1);
        opened
    }

    fn make_empty(&self, id: PoolId, binding: &Binding) -> Outcome<()> {
        let pool = self.pools.get(id)?;
        let inode = self.catalog.get(binding.file)?;
        let now = Measure::of(&pool.recreate(binding)?)?;
        tracing::warn!("inode {} was never flushed, and its data is lost with the power: it is empty now", inode.id);
        self.catalog.update(&inode, |record| {
            measured(record, now);
            Ok(())
        })?;
        pool.closed(binding);
        Ok(())
    }

    /// Measures a backing file that belongs to a file, and gives back one that does not.
    fn compare(
        &self,
        id: PoolId,
        suspect: Suspect,
        done: &mut Recovered,
        busy: &mut Vec<Arc<Inode>>,
    ) -> Outcome<Option<Suspect>> {
        let pool = self.pools.get(id)?;
        let Some(binding) = &suspect.binding else { return Ok(Some(suspect)) };
        let inode = match self.catalog.get(binding.file) {
            Ok(inode) => inode,
            Err(Error::NotFound) => return Ok(Some(suspect)),
            Err(error) => return Err(error.into()),
        };
        if !is_bound(&inode, id, binding) {
            return Ok(Some(suspect));
        }
        let file = match pool.open(binding, Access::Read) {
            // It is being removed, and the pool has taken its backing file out of the leaf since that was looked through.
            Err(ullage_pool::Error::Mismatch { .. }) if inode.lock().record.nlink == 0 => return Ok(None),
            opened => opened?,
        };
        if let Ok(fences) = pool.fences()
            && let Err(error) = fences.release(&file)
        {
            tracing::debug!(%error, "a file stays in the fence that it was left in");
        }
        // Asked first: what was written before nobody wrote any more is measured.
        if !crate::headroom::loads::nobody_fills(&file) {
            busy.push(inode.clone());
        }
        let now = Measure::of(&file)?;
        let changed = self.catalog.update(&inode, |record| {
            record.unreadable = false;
            let changed = (record.size, record.blocks) != (now.size, now.blocks) || is_newer(record, &now);
            if changed {
                measured(record, now);
            }
            Ok(changed)
        })?;
        done.measured += u64::from(changed);
        // It may have been made too recently to carry its owner yet.
        let record = inode.record();
        let owner = Annotation { class: record.class, uid: record.uid, gid: record.gid };
        if let Err(error) = pool.annotation(binding).and_then(|now| match now {
            Some(now) if now == owner => Ok(()),
            _ => pool.annotate(binding, owner),
        }) {
            tracing::debug!("the owner of inode {} is not recorded on its backing file: {error}", inode.id);
        }
        Ok(None)
    }
}

/// Has a record say what its backing file was found to be.
fn measured(record: &mut Record, now: Measure) {
    if is_newer(record, &now) {
        record.mtime = now.mtime;
    } else if record.size != now.size {
        // Blocks come and go when nobody writes.
        record.mtime = record.mtime.max(now.mtime);
    }
    (record.size, record.blocks) = (now.size, now.blocks);
    record.ctime = record.ctime.max(now.ctime);
}

/// Whether the data of a file is newer than its record, in which it may be as long as it was. A backing file may never have got the times that
/// a record was given: what was written before that is older than the record.
fn is_newer(record: &Record, now: &Measure) -> bool {
    /// What file systems cut off times at most.
    const CUT_OFF_SECONDS: i64 = 2;
    let known = if record.times_ahead { record.ctime } else { record.mtime };
    // A time that lies ahead may be the one that it was given.
    let given =
        record.times_ahead && (0..=CUT_OFF_SECONDS).contains(&record.mtime.seconds.saturating_sub(now.mtime.seconds));
    // One without data may have been made a moment after its record says.
    now.size > 0 && now.mtime > known && !given
}

fn is_bound(inode: &Inode, id: PoolId, binding: &Binding) -> bool {
    inode.record().backing.is_some_and(|backing| {
        backing.pool == id && backing.generation == binding.generation && backing.locator == binding.locator.0
    })
}
