//! The bank: issues vouchers, reconciles, names cheaters (voucher-quotas, section 3).

mod account;
#[cfg(test)]
mod bounds_tests;
mod event;
mod finding;
mod grant;
mod horizon;
mod lapse;
mod lease;
mod lies;
#[cfg(test)]
mod lies_tests;
mod load;
#[cfg(test)]
mod load_tests;
#[cfg(test)]
mod lowered_tests;
mod rebuild;
#[cfg(test)]
mod rebuild_tests;
mod report;
mod returns;
mod revoke;
#[cfg(test)]
mod revoke_tests;
mod stores;
mod tally;
#[cfg(test)]
mod tests;
mod told;
#[cfg(test)]
mod told_tests;
mod who;

pub use event::{BankAction, BankEvent, BankOutput};
pub use finding::{Answer, Finding};
pub use grant::limited;

use crate::flaw::Flaws;
use crate::message::{BankToClient, ClientToBank, RefundLine, StoreToBank};
use crate::{ANYONE, Client, Epoch, EpochLength, Incarnation, Keyring, Micros, Node, Op, Params, User, VoucherId};
use account::Account;
use grant::{Ask, Grant};
use returns::Recorded;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use stores::StoreState;
use tally::Tally;
use told::Told;

/// How requests are met when quota runs low (voucher-quotas, section 3, *Obtaining vouchers*).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// No more than `r / (n + 1)` to one client, r being what is left and n the active clients; but at least
    /// `floor` bytes while there are any.
    Limiting {
        /// The least that is given, so that clients do not come back for every byte.
        floor: u64,
    },
    /// All that is wanted; when it is not there, the other clients are asked to give back, and the
    /// request waits.
    Revocation {
        /// How long a request waits at most.
        timeout: Micros,
        /// What it waits for.
        waits: Waits,
    },
}

/// What a request waits for under [`Policy::Revocation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Waits {
    /// The answers of all clients that were asked: what none of them gives back is refused at once.
    Answers,
    /// Enough, or the end of its time: also what stores report freed meanwhile is waited for (the paper's queue).
    Enough,
}

/// A hundred grants a second (each program that writes one file is a client that asks once) until their epochs are reconciled; some 256 MB.
const USER_MAX: usize = 262_144;

/// How a bank behaves.
#[derive(Clone, Debug)]
pub struct BankConfig {
    /// Which node it is; several banks of one site have different numbers.
    pub node: Node,
    /// X, K and the skew; the same at the stores.
    pub params: Params,
    /// How long epochs last.
    pub epoch_length: EpochLength,
    /// What happens when quota runs low.
    pub policy: Policy,
    /// How long a store's lease lasts.
    pub lease: Micros,
    /// By how much longer the bank believes in a lease than it told the store: covers clocks that run
    /// at different speeds.
    pub lease_margin: Micros,
    /// What is done about a cheater.
    pub answer: Answer,
    /// How many grants, and how many returns, of one user are remembered until their epochs are reconciled, and how many
    /// of the user's clients: who asks for one byte at a time would else fill the memory.
    pub user_max: usize,
    pub(crate) flaws: Flaws,
}

