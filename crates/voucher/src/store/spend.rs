//! Taking vouchers: check, hold, commit.

use super::book::Seen;
use super::{Answer, Hold, StoreAction, StoreCore, StoreOutput, load};
use crate::flaw::Flaw;
use crate::message::{Refusal, StoreToClient};
use crate::{ANYONE, Client, Epoch, MAX_PIECES, MAX_VALUE, Micros, Op, Piece, User};

impl StoreCore {
    #[expect(clippy::too_many_arguments, reason = "the fields of one event")]
    pub(super) fn hold(
        &mut self,
        client: Client,
        user: User,
        op: Op,
        pieces: Vec<Piece>,
        at_most: u64,
        now: Micros,
        out: &mut StoreOutput,
    ) {
        if let Some(earlier) = self.replay(client, op) {
            out.actions.push(StoreAction::ToClient(client, earlier));
            return;
        }
        if !self.holds.contains_key(&(client, op)) {
            match self.cover(client, user, op, &pieces, at_most, now) {
                Ok(()) => self.holds.insert((client, op), Hold { pieces, user }),
                Err(reason) => return self.refuse(client, op, reason, out),
            };
        }
        out.actions.push(StoreAction::ToClient(client, StoreToClient::Held { op }));
    }

    /// As [`super::StoreEvent::Spend`], of pieces that stay the caller's.
    #[expect(clippy::too_many_arguments, reason = "the fields of one event")]
    pub fn spend(
        &mut self,
        client: Client,
        user: User,
        op: Op,
        pieces: &[Piece],
        used: u64,
        now: Micros,
        out: &mut StoreOutput,
    ) {
        if let Some(earlier) = self.replay(client, op) {
            out.actions.push(StoreAction::ToClient(client, earlier));
            return;
        }
        if self.holds.contains_key(&(client, op)) {
            return self.commit(client, op, used, out);
        }
        match self.cover(client, user, op, pieces, used, now) {
            Ok(()) => self.pay(client, user, op, pieces, used, out),
            Err(reason) => self.refuse(client, op, reason, out),
        }
    }

    pub(super) fn refuse(&self, client: Client, op: Op, reason: Refusal, out: &mut StoreOutput) {
        let epoch = self.head.epoch;
        out.actions.push(StoreAction::ToClient(client, StoreToClient::Refused { op, reason, epoch }));
    }

    /// Whether the store may act at all: only with a lease, and only once its first epoch has come.
    pub(super) fn check_open(&self, now: Micros) -> Result<(), Refusal> {
        let leased = self.lease_until.is_some_and(|until| now < until) || self.config.flaws.has(Flaw::NoLease);
        if !leased {
            return Err(Refusal::NoLease);
        }
        if self.head.epoch < self.head.accept_from {
            return Err(Refusal::NotYetOpen);
        }
        Ok(())
    }

    /// Checks the pieces and sets their amounts aside.
    fn cover(
        &mut self,
        client: Client,
        user: User,
        op: Op,
        pieces: &[Piece],
        at_most: u64,
        now: Micros,
    ) -> Result<(), Refusal> {
        self.check_unsettled(client, op)?;
        self.check_open(now)?;
        self.check_memory(client)?;
        if pieces.len() > MAX_PIECES {
            return Err(Refusal::TooMany);
        }
        for (position, piece) in pieces.iter().enumerate() {
            let held = self.check(user, piece).and_then(|()| self.check_room(client, piece));
            let held = held.and_then(|()| self.hold_piece(piece));
            if let Err(reason) = held {
                self.release(&pieces[..position]);
                return Err(reason);
            }
        }
        let covered: u128 = pieces.iter().map(|piece| u128::from(piece.amount)).sum();
        if covered < u128::from(at_most) {
            self.release(pieces);
            return Err(Refusal::Short);
        }
        Ok(())
    }

    /// Everything about a piece except how much of its voucher is left. The epoch is looked at before the
    /// signature: it bounds which keys a stranger can make us derive.
    fn check(&self, user: User, piece: &Piece) -> Result<(), Refusal> {
        let terms = &piece.voucher.terms;
        let params = &self.config.params;
        if terms.user != user {
            return Err(Refusal::ForeignUser);
        }
        let addressed = terms.audience == self.config.node;
        if !addressed && (terms.audience != ANYONE || self.config.only_addressed) {
            return Err(Refusal::ForeignAudience);
        }
        if terms.epoch > self.head.epoch.plus(params.skew()) {
            return Err(Refusal::Future);
        }
        if terms.expiry < self.head.epoch {
            return Err(Refusal::Expired);
        }
        let reported = terms.epoch <= self.head.reported || terms.epoch < self.head.accept_from;
        if reported && !self.config.flaws.has(Flaw::AcceptAfterReport) {
            return Err(Refusal::Reported);
        }
        let sound = piece.amount <= terms.value
            && terms.value <= MAX_VALUE
            && terms.expiry == terms.epoch.plus(params.expiry());
        if !sound {
            return Err(Refusal::Malformed);
        }
        let seen = self.books.get(&terms.epoch).and_then(|book| book.seen.get(&piece.id()));
        if seen.is_some_and(|seen| seen.is_genuine(&piece.voucher)) {
            return Ok(());
        }
        self.keys.verify(&piece.voucher).map_err(|_| Refusal::BadSignature)
    }

    /// Refuses what the report of its epoch would have no line for: how many clients a user has is the user's choice.
    fn check_room(&self, client: Client, piece: &Piece) -> Result<(), Refusal> {
        let terms = &piece.voucher.terms;
        let book = self.books.get(&terms.epoch);
        if book.is_none_or(|book| book.has_room(piece.id(), terms.user, client)) {
            Ok(())
        } else {
            Err(Refusal::TooMany)
        }
    }

