//! A bank rebuilt from nothing but the limits (voucher-quotas, section 3, *Failures*).

use super::account::Account;
use super::{BankAction, BankConfig, BankCore, BankOutput, Head};
use crate::message::Renew;
use crate::{Epoch, Incarnation, Keyring, Micros, Node, User};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a rebuilt bank still has to learn.
#[derive(Clone, Debug)]
pub(super) struct Recovery {
    /// Stores that have not said what they hold.
    awaited: BTreeSet<Node>,
    /// Vouchers of the lost bank may be from any epoch up to here; known once all stores have spoken.
    until: Option<Epoch>,
    /// The share of each quota, in thousandths, that is issued although the use is unknown.
    permille: u16,
    newest: Epoch,
}

impl Recovery {
    /// What may be issued to a user meanwhile. With `permille` zero nothing: exact. Otherwise a quota can be
    /// exceeded, by at most that share of it.
    pub(super) fn share(&self, account: &Account) -> u64 {
        let share = u128::from(account.quota) * u128::from(self.permille) / 1000;
        (share as u64).saturating_sub(account.issued_total)
    }
}

impl BankCore {
    /// A bank of which everything was lost but the limits and the list of stores. It takes the epoch from the
    /// stores, asks each for all it holds, turns epochs at their shortest, and issues only `permille`
    /// thousandths of each quota until all vouchers that the lost bank can have made are reconciled: K epochs.
    /// The incarnation must be above all that were used. `epoch_at_least` is the newest epoch that anybody
    /// remembers of the lost bank, zero if nobody does: it matters only if all stores that knew of its last
    /// epochs were lost with it.
    #[expect(clippy::too_many_arguments, reason = "each is one thing that a rebuilt bank has to be told")]
    pub fn rebuild(
        config: BankConfig,
        keys: Arc<Keyring>,
        incarnation: Incarnation,
        limits: impl IntoIterator<Item = (User, u64)>,
        stores: impl IntoIterator<Item = Node>,
        permille: u16,
        epoch_at_least: Epoch,
        out: &mut BankOutput,
    ) -> Self {
        let start = Epoch(config.params.reconcile() + 1);
        let head = Head { incarnation, epoch: start, horizon: Epoch(1), known_since: incarnation };
        let mut core = Self::assemble(config, keys, head);
        core.epoch_length = core.config.epoch_length.shortest;
        core.recovery = Some(Recovery {
            awaited: stores.into_iter().collect(),
            until: None,
            permille: permille.min(1000),
            newest: start.max(epoch_at_least),
        });
        for (user, quota) in limits {
            core.set_quota(user, quota, out);
        }
        core.write_head(out);
        out.writes.push(super::load::params_row(core.config.params));
        core.write_recovery(out);
        core.start_if_complete(out);
        core
    }

    /// Before a rebuilt bank has heard of all stores it knows no epoch and does nothing but listen.
    pub(super) fn awaits_stores(&self) -> bool {
        self.recovery.as_ref().is_some_and(|recovery| recovery.until.is_none())
    }

    /// The stores that have not said yet what they hold: until then a rebuilt bank does nothing else.
    pub fn awaited(&self) -> impl Iterator<Item = Node> + '_ {
        self.recovery.iter().flat_map(|recovery| &recovery.awaited).copied()
    }

    pub(super) fn awaits(&self, node: Node) -> bool {
        self.awaited().any(|awaited| awaited == node)
    }

    pub(super) fn note_recovering_store(&mut self, renew: &Renew, out: &mut BankOutput) {
        let Some(recovery) = &mut self.recovery else { return };
        if recovery.until.is_some() {
            return;
        }
        recovery.awaited.remove(&renew.store);
        recovery.newest = recovery.newest.max(renew.epoch);
        self.write_recovery(out);
        self.start_if_complete(out);
    }

    /// A store that was given up is not waited for, once no lease of the lost bank can be left.
    pub(super) fn stop_awaiting(&mut self, node: Node, now: Micros, out: &mut BankOutput) {
        let leased_until = *self.epoch_began.get_or_insert(now) + self.config.lease + self.config.lease_margin;
        if let Some(recovery) = &mut self.recovery
            && now >= leased_until
            && recovery.awaited.remove(&node)
        {
            let fence = recovery.newest.plus(1 + self.config.params.skew());
            out.actions.push(BankAction::Excluded { store: node, fence });
            self.write_recovery(out);
            self.start_if_complete(out);
        }
    }

    fn start_if_complete(&mut self, out: &mut BankOutput) {
        let Some(recovery) = &mut self.recovery else { return };
        if recovery.until.is_some() || !recovery.awaited.is_empty() {
            return;
        }
        // The lost bank was at most one epoch ahead of the newest that a store had heard of, see
        // `turn_epoch_if_due`.
        let until = recovery.newest.plus(1);
        recovery.until = Some(until);
        self.head.epoch = until.plus(1);
        // From what the stores held when they came: what they reported since is taken into the sum epoch by epoch.
        let horizon = self.stores.values().filter_map(|store| store.accept_from.minus(1)).min();
        let latest = until.plus(1).minus(self.config.params.reconcile()).unwrap_or_default();
        self.head.horizon = horizon.unwrap_or(latest).min(latest);
        self.write_head(out);
        self.write_recovery(out);
        let (epoch, length) = (self.head.epoch, self.epoch_length);
        out.actions.push(BankAction::Epoch { epoch, length });
    }

    pub(super) fn end_recovery_if_done(&mut self, out: &mut BankOutput) {
        let done = self.recovery.as_ref().and_then(|recovery| recovery.until).is_some_and(|u| self.head.horizon >= u);
        if done {
            self.recovery = None;
            self.epoch_length = self.config.epoch_length.normal;
            self.write_recovery(out);
            out.actions.push(BankAction::Recovered);
        }
    }

    fn write_recovery(&self, out: &mut BankOutput) {
        let key = super::load::recovery_key();
        out.writes.push(match &self.recovery {
            None => key.remove(),
            Some(r) => key.put(&(&r.awaited, r.until, r.permille, r.newest)),
        });
    }

    pub(super) fn load_recovery(&mut self, row: (BTreeSet<Node>, Option<Epoch>, u16, Epoch)) {
        let (awaited, until, permille, newest) = row;
        self.recovery = Some(Recovery { awaited, until, permille, newest });
        self.epoch_length = self.config.epoch_length.shortest;
    }
}
