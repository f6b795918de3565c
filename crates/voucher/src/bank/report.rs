//! Taking the stores' accounts.

use super::stores::StoreState;
use super::{BankAction, BankCore, BankOutput, Finding, load};
use crate::message::{BankToStore, Report, SpentLine};
use crate::{Incarnation, Node, User};
use std::collections::BTreeMap;

impl BankCore {
    pub(super) fn report(&mut self, report: Report, out: &mut BankOutput) {
        let key = (report.store, report.incarnation);
        let Some(store) = self.stores.get_mut(&key).filter(|store| store.counts()) else { return };
        // A store that was given up has been fenced; what it reports late is still true, and welcome.
        if report.epoch == store.reported.plus(1) {
            let mut lie = None;
            if let Err(why) = consistent(&store.latest, &report) {
                let finding = Finding::StoreLied { store: report.store, epoch: report.epoch, why: why.to_owned() };
                lie = Some(finding);
            }
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

/// Whether a report agrees with itself and with the one before: `S_e = S_(e−1) + spent − refunded ≥ 0`.
fn consistent(before: &BTreeMap<User, i64>, report: &Report) -> Result<(), &'static str> {
    let mut delta: BTreeMap<User, i128> = BTreeMap::new();
    for line in &report.spent {
        if line.epoch != report.epoch {
            return Err("a voucher of another epoch in a report");
        }
        *delta.entry(line.user).or_default() += i128::from(line.amount);
    }
    for line in &report.refunds {
        *delta.entry(line.user).or_default() -= i128::from(line.value);
    }
    let mut after: BTreeMap<User, i64> = BTreeMap::new();
    for (user, used) in &report.used {
        if *used < 0 {
            return Err("more freed than there was");
        }
        after.insert(*user, *used);
    }
    for user in delta.keys().chain(after.keys()) {
        let old = before.get(user).copied().unwrap_or(0);
        let new = after.get(user).copied().unwrap_or(old);
        if i128::from(new) != i128::from(old) + delta.get(user).copied().unwrap_or(0) {
            return Err("the use does not follow from vouchers spent and refunds made");
        }
    }
    Ok(())
}
