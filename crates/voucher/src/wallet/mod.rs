//! A client's side, for one user: keeps vouchers, asks for more in time, pays (voucher-quotas, section 3,
//! *Obtaining vouchers*).

#[cfg(test)]
mod addressed_tests;
mod bank_side;
mod event;
mod policy;
mod purse;
mod store_side;
#[cfg(test)]
mod tests;

pub use event::{Unpaid, WalletAction, WalletEvent, WalletOutput};
pub use policy::{Adaptive, RequestPolicy};

use crate::{ANYONE, Client, Epoch, Micros, Node, Op, Piece, Pieces, User};
use policy::Usage;
use purse::Purse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How a wallet behaves.
#[derive(Clone, Debug)]
pub struct WalletConfig {
    /// Which client.
    pub client: Client,
    /// For which user.
    pub user: User,
    /// How much is asked for, and when.
    pub policy: RequestPolicy,
    /// Stores that take nothing but vouchers addressed to them.
    pub addressed: BTreeSet<Node>,
    /// How long an answer of the bank is waited for before the request is sent again.
    pub retry_after: Micros,
}

/// A request to the bank that has not been answered.
#[derive(Clone, Copy, Debug)]
struct Asked {
    op: Op,
    want: u64,
    audience: Node,
    first_sent: Micros,
    sent: Micros,
}

/// Something to be paid that waits for vouchers.
#[derive(Clone, Copy, Debug)]
struct Due {
    op: Op,
    store: Node,
    need: u64,
}

/// Pieces that were sent with a request and whose fate is open.
#[derive(Clone, Debug)]
struct Payment {
    store: Node,
    pieces: Pieces,
    /// When the store was last asked to cancel it.
    cancelled: Option<Micros>,
}

/// A wallet's state machine. It never uses a piece again whose fate it does not know: so a client that follows it cannot be taken for a cheater, whatever the network does.
#[derive(Debug)]
pub struct Wallet {
    config: WalletConfig,
    next_op: u64,
    epoch: Epoch,
    purse: Purse,
    asked: Option<Asked>,
    due: VecDeque<Due>,
    paying: BTreeMap<Op, Payment>,
    returning: BTreeMap<Op, (Vec<Piece>, Micros)>,
    /// What is on hand goes back too, as soon as less is under way.
    giving_back: bool,
    usage: Usage,
}

impl Wallet {
    /// An empty wallet. `first_op` numbers its requests to the bank: the caller makes sure that (client, op)
    /// is never used twice, most simply with a fresh client number or a random start.
    pub fn new(config: WalletConfig, first_op: Op, now: Micros) -> Self {
        Self {
            usage: Usage::new(&config.policy, now),
            config,
            next_op: first_op.0,
            epoch: Epoch(0),
            purse: Purse::default(),
            asked: None,
            due: VecDeque::new(),
            paying: BTreeMap::new(),
            returning: BTreeMap::new(),
            giving_back: false,
        }
    }

    /// Takes one event; actions are added to `out`.
    pub fn step(&mut self, event: WalletEvent, now: Micros, out: &mut WalletOutput) {
        match event {
            WalletEvent::Spend { op, store, need } => self.spend(op, store, need, now, out),
            WalletEvent::FromStore(message) => self.from_store(message, now, out),
            WalletEvent::FromBank(message) => self.from_bank(message, now, out),
            WalletEvent::GiveUp { op } => self.give_up(op, now, out),
            WalletEvent::GiveBack => self.give_back_all(now, out),
            WalletEvent::Tick => self.tick(now, out),
        }
    }

    /// What can be spent anywhere, in bytes.
    pub fn on_hand(&self) -> u64 {
        self.purse.anywhere()
    }

    /// All pieces it holds and could still spend somewhere, including those whose fate is open.
    pub fn pieces(&self) -> impl Iterator<Item = &Piece> {
        let open = self.paying.values().flat_map(|payment| payment.pieces.iter());
        let returned = self.returning.values().flat_map(|(pieces, _)| pieces.iter());
        self.purse.pieces().chain(open).chain(returned)
    }

    /// The newest epoch heard of.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The request that waits for the bank's answer, if any: how long ago it was first sent tells whether the
    /// bank can be reached.
    pub fn asked_since(&self) -> Option<Micros> {
        self.asked.map(|asked| asked.first_sent)
    }

    /// Whether the bank has not acknowledged yet what was given back.
    pub fn is_returning(&self) -> bool {
        !self.returning.is_empty()
    }

    /// How many payments wait for vouchers.
    pub fn waiting(&self) -> usize {
        self.due.len()
    }

    /// The first request to a store that still waits for vouchers or whose payment's fate is open. What comes before it, as far
    /// as the application does not wait for answers itself, is settled: see [`crate::store::StoreEvent::Settled`].
    pub fn oldest_open(&self) -> Option<Op> {
        let paying = self.paying.keys().next().copied();
        self.due.iter().map(|due| due.op).chain(paying).min()
    }

    /// The earliest time at which [`WalletEvent::Tick`] has something to do.
    pub fn next_tick(&self) -> Micros {
        let retry = self.asked.map_or(Micros(u64::MAX), |asked| asked.sent + self.config.retry_after);
        let returns = self.returning.values().map(|(_, sent)| *sent + self.config.retry_after);
        let cancels =
            self.paying.values().filter_map(|payment| payment.cancelled).map(|sent| sent + self.config.retry_after);
        returns.chain(cancels).fold(retry.min(self.usage.next_schedule(&self.config.policy)), Micros::min)
    }

    /// What the vouchers must say that this store is paid with.
    fn audience(&self, store: Node) -> Node {
        if self.config.addressed.contains(&store) { store } else { ANYONE }
    }

    fn take_op(&mut self) -> Op {
        let op = Op(self.next_op);
        self.next_op = self.next_op.wrapping_add(1);
        op
    }

    fn see_epoch(&mut self, epoch: Epoch) {
        if epoch > self.epoch {
            self.epoch = epoch;
            self.purse.drop_expired(epoch);
            // What has expired is of use to nobody. An empty one is an answer to a question, whatever the epoch.
            self.returning.retain(|_, (pieces, _)| {
                pieces.is_empty() || pieces.iter().any(|piece| piece.voucher.terms.expiry >= epoch)
            });
        }
    }
}