    /// Sets the amount of a piece that was checked aside.
    fn hold_piece(&mut self, piece: &Piece) -> Result<(), Refusal> {
        let terms = &piece.voucher.terms;
        let book = self.books.entry(terms.epoch).or_default();
        let seen = book.seen.entry(piece.id()).or_insert_with(|| Seen::new(terms.user, terms.value));
        seen.genuine.get_or_insert(piece.voucher);
        let left = if self.config.flaws.has(Flaw::SplitNotCounted) { seen.value } else { seen.left() };
        if piece.amount > left {
            return Err(Refusal::Overspent);
        }
        seen.held += piece.amount;
        Ok(())
    }

    fn release(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            if let Some(book) = self.books.get_mut(&piece.voucher.terms.epoch)
                && let Some(seen) = book.seen.get_mut(&piece.id())
            {
                seen.held = seen.held.saturating_sub(piece.amount);
            }
        }
    }

    pub(super) fn abort(&mut self, client: Client, op: Op) {
        if let Some(hold) = self.holds.remove(&(client, op)) {
            self.release(&hold.pieces);
        }
    }

    /// Decides the fate of a request for good: a copy of it that comes later is refused. It is filed under the newest
    /// epoch of its vouchers, which may be ahead of this store's by more than the skew: a store that catches up would
    /// otherwise forget the cancellation while the copy can still be accepted. Only a signature shows that
    /// an epoch exists, so nobody can have cancellations kept for ever.
    ///
    /// Of vouchers older than this life, or than what was reported, the store knows nothing any more: an earlier
    /// life may have taken them. It says so, and they are used nowhere again. And a process that never had a lease may
    /// be an old copy that has forgotten what it took: it says nothing yet.
    pub(super) fn cancel(&mut self, client: Client, op: Op, pieces: &[Piece], out: &mut StoreOutput) {
        if let Some(earlier) = self.replay(client, op) {
            out.actions.push(StoreAction::ToClient(client, earlier));
        } else if !self.holds.contains_key(&(client, op)) {
            if let Err(reason) = self.check_unsettled(client, op).and_then(|()| self.check_memory(client)) {
                self.refuse(client, op, reason, out);
                return;
            }
            if self.lease_until.is_none() {
                self.refuse(client, op, Refusal::NoLease, out);
                return;
            }
            let genuine = pieces.iter().take(MAX_PIECES).filter(|piece| self.keys.verify(&piece.voucher).is_ok());
            let epochs: Vec<Epoch> = genuine.map(|piece| piece.voucher.terms.epoch).collect();
            let closed = |epoch: &Epoch| *epoch <= self.head.reported || *epoch < self.head.accept_from;
            if epochs.iter().any(closed) {
                self.refuse(client, op, Refusal::Reported, out);
                return;
            }
            let newest = epochs.into_iter().max().unwrap_or_default();
            self.remember_in(newest.max(self.acting_epoch()), client, op, Answer::Cancelled, out);
        }
    }

    pub(super) fn commit(&mut self, client: Client, op: Op, used: u64, out: &mut StoreOutput) {
        if let Some(earlier) = self.replay(client, op) {
            out.actions.push(StoreAction::ToClient(client, earlier));
            return;
        }
        let Some(hold) = self.holds.remove(&(client, op)) else {
            self.refuse(client, op, Refusal::UnknownOp, out);
            return;
        };
        self.pay(client, hold.user, op, &hold.pieces, used, out);
    }

    /// Charges `used` of what was set aside; the rest is the balance.
    fn pay(&mut self, client: Client, user: User, op: Op, pieces: &[Piece], used: u64, out: &mut StoreOutput) {
        let covered: u64 = pieces.iter().map(|piece| piece.amount).sum();
        assert!(used <= covered, "a store charges no more than was held");
        let mut due = used;
        let mut balance = Vec::new();
        for piece in pieces {
            let part = due.min(piece.amount);
            due -= part;
            self.charge(client, piece, part, out);
            if piece.amount > part {
                balance.push(Piece { amount: piece.amount - part, ..*piece });
            }
        }
        *self.total.entry(user).or_default() += used as i64;
        let answer = Answer::Spent { used, balance };
        self.remember(client, op, answer, out);
    }

    /// Records that `part` of a piece that was set aside is spent.
    fn charge(&mut self, client: Client, piece: &Piece, part: u64, out: &mut StoreOutput) {
        let terms = &piece.voucher.terms;
        let book = self.books.entry(terms.epoch).or_default();
        let seen = book.seen.entry(piece.id()).or_insert_with(|| Seen::new(terms.user, terms.value));
        seen.held = seen.held.saturating_sub(piece.amount);
        if part == 0 {
            return;
        }
        let amount = book.spend(piece.id(), (terms.user, terms.value), client, part);
        out.writes.push(load::seen_key(terms.epoch, piece.id(), client).put(&load::SeenRow {
            user: terms.user,
            value: terms.value,
            amount,
        }));
        *book.delta.entry(terms.user).or_default() += part as i64;
    }

    /// The epoch of what the store does now: never before a voucher it has taken, so that what is freed is
    /// accounted no earlier than what was allocated.
    pub(super) fn acting_epoch(&self) -> Epoch {
        let newest = self.books.last_key_value().map_or(Epoch(0), |(epoch, _)| *epoch);
        self.head.epoch.max(newest)
    }
}
