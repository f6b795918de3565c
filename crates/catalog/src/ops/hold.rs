//! Headroom for data: bytes are held for a write before it is made, and settled by what it was measured to take.

use crate::account::{Delta, MOST};
use crate::inode::Inode;
use crate::record::Record;
use crate::{Catalog, Error, Result};
use std::sync::Arc;
use ullage_kv::Batch;

impl Catalog {
    /// Holds so many bytes for a file that is about to grow, if every limit allows it: [`Error::OverUserLimit`],
    /// [`Error::OverDirectoryLimit`], and [`Error::TooLarge`] whatever they are. They follow the file wherever it goes, until
    /// [`Catalog::record_measured`] lets go of them.
    pub fn hold(&self, inode: &Arc<Inode>, bytes: u64) -> Result<()> {
        if bytes > MOST as u64 {
            return Err(Error::TooLarge);
        }
        let _gate = self.gate.read();
        let mut state = inode.lock();
        if state.removed {
            return Err(Error::NotFound);
        }
        let charged = self.charged_to(&state.record)?;
        let (uid, class) = (state.record.uid, state.record.class);
        self.ledger.admit(Some((&charged, None)), Some(uid), class, Delta::holding(bytes))?.keep();
        state.held += bytes;
        Ok(())
    }

    /// What is held for a file.
    pub fn held(&self, inode: &Arc<Inode>) -> u64 {
        inode.lock().held
    }

    /// Records what a file was measured to be, and in the same step lets go of so many of the bytes held for it. What was
    /// measured is a fact: no limit refuses it.
    pub fn record_measured(
        &self,
        inode: &Arc<Inode>,
        release: u64,
        change: impl FnOnce(&mut Record) -> Result<()>,
    ) -> Result<()> {
        let _gate = self.enter()?;
        let mut state = inode.lock();
        let mut record = state.record.clone();
        change(&mut record)?;
        if record != state.record {
            self.store_releasing(inode, &mut state, record, Batch::new(), release)?;
        } else if release > 0 && !state.removed {
            let charged = self.charged_to(&record)?;
            self.ledger.charge(&charged, record.uid, record.class, -Delta::holding(release));
            state.held -= release;
        }
        Ok(())
    }
}
