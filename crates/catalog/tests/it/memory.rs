//! A store that is a map: to be damaged at will.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, Weak};
use std::time::Duration;
use ullage_kv::{Batch, Cut, Error, Kv, Seq, Visit};

/// Called when a batch can be read; what it refuses is taken back.
type Witness = Box<dyn Fn() -> Result<(), Error> + Send + Sync>;

pub type Map = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Default)]
pub struct MemoryKv {
    map: Mutex<Map>,
    removed: Mutex<BTreeSet<Vec<u8>>>,
    passed: AtomicUsize,
    cut: Mutex<Option<Weak<dyn Cut>>>,
    pub witness: OnceLock<Witness>,
    /// Done once, when a scan begins.
    pub meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl MemoryKv {
    pub fn new(map: Map) -> Self {
        Self { map: Mutex::new(map), ..Self::default() }
    }

    pub fn dump(&self) -> Map {
        self.map.lock().unwrap().clone()
    }

    /// How many keys that were removed scans have come by so far: stores on disk look at each.
    pub fn passed(&self) -> usize {
        self.passed.load(Ordering::Relaxed)
    }
}

impl Kv for MemoryKv {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.map.lock().unwrap().get(key).cloned())
    }

    fn scan(&self, prefix: &[u8], from: &[u8], visit: &mut Visit<'_>) -> Result<(), Error> {
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        let map = self.map.lock().unwrap();
        let from = from.max(prefix);
        let range = map.range(from.to_vec()..).take_while(|(key, _)| key.starts_with(prefix));
        let found: Vec<_> = range.map(|(key, value)| (key.clone(), value.clone())).collect();
        drop(map);
        let end = found.into_iter().find(|(key, value)| !visit(key, value)).map(|(key, _)| key);
        let removed = self.removed.lock().unwrap();
        let passed = removed
            .range(from.to_vec()..)
            .take_while(|key| key.starts_with(prefix) && end.as_ref().is_none_or(|end| *key < end));
        self.passed.fetch_add(passed.count(), Ordering::Relaxed);
        Ok(())
    }

    fn make_room(&self) -> Result<(), Error> {
        Ok(())
    }

    fn commit(&self, batch: Batch) -> Result<Seq, Error> {
        let mut map = self.map.lock().unwrap();
        let before = self.witness.get().map(|_| map.clone());
        let mut removed = self.removed.lock().unwrap();
        for change in batch.into_changes() {
            if let Some(value) = change.value {
                removed.remove(&change.key);
                map.insert(change.key, value);
            } else if map.remove(&change.key).is_some() {
                removed.insert(change.key);
            }
        }
        drop((map, removed));
        if let Some(witness) = self.witness.get()
            && let Err(error) = witness()
        {
            *self.map.lock().unwrap() = before.unwrap_or_default();
            return Err(error);
        }
        Ok(Seq(1))
    }

    fn sync(&self, _: Seq) -> Result<(), Error> {
        let cut = self.cut.lock().unwrap().as_ref().and_then(Weak::upgrade);
        if let Some(cut) = cut {
            cut.cut(&mut |batch| drop(self.commit(batch)));
        }
        Ok(())
    }

    fn write_out(&self, _: Seq) -> Result<Seq, Error> {
        Ok(Seq(1))
    }

    fn flushed(&self, _: Seq) -> Result<(), Error> {
        Ok(())
    }

    fn device(&self) -> Option<u64> {
        None
    }

    fn newest(&self) -> Seq {
        Seq(1)
    }

    fn durable(&self) -> Seq {
        Seq(1)
    }

    fn wait_durable(&self, _: Seq, _: Duration) -> bool {
        true
    }

    fn set_cut(&self, cut: Weak<dyn Cut>) {
        *self.cut.lock().unwrap() = Some(cut);
    }
}
