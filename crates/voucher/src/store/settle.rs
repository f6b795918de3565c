//! Requests whose outcome their client knows need no longer be remembered one by one.

use super::{StoreCore, StoreOutput, load};
use crate::flaw::Flaw;
use crate::message::Refusal;
use crate::{Client, Op};

/// The most answers that are forgotten at once: their rows stand in the record of the request that settles them.
const AT_ONCE: usize = if cfg!(test) { 1 << 8 } else { 1 << 16 };

impl StoreCore {
    /// Forgets the answers below `below`, and remembers in their place that everything there is settled: a copy that the
    /// network still holds must not be taken for a new request. That is kept as long as the newest of them would have been. Of very many the
    /// oldest: the rest is forgotten with the next requests that say so.
    pub(super) fn settle(&mut self, client: Client, below: Op, out: &mut StoreOutput) {
        let acting = self.acting_epoch();
        let (epoch, before) = self.settled.get(&client).copied().unwrap_or_default();
        if below <= before {
            return;
        }
        let mut newest = epoch.max(acting);
        let mut known = self.answers.remove(&client).unwrap_or_default();
        let rest = if known.len() > AT_ONCE { known.keys().nth(AT_ONCE).copied() } else { None };
        let below = rest.map_or(below, |rest| rest.min(below));
        let kept = known.split_off(&below);
        if !kept.is_empty() {
            self.answers.insert(client, kept);
        }
        for (op, (epoch, answer)) in known {
            newest = newest.max(epoch);
            self.remembered.take(client, answer.weight());
            out.writes.push(load::answer_key(epoch, client, op).remove());
        }
        if self.config.flaws.has(Flaw::SettledForgotten) {
            return;
        }
        self.record_settled(client, newest, below);
        out.writes.push(load::settled_key(client).put(&(newest, below)));
    }

    /// Refuses what is settled: its answer is forgotten, and it is not carried out again.
    pub(super) fn check_unsettled(&self, client: Client, op: Op) -> Result<(), Refusal> {
        match self.settled.get(&client) {
            Some((_, below)) if op < *below => Err(Refusal::Settled),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::message::{Refusal, StoreToClient};
    use crate::store::StoreEvent;
    use crate::store::tests::{C, U, cluster};
    use crate::testing::{Cluster, store_node};
    use crate::{Client, Node, Op};

    fn settle(c: &mut Cluster, at: Node, below: u64) {
        assert!(c.store_event(at, StoreEvent::Settled { client: C, below: Op(below) }).is_none());
    }

    #[test]
    fn what_is_settled_is_forgotten_and_never_carried_out_again_also_after_a_crash() {
        let mut c = cluster();
        let at = store_node(1);
        let pieces = c.withdraw(C, U, 2000);
        let balance = c.spend_as(at, C, U, Op(5), &pieces, 600).unwrap();
        c.spend_as(at, C, U, Op(7), &balance, 100).unwrap();
        settle(&mut c, at, 7);
        for _ in 0..2 {
            assert!(c.stores[&at].replay(C, Op(5)).is_none());
            assert!(c.stores[&at].replay(C, Op(7)).is_some(), "only what is below");
            assert_eq!(c.spend_as(at, C, U, Op(5), &pieces, 600), Err(Refusal::Settled));
            let free = StoreEvent::Free { client: C, user: U, is_users: true, op: Op(6), amount: 10 };
            let cancel = StoreEvent::Cancel { client: C, op: Op(6), pieces: Vec::new() };
            for event in [free, cancel] {
                let answer = c.store_event(at, event);
                assert!(matches!(answer, Some(StoreToClient::Refused { reason: Refusal::Settled, .. })), "{answer:?}");
            }
            assert_eq!(c.used(U), 700);
            c.reload_store(at);
            c.tick();
        }
        // Another client's numbers are its own, and what was said before is not unsaid.
        let others = c.withdraw(Client(2), U, 10);
        assert!(c.spend_as(at, Client(2), U, Op(5), &others, 10).is_ok());
        settle(&mut c, at, 3);
        assert_eq!(c.spend_as(at, C, U, Op(5), &pieces, 600), Err(Refusal::Settled));
    }

    #[test]
    fn what_is_settled_is_remembered_as_long_as_its_vouchers_live_and_no_longer() {
        let mut c = cluster();
        let at = store_node(1);
        let pieces = c.withdraw(C, U, 2000);
        c.spend_as(at, C, U, Op(5), &pieces, 600).unwrap();
        settle(&mut c, at, 6);
        let first = c.epoch();
        let settled = |c: &Cluster| c.stores[&at].settled.contains_key(&C);
        while pieces[0].voucher.terms.expiry >= c.epoch() {
            assert!(settled(&c), "in epoch {} of those from {first}", c.epoch());
            c.epochs(1);
        }
        c.epochs(20);
        assert!(!settled(&c));
        assert_eq!(c.used(U), 600);
    }

    /// Regression: a record that held as many was more than the journal takes, and the store stopped.
    #[test]
    fn of_very_many_the_rest_is_forgotten_with_the_next_requests() {
        let mut c = cluster();
        let at = store_node(1);
        let all = super::AT_ONCE as u64 + 100;
        for number in 1..=all {
            c.store_event(at, StoreEvent::Cancel { client: C, op: Op(number), pieces: Vec::new() });
        }
        settle(&mut c, at, all + 1);
        assert_eq!(c.stores[&at].remembered(), 100);
        settle(&mut c, at, all + 1);
        assert_eq!(c.stores[&at].remembered(), 0);
        let answer = c.store_event(at, StoreEvent::Cancel { client: C, op: Op(all), pieces: Vec::new() });
        assert!(matches!(answer, Some(StoreToClient::Refused { reason: Refusal::Settled, .. })), "{answer:?}");
    }

    /// A cancellation is filed under its vouchers' epoch, which may be ahead of the store's.
    #[test]
    fn a_settled_cancellation_is_remembered_as_long_as_the_cancellation_was() {
        let mut c = cluster();
        let at = store_node(1);
        c.down.push(at);
        c.epochs(1);
        let pieces = c.withdraw(C, U, 500);
        let ahead = pieces[0].voucher.terms.epoch;
        assert!(ahead > c.stores[&at].epoch());
        let cancel = StoreEvent::Cancel { client: C, op: Op(5), pieces };
        let answer = c.store_event(at, cancel);
        assert!(matches!(answer, Some(StoreToClient::Refused { reason: Refusal::Cancelled, .. })), "{answer:?}");
        settle(&mut c, at, 6);
        assert_eq!(c.stores[&at].settled[&C], (ahead, Op(6)));
    }
}
