//! What a store says that cannot be true, and what is counted instead.

use super::{BankCore, BankOutput, Finding};
use crate::message::{Report, SpentLine};
use crate::{ANYONE, Epoch, Issuer, Node, User};
use std::collections::{BTreeMap, BTreeSet};

/// Checks that a report agrees with itself and with the one before, `S_e = S_(e−1) + spent − refunded ≥ 0`; if not, how.
///
/// The report then says the larger of what was reported and what follows, and nothing below zero: a store that lies of what somebody uses
/// there would else make as much room elsewhere. It stays so until the store begins a new life, which says what it holds.
pub(super) fn mend(before: &BTreeMap<User, i64>, report: &mut Report) -> Option<&'static str> {
    let mut lie = None;
    let mut delta: BTreeMap<User, i128> = BTreeMap::new();
    for line in &report.spent {
        if line.epoch != report.epoch {
            lie = Some("a voucher of another epoch in a report");
        }
        *delta.entry(line.user).or_default() += i128::from(line.amount);
    }
    for line in &report.refunds {
        *delta.entry(line.user).or_default() -= i128::from(line.value);
    }
    let reported: BTreeMap<User, i64> = report.used.drain(..).collect();
    let users: BTreeSet<User> = delta.keys().chain(reported.keys()).copied().collect();
    for user in users {
        let old = before.get(&user).copied().unwrap_or(0);
        let used = reported.get(&user).copied().unwrap_or(old);
        let follows = i128::from(old) + delta.get(&user).copied().unwrap_or(0);
        if used < 0 {
            lie = lie.or(Some("more freed than there was"));
        }
        if i128::from(used) != follows {
            lie = lie.or(Some("the use does not follow from vouchers spent and refunds made"));
        }
        report.used.push((user, i128::from(used).max(follows).clamp(0, i64::MAX.into()) as i64));
    }
    lie
}

impl BankCore {
    /// Notes that a store lied; of each kind once an epoch, as it may say the same again without end.
    pub(super) fn accuse(&mut self, store: Node, epoch: Epoch, why: &str, out: &mut BankOutput) {
        let finding = Finding::StoreLied { store, epoch, why: why.to_owned() };
        if self.findings.range((self.head.epoch, 0)..).all(|(_, known)| *known != finding) {
            self.find(finding, out);
        }
    }

    /// Nobody knows of epochs that are further ahead than the skew: what was said of such would be kept until they come.
    pub(super) fn is_to_come(&self, epoch: Epoch) -> bool {
        !self.awaits_stores() && epoch > self.head.epoch.plus(self.config.params.skew())
    }

    /// Why a store cannot have taken this voucher, if it cannot: it would have refused it, whoever came with it.
    pub(super) fn lie_of(&self, store: Node, line: &SpentLine) -> Option<&'static str> {
        if self.is_to_come(line.epoch) {
            return Some("a voucher of an epoch that is still to come");
        }
        let request = self.grants_by_voucher.get(&line.voucher)?;
        let audience = self.grants.get(request)?.minted?.voucher.terms.audience;
        (audience != ANYONE && audience != store).then_some("a voucher that only another store takes")
    }

    /// Adds a report's lines, and leaves out of it those that cannot be true. It is the last word on its epoch: of vouchers that it does
    /// not name, or of which it names less than was told before, nothing is held against anybody but the store.
    pub(super) fn take_lines(&mut self, report: &mut Report, out: &mut BankOutput) {
        let (store, incarnation, epoch) = (report.store, report.incarnation, report.epoch);
        let refunds = report.refunds.len();
        report.refunds.retain(|line| line.voucher.issuer == Issuer { node: store, incarnation });
        if report.refunds.len() < refunds {
            self.accuse(store, epoch, "a refund that it did not make", out);
        }
        report.spent.retain(|line| line.epoch == epoch);
        if !self.tally(report, out) {
            report.spent.retain(|line| self.lie_of(store, line).is_none());
        }
        let said: u128 = report.spent.iter().map(|line| u128::from(line.amount)).sum();
        if self.forget_counted(report).is_some_and(|counted| counted != said) {
            self.accuse(store, epoch, "it told more of the vouchers of an epoch before it reported it", out);
            self.uncount(store, incarnation, epoch);
            self.count_all(store, incarnation, &report.spent, out);
            self.forget_counted(report);
        }
    }

    fn forget_counted(&mut self, report: &Report) -> Option<u128> {
        self.stores.get_mut(&(report.store, report.incarnation))?.counted.remove(&report.epoch)
    }
}
