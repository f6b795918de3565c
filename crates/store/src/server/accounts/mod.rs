//! The voucher cores, one per shard of users, as the chunk store's ledger.

mod ledger;
mod life;
mod payment;
#[cfg(test)]
mod shards_tests;
#[cfg(test)]
mod tests;
mod unchecked;

pub use payment::{OP_MAX, Payment, Unpaid};

use super::clock;
use super::config::StoreSettings;
use super::note::{CREDIT, Note, row};
use ledger::with_op;
use payment::STEPS_MAX;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use ullage_bank::identity;
use ullage_bank::rows::Rows;
use ullage_net::keyfile;
use ullage_voucher::message::{BankToStore, StoreToBank, StoreToClient};
use ullage_voucher::store::{StoreAction, StoreConfig, StoreCore, StoreEvent, StoreOutput};
use ullage_voucher::{Client, Epoch, Incarnation, Keyring, Micros, Op, Params, Piece, User};

/// What the cores want of the outside.
#[derive(Debug, Default)]
pub(crate) struct Errands {
    /// For the bank of each shard.
    pub(crate) to_bank: Vec<(u32, StoreToBank)>,
    /// Shards that must start a new life.
    pub(crate) reincarnate: Vec<(u32, Incarnation)>,
}

impl Errands {
    /// What must be durable before they are run: what the bank is told may be of changes whose records are still on their way.
    fn note(&self, note: Note) -> Option<Vec<u8>> {
        note.finish().or_else(|| (!self.to_bank.is_empty()).then(Vec::new))
    }
}

/// The accounts of a storage server.
pub struct Accounts {
    cores: Vec<StoreCore>,
    /// What the journal gave back, until the cores are made of it; without checks, always.
    rows: Rows,
    /// How to make the cores, until [`Self::start`].
    plan: Plan,
    /// What a recount credits, until the cores can: they act only with a lease.
    credits: BTreeMap<User, u64>,
    next_credit: u64,
    /// Without checks: bytes by user.
    unchecked: Option<HashMap<User, i64>>,
    /// What a core wants done: kept for its memory.
    out: StoreOutput,
}

struct Plan {
    config: StoreConfig,
    keys: Arc<Keyring>,
    boot: u64,
    shards: u32,
}

impl std::fmt::Debug for Accounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accounts").field("shards", &self.cores.len()).finish_non_exhaustive()
    }
}

impl Accounts {
    /// Empty accounts; [`Self::start`] follows once the rows are there.
    pub fn new(settings: &StoreSettings) -> Self {
        let mut config = StoreConfig::new(settings.node, settings.params);
        config.only_addressed = settings.only_addressed;
        config.early_every = settings.early_every;
        config.renew_every = settings.renew_every;
        let plan = Plan {
            config,
            keys: Arc::clone(&settings.keys),
            boot: keyfile::random_u64(),
            shards: settings.shards.max(1),
        };
        Self {
            cores: Vec::new(),
            rows: Rows::new(),
            plan,
            credits: BTreeMap::new(),
            next_credit: keyfile::random_u64() >> 8,
            unchecked: settings.bank.is_none().then(HashMap::new),
            out: StoreOutput::default(),
        }
    }

    /// The cores' clock.
    pub fn now(&self) -> Micros {
        clock::now()
    }

    fn shard_of(&self, user: User) -> u32 {
        identity::shard_of(user, self.plan.shards)
    }

    /// What was answered to this request, if it was carried out before.
    pub fn earlier(&self, client: Client, op: u64) -> Option<Vec<StoreToClient>> {
        let mut answers = Vec::new();
        for step in 0..STEPS_MAX {
            let sub = Op((op << 8) | step);
            match self.cores.iter().find_map(|core| core.replay(client, sub)) {
                Some(answer) => answers.push(with_op(answer, op)),
                None => break,
            }
        }
        (!answers.is_empty()).then_some(answers)
    }

    /// Whether vouchers are taken, in every shard.
    pub fn is_open(&self) -> bool {
        let now = self.now();
        self.unchecked.is_some() || self.cores.iter().all(|core| core.is_open(now))
    }

    /// The newest epoch of each shard.
    pub fn epochs(&self) -> Vec<Epoch> {
        self.cores.iter().map(StoreCore::epoch).collect()
    }

    /// In which of its lives each shard is.
    pub fn incarnations(&self) -> Vec<Incarnation> {
        self.cores.iter().map(StoreCore::incarnation).collect()
    }

    /// Bytes charged to a user, what waits to be credited taken off.
    pub fn used(&self, name: &str) -> u64 {
        let user = identity::user(name);
        if let Some(sums) = &self.unchecked {
            return sums.get(&user).copied().unwrap_or(0).max(0) as u64;
        }
        let used = self.cores.get(self.shard_of(user) as usize).map_or(0, |core| core.used(user));
        used.saturating_sub(self.credits.get(&user).copied().unwrap_or(0))
    }

