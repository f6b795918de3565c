//! File ids and generations: one counter for both, never repeated, across crashes too.

use crate::{Error, Result, keys};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use ullage_kv::{Batch, Kv, Seq};
use ullage_types::{FileId, Generation, ROOT};

const STEP: u64 = 1 << 16;

/// Whether any number was given out: without the counter it would be given out again, since that is durable before anything has one.
pub(crate) fn are_used(kv: &dyn Kv) -> Result<bool> {
    let mut used = false;
    for (prefix, from) in [(keys::INODE, keys::inode(FileId(ROOT.0 + 1))), (keys::ENTRY, Vec::new())] {
        kv.scan(&[prefix], &from, &mut |_, _| {
            used = true;
            false
        })?;
    }
    Ok(used)
}

/// Hands out numbers below a bound that is durable before any of them is used.
pub struct CatalogNumbers {
    kv: Arc<dyn Kv>,
    next: AtomicU64,
    /// Numbers below this one may be used.
    durable_bound: AtomicU64,
    /// The next bound, committed but perhaps not durable yet.
    coming: Mutex<(u64, Seq)>,
}

impl CatalogNumbers {
    pub(crate) fn open(kv: Arc<dyn Kv>) -> Result<Self> {
        let start = match kv.get(keys::NUMBERS)? {
            None if are_used(&*kv)? => return Err(Error::Damaged("the number counter is missing".into())),
            None => ROOT.0 + 1,
            Some(bytes) => u64::from_le_bytes(
                bytes.try_into().map_err(|_| Error::Damaged("the number counter cannot be read".into()))?,
            ),
        };
        Ok(Self {
            kv,
            next: AtomicU64::new(start),
            durable_bound: AtomicU64::new(start),
            coming: Mutex::new((start, Seq(0))),
        })
    }

    /// The next number. Costs a flush once in 65,536 calls at most, and usually none: the next bound is
    /// committed long before it is needed. Call without the catalog's gate.
    ///
    /// When the store takes no more commits the number is given all the same: nothing can be recorded under it any
    /// more, and a backing file made with it is found by its leaf's mark.
    pub fn take(&self) -> u64 {
        let number = self.next.fetch_add(1, Relaxed);
        if number + STEP / 2 >= self.durable_bound.load(Relaxed)
            && let Err(error) = self.extend(number)
        {
            tracing::debug!("numbers cannot be reserved: {error}");
        }
        number
    }

    fn extend(&self, number: u64) -> Result<()> {
        let mut coming = self.coming.lock();
        if coming.0 <= number + STEP / 2 {
            coming.0 = number + STEP;
            let mut batch = Batch::new();
            batch.put(keys::NUMBERS.to_vec(), coming.0.to_le_bytes().to_vec());
            coming.1 = self.kv.commit(batch)?;
        }
        if number >= self.durable_bound.load(Relaxed) {
            self.kv.sync(coming.1)?;
        }
        if self.kv.durable() >= coming.1 {
            self.durable_bound.store(coming.0, Relaxed);
        }
        Ok(())
    }

    /// A file id and a first generation for it: the same number.
    pub fn pair(&self) -> (FileId, Generation) {
        let number = self.take();
        (FileId(number), Generation(number))
    }
}
