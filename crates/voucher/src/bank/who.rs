//! Who answers for a voucher of which too much was spent.

use super::BankCore;
use crate::{Client, Epoch, VoucherId};
use std::collections::{BTreeMap, BTreeSet};

impl BankCore {
    /// Who must have cheated. Whom a refund was given to is unknown if its store was set back before it told: then only
    /// who cheated whoever it was given to, and perhaps nobody can be named but the user.
    pub(super) fn who(
        &self,
        epoch: Epoch,
        voucher: VoucherId,
        holder: Option<Client>,
        value: u64,
        spent: &BTreeMap<Client, u64>,
    ) -> Vec<Client> {
        let nobody = BTreeMap::new();
        let moved = self.moved.get(&epoch).and_then(|moved| moved.get(&voucher)).unwrap_or(&nobody);
        if let Some(holder) = holder {
            let mut named = overspenders(holder, value, spent, moved);
            // What strangers spent beside those, nobody gave them.
            let strangers = spent.iter().filter(|(client, _)| **client != holder && !moved.contains_key(client));
            named.extend(strangers.filter(|(_, amount)| **amount > 0).map(|(client, _)| *client));
            return named.into_iter().collect();
        }
        let holders = spent.keys().chain(moved.keys());
        let named = holders.map(|holder| overspenders(*holder, value, spent, moved));
        named.reduce(|one, other| &one & &other).unwrap_or_default().into_iter().collect()
    }
}

/// Whoever spent more of a voucher than was given to it; if nobody did by itself, whom it was given to and all who spent:
/// pieces may be handed from client to client, and a stranger's spending is its own doing or the holder's.
fn overspenders(
    holder: Client,
    value: u64,
    spent: &BTreeMap<Client, u64>,
    moved: &BTreeMap<Client, i64>,
) -> BTreeSet<Client> {
    let claim = |client: Client| {
        let first = if client == holder { i128::from(value) } else { 0 };
        first + moved.get(&client).map_or(0, |by| i128::from(*by))
    };
    let over: BTreeSet<Client> = moved
        .keys()
        .copied()
        .chain([holder])
        .filter(|client| i128::from(spent.get(client).copied().unwrap_or(0)) > claim(*client))
        .collect();
    if over.is_empty() { spent.keys().copied().chain([holder]).collect() } else { over }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Client 1 got a refund of 620, spent 342, gave 620 back all the same, and the bank passed 278 of it on to
    /// client 3. The store that had made the refund was set back and never said whom it had given it to: client 3 was named.
    #[test]
    fn who_spends_what_the_bank_passed_on_is_not_named_although_the_first_holder_is_unknown() {
        let (thief, honest) = (Client(1), Client(3));
        let spent = BTreeMap::from([(thief, 489), (honest, 278)]);
        let moved = BTreeMap::from([(thief, -620), (honest, 278)]);
        for holder in [thief, honest] {
            assert_eq!(overspenders(holder, 620, &spent, &moved), BTreeSet::from([thief]));
        }
        // An honest holder gave part back, and whom it was passed on to spent it twice.
        let spent = BTreeMap::from([(honest, 342), (thief, 556)]);
        let moved = BTreeMap::from([(honest, -278), (thief, 278)]);
        assert_eq!(overspenders(honest, 620, &spent, &moved), BTreeSet::from([thief]));
    }
}
