//! Refunds: what a user freed becomes a voucher of the current epoch.

use super::book::NOBODY;
use super::{Answer, StoreAction, StoreCore, StoreOutput, load};
use crate::flaw::Flaw;
use crate::message::{RefundLine, Refusal};
use crate::{Client, Epoch, Issuer, MAX_VALUE, Micros, Op, Piece, Terms, User};

/// Serials are reserved in the head row in steps of this many, so that a crash never uses one twice.
const SERIALS_AT_ONCE: u64 = 4096;

impl StoreCore {
    pub(super) fn free(
        &mut self,
        client: Client,
        (user, is_users): (User, bool),
        op: Op,
        amount: u64,
        now: Micros,
        out: &mut StoreOutput,
    ) {
        if let Some(earlier) = self.replay(client, op) {
            out.actions.push(StoreAction::ToClient(client, earlier));
            return;
        }
        let checked = self.check_unsettled(client, op).and_then(|()| self.check_open(now));
        let checked = checked.and_then(|()| self.check_memory(client)).and_then(|()| self.check_held(user, amount));
        if let Err(reason) = checked {
            self.refuse(client, op, reason, out);
            return;
        }
        if amount == 0 {
            self.remember(client, op, Answer::Refunded { refund: None }, out);
            return;
        }
        match self.refund(if is_users { client } else { NOBODY }, user, amount, out) {
            Some(refund) => self.remember(client, op, Answer::Refunded { refund }, out),
            None => self.refuse(client, op, Refusal::BadSignature, out),
        }
    }

    /// Whether what a request frees of this user, one of several, is refused for what is known of the request or the user: asked before any
    /// of them is booked.
    ///
    /// # Errors
    /// Why it is.
    pub fn may_free(&self, client: Client, op: Op, user: User, amount: u64) -> Result<(), Refusal> {
        self.check_unsettled(client, op)?;
        self.check_held(user, amount)
    }

    fn check_held(&self, user: User, amount: u64) -> Result<(), Refusal> {
        if amount > self.used(user) || amount > MAX_VALUE / 2 { Err(Refusal::MoreThanHeld) } else { Ok(()) }
    }

    /// Makes the voucher and takes its value off `S_c`, in the same epoch: whichever way it goes, spent
    /// elsewhere or expired, the two sides are reconciled together (voucher-quotas, *Deletions and refunds*).
    ///
    /// Each is a line of the report, which must fit one request: of a user who frees too often all that follows becomes one voucher that
    /// nobody is given, and so does what others free. Nothing at all if none can be signed.
    #[expect(clippy::option_option, reason = "no voucher, and none that the client is given, are two things")]
    fn refund(&mut self, client: Client, user: User, amount: u64, out: &mut StoreOutput) -> Option<Option<Piece>> {
        let epoch = self.acting_epoch();
        let doubled = self.config.flaws.has(Flaw::RefundDoubled);
        let value = if doubled { amount * 2 } else { amount };
        let nobodys = self.books.get(&epoch).filter(|book| client == NOBODY || book.is_crowded(user));
        let client = match nobodys.map(|book| book.nobodys(user)) {
            None => client,
            Some(None) => NOBODY,
            Some(Some((serial, line))) => {
                let value = line.value.saturating_add(value);
                self.note_refund(epoch, serial, RefundLine { value, ..line }, amount, out);
                return Some(None);
            }
        };
        let terms = Terms {
            epoch,
            expiry: epoch.plus(self.config.params.expiry()),
            user,
            value,
            serial: self.next_serial,
            issuer: Issuer { node: self.config.node, incarnation: self.head.incarnation },
            audience: self.keys.audience_to_sign(),
        };
        let voucher = self.keys.sign(terms)?;
        self.next_serial += 1;
        if self.next_serial > self.head.serials {
            self.head.serials = self.next_serial + SERIALS_AT_ONCE;
            self.write_head(out);
        }
        let line = RefundLine { voucher: voucher.id(), user, value: amount, client };
        self.note_refund(epoch, terms.serial, line, amount, out);
        Some((client != NOBODY).then(|| voucher.whole()))
    }

    fn note_refund(&mut self, epoch: Epoch, serial: u64, line: RefundLine, amount: u64, out: &mut StoreOutput) {
        out.writes.push(load::refund_key(epoch, serial).put(&line));
        let book = self.books.entry(epoch).or_default();
        book.refund(serial, line);
        *book.delta.entry(line.user).or_default() -= amount as i64;
        let total = self.total.entry(line.user).or_default();
        *total -= amount as i64;
        if *total == 0 {
            self.total.remove(&line.user);
        }
    }
}
