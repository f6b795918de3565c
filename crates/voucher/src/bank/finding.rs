//! Who cheated: every voucher is added up over all stores.

use super::{BankAction, BankCore, BankOutput, load};
use crate::message::SpentLine;
use crate::{Client, Epoch, Incarnation, Node, User, VoucherId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What is done about a cheater (voucher-quotas, section 3, *Cheating*). It is always told to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// Nothing else.
    Notify,
    /// The user gets no further vouchers until an administrator allows it.
    Refuse,
    /// As refuse, and a hook is asked to compress or thin out what the user has.
    Hook,
}

/// Something that cannot happen while everybody is honest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// More than a voucher's value was spent.
    Overspent {
        /// The user who was charged.
        user: User,
        /// The voucher.
        voucher: VoucherId,
        /// Its epoch.
        epoch: Epoch,
        /// Its value, in bytes.
        value: u64,
        /// What was spent of it in all.
        spent: u64,
        /// Who must have cheated, as far as is known: whoever spent more of it than it had been given, else whom it was given to and
        /// all who spent. Who is found out later is in a further finding of the same voucher, with the sum of then.
        clients: Vec<Client>,
        /// Where.
        stores: Vec<Node>,
    },
    /// A voucher of this bank that it has never made, or a refund that its store does not know or of more than
    /// was freed: made by somebody who has a key.
    Forged {
        /// The user who was charged.
        user: User,
        /// The voucher.
        voucher: VoucherId,
        /// Its epoch.
        epoch: Epoch,
        /// What was spent of it in all, in bytes.
        spent: u64,
        /// What there was to spend: what the issuer says that it freed.
        freed: u64,
        /// Who spent it.
        clients: Vec<Client>,
        /// Where.
        stores: Vec<Node>,
    },
    /// A store's report contradicts itself or its earlier one, or the store knows what only a later bank can have told it.
    StoreLied {
        /// Which.
        store: Node,
        /// In the report of this epoch, or of which it knows.
        epoch: Epoch,
        /// How.
        why: String,
    },
}

/// What all stores say of one voucher.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    user: User,
    value: u64,
    by: BTreeMap<(Client, Node, Incarnation), u64>,
}

impl Tally {
    fn spent(&self) -> u64 {
        self.by.values().fold(0, |sum, amount| sum.saturating_add(*amount))
    }

    fn stores(&self) -> Vec<Node> {
        self.by.keys().map(|(_, store, _)| *store).collect::<BTreeSet<_>>().into_iter().collect()
    }

    pub(super) fn by_client(&self) -> BTreeMap<Client, u64> {
        let mut clients = BTreeMap::new();
        for ((client, _, _), amount) in &self.by {
            let sum: &mut u64 = clients.entry(*client).or_default();
            *sum = sum.saturating_add(*amount);
        }
        clients
    }

    /// What one client spent. Only its own lines are looked at: a voucher may have as many as its user makes up clients.
    pub(super) fn spent_by(&self, client: Client) -> u64 {
        let first = (client, Node(0), Incarnation(0));
        let last = (client, Node(u32::MAX), Incarnation(u32::MAX));
        self.by.range(first..=last).fold(0, |sum, (_, amount)| sum.saturating_add(*amount))
    }
}

impl BankCore {
    /// Adds lines, and looks once at each voucher of which they say more than was known: early reports tell all anew every few seconds,
    /// and a voucher may have as many lines as its user makes up clients.
    pub(super) fn count_all(
        &mut self,
        store: Node,
        incarnation: Incarnation,
        lines: &[SpentLine],
        out: &mut BankOutput,
    ) {
        let grown = lines.iter().filter(|line| self.count(store, incarnation, line));
        let grown: BTreeSet<_> = grown.map(|line| (line.epoch, line.voucher)).collect();
        for (epoch, voucher) in grown {
            self.judge(epoch, voucher, false, out);
        }
    }

    /// Adds a line, which is a total: an early report and the final one never count twice. Whether it says more than was known.
    fn count(&mut self, store: Node, incarnation: Incarnation, line: &SpentLine) -> bool {
        if line.epoch <= self.head.horizon {
            return false;
        }
        let tallies = self.spent.entry(line.epoch).or_default();
        let tally = tallies.entry(line.voucher).or_insert_with(|| Tally {
            user: line.user,
            value: line.value,
            by: BTreeMap::new(),
        });
        let amount = tally.by.entry((line.client, store, incarnation)).or_default();
        let grew = line.amount > *amount;
        *amount = line.amount.max(*amount);
        grew
    }

