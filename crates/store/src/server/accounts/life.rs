//! How the cores come to be: from the rows of the journal, or in a new life from what was measured.

use super::Accounts;
use super::unchecked::user_of_sum;
use crate::server::note::{CREDIT, Note, row};
use std::collections::BTreeMap;
use std::sync::Arc;
use ullage_bank::identity;
use ullage_net::keyfile;
use ullage_voucher::store::{StoreCore, StoreOutput};
use ullage_voucher::{Incarnation, User};

impl Accounts {
    /// Makes the cores from the rows that the journal gave back. Those of a store that was used without checks since know
    /// nothing of what was written then: each starts a new life, which holds what was `measured`.
    ///
    /// # Errors
    /// When a row is damaged.
    pub fn start(&mut self, measured: &BTreeMap<Arc<str>, u64>) -> Result<Option<Vec<u8>>, String> {
        if self.unchecked.is_some() {
            return Ok(None);
        }
        let mut note = Note::default();
        let sums: Vec<_> = self.rows.keys().filter(|key| user_of_sum(key).is_some()).cloned().collect();
        for key in &sums {
            self.rows.remove(key);
            note.remove(0, key[4..].into());
        }
        for shard in 0..self.plan.shards {
            let rows: Vec<_> = self.shard_rows(shard);
            let (config, keys) = (self.plan.config.clone(), Arc::clone(&self.plan.keys));
            let core = if rows.is_empty() {
                let mut out = StoreOutput::default();
                let core = StoreCore::new(config, keys, self.plan.boot, Incarnation(1), BTreeMap::new(), &mut out);
                note.add_all(shard, out.writes);
                core
            } else {
                let rows = rows.iter().map(|(key, value)| (key.as_slice(), value.as_slice()));
                StoreCore::load(config, keys, self.plan.boot, rows).map_err(|error| error.to_string())?
            };
            let next = Incarnation(core.incarnation().0.saturating_add(1));
            self.cores.push(core);
            if !sums.is_empty() {
                tracing::warn!(shard, "the store was used without checks since: it starts a new life");
                self.begin_life(shard, next, measured, &mut note);
            }
        }
        // The cores have it all now, and say so when it is to be saved.
        self.rows.clear();
        Ok(note.finish())
    }

    fn shard_rows(&self, shard: u32) -> Vec<(Vec<u8>, Vec<u8>)> {
        let prefix = shard.to_be_bytes();
        self.rows
            .range(prefix.to_vec()..)
            .take_while(|(key, _)| key.starts_with(&prefix))
            .map(|(key, value)| (key[4..].to_vec(), value.clone()))
            .collect()
    }

    /// A new life of one shard, holding what was measured.
    pub(crate) fn reincarnate(
        &mut self,
        shard: u32,
        incarnation: Incarnation,
        measured: &BTreeMap<Arc<str>, u64>,
    ) -> Option<Vec<u8>> {
        let mut note = Note::default();
        self.begin_life(shard, incarnation, measured, &mut note);
        note.finish()
    }

    fn begin_life(
        &mut self,
        shard: u32,
        incarnation: Incarnation,
        measured: &BTreeMap<Arc<str>, u64>,
        note: &mut Note,
    ) {
        for row in self.cores.get(shard as usize).into_iter().flat_map(StoreCore::rows) {
            note.remove(shard, row.key);
        }
        let mut base: BTreeMap<User, u64> = BTreeMap::new();
        for (name, bytes) in measured {
            let user = identity::user(name);
            if self.shard_of(user) == shard {
                *base.entry(user).or_default() += bytes;
            }
        }
        // What was to be credited is not in what was measured.
        let settled: Vec<User> = self.credits.keys().copied().filter(|user| self.shard_of(*user) == shard).collect();
        for user in settled {
            self.credits.remove(&user);
            note.remove(CREDIT, row(user.0));
        }
        let mut out = StoreOutput::default();
        let (config, keys) = (self.plan.config.clone(), Arc::clone(&self.plan.keys));
        // What the bank still says to the life before is not for this one.
        let boot = keyfile::random_u64();
        let core = StoreCore::new(config, keys, boot, incarnation, base, &mut out);
        note.add_all(shard, out.writes);
        if let Some(place) = self.cores.get_mut(shard as usize) {
            *place = core;
        }
    }
}
