//! Final accounts of epochs: `S_e`, the vouchers seen, the refunds made.

use super::book::LINES_MAX;
use super::{StoreAction, StoreCore, StoreOutput, load};
use crate::message::{Report, StoreToBank};
use crate::{Epoch, Micros, User};
use std::collections::BTreeMap;

/// The most epochs that are finalised or reported in one step.
const AT_ONCE: usize = 64;

impl StoreCore {
    /// Closes each epoch whose vouchers have all expired and that no running request holds a voucher of.
    /// From then on nothing of it is accepted, whatever any clock says: its `S_e` cannot change.
    pub(super) fn finalise(&mut self, now: Micros, out: &mut StoreOutput) {
        if self.head.fresh {
            return;
        }
        let Some(last) = self.head.epoch.minus(self.config.params.expiry() + 1) else { return };
        let mut changed = false;
        for _ in 0..AT_ONCE {
            let next = self.head.reported.plus(1);
            if next > last || self.books.get(&next).is_some_and(super::book::Book::is_held) {
                break;
            }
            self.head.reported = next;
            changed = true;
        }
        if changed {
            self.write_head(out);
            self.next_report = now;
        }
    }

    /// Sends what the bank has not acknowledged, oldest first.
    pub(super) fn send_reports(&mut self, now: Micros, out: &mut StoreOutput) {
        if self.acked >= self.head.reported || now < self.next_report || self.head.fresh {
            return;
        }
        self.next_report = now + self.config.retry_after;
        let mut epoch = self.acked.plus(1);
        for _ in 0..AT_ONCE {
            if epoch > self.head.reported {
                break;
            }
            out.actions.push(StoreAction::ToBank(StoreToBank::Report(self.report(epoch))));
            epoch = epoch.plus(1);
        }
    }

    fn report(&self, epoch: Epoch) -> Report {
        let empty = super::book::Book::default();
        let book = self.books.get(&epoch).unwrap_or(&empty);
        let used = book.delta.keys().map(|user| (*user, self.used_up_to(*user, epoch))).collect();
        Report {
            store: self.config.node,
            incarnation: self.head.incarnation,
            epoch,
            used,
            spent: book.lines(epoch).collect(),
            refunds: book.refunds.values().copied().collect(),
        }
    }

    /// `S_e` of one user.
    fn used_up_to(&self, user: User, epoch: Epoch) -> i64 {
        let later: i64 = self.books.range(..=epoch).map(|(_, book)| book.delta.get(&user).copied().unwrap_or(0)).sum();
        self.base.get(&user).copied().unwrap_or(0) + later
    }

    /// Sums epochs up that the bank no longer counts as issued. Serials are so remembered for K epochs, the
    /// time the paper asks for, and as long as a bank that had to be rebuilt may need to hear of them again.
    pub(super) fn fold(&mut self, horizon: Epoch, out: &mut StoreOutput) {
        let upto = horizon.min(self.acked).min(self.head.reported);
        if upto <= self.head.folded {
            return;
        }
        let kept = self.books.split_off(&upto.plus(1));
        let mut touched: BTreeMap<User, i64> = BTreeMap::new();
        for (epoch, book) in std::mem::replace(&mut self.books, kept) {
            for (voucher, seen) in &book.seen {
                for client in seen.by_client.keys() {
                    out.writes.push(load::seen_key(epoch, *voucher, *client).remove());
                }
            }
            for serial in book.refunds.keys() {
                out.writes.push(load::refund_key(epoch, *serial).remove());
            }
            for (user, delta) in book.delta {
                *touched.entry(user).or_default() += delta;
            }
        }
        for (user, delta) in touched {
            let base = self.base.entry(user).or_default();
            *base += delta;
            if *base == 0 {
                self.base.remove(&user);
                out.writes.push(load::base_key(user).remove());
            } else {
                out.writes.push(load::base_key(user).put(base));
            }
        }
        let remembered = &mut self.remembered;
        self.answers.retain(|client, answers| {
            answers.retain(|op, (epoch, answer)| {
                let keep = *epoch > upto;
                if !keep {
                    remembered.take(*client, answer.weight());
                    out.writes.push(load::answer_key(*epoch, *client, *op).remove());
                }
                keep
            });
            !answers.is_empty()
        });
        self.settled.retain(|client, (epoch, _)| {
            let keep = *epoch > upto;
            if !keep {
                remembered.take(*client, 1);
                out.writes.push(load::settled_key(*client).remove());
            }
            keep
        });
        self.head.folded = upto;
        self.write_head(out);
    }

    pub(super) fn send_early(&mut self, now: Micros, out: &mut StoreOutput) {
        let Some(every) = self.config.early_every else { return };
        if now < self.next_early {
            return;
        }
        self.next_early = now + every;
        let spent: Vec<_> =
            self.books.range(self.head.reported.plus(1)..).flat_map(|(epoch, book)| book.lines(*epoch)).collect();
        // Several epochs together may be more than one message holds.
        for spent in spent.chunks(LINES_MAX) {
            out.actions.push(StoreAction::ToBank(StoreToBank::Early {
                store: self.config.node,
                incarnation: self.head.incarnation,
                spent: spent.to_vec(),
            }));
        }
    }
}
