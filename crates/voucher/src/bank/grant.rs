//! Issuing vouchers: how much, and exactly once per request.

use super::account::Waiting;
use super::{BankCore, BankOutput, Policy, load};
use crate::message::{BankToClient, Denial};
use crate::{Client, Epoch, Issuer, MAX_VALUE, Micros, Node, Op, Piece, Terms, User};
use serde::{Deserialize, Serialize};

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) op: Op,
    pub(super) want: u64,
    /// Which store is to take it, or [`crate::ANYONE`].
    pub(super) audience: Node,
}

/// What one request was given. Kept until its epoch leaves the sum: it answers repetitions, and traces
/// serials to clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Grant {
    pub(super) user: User,
    pub(super) epoch: Epoch,
    /// Newly made here: part of V of the epoch.
    pub(super) minted: Option<Piece>,
    /// Returned by others and passed on: part of V of their own epochs.
    pub(super) passed: Vec<Piece>,
}

impl Grant {
    pub(super) fn pieces(&self) -> Vec<Piece> {
        self.passed.iter().chain(&self.minted).copied().collect()
    }
}

/// What one client may be given of the `remaining` quota: `r / (n + 1)`, but at least the floor, and never
/// more than there is (voucher-quotas, section 3, the *limiting* policy).
pub fn limited(want: u64, remaining: u64, active_clients: usize, floor: u64) -> u64 {
    let share = remaining / (active_clients as u64 + 1);
    want.min(share.max(floor)).min(remaining)
}

impl BankCore {
    pub(super) fn request(&mut self, client: Client, user: User, ask: Ask, now: Micros, out: &mut BankOutput) {
        let Ask { op, want, audience } = ask;
        if let Some(grant) = self.grants.get(&(client, op)) {
            // A repetition: the very same vouchers again, but only to the same user's request.
            if grant.user == user {
                let pieces = grant.pieces();
                let epoch = self.head.epoch;
                self.tell(client, BankToClient::Granted { user, op, pieces, epoch }, out);
                return;
            }
            self.deny(client, user, op, Denial::Invalid, out);
            return;
        }
        if let Err(reason) = self.may_ask(user, want) {
            self.deny(client, user, op, reason, out);
            return;
        }
        let epoch = self.head.epoch;
        let expiry = self.config.params.expiry();
        let Some(account) = self.accounts.get_mut(&user) else { return };
        account.forget_inactive(epoch, expiry);
        account.silent.remove(&client);
        // A repetition of one that waits asks for nothing more.
        let waits = account.waiting.iter().any(|other| (other.client, other.ask.op) == (client, op));
        if !waits && account.is_crowded(client, self.config.user_max) {
            self.deny(client, user, op, Denial::TooMany, out);
            return;
        }
        account.active.insert(client, epoch);
        let active = account.active.len();
        let want = want.min(MAX_VALUE);
        match self.config.policy {
            Policy::Limiting { floor } => {
                let passed = self.pass_on(user, want, audience, out);
                let passed_value: u64 = passed.iter().map(|piece| piece.amount).sum();
                let remaining = self.remaining(user);
                let minted = limited(want - passed_value, remaining, active, floor);
                self.give(client, user, Ask { want: minted, ..ask }, passed, out);
            }
            Policy::Revocation { timeout, .. } => {
                account.hear(client);
                let waiting = Waiting { client, ask: Ask { want, ..ask }, until: now + timeout };
                self.enqueue(user, waiting, now, out);
                self.serve_user(user, now, out);
            }
        }
    }

    /// What is left to issue to a user: exact, or in a rebuilt bank the conservative share.
    pub(super) fn remaining(&self, user: User) -> u64 {
        let Some(account) = self.accounts.get(&user) else { return 0 };
        match &self.recovery {
            None => account.remaining(),
            Some(recovery) => recovery.share(account),
        }
    }

    fn may_ask(&self, user: User, want: u64) -> Result<(), Denial> {
        let account = self.accounts.get(&user).filter(|account| !account.removed).ok_or(Denial::UnknownUser)?;
        if account.blocked {
            return Err(Denial::Blocked);
        }
        if want == 0 {
            return Err(Denial::Invalid);
        }
        if self.recovery.is_some() && self.remaining(user) == 0 {
            return Err(Denial::Recovering);
        }
        Ok(())
    }

    pub(super) fn deny(&self, client: Client, user: User, op: Op, reason: Denial, out: &mut BankOutput) {
        let epoch = self.head.epoch;
        self.tell(client, BankToClient::Denied { user, op, reason, epoch }, out);
    }

    /// Records what a request is given and gives it: what is passed on, and what is asked for newly made. With nothing to give, it is denied.
    pub(super) fn give(&mut self, client: Client, user: User, ask: Ask, passed: Vec<Piece>, out: &mut BankOutput) {
        let Ask { op, want: value, audience } = ask;
        let minted = if value > 0 { self.mint(user, value, audience) } else { None };
        if passed.is_empty() && minted.is_none() {
            self.deny(client, user, op, Denial::OverQuota, out);
            return;
        }
        for piece in &passed {
            self.move_claim(piece, client, piece.amount as i64, out);
        }
        let grant = Grant { user, epoch: self.head.epoch, minted, passed };
        let (pieces, epoch) = (grant.pieces(), grant.epoch);
        out.writes.push(load::grant_key(epoch, client, op).put(&grant));
        self.record_grant(client, op, grant);
        self.tell(client, BankToClient::Granted { user, op, pieces, epoch }, out);
    }

    fn mint(&mut self, user: User, value: u64, audience: Node) -> Option<Piece> {
        let epoch = self.head.epoch;
        let voucher = self.keys.sign(Terms {
            epoch,
            expiry: epoch.plus(self.config.params.expiry()),
            user,
            value,
            serial: self.next_serial,
            issuer: Issuer { node: self.config.node, incarnation: self.head.incarnation },
            audience,
        })?;
        self.next_serial += 1;
        Some(voucher.whole())
    }

    /// Puts a grant into the ledger; also when loading.
    pub(super) fn record_grant(&mut self, client: Client, op: Op, grant: Grant) {
        let account = self.accounts.entry(grant.user).or_default();
        account.grants += 1;
        if let Some(piece) = grant.minted {
            *account.issued.entry(grant.epoch).or_default() += piece.amount;
            account.issued_total += piece.amount;
            self.grants_by_voucher.insert(piece.id(), (client, op));
        }
        self.grants_by_epoch.entry(grant.epoch).or_default().push((client, op));
        self.grants.insert((client, op), grant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plenty_is_granted_in_full_and_the_rest_is_shared() {
        assert_eq!(limited(100, 1_000_000, 9, 10), 100);
        assert_eq!(limited(100, 500, 9, 10), 50);
        assert_eq!(limited(100, 20, 9, 10), 10, "the floor");
        assert_eq!(limited(100, 7, 9, 10), 7, "never more than there is");
    }

    proptest! {
        #[test]
        fn never_more_than_wanted_or_left(want: u64, left: u64, n in 0usize..1000, floor: u64) {
            let given = limited(want, left, n, floor);
            prop_assert!(given <= want && given <= left);
            prop_assert!(floor == 0 || want == 0 || left == 0 || given > 0);
        }
    }
}
