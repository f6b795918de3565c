//! Changing attributes: what SETATTR asks, and what was measured on a backing file.

use crate::inode::{Inode, State};
use crate::ledger::Delta;
use crate::record::Record;
use crate::{Catalog, Error, Result, keys};
use parking_lot::MutexGuard;
use std::sync::Arc;
use ullage_kv::{Batch, Seq};

impl Catalog {
    /// Changes a file's record with `change`, commits it, and moves the charges that follow from it.
    /// `change` may set everything but kind, links, entries, parent and extended attributes. When it changes
    /// nothing, nothing is committed.
    pub fn update<T>(&self, inode: &Arc<Inode>, change: impl FnOnce(&mut Record) -> Result<T>) -> Result<T> {
        let _gate = self.enter()?;
        let mut state = inode.lock();
        let mut record = state.record.clone();
        let outcome = change(&mut record)?;
        if record != state.record {
            self.store(inode, &mut state, record, Batch::new())?;
        }
        Ok(outcome)
    }

    /// Commits a changed record with whatever else the batch holds. Call with the gate held.
    pub(crate) fn store(
        &self,
        inode: &Arc<Inode>,
        state: &mut MutexGuard<'_, State>,
        record: Record,
        mut batch: Batch,
    ) -> Result<Seq> {
        // Its record is gone and must not come back.
        if state.removed {
            return Err(Error::NotFound);
        }
        let (before, after) = (state.record.charge(), record.charge());
        let moves = (state.record.uid, state.record.class, before) != (record.uid, record.class, after);
        // The directory is found before anything changes: afterwards nothing may fail.
        let charged = if !moves {
            None
        } else if let Some(own) = inode.as_directory() {
            Some(own)
        } else {
            Some(self.charged_to(&record)?)
        };
        batch.put(keys::inode(inode.id), record.encode());
        let seq = self.commit(batch)?;
        if let Some(directory) = charged {
            let (old, new) = (&state.record, &record);
            if (old.uid, old.class) == (new.uid, new.class) {
                self.ledger.charge(&directory, new.uid, new.class, Delta::between(before, after));
            } else {
                self.ledger.charge(&directory, old.uid, old.class, Delta::minus(before));
                self.ledger.charge(&directory, new.uid, new.class, Delta::plus(after));
            }
        }
        state.record = record;
        Ok(seq)
    }
}
