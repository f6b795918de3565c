//! Messages that get lost, come twice, overtake each other, or come epochs late.

use super::plan::Plan;
use crate::Rng;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use ullage_voucher::message::{BankToClient, BankToStore, ClientToBank, StoreToBank, StoreToClient};
use ullage_voucher::{Client, Node, Op, Piece, User};

/// A chunk's name: the request that made it.
pub(super) type Chunk = (Client, Op);

/// What can be under way.
#[derive(Clone, Debug)]
pub(super) enum Message {
    ClientToBank(Client, ClientToBank),
    StoreToBank(Node, StoreToBank),
    BankToStore(Node, BankToStore),
    BankToClient(Client, BankToClient),
    StoreToClient(Node, Client, StoreToClient),
    Write { store: Node, client: Client, user: User, op: Op, settled: Op, pieces: Vec<Piece>, need: u64 },
    Cancel { store: Node, client: Client, op: Op, pieces: Vec<Piece> },
    Delete { store: Node, client: Client, op: Op, settled: Op, chunk: Chunk },
}

/// What happens at a time.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Deliver(Message),
    BankTick,
    StoreTick(Node),
    ClientTick(Client),
    RestartBank,
    RestartStore(Node),
    Second,
}

/// The queue of what will happen, in order of time; ties in order of arrival.
#[derive(Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
    count: u64,
}

impl Queue {
    pub(super) fn at(&mut self, time: u64, event: Event) {
        self.count += 1;
        self.heap.push(Reverse((time, self.count)));
        self.events.insert(self.count, event);
    }

    pub(super) fn pop(&mut self) -> Option<(u64, Event)> {
        let Reverse((time, number)) = self.heap.pop()?;
        self.events.remove(&number).map(|event| (time, event))
    }
}

/// Puts a message on its way, with the plan's faults.
pub(super) fn send(queue: &mut Queue, rng: &mut Rng, plan: &Plan, healthy: bool, now: u64, message: Message) {
    if healthy {
        queue.at(now + 1000, Event::Deliver(message));
        return;
    }
    let copies = 1 + u64::from(rng.chance(plan.duplicate));
    for _ in 0..copies {
        if rng.chance(plan.loss) {
            continue;
        }
        let delay = if rng.chance(plan.stuck) {
            rng.below(2 * plan.epoch_secs * 1_000_000)
        } else {
            200 + rng.below(plan.delay_ms * 1000)
        };
        queue.at(now + delay, Event::Deliver(message.clone()));
    }
}
