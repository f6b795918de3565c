//! Who cheated: every voucher is added up over all stores.

use super::{BankAction, BankCore, BankOutput, load};
use crate::{Client, Epoch, Node, User, VoucherId};
use serde::{Deserialize, Serialize};

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
    /// was freed: made by somebody who has a key, or by the store that says that it took it. No client can, so nothing is done about the
    /// user.
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
    /// A store says what cannot be true: its report contradicts itself or what it said before, it took what only others take or what cannot
    /// have been issued yet, or it knows what only a later bank can have told it.
    StoreLied {
        /// Which.
        store: Node,
        /// In the report of this epoch, of which it knows, or then.
        epoch: Epoch,
        /// How.
        why: String,
    },
}

impl BankCore {
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
            // What nobody issued no client can have made: whoever has a key can name any user.
            let is_of_clients = matches!(finding, Finding::Overspent { .. });
            self.find(finding, out);
            if is_of_clients {
                self.answer(user, more, out);
            }
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
