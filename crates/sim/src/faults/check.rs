//! The account that sees everything, and what is compared with it after every step.

use super::world::World;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use ullage_voucher::bank::Finding;
use ullage_voucher::{Client, Epoch, Incarnation, Node, Piece, User, VoucherId};

/// A broken invariant.
#[derive(Clone, Debug)]
pub struct Breach {
    /// The seed that shows it.
    pub seed: u64,
    /// Seconds into the run.
    pub second: f64,
    /// What was found.
    pub what: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {} after {:.3} s: {}", self.seed, self.second, self.what)
    }
}

struct Known {
    user: User,
    epoch: Epoch,
    value: u64,
    spent: u64,
    by: BTreeSet<Client>,
}

/// Every voucher there is and what was spent of it.
#[derive(Default)]
pub(super) struct Account {
    vouchers: BTreeMap<VoucherId, Known>,
    outstanding: BTreeMap<User, BTreeMap<Epoch, u64>>,
    overspent: BTreeMap<User, BTreeMap<Epoch, u64>>,
    excused: BTreeMap<User, u64>,
    over: Vec<(VoucherId, Epoch)>,
    pub(super) cheating: BTreeSet<User>,
}

impl Account {
    pub(super) fn issued(&mut self, piece: &Piece) {
        let terms = piece.voucher.terms;
        let outstanding = &mut self.outstanding;
        self.vouchers.entry(piece.id()).or_insert_with(|| {
            *outstanding.entry(terms.user).or_default().entry(terms.epoch).or_default() += terms.value;
            Known { user: terms.user, epoch: terms.epoch, value: terms.value, spent: 0, by: BTreeSet::new() }
        });
    }

    pub(super) fn spent(&mut self, piece: &Piece, part: u64, client: Client) {
        self.issued(piece);
        let Some(known) = self.vouchers.get_mut(&piece.id()) else { return };
        let (left, over) = (known.value.saturating_sub(known.spent), known.spent.saturating_sub(known.value));
        known.spent += part;
        known.by.insert(client);
        let (left_now, over_now) = (known.value.saturating_sub(known.spent), known.spent.saturating_sub(known.value));
        if let Some(sum) = self.outstanding.get_mut(&known.user).and_then(|sums| sums.get_mut(&known.epoch)) {
            *sum -= left - left_now;
        }
        if over_now > 0 {
            if over == 0 {
                self.over.push((piece.id(), known.epoch));
            }
            *self.overspent.entry(known.user).or_default().entry(known.epoch).or_default() += over_now - over;
        }
    }

    pub(super) fn excused(&mut self, user: User, bytes: u64) {
        *self.excused.entry(user).or_default() += bytes;
    }

    fn after(sums: &BTreeMap<User, BTreeMap<Epoch, u64>>, user: User, epoch: Epoch) -> u64 {
        sums.get(&user).map_or(0, |sums| sums.range(epoch.plus(1)..).map(|(_, sum)| *sum).sum())
    }
}

impl World {
    #[expect(clippy::unnecessary_box_returns, reason = "errors are passed on boxed")]
    fn breach(&self, what: String) -> Box<Breach> {
        Box::new(Breach { seed: self.plan.seed, second: self.now as f64 / 1e6, what })
    }

    /// Lives of stores that the bank counts on.
    fn counted(&self) -> Vec<(Node, Incarnation, Epoch)> {
        let Some(bank) = &self.bank else { return Vec::new() };
        bank.stores()
            .filter(|(node, life, _, lost)| {
                let host = self.stores.get(node);
                !lost && host.is_some_and(|host| !host.dead && !host.restored && host.life == *life)
            })
            .map(|(node, life, reported, _)| (node, life, reported))
            .collect()
    }

    pub(super) fn check(&mut self) -> Result<(), Box<Breach>> {
        let Some(bank) = &self.bank else { return Ok(()) };
        let counted = self.counted();
        let mut real: BTreeMap<User, u64> = BTreeMap::new();
        for (node, ..) in &counted {
            for (user, bytes) in &self.stores[node].used {
                *real.entry(*user).or_default() += bytes;
            }
        }
        for (node, ..) in &counted {
            if let Some(host) = self.stores.get_mut(node) {
                (host.giving_up, host.given_up) = (host.giving_up && host.given_up.is_none(), None);
            }
        }
        for (node, host) in &self.stores {
            if host
                .given_up
                .as_ref()
                .is_some_and(|held| host.used.iter().any(|(user, now)| held.get(user).unwrap_or(&0) != now))
            {
                return Err(self.breach(format!(
                    "store {node} was given up with {:?} and has {:?} now",
                    host.given_up, host.used
                )));
            }
        }
        // Vouchers of an epoch are dead once every store that counts has closed it; what the stores say counts, not
        // what the bank makes of it.
        let accepting = self
            .stores
            .values()
            .filter(|host| !host.dead && !host.restored && host.given_up.is_none() && host.closed > Epoch(0));
        let closed = accepting.map(|host| host.closed).min().unwrap_or(bank.horizon());
        for user in bank.users() {
            let here = real.get(&user).copied().unwrap_or(0);
            let spendable = Account::after(&self.account.outstanding, user, closed);
            let truth = i128::from(here) + i128::from(spendable);
            let excused = i128::from(self.account.excused.get(&user).copied().unwrap_or(0));
            let quota = i128::from(self.plan.quota);
            match bank.authorized(user) {
                Some(a) => {
                    let overspent = Account::after(&self.account.overspent, user, bank.horizon().min(closed));
                    if truth > a + i128::from(overspent) {
                        return Err(self.breach(format!(
                            "user {user}: real {here} + spendable {spendable} exceeds A = {a} (+ overspent {overspent}), \
                             epoch {}, horizon {}",
                            bank.epoch(),
                            bank.horizon()
                        )));
                    }
                    if a > quota + excused && !self.account.cheating.contains(&user) {
                        return Err(self.breach(format!("user {user}: A = {a} exceeds Q = {quota} (+ {excused})")));
                    }
                }
                None => {
                    let overspent = Account::after(&self.account.overspent, user, Epoch(0));
                    if truth > quota + excused + i128::from(overspent) {
                        return Err(self.breach(format!("user {user}: {truth} exceeds Q = {quota} while rebuilding")));
                    }
                }
            }
        }
        self.check_findings()
    }