    /// Looks at one voucher, also at one of which a cheater was named: others may cheat with it too. Refunds, and what was spent in all, can
    /// only be judged fully (`last`) once all stores have reported its epoch.
    pub(super) fn judge(&mut self, epoch: Epoch, voucher: VoucherId, last: bool, out: &mut BankOutput) {
        let Some(tally) = self.spent.get(&epoch).and_then(|tallies| tallies.get(&voucher)) else { return };
        let spent = tally.spent();
        let own = voucher.issuer.node == self.config.node;
        let refund = self.refunds.get(&epoch).and_then(|refunds| refunds.get(&voucher));
        // What its issuer knows of a voucher counts, not what stores say of it: one that lies would hide what others spent.
        let (user, value, freed, holder) = if own {
            let known = voucher.issuer.incarnation >= self.head.known_since;
            match self.given(voucher) {
                Some((client, user, value)) => (user, value, value, Some(client)),
                None if known => (tally.user, tally.value, 0, None),
                None => (tally.user, tally.value, tally.value, None),
            }
        } else if let Some(line) = refund {
            (line.user, tally.value.max(line.value), line.value, Some(line.client))
        } else if last && self.has_reported(voucher, epoch) {
            (tally.user, tally.value, 0, None)
        } else {
            (tally.user, tally.value, tally.value, None)
        };
        let finding = if freed < value && spent > freed {
            let (clients, stores) = (tally.by_client().into_keys().collect(), tally.stores());
            Finding::Forged { user, voucher, epoch, spent, freed, clients, stores }
        } else if spent > value {
            // A refund's holder is known with its store's report; until then nobody is named.
            if holder.is_none() && !own && !last {
                return;
            }
            let clients = self.who(epoch, voucher, holder, value, &tally.by_client());
            Finding::Overspent { user, voucher, epoch, value, spent, clients, stores: tally.stores() }
        } else {
            return;
        };
        let told = self.told.entry((epoch, voucher)).or_default();
        if told.lacks(&finding, last) {
            let more = told.add(&finding);
            self.find(finding, out);
            self.answer(user, more, out);
        }
    }

    /// To whom a voucher was given, whom it charges, and its value; none if this bank does not remember that it made it.
    fn given(&self, voucher: VoucherId) -> Option<(Client, User, u64)> {
        let request = self.grants_by_voucher.get(&voucher)?;
        let grant = self.grants.get(request)?;
        Some((request.0, grant.user, grant.minted?.voucher.terms.value))
    }

    /// Tells the server, and keeps it for K epochs at least to tell it again after a restart: what proved it may be
    /// forgotten in this very step, and the message lost.
    pub(super) fn find(&mut self, finding: Finding, out: &mut BankOutput) {
        let key = (self.head.epoch, self.next_finding);
        self.next_finding += 1;
        out.writes.push(load::finding_key(key).put(&finding));
        out.actions.push(BankAction::Found(finding.clone()));
        self.findings.insert(key, finding);
    }

    /// Those of K epochs ago; but not while what proves them is still on the books, or a restarted bank would find them anew.
    pub(super) fn forget_findings(&mut self, out: &mut BankOutput) {
        let Some(before) = self.head.epoch.minus(self.config.params.reconcile()) else { return };
        let horizon = self.head.horizon;
        let old = self
            .findings
            .range(..(before, 0))
            .filter(|(_, finding)| finding.overspending().is_none_or(|overspending| overspending.epoch <= horizon));
        let old: Vec<_> = old.map(|(key, _)| *key).collect();
        for key in old {
            self.findings.remove(&key);
            out.writes.push(load::finding_key(key).remove());
        }
    }

    fn has_reported(&self, voucher: VoucherId, epoch: Epoch) -> bool {
        self.stores
            .get(&(voucher.issuer.node, voucher.issuer.incarnation))
            .is_some_and(|store| store.lost.is_none() && store.reported >= epoch && store.accept_from <= epoch)
    }

    fn answer(&mut self, user: User, excess: u64, out: &mut BankOutput) {
        if self.config.answer == Answer::Notify {
            return;
        }
        self.set_blocked(user, true, out);
        if self.config.answer == Answer::Hook {
            out.actions.push(BankAction::Hook { user, excess });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_one_client_spent_is_what_all_its_lines_add_up_to(
            lines in proptest::collection::btree_map((0..5u64, any::<u32>(), 0..3u32), any::<u64>(), 0..40),
        ) {
            let by = lines.into_iter().map(|((client, node, life), sum)| ((Client(client), Node(node), Incarnation(life)), sum));
            let tally = Tally { user: User(1), value: 1, by: by.collect() };
            let all = tally.by_client();
            for client in (0..6).map(Client) {
                prop_assert_eq!(tally.spent_by(client), all.get(&client).copied().unwrap_or(0));
            }
        }
    }
}
