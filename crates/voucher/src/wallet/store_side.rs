//! Paying stores.

use super::{Due, Payment, Unpaid, Wallet, WalletAction, WalletOutput};
use crate::message::{Refusal, StoreToClient};
use crate::{ANYONE, Epoch, Micros, Node, Op};

impl Wallet {
    pub(super) fn spend(&mut self, op: Op, store: Node, need: u64, now: Micros, out: &mut WalletOutput) {
        if let Some(payment) = self.paying.get(&op) {
            // The application repeats: exactly the same pieces.
            let pieces = payment.pieces.clone();
            out.actions.push(WalletAction::Pay { op, store: payment.store, pieces });
            return;
        }
        let due = Due { op, store, need };
        // Those who wait go first, or a stream of small requests could starve a large one.
        if !self.due.is_empty() || !self.try_pay(due, out) {
            if !self.due.iter().any(|other| other.op == op) {
                self.due.push_back(due);
            }
            self.ask_for_due(now, out);
            return;
        }
        if self.asked.is_none()
            && self.audience(store) == ANYONE
            && self.usage.runs_out(&self.config.policy, self.purse.anywhere(), now)
        {
            let policy = self.config.policy;
            self.usage.roll_early(&policy, now);
            let estimate = self.usage.estimate(&policy);
            let want = estimate.saturating_sub(self.purse.anywhere()).max(need);
            self.ask(want, now, out);
        }
    }

    /// Asks for what the first of them needs, and all that can be paid with the same.
    fn ask_for_due(&mut self, now: Micros, out: &mut WalletOutput) {
        let Some(first) = self.due.front().copied() else { return };
        let audience = self.audience(first.store);
        let alike = self.due.iter().filter(|due| self.audience(due.store) == audience);
        let needed = alike.fold(0u64, |sum, due| sum.saturating_add(due.need));
        if audience == ANYONE {
            self.ask_for(needed.saturating_sub(self.purse.anywhere()), now, out);
        } else {
            // No more than that: it is of use nowhere else, and cannot be given back. Where there is enough, it is in too many pieces.
            let short = needed.saturating_sub(self.purse.bound_to(audience));
            self.ask_addressed(if short > 0 { short } else { first.need }, audience, now, out);
        }
    }

    pub(super) fn try_pay(&mut self, due: Due, out: &mut WalletOutput) -> bool {
        let anyone = self.audience(due.store) == ANYONE;
        let taken =
            if anyone { self.purse.take(due.need, due.store) } else { self.purse.take_bound(due.need, due.store) };
        let Some(pieces) = taken else { return false };
        if anyone {
            self.usage.spent(due.need);
        }
        self.paying.insert(due.op, Payment { store: due.store, pieces: pieces.clone(), cancelled: None });
        out.actions.push(WalletAction::Pay { op: due.op, store: due.store, pieces });
        true
    }

    /// Pays what waits, in order, as far as the vouchers go; asks for the rest.
    pub(super) fn pay_due(&mut self, now: Micros, out: &mut WalletOutput) {
        while let Some(due) = self.due.front().copied() {
            if !self.try_pay(due, out) {
                self.ask_for_due(now, out);
                return;
            }
            self.due.pop_front();
        }
    }

    pub(super) fn from_store(&mut self, message: StoreToClient, now: Micros, out: &mut WalletOutput) {
        match message {
            StoreToClient::Held { .. } => {}
            StoreToClient::Spent { op, balance, epoch, used } => {
                self.see_epoch(epoch);
                if let Some(payment) = self.paying.remove(&op) {
                    let sent: u64 = payment.pieces.iter().map(|piece| piece.amount).sum();
                    if self.audience(payment.store) == ANYONE {
                        self.usage.freed(sent.saturating_sub(used));
                    }
                    for piece in balance {
                        self.purse.put(piece);
                    }
                    self.purse.drop_expired(self.epoch);
                    self.pay_due(now, out);
                }
            }
            StoreToClient::Refunded { op, refund, epoch } => {
                self.see_epoch(epoch);
                // The same refund twice is one refund. Which have come is remembered until they expire: one that comes
                // later is worth nothing, although a store that lags behind might still take it.
                let live = refund.filter(|piece| piece.voucher.terms.expiry >= self.epoch);
                // What another user was charged comes back as that user's: it pays for nothing here.
                let Some(piece) = live.filter(|piece| piece.voucher.terms.user == self.config.user) else { return };
                // The request took nothing of what it was sent with. A copy that comes later is refused for as long as the store takes
                // vouchers of the refund's epoch.
                let mut has_more = self.take_back(op, piece.voucher.terms.epoch);
                if self.purse.is_new(&piece) {
                    if piece.voucher.terms.audience == ANYONE {
                        self.usage.freed(piece.amount);
                    }
                    self.purse.put(piece);
                    has_more = true;
                }
                if has_more {
                    self.pay_due(now, out);
                }
            }
            StoreToClient::Refused { op, reason, epoch } => {
                self.see_epoch(epoch);
                self.refused(op, reason, now, out);
            }
        }
    }

