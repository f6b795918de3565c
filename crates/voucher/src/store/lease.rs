//! Leases: a store acts only while the bank counts on it.

use super::{StoreAction, StoreCore, StoreOutput, load};
use crate::Micros;
use crate::message::{BankToStore, Base, Lease, Renew, StoreToBank};

/// How many processes without a lease are remembered. With more in a row the store may have to begin a new life.
const PROCESSES: usize = 64;

impl StoreCore {
    pub(super) fn renew_if_due(&mut self, now: Micros, out: &mut StoreOutput) {
        if now >= self.next_renewal {
            self.renew(now, out);
        }
    }

    /// The beat is made durable with this step, before the message leaves: so what the store knows of the last process
    /// that the bank has heard of is as much as the bank knows, unless it was set back to an old copy.
    fn renew(&mut self, now: Micros, out: &mut StoreOutput) {
        self.next_renewal = now + self.config.renew_every;
        if self.head.boot != self.boot {
            self.before.push((self.head.boot, self.head.beat));
            if self.before.len() > PROCESSES {
                self.before.remove(1);
            }
            self.head.boot = self.boot;
            out.writes.push(load::before_key().put(&self.before));
        }
        self.head.beat += 1;
        self.write_head(out);
        if self.sent_renewals.len() >= 8 {
            self.sent_renewals.remove(0);
        }
        self.sent_renewals.push((self.head.beat, now));
        let base = (self.send_base || self.head.fresh).then(|| Base {
            fresh: self.head.fresh,
            epoch: self.head.folded,
            used: self.base.iter().map(|(user, used)| (*user, *used)).collect(),
        });
        out.actions.push(StoreAction::ToBank(StoreToBank::Renew(Renew {
            store: self.config.node,
            incarnation: self.head.incarnation,
            boot: self.boot,
            beat: self.head.beat,
            bank: self.bank,
            before: self.before.clone(),
            epoch: self.acting_epoch(),
            free: self.space.0,
            total: self.space.1,
            base,
        })));
    }

    pub(super) fn from_bank(&mut self, message: BankToStore, now: Micros, out: &mut StoreOutput) {
        match message {
            BankToStore::Lease(lease) => self.leased(&lease, now, out),
            BankToStore::NeedBase { bank } => {
                if bank >= self.bank {
                    self.bank = bank;
                    self.send_base = true;
                    self.renew(now, out);
                }
            }
            BankToStore::Reincarnate { incarnation, boot } => {
                if incarnation > self.head.incarnation && boot == self.boot {
                    self.lease_until = None;
                    out.actions.push(StoreAction::Reincarnate(incarnation));
                }
            }
            BankToStore::Wait => {}
            BankToStore::Ack { bank, incarnation, reported, horizon } => {
                if incarnation == self.head.incarnation && bank == self.bank {
                    self.acked = self.acked.max(reported.min(self.head.reported));
                    self.fold(horizon, out);
                    self.send_reports(now, out);
                }
            }
        }
    }

    fn leased(&mut self, lease: &Lease, now: Micros, out: &mut StoreOutput) {
        if lease.incarnation != self.head.incarnation || lease.boot != self.boot || lease.bank < self.bank {
            return;
        }
        self.bank = lease.bank;
        let Some(position) = self.sent_renewals.iter().position(|(beat, _)| *beat == lease.beat) else { return };
        let (_, sent) = self.sent_renewals[position];
        // Answers to older renewals say nothing new.
        self.sent_renewals.drain(..=position);
        self.send_base = false;
        if !self.before.is_empty() {
            self.before.clear();
            out.writes.push(load::before_key().remove());
        }
        // Counted from when it was asked for: the bank counts from later, so it ends here first.
        self.lease_until = Some(self.lease_until.unwrap_or_default().max(sent + lease.length));
        let before = self.head;
        if self.head.fresh {
            self.head.fresh = false;
            self.head.accept_from = lease.accept_from;
            self.head.folded = lease.accept_from.minus(1).unwrap_or_default();
            self.head.reported = self.head.folded;
            self.acked = self.head.folded;
        } else {
            // A bank that was rebuilt may have fewer of our reports than the one before it.
            self.acked = lease.reported.min(self.head.reported).max(self.head.folded);
        }
        self.head.epoch = self.head.epoch.max(lease.epoch);
        if self.head != before {
            self.write_head(out);
        }
        self.fold(lease.horizon, out);
        self.finalise(now, out);
        self.send_reports(now, out);
    }
}
