//! A storage server's side: takes vouchers, makes refunds, reports epochs (voucher-quotas, section 3).

mod book;
mod event;
mod free;
mod lease;
#[cfg(test)]
mod lines_tests;
mod load;
mod remember;
mod report;
mod settle;
mod spend;
#[cfg(test)]
mod tests;

pub use event::{StoreAction, StoreEvent, StoreOutput};

use crate::flaw::Flaws;
use crate::rows::Key;
use crate::{Client, Epoch, Incarnation, Keyring, Micros, Node, Op, Params, Piece, User};
use book::Book;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// How a store behaves.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Which node it is.
    pub node: Node,
    /// X, K and the skew; the same at the bank.
    pub params: Params,
    /// How often it asks for a new lease; well below the bank's lease length.
    pub renew_every: Micros,
    /// How long it waits for an acknowledgement before it sends a report again.
    pub retry_after: Micros,
    /// Send what was spent in open epochs this often, so that cheaters are named before an epoch ends.
    pub early_every: Option<Micros>,
    /// Accept only vouchers addressed to this store, not those for anyone.
    pub only_addressed: bool,
    /// How many answers, and pieces in them, are remembered of one party's clients; what would be more is refused until epochs pass.
    pub remembered_max: usize,
    pub(crate) flaws: Flaws,
}

impl StoreConfig {
    /// The defaults: a renewal each 2 s, repeats after 1 s, no early reports.
    pub fn new(node: Node, params: Params) -> Self {
        Self {
            node,
            params,
            renew_every: Micros::from_secs(2),
            retry_after: Micros::from_secs(1),
            early_every: None,
            only_addressed: false,
            remembered_max: remember::REMEMBERED_MAX,
            flaws: Flaws::default(),
        }
    }

    /// With a known flaw, for tests of the tests.
    #[cfg(feature = "canary")]
    #[must_use]
    pub fn with_flaw(mut self, flaw: crate::Flaw) -> Self {
        self.flaws = Flaws::only(flaw);
        self
    }
}

/// The part of the state that is one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    incarnation: Incarnation,
    /// No lease yet in this life.
    fresh: bool,
    /// The newest epoch heard of from the bank.
    epoch: Epoch,
    /// Nothing of this epoch or before is accepted any more.
    reported: Epoch,
    /// The epoch of the base: everything up to here is summed up in one number per user.
    folded: Epoch,
    accept_from: Epoch,
    /// The process that sent the last renewal, and its number.
    boot: u64,
    beat: u64,
    /// Serials below this may be in use.
    serials: u64,
}

/// A request that has been paid for in advance and is being carried out.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pieces: Vec<Piece>,
    user: User,
}

/// What was answered, to answer a repetition alike.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Spent { used: u64, balance: Vec<Piece> },
    Refunded { refund: Option<Piece> },
    Cancelled,
}

/// A storage server's state machine. See the crate's README for how a server drives it.
#[derive(Debug)]
pub struct StoreCore {
    config: StoreConfig,
    keys: Arc<Keyring>,
    head: Head,
    boot: u64,
    /// Earlier processes that may have sent renewals since the bank last answered: see [`crate::message::Renew`].
    before: Vec<(u64, u64)>,
    /// The newest life of the bank that this process has heard of; what earlier ones say comes late.
    bank: Incarnation,
    next_serial: u64,
    /// What each user had here as of `head.folded`.
    base: BTreeMap<User, i64>,
    /// Epochs after that.
    books: BTreeMap<Epoch, Book>,
    /// What each user has here now.
    total: BTreeMap<User, i64>,
    holds: BTreeMap<(Client, Op), Hold>,
    answers: BTreeMap<Client, BTreeMap<Op, (Epoch, Answer)>>,
    /// Below which number a client's requests are settled, kept until what they were paid with is forgotten.
    settled: BTreeMap<Client, (Epoch, Op)>,
    remembered: remember::Remembered,
    lease_until: Option<Micros>,
    sent_renewals: Vec<(u64, Micros)>,
    next_renewal: Micros,
    send_base: bool,
    acked: Epoch,
    next_report: Micros,
    next_early: Micros,
    space: (u64, u64),
}

impl StoreCore {
    /// A store in its first life, or one that starts a new life holding `base` bytes of each user (measured).
    /// `boot` is a random number of this process.
    pub fn new(
        config: StoreConfig,
        keys: Arc<Keyring>,
        boot: u64,
        incarnation: Incarnation,
        base: BTreeMap<User, u64>,
        out: &mut StoreOutput,
    ) -> Self {
        let base: BTreeMap<User, i64> =
            base.into_iter().filter(|(_, used)| *used > 0).map(|(user, used)| (user, used as i64)).collect();
        let head = Head {
            incarnation,
            fresh: true,
            epoch: Epoch(0),
            reported: Epoch(0),
            folded: Epoch(0),
            accept_from: Epoch(u64::MAX),
            boot,
            beat: 0,
            serials: 0,
        };
        let core = Self::assemble(config, keys, boot, head, base);
        for (user, used) in &core.base {
            out.writes.push(load::base_key(*user).put(used));
        }
        core.write_head(out);
        core
    }

