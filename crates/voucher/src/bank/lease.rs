//! Leases, lives and failures of stores.

use super::stores::StoreState;
use super::{BankAction, BankCore, BankOutput, Finding, load};
use crate::flaw::Flaw;
use crate::message::{BankToStore, Base, Lease, Renew};
use crate::{Epoch, Incarnation, Micros, Node};

impl BankCore {
    pub(super) fn renew(&mut self, renew: Renew, now: Micros, out: &mut BankOutput) {
        let node = renew.store;
        let newest = self.stores.keys().filter(|(n, _)| *n == node).map(|(_, incarnation)| *incarnation).max();
        let answer = match newest {
            Some(newest) if renew.incarnation < newest => Some(reincarnate(newest, renew.boot)),
            Some(newest) if renew.incarnation == newest => self.renew_known(&renew, now, out),
            _ => self.register(&renew, now, out),
        };
        if let Some(answer) = answer {
            out.actions.push(BankAction::ToStore(node, answer));
        }
    }

    fn renew_known(&mut self, renew: &Renew, now: Micros, out: &mut BankOutput) -> Option<BankToStore> {
        let key = (renew.store, renew.incarnation);
        let again = reincarnate(renew.incarnation, renew.boot);
        let store = self.stores.get_mut(&key)?;
        if store.lost.is_some() {
            return Some(again);
        }
        let life = self.head.incarnation;
        // A life is kept before anybody hears of it, and the next process begins another: of this one only who was met can know.
        let foreign = renew.bank > life || (renew.bank == life && store.heard.is_none());
        if self.recovery.is_none() && (foreign || renew.epoch > self.head.epoch) {
            self.find_ahead(renew, out);
            return Some(BankToStore::Wait);
        }
        let store = self.stores.get_mut(&key)?;
        if renew.boot == store.boot {
            if renew.beat <= store.beat {
                // An old message of the running process, or a repetition of the newest.
                let newest = renew.beat == store.beat;
                return newest.then(|| self.lease(renew, now, out)).flatten();
            }
        } else {
            // A new process must know of every renewal of the one before, each having been durable before it was
            // sent. Else this is a message of an older process (nobody heeds the answer), or the store was set
            // back to an old copy and has forgotten vouchers.
            let known = renew.before.iter().find(|(boot, _)| *boot == store.boot);
            if known.is_none_or(|(_, beat)| *beat < store.beat) {
                return Some(again);
            }
            store.boot = renew.boot;
        }
        store.beat = renew.beat;
        out.writes.push(load::store_key(key).put(&store.row()));
        self.lease(renew, now, out)
    }

    /// Epochs come from the bank, which keeps each before it tells it. Who is ahead of it may have forgotten reports that it would need,
    /// and has taken vouchers that it does not know: nothing is counted on before somebody has looked.
    fn find_ahead(&mut self, renew: &Renew, out: &mut BankOutput) {
        let why = "it knows an epoch or a life of this bank that never began: the bank was set back to an old copy, and has to be \
                   rebuilt, or the store lies";
        let told = |known: &Finding| match known {
            Finding::StoreLied { store, why: known, .. } => *store == renew.store && known == why,
            _ => false,
        };
        // Once, whatever epochs a store that lies may say.
        if !self.findings.values().any(told) {
            self.find(Finding::StoreLied { store: renew.store, epoch: renew.epoch, why: why.to_owned() }, out);
        }
    }

    fn lease(&mut self, renew: &Renew, now: Micros, out: &mut BankOutput) -> Option<BankToStore> {
        let until = now + self.config.lease + self.config.lease_margin;
        let store = self.stores.get_mut(&(renew.store, renew.incarnation))?;
        store.lease_until = Some(until);
        store.heard = Some(now);
        if std::mem::take(&mut store.lapsed) {
            out.actions.push(BankAction::Back { store: renew.store });
        }
        store.free = renew.free;
        store.total = renew.total;
        store.epoch = store.epoch.max(renew.epoch);
        Some(BankToStore::Lease(Lease {
            bank: self.head.incarnation,
            incarnation: renew.incarnation,
            boot: renew.boot,
            beat: renew.beat,
            length: self.config.lease,
            epoch: self.head.epoch,
            reported: store.reported,
            horizon: self.head.horizon,
            accept_from: store.accept_from,
        }))
    }

