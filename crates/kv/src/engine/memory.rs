//! An engine that keeps everything in memory and nothing across a restart.

use crate::key_range::{first_key, prefix_end};
use crate::kv::Visit;
use crate::{Change, Engine, Error, Seq};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::Bound;

/// A sorted map. For tests, for measuring the layers above, and for spaces that need not outlive their daemon.
///
/// `visit` must not call [`Engine::apply`] of the same engine: a scan sees one state of the whole map because
/// it holds changes off meanwhile.
#[derive(Debug, Default)]
pub struct MemoryEngine {
    content: RwLock<Content>,
}

#[derive(Debug, Default)]
struct Content {
    map: BTreeMap<Vec<u8>, Vec<u8>>,
    applied: Seq,
}

impl MemoryEngine {
    /// An empty engine.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Engine for MemoryEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.content.read().map.get(key).cloned())
    }

    fn scan(&self, prefix: &[u8], from: &[u8], visit: &mut Visit<'_>) -> Result<(), Error> {
        let end = prefix_end(prefix);
        let start = first_key(prefix, from);
        if end.as_deref().is_some_and(|end| start >= end) {
            return Ok(());
        }
        let upper = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let content = self.content.read();
        for (key, value) in content.map.range::<[u8], _>((Bound::Included(start), upper)) {
            if !visit(key, value) {
                break;
            }
        }
        Ok(())
    }

    fn apply(&self, changes: &[Change], applied: Seq) -> Result<(), Error> {
        let mut content = self.content.write();
        for change in changes {
            match &change.value {
                Some(value) => {
                    content.map.insert(change.key.clone(), value.clone());
                }
                None => {
                    content.map.remove(&change.key);
                }
            }
        }
        content.applied = applied;
        Ok(())
    }

    fn persist(&self) -> Result<(), Error> {
        Ok(())
    }

    fn applied(&self) -> Result<Seq, Error> {
        Ok(self.content.read().applied)
    }
}
