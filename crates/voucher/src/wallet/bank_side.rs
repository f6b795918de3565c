//! Asking the bank, and giving back.

use super::{Asked, Unpaid, Wallet, WalletAction, WalletOutput};
use crate::message::{BankToClient, ClientToBank, Denial, Refusal};
use crate::{ANYONE, MAX_VALUE, Micros, Node, Piece};

/// Most returns under way when everything is given back. With as many repetitions they are half of the JSON that a bank takes in one request.
const RETURNS_MAX: usize = 32;

impl Wallet {
    /// Asks, unless an answer is awaited: one request at a time, repeated under its number until answered.
    pub(super) fn ask(&mut self, want: u64, now: Micros, out: &mut WalletOutput) {
        self.ask_addressed(want, ANYONE, now, out);
    }

    /// Asks for such as one store only takes.
    pub(super) fn ask_addressed(&mut self, want: u64, audience: Node, now: Micros, out: &mut WalletOutput) {
        if self.asked.is_some() || want == 0 {
            return;
        }
        let asked = Asked { op: self.take_op(), want: want.min(MAX_VALUE), audience, first_sent: now, sent: now };
        self.asked = Some(asked);
        self.send_request(asked, out);
    }

    fn send_request(&self, asked: Asked, out: &mut WalletOutput) {
        let Asked { op, want, audience, .. } = asked;
        let audience = (audience != ANYONE).then_some(audience);
        let request = ClientToBank::Request { user: self.config.user, op, want, audience };
        out.actions.push(WalletAction::ToBank(request));
    }

    pub(super) fn tick(&mut self, now: Micros, out: &mut WalletOutput) {
        let retry_after = self.config.retry_after;
        if let Some(asked) = &mut self.asked
            && now >= asked.sent + retry_after
        {
            asked.sent = now;
            let asked = *asked;
            self.send_request(asked, out);
        }
        self.cancel_again(now, out);
        let user = self.config.user;
        for (op, (pieces, sent)) in &mut self.returning {
            if now >= *sent + retry_after {
                *sent = now;
                let again = ClientToBank::Return { user, op: *op, pieces: pieces.clone() };
                out.actions.push(WalletAction::ToBank(again));
            }
        }
        self.give_back_more(now, out);
        let policy = self.config.policy;
        if self.usage.roll(&policy, now) {
            let on_hand = self.purse.anywhere();
            let surplus = self.usage.surplus(&policy, on_hand);
            let estimate = self.usage.estimate(&policy);
            if surplus > 0 && self.due.is_empty() {
                self.give_back(surplus, now, out);
            } else if on_hand < estimate / 2 || on_hand == 0 {
                // With more than half of it there, the next request can wait for the next interval.
                self.ask(estimate.saturating_sub(on_hand), now, out);
            }
        }
    }

    fn give_back(&mut self, amount: u64, now: Micros, out: &mut WalletOutput) {
        let pieces = self.purse.take_free(amount);
        self.send_return(pieces, now, out);
    }

    /// Gives back everything that nothing here waits for, the rest as the bank acknowledges.
    pub(super) fn give_back_all(&mut self, now: Micros, out: &mut WalletOutput) {
        self.giving_back = true;
        self.give_back_more(now, out);
    }

    fn give_back_more(&mut self, now: Micros, out: &mut WalletOutput) {
        while self.giving_back && self.returning.len() < RETURNS_MAX {
            let pieces = if self.due.is_empty() { self.purse.take_free(u64::MAX) } else { Vec::new() };
            if pieces.is_empty() {
                self.giving_back = false;
                return;
            }
            self.send_return(pieces, now, out);
        }
    }

    fn send_return(&mut self, pieces: Vec<Piece>, now: Micros, out: &mut WalletOutput) {
        let op = self.take_op();
        let user = self.config.user;
        self.returning.insert(op, (pieces.clone(), now));
        out.actions.push(WalletAction::ToBank(ClientToBank::Return { user, op, pieces }));
    }

    pub(super) fn from_bank(&mut self, message: BankToClient, now: Micros, out: &mut WalletOutput) {
        match message {
            BankToClient::Granted { user, op, pieces, epoch } if user == self.config.user => {
                self.see_epoch(epoch);
                // Only the answer that is awaited, and only once: a repetition is not a second grant.
                if let Some(asked) = self.asked.take_if(|asked| asked.op == op) {
                    self.usage.answered(now.since(asked.first_sent));
                    let heeded = pieces.iter().any(|piece| piece.voucher.terms.audience == asked.audience);
                    for piece in pieces {
                        self.purse.put(piece);
                    }
                    self.purse.drop_expired(self.epoch);
                    if !heeded && asked.audience != ANYONE {
                        // A bank of an older version: to ask it again would take the whole quota, and pay nothing.
                        self.fail_due(asked.audience, Unpaid::Refused(Refusal::ForeignAudience), out);
                    }
                    self.pay_due(now, out);
                }
            }
            BankToClient::Denied { user, op, reason, epoch } if user == self.config.user => {
                self.see_epoch(epoch);
                if let Some(asked) = self.asked.take_if(|asked| asked.op == op) {
                    self.fail_due(asked.audience, Unpaid::Denied(reason), out);
                    self.pay_due(now, out);
                    // What is left here is too little for what is wanted here; at another client it may be enough.
                    if reason == Denial::OverQuota {
                        self.give_back_all(now, out);
                    }
                }
            }
            BankToClient::Returned { op, .. } => {
                self.returning.remove(&op);
                self.give_back_more(now, out);
            }
            BankToClient::Revoke { user } if user == self.config.user => self.revoked(now, out),
            BankToClient::Granted { .. } | BankToClient::Denied { .. } | BankToClient::Revoke { .. } => {}
        }
    }

    /// Gives back all that nothing here is waiting for; an empty return says that there is nothing to wait for.
    fn revoked(&mut self, now: Micros, out: &mut WalletOutput) {
        let pieces = if self.due.is_empty() { self.purse.take_free(u64::MAX) } else { Vec::new() };
        self.send_return(pieces, now, out);
    }

    /// Nothing more of this audience comes: pays what can be paid with what is here, and refuses the rest.
    fn fail_due(&mut self, audience: Node, reason: Unpaid, out: &mut WalletOutput) {
        for due in std::mem::take(&mut self.due) {
            if self.audience(due.store) != audience {
                self.due.push_back(due);
            } else if !self.try_pay(due, out) {
                out.actions.push(WalletAction::CannotPay { op: due.op, reason });
            }
        }
    }

    /// How much to ask for so that `short` bytes that are missing are there, and more for later.
    pub(super) fn ask_for(&mut self, short: u64, now: Micros, out: &mut WalletOutput) {
        let estimate = self.usage.estimate(&self.config.policy);
        self.ask(short.max(estimate), now, out);
    }
}
