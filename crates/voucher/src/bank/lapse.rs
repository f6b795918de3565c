//! Stores that nobody hears of: told once, since everything else goes on until quota runs out.

use super::{BankAction, BankCore, BankOutput};
use crate::{Incarnation, Micros, Node};

impl BankCore {
    pub(super) fn notice_lapses(&mut self, now: Micros, out: &mut BankOutput) {
        let began = *self.began.get_or_insert(now);
        for ((node, _), store) in self.stores.iter_mut().filter(|(_, store)| store.lost.is_none() && !store.lapsed) {
            if now >= store.lease_until.unwrap_or(began) + self.epoch_length {
                store.lapsed = true;
                out.actions.push(BankAction::Lapsed { store: *node });
            }
        }
    }

    /// When this life of a store was last given a lease; nothing if not by this process.
    pub fn heard(&self, node: Node, incarnation: Incarnation) -> Option<Micros> {
        self.stores.get(&(node, incarnation))?.heard
    }

    /// Whether this process has given it a lease that is not over.
    pub fn holds_lease(&self, node: Node, incarnation: Incarnation, now: Micros) -> bool {
        let key = (node, incarnation);
        self.stores.get(&key).is_some_and(|store| store.lost.is_none() && store.heard.is_some())
            && self.is_leased(key, now)
    }
}

#[cfg(test)]
mod tests {
    use crate::bank::BankAction;
    use crate::testing::{Cluster, EPOCH, store_node};
    use crate::{Incarnation, Micros};

    fn told(c: &mut Cluster) -> Vec<BankAction> {
        let actions = std::mem::take(&mut c.actions).into_iter();
        actions.filter(|action| matches!(action, BankAction::Lapsed { .. } | BankAction::Back { .. })).collect()
    }

    /// A store failed, and nobody was told: quota ran out, since nothing was reconciled any more.
    #[test]
    fn a_store_without_a_lease_is_told_once_and_so_is_that_it_is_back() {
        let mut c = Cluster::new(2);
        c.run(EPOCH);
        let (gone, life) = (store_node(2), Incarnation(1));
        assert!(c.bank.holds_lease(gone, life, c.now));
        let heard = c.bank.heard(gone, life);
        c.down.push(gone);
        c.run(Micros::from_secs(12));
        assert!(!c.bank.holds_lease(gone, life, c.now) && c.bank.holds_lease(store_node(1), life, c.now));
        assert_eq!((told(&mut c), c.bank.heard(gone, life)), (vec![], heard), "the lease ran out, but only just");
        c.epochs(4);
        assert_eq!(told(&mut c), [BankAction::Lapsed { store: gone }]);
        c.down.clear();
        c.epochs(2);
        assert_eq!(told(&mut c), [BankAction::Back { store: gone }]);
        assert!(c.bank.holds_lease(gone, life, c.now) && c.bank.heard(gone, life) > heard);
    }

    #[test]
    fn a_store_that_is_gone_when_a_bank_starts_is_told_an_epoch_later() {
        let mut c = Cluster::new(2);
        c.run(EPOCH);
        c.down.push(store_node(2));
        c.reload_bank();
        c.run(Micros::from_secs(50));
        assert_eq!(told(&mut c), []);
        assert_eq!(c.bank.heard(store_node(2), Incarnation(1)), None);
        c.run(EPOCH);
        assert_eq!(told(&mut c), [BankAction::Lapsed { store: store_node(2) }]);
    }
}
