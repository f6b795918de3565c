//! Changing attributes: what SETATTR asks, and what was measured on a backing file.

use crate::account::Delta;
use crate::inode::{Inode, State};
use crate::limits::Admitted;
use crate::record::Record;
use crate::{Catalog, Error, Result, keys};
use parking_lot::MutexGuard;
use std::sync::Arc;
use ullage_kv::{Batch, Seq};
use ullage_types::Kind;

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
        batch: Batch,
    ) -> Result<Seq> {
        self.store_releasing(inode, state, record, batch, 0)
    }

    /// As [`Catalog::store`], and lets go of so many of the bytes held for the file.
    ///
    /// Blocks are measured: that they grew is a fact. Everything else that a changed record costs more asks the limits.
    pub(crate) fn store_releasing(
        &self,
        inode: &Arc<Inode>,
        state: &mut MutexGuard<'_, State>,
        record: Record,
        mut batch: Batch,
        release: u64,
    ) -> Result<Seq> {
        // Its record is gone and must not come back.
        if state.removed {
            return Err(Error::NotFound);
        }
        let (uid, class) = (record.uid, record.class);
        let held = state.held.checked_sub(release).expect("no more is let go than is held");
        let before = state.weight();
        let after = Delta::plus(record.charge()) + Delta::holding(held);
        let stays = (state.record.uid, state.record.class) == (uid, class);
        // The directory is found before anything changes: afterwards nothing may fail.
        let charged = if stays && before == after {
            None
        } else if let Some(own) = inode.as_directory() {
            Some(own)
        } else {
            Some(self.charged_to(&record)?)
        };
        let asked = Delta { bytes: beside_blocks(&record) - beside_blocks(&state.record), ..Delta::default() }.growth();
        // What the directories and the user gain before the commit; the rest follows it.
        let gains = [if state.record.class == class { asked } else { after }, if stays { asked } else { after }];
        let mut admitted = Vec::new();
        if let Some(directory) = &charged {
            if !gains[1].is_zero() {
                admitted.push(self.ledger.admit(None, Some(uid), class, gains[1])?);
            }
            if !gains[0].is_zero() {
                admitted.push(self.ledger.admit(Some((directory, None)), None, class, gains[0])?);
            }
        }
        batch.put(keys::inode(inode.id), record.encode());
        let seq = self.commit(batch)?;
        admitted.into_iter().for_each(Admitted::keep);
        if let Some(directory) = charged {
            let old = &state.record;
            if old.class == class {
                self.ledger.charge_chain(&directory, None, class, after - before - gains[0]);
            } else {
                self.ledger.charge_chain(&directory, None, old.class, -before);
            }
            if stays {
                self.ledger.charge_user(uid, class, after - before - gains[1]);
            } else {
                self.ledger.charge_user(old.uid, old.class, -before);
            }
        }
        state.record = record;
        state.held = held;
        Ok(seq)
    }
}

/// What a file costs besides its blocks.
fn beside_blocks(record: &Record) -> i64 {
    let blocks = if record.kind == Kind::Directory { 0 } else { record.blocks * 512 };
    (record.charge().bytes.0 - blocks) as i64
}
