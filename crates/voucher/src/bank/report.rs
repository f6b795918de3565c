//! Taking the stores' accounts.

use super::lies::mend;
use super::stores::StoreState;
use super::{BankAction, BankCore, BankOutput, Finding, load};
use crate::message::{BankToStore, Report, SpentLine};
use crate::{Incarnation, Node};

impl BankCore {
    pub(super) fn report(&mut self, mut report: Report, out: &mut BankOutput) {
        let key = (report.store, report.incarnation);
        let Some(store) = self.stores.get_mut(&key).filter(|store| store.counts()) else { return };
        // A store that was given up has been fenced; what it reports late is still true, and welcome.
        if report.epoch == store.reported.plus(1) {
            let lie = mend(&store.latest, &mut report).map(|why| Finding::StoreLied {
                store: report.store,
                epoch: report.epoch,
                why: why.to_owned(),
            });
            store.reported = report.epoch;
            for (user, used) in &report.used {
                store.latest.insert(*user, *used);
            }
            out.writes.push(load::report_key(key, report.epoch).put(&report));
            out.writes.push(load::store_key(key).put(&store.row()));
            if let Some(finding) = lie {
                self.find(finding, out);
            }
            self.tally(&report, out);
            if let Some(store) = self.stores.get_mut(&key) {
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

    /// Puts a report's lines where cheating shows; also when loading.
    pub(super) fn tally(&mut self, report: &Report, out: &mut BankOutput) {
        for line in &report.refunds {
            self.refunds.entry(report.epoch).or_default().insert(line.voucher, *line);
        }
        self.count_all(report.store, report.incarnation, &report.spent, out);
        for line in &report.refunds {
            self.judge(report.epoch, line.voucher, false, out);
        }
    }

    pub(super) fn early(&mut self, store: Node, incarnation: Incarnation, spent: &[SpentLine], out: &mut BankOutput) {
        if self.stores.get(&(store, incarnation)).is_some_and(StoreState::counts) {
            self.count_all(store, incarnation, spent, out);
        }
    }
}