    /// A store, or a life of one, that the bank does not know.
    fn register(&mut self, renew: &Renew, now: Micros, out: &mut BankOutput) -> Option<BankToStore> {
        let bank = self.head.incarnation;
        // A rebuilt bank cannot tell a late message from a new one. One that names this life of the bank was sent after
        // its question, and what the store heard from the lost bank changes nothing in it from then on.
        let asked = self.recovery.is_none() || renew.bank == bank;
        let Some(base) = renew.base.as_ref().filter(|_| asked) else { return Some(BankToStore::NeedBase { bank }) };
        let older: Vec<Incarnation> = self
            .stores
            .iter()
            .filter(|((node, _), store)| *node == renew.store && store.lost.is_none())
            .map(|((_, incarnation), _)| *incarnation)
            .collect();
        for incarnation in &older {
            // Until its lease is over, the earlier life may still be acting somewhere.
            self.believe_in_lease((renew.store, *incarnation), now);
            if self.is_leased((renew.store, *incarnation), now) {
                return Some(BankToStore::Wait);
            }
        }
        let recovering = self.recovery.is_some();
        // A store that the rebuilt bank does not wait for has been given up: what it took since then counts nowhere.
        if !base.fresh && !self.awaits(renew.store) {
            return Some(reincarnate(renew.incarnation, renew.boot));
        }
        if base.fresh && self.awaits_stores() {
            // It has taken no vouchers in this life and knows no epoch; those of earlier lives expire first.
            self.note_recovering_store(renew, out);
            if self.awaits_stores() {
                return Some(BankToStore::Wait);
            }
        }
        for incarnation in older {
            self.lose((renew.store, incarnation), out);
        }
        let returning = self.stores.keys().any(|(node, _)| *node == renew.store);
        let reported = if base.fresh && (returning || recovering || !base.used.is_empty()) {
            self.fence()
        } else if base.fresh {
            self.head.horizon
        } else {
            base.epoch
        };
        self.adopt(renew, base, reported, out);
        self.note_recovering_store(renew, out);
        self.lease(renew, now, out)
    }

    fn adopt(&mut self, renew: &Renew, base: &Base, reported: Epoch, out: &mut BankOutput) {
        let key = (renew.store, renew.incarnation);
        let mut store = StoreState {
            reported,
            accept_from: reported.plus(1),
            beat: renew.beat,
            boot: renew.boot,
            ..StoreState::default()
        };
        for (user, used) in &base.used {
            let used = (*used).max(0);
            store.settled.insert(*user, used);
            self.accounts.entry(*user).or_insert_with(removed).settled += i128::from(used);
            out.writes.push(load::settled_key(key, *user).put(&used));
        }
        store.latest.clone_from(&store.settled);
        out.writes.push(load::store_key(key).put(&store.row()));
        self.stores.insert(key, store);
    }

    pub(super) fn is_leased(&self, key: (Node, Incarnation), now: Micros) -> bool {
        self.stores.get(&key).is_some_and(|store| store.lease_until.is_none_or(|until| now < until))
    }

    /// After a restart of the bank leases are unknown: they are believed in from the first question on.
    fn believe_in_lease(&mut self, key: (Node, Incarnation), now: Micros) {
        let until = now + self.config.lease + self.config.lease_margin;
        if let Some(store) = self.stores.get_mut(&key) {
            store.lease_until.get_or_insert(until);
        }
    }

    /// The last epoch in which a store without a lease can have acted: it may be ahead by the skew.
    fn fence(&self) -> Epoch {
        self.head.epoch.plus(self.config.params.skew())
    }

    /// Gives a store up, if its lease is over. It leaves A only with its fence: see `advance_horizon`.
    pub(super) fn exclude(&mut self, node: Node, now: Micros, out: &mut BankOutput) {
        let live: Vec<_> = self
            .stores
            .iter()
            .filter(|((n, _), store)| *n == node && store.lost.is_none())
            .map(|(key, _)| *key)
            .collect();
        for key in live {
            self.believe_in_lease(key, now);
            if !self.is_leased(key, now) || self.config.flaws.has(Flaw::NoLease) {
                self.lose(key, out);
                if self.config.flaws.has(Flaw::ExcludeAtOnce) {
                    self.drop_store(key, out);
                }
            }
        }
        self.stop_awaiting(node, now, out);
        self.advance_horizon(out);
    }

    fn lose(&mut self, key: (Node, Incarnation), out: &mut BankOutput) {
        let fence = self.fence();
        if let Some(store) = self.stores.get_mut(&key) {
            store.lost = Some(fence);
            out.writes.push(load::store_key(key).put(&store.row()));
            out.actions.push(BankAction::Excluded { store: key.0, fence });
        }
    }
}

/// The life after this one is to be begun by this process.
fn reincarnate(last: Incarnation, boot: u64) -> BankToStore {
    BankToStore::Reincarnate { incarnation: Incarnation(last.0.saturating_add(1)), boot }
}

/// The account of a user who has bytes but no quota here.
fn removed() -> super::account::Account {
    super::account::Account { removed: true, ..Default::default() }
}
