//! Epochs turn, and leave the sum once every store has reported them.

use super::{BankAction, BankCore, BankOutput, load};
use crate::flaw::Flaw;
use crate::{Epoch, Incarnation, Micros, Node};

impl BankCore {
    pub(super) fn turn_epoch_if_due(&mut self, now: Micros, out: &mut BankOutput) {
        let began = *self.epoch_began.get_or_insert(now);
        if self.awaits_stores() || now.since(began) < self.epoch_length {
            return;
        }
        // Epochs wait until at least one store has heard of the current one: a bank that has to be rebuilt can
        // then learn from the stores which epochs there were.
        let live = || self.stores.values().filter(|store| store.lost.is_none());
        if live().next().is_some() && !live().any(|store| store.epoch >= self.head.epoch) {
            return;
        }
        let (free, total) = live().fold((0u64, 0u64), |(free, total), store| {
            (free.saturating_add(store.free), total.saturating_add(store.total))
        });
        self.epoch_length = if self.recovery.is_some() {
            self.config.epoch_length.shortest
        } else {
            self.config.epoch_length.length(free, total)
        };
        self.head.epoch = self.head.epoch.plus(1);
        self.epoch_began = Some(now);
        self.write_head(out);
        self.forget_findings(out);
        out.actions.push(BankAction::Epoch { epoch: self.head.epoch, length: self.epoch_length });
    }

    /// Moves h up to c − K, but never past what a store that counts has not reported.
    ///
    /// A store that was given up may have made refunds that nobody has reported; they can be spent until X epochs
    /// after its fence. So it blocks the horizon like a live one until every live store has reported
    /// the fence and K epochs have passed; then it leaves A with everything it had, in the same moment as
    /// the last epoch in which it acted. (The paper takes it out at once: then its unreported refunds would
    /// be granted a second time.)
    pub(super) fn advance_horizon(&mut self, out: &mut BankOutput) {
        let params = self.config.params;
        let keep = if self.config.flaws.has(Flaw::ForgetAtExpiry) { params.expiry() } else { params.reconcile() };
        let Some(limit) = self.head.epoch.minus(keep) else { return };
        if self.awaits_stores() {
            return;
        }
        let forget = self.config.flaws.has(Flaw::ForgetAtExpiry);
        let live = self.stores.values().filter(|store| store.lost.is_none() && !forget).map(|store| store.reported);
        let most = live.min().map_or(limit, |reported| reported.min(limit));
        let mut target = most;
        loop {
            let blocking = self
                .stores
                .values()
                .filter(|store| !forget && store.lost.is_some_and(|fence| fence > target))
                .map(|store| store.reported);
            let next = blocking.min().map_or(most, |reported| reported.min(most)).min(target);
            if next == target {
                break;
            }
            target = next;
        }
        if target <= self.head.horizon {
            return;
        }
        while self.head.horizon < target {
            self.settle(self.head.horizon.plus(1), out);
        }
        let gone: Vec<_> = self
            .stores
            .iter()
            .filter(|(_, store)| store.lost.is_some_and(|fence| fence <= target))
            .map(|(key, _)| *key)
            .collect();
        for key in gone {
            self.drop_store(key, out);
        }
        self.write_head(out);
        self.end_recovery_if_done(out);
    }

    /// One epoch leaves the issued part of A and enters the reconciled one.
    fn settle(&mut self, epoch: Epoch, out: &mut BankOutput) {
        self.judge_epoch(epoch, out);
        let keys: Vec<_> = self.stores.keys().copied().collect();
        for key in keys {
            let Some(report) = self.stores.get_mut(&key).and_then(|store| store.pending.remove(&epoch)) else {
                continue;
            };
            out.writes.push(load::report_key(key, epoch).remove());
            for (user, used) in report.used {
                let Some(store) = self.stores.get_mut(&key) else { continue };
                let before = if used == 0 {
                    out.writes.push(load::settled_key(key, user).remove());
                    store.settled.remove(&user)
                } else {
                    out.writes.push(load::settled_key(key, user).put(&used));
                    store.settled.insert(user, used)
                };
                let account = self
                    .accounts
                    .entry(user)
                    .or_insert_with(|| super::account::Account { removed: true, ..Default::default() });
                account.settled += i128::from(used) - i128::from(before.unwrap_or(0));
            }
        }
        self.forget(epoch, out);
        self.head.horizon = epoch;
    }

    fn judge_epoch(&mut self, epoch: Epoch, out: &mut BankOutput) {
        let vouchers: Vec<_> =
            self.spent.get(&epoch).map(|tallies| tallies.keys().copied().collect()).unwrap_or_default();
        for voucher in vouchers {
            self.judge(epoch, voucher, true, out);
        }
    }

    /// Drops everything that was kept for one epoch.
    fn forget(&mut self, epoch: Epoch, out: &mut BankOutput) {
        for (client, op) in self.grants_by_epoch.remove(&epoch).unwrap_or_default() {
            out.writes.push(load::grant_key(epoch, client, op).remove());
            let Some(grant) = self.grants.remove(&(client, op)) else { continue };
            if let Some(account) = self.accounts.get_mut(&grant.user) {
                account.grants -= 1;
            }
            if let Some(piece) = grant.minted {
                self.grants_by_voucher.remove(&piece.id());
            }
        }
        for account in self.accounts.values_mut() {
            account.issued_total -= account.issued.remove(&epoch).unwrap_or(0);
        }
        let accounts = &mut self.accounts;
        self.returns.retain(|(client, op), recorded| {
            let keep = recorded.epoch != epoch;
            if !keep {
                out.writes.push(load::return_key(epoch, *client, *op).remove());
                if let Some(account) = recorded.user.and_then(|user| accounts.get_mut(&user)) {
                    // One that has no row of its own was not there yet when the return was loaded.
                    account.returns = account.returns.saturating_sub(1);
                }
            }
            keep
        });
        for voucher in self.moved.remove(&epoch).unwrap_or_default().into_keys() {
            out.writes.push(load::moved_key(epoch, voucher).remove());
        }
        self.spent.remove(&epoch);
        self.refunds.remove(&epoch);
        self.told.retain(|(when, _), _| *when != epoch);
    }

    /// A store that was given up, or an earlier life of one, no longer counts.
    pub(super) fn drop_store(&mut self, key: (Node, Incarnation), out: &mut BankOutput) {
        let Some(store) = self.stores.remove(&key) else { return };
        for (user, used) in store.settled {
            out.writes.push(load::settled_key(key, user).remove());
            if let Some(account) = self.accounts.get_mut(&user) {
                account.settled -= i128::from(used);
            }
        }
        for epoch in store.pending.into_keys() {
            out.writes.push(load::report_key(key, epoch).remove());
        }
        out.writes.push(load::store_key(key).remove());
        out.actions.push(BankAction::Dropped { store: key.0 });
    }
}
