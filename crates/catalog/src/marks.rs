//! Marks of the leaf directories that a crash may leave in disagreement with the catalog.

use crate::{Catalog, Result, keys};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use ullage_kv::{Batch, Kv, Seq};
use ullage_types::PoolId;

/// The marks of one pool (a write-intent log, as disk arrays keep it).
pub struct CatalogMarks {
    kv: Arc<dyn Kv>,
    pool: PoolId,
    set: Mutex<FxHashMap<Box<[u8]>, Seq>>,
}

impl CatalogMarks {
    /// Returns when it is durable that files in these leaves are being changed; at once when that is known. One commit and
    /// one flush for all of them.
    pub fn mark(&self, leaves: &[&[u8]]) -> Result<()> {
        let seq = {
            let mut set = self.set.lock();
            let known = leaves.iter().filter_map(|leaf| set.get(*leaf)).max().copied();
            let new: Vec<&[u8]> = leaves.iter().filter(|leaf| !set.contains_key(**leaf)).copied().collect();
            if new.is_empty() {
                known.unwrap_or(Seq(0))
            } else {
                let mut batch = Batch::new();
                for leaf in &new {
                    batch.put(keys::mark(self.pool.0, leaf), Vec::new());
                }
                let seq = self.kv.commit(batch)?;
                set.extend(new.into_iter().map(|leaf| (leaf.into(), seq)));
                seq
            }
        };
        if self.kv.durable() < seq {
            self.kv.sync(seq)?;
        }
        Ok(())
    }

    /// Files in `leaf` are no longer being changed.
    pub fn clear(&self, leaf: &[u8]) -> Result<()> {
        let mut set = self.set.lock();
        if set.remove(leaf).is_some() {
            let mut batch = Batch::new();
            batch.del(keys::mark(self.pool.0, leaf));
            self.kv.commit(batch)?;
        }
        Ok(())
    }

    /// Every marked leaf.
    pub fn marked(&self) -> Vec<Box<[u8]>> {
        self.set.lock().keys().cloned().collect()
    }
}

impl Catalog {
    /// The marks of a pool; those of an unclean end are still set.
    pub fn marks(&self, pool: PoolId) -> Result<CatalogMarks> {
        let mut set = FxHashMap::default();
        let prefix = keys::marks(pool.0);
        self.kv.scan(&prefix, &[], &mut |key, _| {
            set.insert(key[prefix.len()..].into(), Seq(0));
            true
        })?;
        Ok(CatalogMarks { kv: self.kv.clone(), pool, set: Mutex::new(set) })
    }
}
