//! What all stores say of each voucher, added up.

use super::{BankCore, BankOutput};
use crate::message::SpentLine;
use crate::{Client, Epoch, Incarnation, Node, User};
use std::collections::{BTreeMap, BTreeSet};

/// What all stores say of one voucher.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    pub(super) user: User,
    pub(super) value: u64,
    by: BTreeMap<(Client, Node, Incarnation), u64>,
}

impl Tally {
    pub(super) fn spent(&self) -> u64 {
        self.by.values().fold(0, |sum, amount| sum.saturating_add(*amount))
    }

    pub(super) fn stores(&self) -> Vec<Node> {
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

/// What a line adds to what is known.
enum Adds {
    Nothing,
    More,
    Lie(&'static str),
}

impl BankCore {
    /// Adds lines, and looks once at each voucher of which they say more than was known: early reports tell all anew every few seconds,
    /// and a voucher may have as many lines as its user makes up clients. Whether all of them may be true; one that cannot be is not
    /// added, but held against the store.
    pub(super) fn count_all(
        &mut self,
        store: Node,
        incarnation: Incarnation,
        lines: &[SpentLine],
        out: &mut BankOutput,
    ) -> bool {
        let (mut grown, mut lies) = (BTreeSet::new(), BTreeSet::new());
        for line in lines {
            match self.count(store, incarnation, line) {
                Adds::Nothing => {}
                Adds::More => drop(grown.insert((line.epoch, line.voucher))),
                Adds::Lie(why) => drop(lies.insert(why)),
            }
        }
        for why in &lies {
            self.accuse(store, self.head.epoch, why, out);
        }
        for (epoch, voucher) in grown {
            self.judge(epoch, voucher, false, out);
        }
        lies.is_empty()
    }

    /// Adds a line, which is a total: an early report and the final one never count twice.
    fn count(&mut self, store: Node, incarnation: Incarnation, line: &SpentLine) -> Adds {
        if line.epoch <= self.head.horizon {
            return Adds::Nothing;
        }
        let key = (line.client, store, incarnation);
        let tally = self.spent.get(&line.epoch).and_then(|tallies| tallies.get(&line.voucher));
        if tally.is_none_or(|tally| !tally.by.contains_key(&key))
            && let Some(why) = self.lie_of(store, line)
        {
            return Adds::Lie(why);
        }
        let tallies = self.spent.entry(line.epoch).or_default();
        let tally = tallies.entry(line.voucher).or_insert_with(|| Tally {
            user: line.user,
            value: line.value,
            by: BTreeMap::new(),
        });
        let amount = tally.by.entry(key).or_default();
        let more = line.amount.saturating_sub(*amount);
        *amount += more;
        if more == 0 {
            return Adds::Nothing;
        }
        if let Some(store) = self.stores.get_mut(&(store, incarnation)).filter(|store| line.epoch > store.reported) {
            *store.counted.entry(line.epoch).or_default() += u128::from(more);
        }
        Adds::More
    }

    /// Forgets what a store said of the vouchers of an epoch.
    pub(super) fn uncount(&mut self, store: Node, incarnation: Incarnation, epoch: Epoch) {
        for tally in self.spent.get_mut(&epoch).into_iter().flat_map(|tallies| tallies.values_mut()) {
            tally.by.retain(|(_, node, life), _| (*node, *life) != (store, incarnation));
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