    pub(crate) fn assemble(
        config: StoreConfig,
        keys: Arc<Keyring>,
        boot: u64,
        head: Head,
        base: BTreeMap<User, i64>,
    ) -> Self {
        Self {
            config,
            keys,
            boot,
            before: Vec::new(),
            bank: Incarnation(0),
            next_serial: head.serials,
            total: base.clone(),
            base,
            books: BTreeMap::new(),
            holds: BTreeMap::new(),
            answers: BTreeMap::new(),
            settled: BTreeMap::new(),
            remembered: remember::Remembered::default(),
            lease_until: None,
            sent_renewals: Vec::new(),
            next_renewal: Micros(0),
            send_base: head.fresh,
            acked: head.folded,
            next_report: Micros(0),
            next_early: Micros(0),
            space: (0, 0),
            head,
        }
    }

    /// Takes one event; writes and actions are added to `out`.
    pub fn step(&mut self, event: StoreEvent, now: Micros, out: &mut StoreOutput) {
        match event {
            StoreEvent::Tick => self.tick(now, out),
            StoreEvent::Hold { client, user, op, pieces, at_most } => {
                self.hold(client, user, op, pieces, at_most, now, out);
            }
            StoreEvent::Commit { client, op, used } => self.commit(client, op, used, out),
            StoreEvent::Abort { client, op } => self.abort(client, op),
            StoreEvent::Cancel { client, op, pieces } => self.cancel(client, op, &pieces, out),
            StoreEvent::Spend { client, user, op, pieces, used } => {
                self.spend(client, user, op, &pieces, used, now, out);
            }
            StoreEvent::Free { client, user, is_users, op, amount } => {
                self.free(client, (user, is_users), op, amount, now, out);
            }
            StoreEvent::Settled { client, below } => self.settle(client, below, out),
            StoreEvent::FromBank(message) => self.from_bank(message, now, out),
            StoreEvent::Space { free, total } => self.space = (free, total),
        }
    }

    /// The answer to a request that was carried out before, if this is a repetition.
    pub fn replay(&self, client: Client, op: Op) -> Option<crate::message::StoreToClient> {
        let answers = self.answers.get(&client)?;
        // Mostly it is newer than all that was answered, which is seen without a search.
        answers.last_key_value().filter(|(last, _)| op <= **last)?;
        answers.get(&op).map(|(_, answer)| self.answer_message(op, answer))
    }

    /// Whether the answer to any request of a client's with these numbers is remembered.
    pub fn has_answered(&self, client: Client, ops: RangeInclusive<Op>) -> bool {
        self.answers.get(&client).is_some_and(|answers| answers.range(ops).next().is_some())
    }

    /// How many requests' answers are remembered.
    pub fn remembered(&self) -> usize {
        self.answers.values().map(BTreeMap::len).sum()
    }

    /// The newest epoch heard of.
    pub fn epoch(&self) -> Epoch {
        self.head.epoch
    }

    /// In which of its lives the store is.
    pub fn incarnation(&self) -> Incarnation {
        self.head.incarnation
    }

    /// Nothing of this epoch or before is accepted any more.
    pub fn reported(&self) -> Epoch {
        self.head.reported
    }

    /// Bytes charged to a user here.
    pub fn used(&self, user: User) -> u64 {
        self.total.get(&user).copied().unwrap_or(0).max(0) as u64
    }

    /// Whether vouchers are taken at this time: it has a lease and has reached its first epoch.
    pub fn is_open(&self, now: Micros) -> bool {
        self.lease_until.is_some_and(|until| now < until) && self.head.epoch >= self.head.accept_from
    }

    /// The earliest time at which [`StoreEvent::Tick`] has something to do.
    pub fn next_tick(&self) -> Micros {
        let report = if self.acked < self.head.reported { self.next_report } else { Micros(u64::MAX) };
        self.next_renewal.min(report)
    }

    /// Replaces the keys (rotation): what was signed with one that is gone is believed no more.
    pub fn set_keys(&mut self, keys: Arc<Keyring>) {
        self.keys = keys;
        for seen in self.books.values_mut().flat_map(|book| book.seen.values_mut()) {
            seen.genuine = None;
        }
    }

    fn tick(&mut self, now: Micros, out: &mut StoreOutput) {
        self.renew_if_due(now, out);
        self.finalise(now, out);
        self.send_reports(now, out);
        self.send_early(now, out);
    }

    fn write_head(&self, out: &mut StoreOutput) {
        out.writes.push(Key::new(load::HEAD).put(&self.head));
    }

    fn answer_message(&self, op: Op, answer: &Answer) -> crate::message::StoreToClient {
        use crate::message::StoreToClient;
        let epoch = self.head.epoch;
        match answer {
            Answer::Spent { used, balance } => {
                StoreToClient::Spent { op, used: *used, balance: balance.clone(), epoch }
            }
            Answer::Cancelled => StoreToClient::Refused { op, reason: crate::message::Refusal::Cancelled, epoch },
            Answer::Refunded { refund } => StoreToClient::Refunded { op, refund: *refund, epoch },
        }
    }
}
