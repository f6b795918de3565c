//! What was answered is kept, to answer a repetition alike: of one party no more than so much, since nothing need be paid to be answered.

use super::{Answer, StoreAction, StoreCore, StoreOutput, load};
use crate::message::Refusal;
use crate::{Client, Epoch, Op};
use std::collections::BTreeMap;

/// Some 250 MB; a hundred programs a second that write one file each leave half of it until their epochs are reconciled.
pub(super) const REMEMBERED_MAX: usize = 1 << 21;

/// How many answers, and pieces in them, are kept of each party: of all clients whose numbers begin alike.
#[derive(Debug, Default)]
pub(super) struct Remembered(BTreeMap<u32, usize>);

impl Remembered {
    pub(super) fn of(&self, client: Client) -> usize {
        self.0.get(&party(client)).copied().unwrap_or(0)
    }

    pub(super) fn add(&mut self, client: Client, count: usize) {
        *self.0.entry(party(client)).or_default() += count;
    }

    pub(super) fn take(&mut self, client: Client, count: usize) {
        if let Some(kept) = self.0.get_mut(&party(client)) {
            *kept = kept.saturating_sub(count);
            if *kept == 0 {
                self.0.remove(&party(client));
            }
        }
    }
}

fn party(client: Client) -> u32 {
    (client.0 >> 32) as u32
}

impl Answer {
    /// The answer itself, and each piece in it.
    pub(super) fn weight(&self) -> usize {
        1 + match self {
            Self::Spent { balance, .. } => balance.len(),
            Self::Refunded { refund } => usize::from(refund.is_some()),
            Self::Cancelled => 0,
        }
    }
}

impl StoreCore {
    /// Refuses what would have to be remembered of a party of which too much is.
    pub(super) fn check_memory(&self, client: Client) -> Result<(), Refusal> {
        if self.remembered.of(client) < self.config.remembered_max { Ok(()) } else { Err(Refusal::TooMany) }
    }

    /// Whether so many answers more, one after the other, can be remembered of a party, whatever is given with each.
    pub fn remembers(&self, client: Client, answers: usize) -> bool {
        self.remembered.of(client) + 2 * answers.saturating_sub(1) < self.config.remembered_max
    }

    /// Keeps the answer for repetitions and gives it.
    pub(super) fn remember(&mut self, client: Client, op: Op, answer: Answer, out: &mut StoreOutput) {
        self.remember_in(self.acting_epoch(), client, op, answer, out);
    }

    pub(super) fn remember_in(&mut self, epoch: Epoch, client: Client, op: Op, answer: Answer, out: &mut StoreOutput) {
        out.writes.push(load::answer_key(epoch, client, op).put(&answer));
        out.actions.push(StoreAction::ToClient(client, self.answer_message(op, &answer)));
        self.record_answer(client, op, epoch, answer);
    }

    /// Also when loading.
    pub(super) fn record_answer(&mut self, client: Client, op: Op, epoch: Epoch, answer: Answer) {
        self.remembered.add(client, answer.weight());
        self.answers.entry(client).or_default().insert(op, (epoch, answer));
    }

    /// The same of what a client has settled.
    pub(super) fn record_settled(&mut self, client: Client, epoch: Epoch, below: Op) {
        if self.settled.insert(client, (epoch, below)).is_none() {
            self.remembered.add(client, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::message::{Refusal, StoreToClient};
    use crate::store::StoreEvent;
    use crate::store::tests::{C, U};
    use crate::testing::{Cluster, store_node};
    use crate::{Client, Op, User};

    const MAX: usize = 100;
    const ALICE: u64 = 7 << 32;

    /// Regression: with requests that are paid with nothing, cancellations above all, one user had a store remember some 250 bytes each, without end.
    #[test]
    fn of_one_party_so_much_is_remembered_and_others_are_served() {
        let mut c = Cluster::with(1, |_| {}, |config| config.remembered_max = MAX);
        c.quota(U, 10_000);
        let at = store_node(1);
        let ask = |c: &mut Cluster, number: u64| {
            let client = Client(ALICE | (number % 3));
            let event = match number % 2 {
                0 => StoreEvent::Cancel { client, op: Op(number), pieces: Vec::new() },
                _ => StoreEvent::Spend { client, user: User(7), op: Op(number), pieces: Vec::new(), used: 0 },
            };
            let answer = c.store_event(at, event);
            !matches!(answer, Some(StoreToClient::Refused { reason: Refusal::TooMany, .. }))
        };
        assert_eq!((0..3 * MAX as u64).filter(|number| ask(&mut c, *number)).count(), MAX);
        let client = Client(ALICE | 9);
        let free = StoreEvent::Free { client, user: U, is_users: true, op: Op(1), amount: 0 };
        assert!(matches!(c.store_event(at, free), Some(StoreToClient::Refused { reason: Refusal::TooMany, .. })));
        // What was answered still is, and others are served.
        assert!(c.stores[&at].replay(Client(ALICE), Op(0)).is_some());
        let pieces = c.withdraw(C, U, 100);
        c.spend(at, C, U, &pieces, 10).unwrap();
        // What is settled makes room, and so do epochs.
        assert!(!ask(&mut c, 1000));
        c.store_event(at, StoreEvent::Settled { client: Client(ALICE), below: Op(30) });
        assert_eq!((1000..1100).filter(|number| ask(&mut c, *number)).count(), 9);
        c.epochs(8);
        assert!(c.stores[&at].remembered.0.is_empty(), "{:?}", c.stores[&at].remembered);
        assert!(ask(&mut c, 2000));
    }
}