impl BankConfig {
    /// The defaults: 10 minute epochs, limiting with a floor of 64 KiB, leases of 10 s with a margin of 1 s,
    /// and no more vouchers for cheaters.
    pub fn new(node: Node, params: Params) -> Self {
        Self {
            node,
            params,
            epoch_length: EpochLength::default(),
            policy: Policy::Limiting { floor: 64 << 10 },
            lease: Micros::from_secs(10),
            lease_margin: Micros::from_secs(1),
            answer: Answer::Refuse,
            user_max: USER_MAX,
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
    epoch: Epoch,
    /// h: up to here the stores' accounts are in the sum, after it what was issued is.
    horizon: Epoch,
    /// Vouchers of older lives of this node are not in the ledger: nothing can be said about their serials.
    known_since: Incarnation,
}

/// A bank's state machine. See the crate's README for how a server drives it.
#[derive(Debug)]
pub struct BankCore {
    config: BankConfig,
    keys: Arc<Keyring>,
    head: Head,
    next_serial: u64,
    /// When this process first looked at the clock: leases that were given before are believed in.
    began: Option<Micros>,
    epoch_began: Option<Micros>,
    epoch_length: Micros,
    accounts: BTreeMap<User, Account>,
    /// Everything issued in epochs after the horizon, by the request that it answered.
    grants: BTreeMap<(Client, Op), Grant>,
    grants_by_epoch: BTreeMap<Epoch, Vec<(Client, Op)>>,
    grants_by_voucher: BTreeMap<VoucherId, (Client, Op)>,
    /// Returns that have been recorded, so that a repetition has no effect.
    returns: BTreeMap<(Client, Op), Recorded>,
    /// By how much a client's claim on a voucher differs from what it was first given.
    moved: BTreeMap<Epoch, BTreeMap<VoucherId, BTreeMap<Client, i64>>>,
    stores: BTreeMap<(Node, Incarnation), StoreState>,
    spent: BTreeMap<Epoch, BTreeMap<VoucherId, Tally>>,
    refunds: BTreeMap<Epoch, BTreeMap<VoucherId, RefundLine>>,
    told: BTreeMap<(Epoch, VoucherId), Told>,
    findings: BTreeMap<(Epoch, u64), Finding>,
    next_finding: u64,
    recovery: Option<rebuild::Recovery>,
}

impl BankCore {
    /// A bank with no accounts.
    pub fn new(config: BankConfig, keys: Arc<Keyring>, incarnation: Incarnation, out: &mut BankOutput) -> Self {
        // Epochs start high enough that epoch c − K exists.
        let epoch = Epoch(config.params.reconcile() + 1);
        let head = Head { incarnation, epoch, horizon: Epoch(1), known_since: incarnation };
        let core = Self::assemble(config, keys, head);
        core.write_head(out);
        out.writes.push(load::params_row(core.config.params));
        core
    }

    pub(crate) fn assemble(config: BankConfig, keys: Arc<Keyring>, head: Head) -> Self {
        Self {
            epoch_length: config.epoch_length.normal,
            config,
            keys,
            head,
            next_serial: 0,
            began: None,
            epoch_began: None,
            accounts: BTreeMap::new(),
            grants: BTreeMap::new(),
            grants_by_epoch: BTreeMap::new(),
            grants_by_voucher: BTreeMap::new(),
            returns: BTreeMap::new(),
            moved: BTreeMap::new(),
            stores: BTreeMap::new(),
            spent: BTreeMap::new(),
            refunds: BTreeMap::new(),
            told: BTreeMap::new(),
            findings: BTreeMap::new(),
            next_finding: 0,
            recovery: None,
        }
    }

    /// Takes one event; writes and actions are added to `out`.
    pub fn step(&mut self, event: BankEvent, now: Micros, out: &mut BankOutput) {
        match event {
            BankEvent::Tick => self.tick(now, out),
            BankEvent::SetQuota { user, quota } => self.set_quota(user, quota, out),
            BankEvent::RemoveUser { user } => self.remove_user(user, out),
            BankEvent::SetBlocked { user, blocked } => self.set_blocked(user, blocked, out),
            BankEvent::FromClient(client, ClientToBank::Request { user, op, want, audience }) => {
                let audience = audience.unwrap_or(ANYONE);
                self.request(client, user, Ask { op, want, audience }, now, out);
            }
            BankEvent::FromClient(client, ClientToBank::Return { user, op, pieces }) => {
                self.take_back(client, user, op, &pieces, out);
            }
            BankEvent::FromStore(StoreToBank::Renew(renew)) => self.renew(renew, now, out),
            BankEvent::FromStore(StoreToBank::Report(report)) => self.report(report, out),
            BankEvent::FromStore(StoreToBank::Early { store, incarnation, spent }) => {
                self.early(store, incarnation, &spent, out);
            }
            BankEvent::Exclude { store } => self.exclude(store, now, out),
        }
        self.check();
    }

    fn tick(&mut self, now: Micros, out: &mut BankOutput) {
        self.notice_lapses(now, out);
        self.turn_epoch_if_due(now, out);
        self.advance_horizon(out);
        self.serve_waiting(now, out);
    }

    /// The current epoch, c.
    pub fn epoch(&self) -> Epoch {
        self.head.epoch
    }

    /// The horizon h: `A = ΣS_h + Σ V_e, e > h`. It is c − K, or earlier while a store has not reported.
    pub fn horizon(&self) -> Epoch {
        self.head.horizon
    }

    /// In which of its lives the bank is.
    pub fn incarnation(&self) -> Incarnation {
        self.head.incarnation
    }

    /// Whether it was rebuilt and does not know yet how much is used.
    pub fn is_recovering(&self) -> bool {
        self.recovery.is_some()
    }

    /// A of one user, in bytes: what may be in use at most. Nothing if the user or, in a rebuilt bank, the use
    /// is unknown.
    pub fn authorized(&self, user: User) -> Option<i128> {
        if self.recovery.is_some() {
            return None;
        }
        self.accounts.get(&user).map(Account::authorized)
    }

    /// Whether this was answered before: then it gets the same answer, and nothing happens.
    pub fn has_answered(&self, client: Client, message: &ClientToBank) -> bool {
        match message {
            ClientToBank::Request { op, .. } => self.grants.contains_key(&(client, *op)),
            ClientToBank::Return { op, .. } => self.returns.contains_key(&(client, *op)),
        }
    }

    /// A user's quota, in bytes.
    pub fn quota(&self, user: User) -> Option<u64> {
        self.accounts.get(&user).map(|account| account.quota)
    }

    /// What is reconciled and what is issued since, in bytes: the two parts of A.
    pub fn parts(&self, user: User) -> Option<(i128, u64)> {
        self.accounts.get(&user).map(|account| (account.settled, account.issued_total))
    }

    /// Whether a user's quota was removed: what is left of the account is what the user has, and is gone with that.
    pub fn is_removed(&self, user: User) -> Option<bool> {
        self.accounts.get(&user).map(|account| account.removed)
    }

    /// Whether a user is refused vouchers.
    pub fn is_blocked(&self, user: User) -> Option<bool> {
        self.accounts.get(&user).map(|account| account.blocked)
    }

    /// All users with a quota.
    pub fn users(&self) -> impl Iterator<Item = User> + '_ {
        self.accounts.keys().copied()
    }

    /// Stores that count: node, life, last epoch reported, and whether it was given up.
    pub fn stores(&self) -> impl Iterator<Item = (Node, Incarnation, Epoch, bool)> + '_ {
        self.stores
            .iter()
            .map(|((node, incarnation), store)| (*node, *incarnation, store.reported, store.lost.is_some()))
    }

