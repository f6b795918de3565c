//! Files without a name: removed when nobody holds them, and all at once after a crash.

use crate::inode::Inode;
use crate::limits::{Limit, Subject};
use crate::record::Backing;
use crate::{Catalog, Error, Result, keys};
use std::sync::Arc;
use ullage_kv::{Batch, Seq};
use ullage_types::FileId;

/// What a removal leaves to be done.
struct Removed {
    seq: Seq,
    backing: Option<Backing>,
    /// The directory that it was charged to; for a directory, its parent.
    charged: Option<Arc<Inode>>,
}

impl Catalog {
    /// Removes a file that has no name and that nobody holds any more. Gives back its backing file, which may be
    /// used again once the commit is durable. Does nothing when the file was removed before or has a name again.
    ///
    /// A directory stays as long as files without names are charged to it: they are open still, and what they use must be
    /// counted somewhere. It goes with the last of them.
    pub fn remove(&self, file: &Arc<Inode>) -> Result<Option<(Seq, Option<Backing>)>> {
        let _gate = self.enter()?;
        let Some(removed) = self.remove_one(file)? else { return Ok(None) };
        self.retire(removed.charged)?;
        Ok(Some((removed.seq, removed.backing)))
    }

    /// Removes a directory that nobody holds, and those above it, if this was all that was charged to it. Call with the
    /// gate held and no inode locked, whenever a file without a name was charged to `directory` and is no longer.
    pub(crate) fn retire(&self, directory: Option<Arc<Inode>>) -> Result<()> {
        let mut at = directory;
        while let Some(directory) = at {
            // The directory's own lock is left alone: somebody may be at work in it.
            let waits = self.goes_with_its_last_file(directory.id);
            at = if waits { self.remove_one(&directory)?.and_then(|removed| removed.charged) } else { None };
        }
        Ok(())
    }

    /// Whether this is a directory that [`Catalog::remove`] left to the last file without a name that is charged to it.
    pub fn goes_with_its_last_file(&self, directory: FileId) -> bool {
        self.waiting.lock().contains_key(&directory)
    }

    fn remove_one(&self, file: &Arc<Inode>) -> Result<Option<Removed>> {
        let mut state = file.lock();
        if state.removed || state.record.nlink > 0 {
            return Ok(None);
        }
        let charged = if file.is_directory() {
            // Said before it is counted: who takes the last file below out of the totals meanwhile finds it there.
            self.waiting.lock().insert(file.id, file.clone());
            let below: u64 = file.totals().now().actual.0.iter().map(|charge| charge.inodes).sum();
            if below > 1 {
                return Ok(None);
            }
            file.parent.read().clone()
        } else {
            Some(self.charged_to(&state.record)?)
        };
        let limited = file.is_directory() && file.totals().account.is_limited();
        let mut batch = Batch::new();
        if state.record.xattrs > 0 {
            self.kv.scan(&keys::xattrs(file.id), &[], &mut |key, _| {
                batch.del(key.to_vec());
                true
            })?;
        }
        if file.is_directory() {
            batch.del(keys::totals(file.id));
            if limited {
                batch.del(keys::limit(Subject::Directory(file.id)));
            }
        }
        batch.del(keys::inode(file.id));
        batch.del(keys::orphan(file.id));
        let seq = self.commit(batch)?;
        state.removed = true;
        let weight = state.weight();
        state.held = 0;
        let record = &state.record;
        if let Some(from) = if file.is_directory() { Some(file) } else { charged.as_ref() } {
            self.ledger.charge(from, record.uid, record.class, -weight);
        }
        let backing = record.backing.clone();
        if limited {
            self.ledger.limits.set(Subject::Directory(file.id), Limit::NONE);
        }
        if file.is_directory() {
            // Not the last holder: the caller is one.
            self.waiting.lock().remove(&file.id);
        }
        Ok(Some(Removed { seq, backing, charged }))
    }

    /// Every file without a name: after an unclean end, each is to be removed.
    pub fn orphans(&self) -> Result<Vec<FileId>> {
        let mut orphans = Vec::new();
        let mut whole = true;
        self.kv.scan(&[keys::ORPHAN], &[], &mut |key, _| {
            match keys::id_in(key) {
                Some(file) => orphans.push(file),
                None => whole = false,
            }
            whole
        })?;
        if whole {
            Ok(orphans)
        } else {
            Err(Error::Damaged("the record of a file without a name cannot be read".into()))
        }
    }
}
