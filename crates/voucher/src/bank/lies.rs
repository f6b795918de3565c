//! What a store says that cannot be true, and what is counted instead.

use crate::User;
use crate::message::Report;
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