    /// Whether a store counts, or is waited for since the bank was rebuilt.
    pub fn knows_store(&self, node: Node) -> bool {
        self.awaits(node) || self.stores.keys().any(|(known, _)| *known == node)
    }

    /// The earliest time at which [`BankEvent::Tick`] has something to do.
    pub fn next_tick(&self) -> Micros {
        let turn = self.epoch_began.map_or(Micros(0), |began| began + self.epoch_length);
        self.accounts
            .values()
            .filter_map(|account| account.waiting.front().map(|waiting| waiting.until))
            .fold(turn, Micros::min)
    }

    /// Replaces the keys (rotation).
    pub fn set_keys(&mut self, keys: Arc<Keyring>) {
        self.keys = keys;
    }

    fn write_head(&self, out: &mut BankOutput) {
        out.writes.push(crate::rows::Key::new(load::HEAD).put(&self.head));
    }

    #[expect(clippy::unused_self, reason = "reads as what the bank does")]
    fn tell(&self, client: Client, message: BankToClient, out: &mut BankOutput) {
        out.actions.push(BankAction::ToClient(client, message));
    }

    /// Cheap always-on checks of what must hold between steps.
    fn check(&self) {
        let forgets = self.config.flaws.has(crate::flaw::Flaw::ForgetAtExpiry);
        assert!(forgets || self.keeps_k(), "nothing leaves the sum before K epochs have passed");
    }

    fn keeps_k(&self) -> bool {
        self.head.horizon.plus(self.config.params.reconcile()) <= self.head.epoch
    }
}
