//! One user's account: quota, what is reconciled, what was issued since.

use super::grant::Ask;
use super::{BankCore, BankOutput, load};
use crate::{ANYONE, Client, Epoch, Micros, Node, Piece, User, VoucherId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A request that waits for revoked vouchers.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) client: Client,
    pub(super) ask: Ask,
    pub(super) until: Micros,
}

/// One user's account.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    pub(super) quota: u64,
    pub(super) blocked: bool,
    /// Vouchers asked for by a user whose quota was removed are refused as if unknown.
    pub(super) removed: bool,
    /// ΣS_h over all stores that count.
    pub(super) settled: i128,
    /// V_e of each epoch after the horizon.
    pub(super) issued: BTreeMap<Epoch, u64>,
    pub(super) issued_total: u64,
    /// The last epoch in which each client asked: those of the last X epochs are active.
    pub(super) active: BTreeMap<Client, Epoch>,
    /// The epoch in which those of earlier ones were last looked through.
    pub(super) looked_through: Epoch,
    /// Returned pieces that can be passed on, those that expire first before others. They are still part of V of their epochs.
    pub(super) pool: BTreeMap<(Epoch, VoucherId), Piece>,
    pub(super) waiting: VecDeque<Waiting>,
    /// Grants and returns that are remembered.
    pub(super) grants: usize,
    pub(super) returns: usize,
    /// Clients that have been asked to give back and have not answered.
    pub(super) asked: BTreeSet<Client>,
    /// Those that let the time pass, until they are heard again: a program that ended without a word is waited for once.
    pub(super) silent: BTreeSet<Client>,
    /// Those that said something since they were last asked, or were never asked.
    pub(super) heard: BTreeSet<Client>,
    /// Until then only those are asked: all were.
    pub(super) all_asked_until: Micros,
}

/// What is stored of an account; the rest follows from other rows.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct AccountRow {
    pub(super) quota: u64,
    pub(super) blocked: bool,
    pub(super) removed: bool,
}

impl Account {
    /// A (voucher-quotas, section 3, *Tracking and reconciling usage*).
    pub(super) fn authorized(&self) -> i128 {
        self.settled + i128::from(self.issued_total)
    }

    /// r: what is left to issue; never so much that the sum of what is issued could not be written down.
    pub(super) fn remaining(&self) -> u64 {
        let left = i128::from(self.quota) - self.authorized();
        let left = left.min(i128::from(u64::MAX - self.issued_total));
        left.clamp(0, i128::from(crate::MAX_VALUE)) as u64
    }

    /// How much of the pool may be passed on in this epoch for use at a store that takes vouchers of this audience: the pool holds such
    /// as any store takes, and what has expired there is removed when something is passed on. All of it counts in A
    /// already; but where the quota was lowered, what others hold or use may be more than is allowed, or leave room only for a part.
    pub(super) fn passable(&self, audience: Node, epoch: Epoch) -> u64 {
        if audience != ANYONE {
            return 0;
        }
        let live = self.pool.values().filter(|piece| piece.voucher.terms.expiry > epoch);
        let pooled: i128 = live.map(|piece| i128::from(piece.amount)).sum();
        let left = i128::from(self.quota) - (self.authorized() - pooled);
        left.clamp(0, pooled).min(i128::from(u64::MAX)) as u64
    }

    /// Which of those that wait is served now, and how much may be made anew for it. In order; but who waits for vouchers bound to a
    /// store holds nobody else up: what others give back does not pay it, and what is left to make is kept for it.
    pub(super) fn next_served(&self, now: Micros, epoch: Epoch, remaining: u64, patient: bool) -> Option<(usize, u64)> {
        let mut left = remaining;
        for (position, waiting) in self.waiting.iter().enumerate() {
            let is_bound = waiting.ask.audience != ANYONE;
            let waits = patient || !(is_bound || self.asked.is_empty());
            if !waits
                || now >= waiting.until
                || waiting.ask.want <= self.passable(waiting.ask.audience, epoch).saturating_add(left)
            {
                return Some((position, left));
            }
            if !is_bound {
                return None;
            }
            left = 0;
        }
        None
    }

    /// Takes a returned piece; parts of one voucher join again. Gives what is there of it then.
    pub(super) fn pool_put(&mut self, piece: Piece) -> Piece {
        let there = self.pool.entry((piece.voucher.terms.epoch, piece.id())).or_insert(Piece { amount: 0, ..piece });
        there.amount = (there.amount + piece.amount).min(piece.voucher.terms.value);
        *there
    }

    pub(super) fn row(&self) -> AccountRow {
        AccountRow { quota: self.quota, blocked: self.blocked, removed: self.removed }
    }

    /// Whether as much is remembered of this user as may be, before this client asks for more.
    pub(super) fn is_crowded(&self, client: Client, most: usize) -> bool {
        self.grants + self.waiting.len() >= most || (self.active.len() >= most && !self.active.contains_key(&client))
    }

    /// Notes that a client says something: it is there, and may have what it had not when it was asked.
    pub(super) fn hear(&mut self, client: Client) {
        self.silent.remove(&client);
        if self.active.contains_key(&client) {
            self.heard.insert(client);
        }
    }

    /// Forgets clients that hold no vouchers any more: those that did not ask in the last X epochs. Once an epoch, since nothing changes
    /// within one, and a user may have made up many.
    pub(super) fn forget_inactive(&mut self, epoch: Epoch, expiry: u64) {
        if std::mem::replace(&mut self.looked_through, epoch) == epoch {
            return;
        }
        self.active.retain(|_, last| last.plus(expiry) >= epoch);
        self.silent.retain(|client| self.active.contains_key(client));
        self.heard.retain(|client| self.active.contains_key(client));
    }
}

impl BankCore {
    pub(super) fn set_quota(&mut self, user: User, quota: u64, out: &mut BankOutput) {
        let account = self.accounts.entry(user).or_default();
        account.quota = quota;
        account.removed = false;
        self.write_account(user, out);
    }

    pub(super) fn remove_user(&mut self, user: User, out: &mut BankOutput) {
        if let Some(account) = self.accounts.get_mut(&user) {
            account.quota = 0;
            account.removed = true;
            self.write_account(user, out);
        }
    }

    pub(super) fn set_blocked(&mut self, user: User, blocked: bool, out: &mut BankOutput) {
        if let Some(account) = self.accounts.get_mut(&user) {
            account.blocked = blocked;
            self.write_account(user, out);
        }
    }

    fn write_account(&self, user: User, out: &mut BankOutput) {
        if let Some(account) = self.accounts.get(&user) {
            out.writes.push(load::account_key(user).put(&account.row()));
        }
    }
}
