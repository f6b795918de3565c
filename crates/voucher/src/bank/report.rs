//! Taking the stores' accounts.

use super::lies::mend;
use super::{BankAction, BankCore, BankOutput, load};
use crate::message::{BankToStore, Report, SpentLine};
use crate::{Incarnation, Node};

impl BankCore {
    pub(super) fn report(&mut self, mut report: Report, out: &mut BankOutput) {
        let key = (report.store, report.incarnation);
        let Some(store) = self.stores.get(&key).filter(|store| store.counts()) else { return };
        if self.is_to_come(report.epoch) {
            self.accuse(report.store, self.head.epoch, "a report of an epoch that is still to come", out);
        } else if report.epoch == store.reported.plus(1) {
            // A store that was given up has been fenced; what it reports late is still true, and welcome.
            if let Some(why) = mend(&store.latest, &mut report) {
                self.accuse(report.store, report.epoch, why, out);
            }
            self.take_lines(&mut report, out);
            if let Some(store) = self.stores.get_mut(&key) {
                store.reported = report.epoch;
                store.latest.extend(report.used.iter().copied());
                out.writes.push(load::report_key(key, report.epoch).put(&report));
                out.writes.push(load::store_key(key).put(&store.row()));
                store.pending.insert(report.epoch, report);
            }
            self.advance_horizon(out);
        }
        let Some(store) = self.stores.get(&key) else { return };
        let ack = BankToStore::Ack {
            bank: self.head.incarnation,
            incarnation: key.1,
            reported: store.reported,
            horizon: self.head.horizon,
        };
        out.actions.push(BankAction::ToStore(key.0, ack));
    }

    /// Puts a report's lines where cheating shows; also when loading. Whether all may be true.
    pub(super) fn tally(&mut self, report: &Report, out: &mut BankOutput) -> bool {
        for line in &report.refunds {
            self.refunds.entry(report.epoch).or_default().insert(line.voucher, *line);
        }
        let may_be = self.count_all(report.store, report.incarnation, &report.spent, out);
        for line in &report.refunds {
            self.judge(report.epoch, line.voucher, false, out);
        }
        may_be
    }

    /// What a store tells before it reports. Of epochs that it has reported it has said all; and a rebuilt bank that knows no epoch yet
    /// hears it again.
    pub(super) fn early(&mut self, store: Node, incarnation: Incarnation, spent: &[SpentLine], out: &mut BankOutput) {
        let Some(state) = self.stores.get(&(store, incarnation)).filter(|state| state.counts()) else { return };
        if self.awaits_stores() {
            return;
        }
        let reported = state.reported;
        let open: Vec<SpentLine> = spent.iter().filter(|line| line.epoch > reported).copied().collect();
        self.count_all(store, incarnation, &open, out);
    }
}
