//! Removing a name, and the file with its last one.

use crate::inode::{Inode, lock_in_order};
use crate::ops::{after, check_directory, touch};
use crate::{Catalog, Error, Result, keys, names};
use std::sync::Arc;
use ullage_kv::Batch;
use ullage_types::Timestamp;

/// What a name was removed from.
#[derive(Debug)]
pub struct Unlinked {
    /// The file.
    pub file: Arc<Inode>,
    /// Whether that was its last name: it stays, without a name, until [`Catalog::remove`].
    pub last: bool,
}

impl Catalog {
    /// Removes the name of anything but a directory.
    pub fn unlink(&self, parent: &Arc<Inode>, name: &[u8], now: Timestamp) -> Result<Unlinked> {
        let _gate = self.enter()?;
        loop {
            let file = self.lookup(parent, name)?.ok_or(Error::NotFound)?;
            if file.is_directory() {
                return Err(Error::IsDirectory);
            }
            let [mut directory, mut state] = lock_in_order([parent, &file]);
            if !self.still(&mut directory, parent, name, &file)? {
                continue;
            }
            let mut batch = Batch::new();
            let mut record = state.record.clone();
            let step = self.drop_name(&mut batch, &file, &mut record, parent, name, now)?;
            let mut above = directory.record.clone();
            above.entries -= 1;
            touch(&mut above, now);
            batch.del(keys::entry(parent.id, name));
            batch.put(keys::inode(parent.id), above.encode());
            batch.put(keys::inode(file.id), record.encode());
            self.commit(batch)?;
            let last = record.nlink == 0;
            state.record = record;
            self.settle(parent, &state, step);
            directory.directory.remove(name);
            directory.record = above;
            drop((directory, state));
            return Ok(Unlinked { file, last });
        }
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, parent: &Arc<Inode>, name: &[u8], now: Timestamp) -> Result<Unlinked> {
        let _gate = self.enter()?;
        loop {
            let file = self.lookup(parent, name)?.ok_or(Error::NotFound)?;
            if !file.is_directory() {
                return Err(Error::NotDirectory);
            }
            let [mut directory, mut state] = lock_in_order([parent, &file]);
            if !self.still(&mut directory, parent, name, &file)? {
                continue;
            }
            if state.record.entries > 0 {
                return Err(Error::NotEmpty);
            }
            let mut batch = Batch::new();
            let mut record = state.record.clone();
            drop_directory(&mut batch, &file, &mut record, now);
            let mut above = directory.record.clone();
            above.entries -= 1;
            above.nlink -= 1;
            touch(&mut above, now);
            batch.del(keys::entry(parent.id, name));
            batch.put(keys::inode(parent.id), above.encode());
            batch.put(keys::inode(file.id), record.encode());
            self.commit(batch)?;
            directory.directory.remove(name);
            directory.record = above;
            state.record = record;
            drop((directory, state));
            return Ok(Unlinked { file, last: true });
        }
    }

    /// Whether `name` still names `file`, now that both are locked.
    pub(crate) fn still(
        &self,
        directory: &mut crate::State,
        parent: &Inode,
        name: &[u8],
        file: &Inode,
    ) -> Result<bool> {
        check_directory(directory)?;
        let dirent = directory.find(&*self.kv, parent.id, name)?;
        Ok(dirent.is_some_and(|dirent| dirent.file == file.id))
    }

    /// Takes one name from a file that is no directory: its record, its name records, and what the ledger must
    /// do once that is committed.
    pub(crate) fn drop_name(
        &self,
        batch: &mut Batch,
        file: &Arc<Inode>,
        record: &mut crate::Record,
        parent: &Arc<Inode>,
        name: &[u8],
        now: Timestamp,
    ) -> Result<Step> {
        assert!(record.nlink > 0, "a file with a name counts it");
        record.nlink -= 1;
        record.ctime = after(record.ctime, now);
        if record.nlink == 0 {
            batch.put_new(keys::orphan(file.id), Vec::new());
            return Ok(Step::default());
        }
        let mut step = Step { unlinked: true, ..Step::default() };
        names::remove(batch, file.id, parent.id, name);
        let primary = record.parent == parent.id && *record.name == *name;
        if primary || record.nlink == 1 {
            let other = self.other_name(file.id, parent.id, name)?.ok_or_else(|| {
                Error::Damaged(format!("inode {} has {} links but no record of them", file.id, record.nlink + 1))
            })?;
            let directory = self.get(other.directory)?;
            if record.nlink == 1 {
                names::remove(batch, file.id, other.directory, &other.name);
                step.single = Some(directory.clone());
            }
            if primary {
                record.parent = other.directory;
                record.name = other.name.into();
                step.recharged = Some(directory);
            }
        }
        Ok(step)
    }

    /// What the ledger does after a name was dropped.
    pub(crate) fn settle(&self, parent: &Arc<Inode>, state: &crate::State, step: Step) {
        if step.unlinked {
            self.ledger.count_linked(parent, -1);
        }
        if let Some(directory) = step.single {
            self.ledger.count_linked(&directory, -1);
        }
        if let Some(directory) = step.recharged {
            self.ledger.move_charge(parent, &directory, state.record.class, state.weight());
        }
    }
}

/// Marks a directory as removed: it has no links and is an orphan until nobody holds it.
pub(crate) fn drop_directory(batch: &mut Batch, file: &Inode, record: &mut crate::Record, now: Timestamp) {
    record.nlink = 0;
    record.ctime = after(record.ctime, now);
    batch.put_new(keys::orphan(file.id), Vec::new());
}

/// Moves of charges that follow a dropped name.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// The name counted as one of several.
    unlinked: bool,
    /// The directory of the one name that is left.
    single: Option<Arc<Inode>>,
    /// The directory that is charged from now on.
    recharged: Option<Arc<Inode>>,
}