    /// How many requests' answers are remembered.
    pub fn remembered(&self) -> usize {
        self.cores.iter().map(StoreCore::remembered).sum()
    }

    /// Parameters, for who asks.
    pub fn params(&self) -> Params {
        self.plan.config.params
    }

    /// Decides the fate of a request that its client gave up: what was answered, or that it never will be carried out.
    pub(crate) fn cancel(
        &mut self,
        client: Client,
        op: u64,
        pieces: &[Piece],
    ) -> (Option<Vec<u8>>, Vec<StoreToClient>) {
        if let Some(earlier) = self.earlier(client, op) {
            // Its record may still be on its way.
            return (Some(Vec::new()), earlier);
        }
        let mut note = Note::default();
        let mut answers = Vec::new();
        // A request whose vouchers are of one user can only charge that user's shard; one without, any.
        let shards: BTreeSet<u32> = match pieces {
            [] => (0..self.cores.len() as u32).collect(),
            some => some.iter().map(|piece| self.shard_of(piece.voucher.terms.user)).collect(),
        };
        for shard in shards {
            let of_shard = |piece: &&Piece| self.shard_of(piece.voucher.terms.user) == shard;
            let pieces = pieces.iter().filter(of_shard).copied().collect();
            let mut out = StoreOutput::default();
            self.step(shard, StoreEvent::Cancel { client, op: Op(op << 8), pieces }, &mut out);
            for action in out.actions {
                if let StoreAction::ToClient(_, answer) = action {
                    answers = vec![with_op(answer, op)];
                }
            }
            note.add_all(shard, out.writes);
        }
        (note.finish(), answers)
    }

    fn step(&mut self, shard: u32, event: StoreEvent, out: &mut StoreOutput) {
        let now = self.now();
        if let Some(core) = self.cores.get_mut(shard as usize) {
            core.step(event, now, out);
        }
    }

    /// Time passes, in every shard; credits that wait are booked once a core may act.
    pub(crate) fn tick(&mut self, space: (u64, u64)) -> (Option<Vec<u8>>, Errands) {
        let mut errands = Errands::default();
        let mut note = Note::default();
        for shard in 0..self.cores.len() as u32 {
            let mut out = StoreOutput::default();
            self.step(shard, StoreEvent::Space { free: space.0, total: space.1 }, &mut out);
            self.step(shard, StoreEvent::Tick, &mut out);
            collect(shard, out, &mut note, &mut errands);
        }
        self.book_credits(&mut note);
        (errands.note(note), errands)
    }

    /// Messages of one shard's bank.
    #[expect(clippy::wrong_self_convention, reason = "takes what comes from the bank")]
    pub(crate) fn from_bank(&mut self, shard: u32, messages: Vec<BankToStore>) -> (Option<Vec<u8>>, Errands) {
        let mut errands = Errands::default();
        let mut note = Note::default();
        for message in messages {
            let mut out = StoreOutput::default();
            self.step(shard, StoreEvent::FromBank(message), &mut out);
            collect(shard, out, &mut note, &mut errands);
        }
        (errands.note(note), errands)
    }

    fn book_credits(&mut self, note: &mut Note) {
        for (user, amount) in self.credits.clone() {
            let shard = self.shard_of(user);
            let now = self.now();
            if !self.cores.get(shard as usize).is_some_and(|core| core.is_open(now)) {
                continue;
            }
            // The refund goes to nobody and expires: the user gets the space back with reconciliation.
            self.next_credit += 1;
            let (client, op) = (Client(0), Op(self.next_credit));
            let event = StoreEvent::Free { client, user, is_users: false, op, amount };
            let mut out = StoreOutput::default();
            self.step(shard, event, &mut out);
            let refused = out
                .actions
                .iter()
                .any(|action| matches!(action, StoreAction::ToClient(_, StoreToClient::Refused { .. })));
            if refused {
                continue;
            }
            note.add_all(shard, out.writes);
            note.remove(CREDIT, row(user.0));
            self.credits.remove(&user);
        }
    }
}

fn collect(shard: u32, out: StoreOutput, note: &mut Note, errands: &mut Errands) {
    note.add_all(shard, out.writes);
    for action in out.actions {
        match action {
            StoreAction::ToBank(message) => errands.to_bank.push((shard, message)),
            StoreAction::Reincarnate(incarnation) => errands.reincarnate.push((shard, incarnation)),
            // Answers to clients come only from their own requests.
            StoreAction::ToClient(..) => {}
        }
    }
}