    /// A copy of the refused request may still be under way and be accepted later, at a store that has a lease by
    /// then: only after it is cancelled do the pieces come back.
    fn refused(&mut self, op: Op, reason: Refusal, now: Micros, out: &mut WalletOutput) {
        let Some(payment) = self.paying.get(&op) else { return };
        let cancelling = payment.cancelled.is_some();
        match reason {
            Refusal::Cancelled => {
                self.take_back(op, Epoch(u64::MAX));
                self.pay_due(now, out);
            }
            // Good elsewhere: they are all this user's, and what has expired of them is dropped when they come back.
            Refusal::ForeignUser
            | Refusal::ForeignAudience
            | Refusal::Expired
            | Refusal::NoLease
            | Refusal::NotYetOpen
            | Refusal::TooMany
            | Refusal::Future
            | Refusal::Short
            | Refusal::UnknownOp
            | Refusal::MoreThanHeld => self.cancel(op, now, out),
            // Nobody will ever take these.
            Refusal::Reported | Refusal::Malformed | Refusal::BadSignature | Refusal::Settled | Refusal::Overspent => {
                self.paying.remove(&op);
            }
        }
        if !cancelling {
            out.actions.push(WalletAction::CannotPay { op, reason: Unpaid::Refused(reason) });
        }
    }

    /// Puts back what a request was sent with that took nothing of it, unless some of it is of an epoch after `newest`; whether it did.
    fn take_back(&mut self, op: Op, newest: Epoch) -> bool {
        let is_past = |payment: &Payment| payment.pieces.iter().all(|piece| piece.voucher.terms.epoch <= newest);
        if !self.paying.get(&op).is_some_and(is_past) {
            return false;
        }
        let Some(payment) = self.paying.remove(&op) else { return false };
        let anyone = self.audience(payment.store) == ANYONE;
        for piece in payment.pieces {
            if anyone {
                self.usage.freed(piece.amount);
            }
            self.purse.put(piece);
        }
        self.purse.drop_expired(self.epoch);
        true
    }

    fn cancel(&mut self, op: Op, now: Micros, out: &mut WalletOutput) {
        if let Some(payment) = self.paying.get_mut(&op)
            && payment.cancelled.is_none()
        {
            payment.cancelled = Some(now);
            let pieces = payment.pieces.to_vec();
            out.actions.push(WalletAction::Cancel { op, store: payment.store, pieces });
        }
    }

    pub(super) fn give_up(&mut self, op: Op, now: Micros, out: &mut WalletOutput) {
        self.due.retain(|due| due.op != op);
        self.cancel(op, now, out);
    }

    /// Repeats what was not answered, until the pieces have expired and it no longer matters.
    pub(super) fn cancel_again(&mut self, now: Micros, out: &mut WalletOutput) {
        let (epoch, retry_after) = (self.epoch, self.config.retry_after);
        self.paying.retain(|op, payment| {
            let Some(sent) = payment.cancelled else { return true };
            let live = payment.pieces.iter().any(|piece| piece.voucher.terms.expiry >= epoch);
            if live && now >= sent + retry_after {
                payment.cancelled = Some(now);
                let pieces = payment.pieces.to_vec();
                out.actions.push(WalletAction::Cancel { op: *op, store: payment.store, pieces });
            }
            live
        });
    }
}