    fn evidence_is_lost(&self) -> bool {
        self.outcome.lost + self.outcome.restored + self.outcome.rebuilt + self.outcome.given_up > 0
    }

    fn check_findings(&self) -> Result<(), Box<Breach>> {
        let Some(bank) = &self.bank else { return Ok(()) };
        let stores = self.stores.len() as u64 + self.outcome.restored;
        for (voucher, epoch) in &self.account.over {
            let named = self.found.iter().any(|finding| {
                matches!(finding, Finding::Overspent { voucher: v, .. } | Finding::Forged { voucher: v, .. } if v == voucher)
            });
            if !named && *epoch <= bank.horizon() && !self.evidence_is_lost() {
                return Err(self.breach(format!(
                    "voucher {voucher} of epoch {epoch} was overspent and nobody named, horizon {}",
                    bank.horizon()
                )));
            }
            let known = &self.account.vouchers[voucher];
            let told = self.found.iter().filter_map(|finding| match finding {
                Finding::Overspent { voucher: v, spent, .. } | Finding::Forged { voucher: v, spent, .. } => {
                    (v == voucher).then_some(*spent)
                }
                Finding::StoreLied { .. } => None,
            });
            if named && *epoch <= bank.horizon() && !self.evidence_is_lost() && told.max() != Some(known.spent) {
                return Err(self.breach(format!("voucher {voucher}: {} was spent, and not told", known.spent)));
            }
            if known.spent > known.value * stores {
                return Err(self.breach(format!("voucher {voucher}: {} spent of {}", known.spent, known.value)));
            }
        }
        for finding in &self.found {
            match finding {
                Finding::Overspent { clients, .. } => {
                    let honest = clients.iter().any(|client| !self.cheaters.contains(client));
                    if honest && self.outcome.rebuilt == 0 {
                        return Err(self.breach(format!("an honest client is named: {finding:?}")));
                    }
                }
                Finding::Forged { .. } | Finding::StoreLied { .. } => {
                    return Err(self.breach(format!("an honest store is accused: {finding:?}")));
                }
            }
        }
        Ok(())
    }

    /// Every store's account agrees with its chunks; A is exactly what there is.
    pub(super) fn check_end(&mut self) -> Result<(), Box<Breach>> {
        self.outcome.overspent = self.account.over.len() as u64;
        let Some(bank) = &self.bank else { return Err(self.breach("no bank at the end".to_owned())) };
        if bank.is_recovering() {
            return Err(self.breach("the bank never recovered".to_owned()));
        }
        let counted = self.counted();
        let alive = self.stores.values().filter(|host| !host.dead).count();
        if counted.len() != alive {
            return Err(self.breach(format!("{alive} stores live, {} count", counted.len())));
        }
        let mut real: BTreeMap<User, u64> = BTreeMap::new();
        for (node, host) in self.stores.iter().filter(|(_, host)| !host.dead) {
            let used = host.disk.used();
            let Some(core) = &host.core else { return Err(self.breach(format!("store {node} is down at the end"))) };
            for (user, bytes) in used {
                if core.used(user) != bytes {
                    return Err(self
                        .breach(format!("store {node} accounts {} to user {user} who has {bytes}", core.used(user))));
                }
                *real.entry(user).or_default() += bytes;
            }
        }
        for user in bank.users() {
            let here = i128::from(real.get(&user).copied().unwrap_or(0));
            if bank.authorized(user) != Some(here) {
                return Err(self.breach(format!(
                    "user {user}: A = {:?} in parts {:?} although K epochs passed; real {here}; epoch {}, horizon {}",
                    bank.authorized(user),
                    bank.parts(user),
                    bank.epoch(),
                    bank.horizon()
                )));
            }
        }
        Ok(())
    }
}
