//! The voucher cores, one per shard of users, as the chunk store's ledger.

use super::config::StoreSettings;
use super::note::{CREDIT, Note, row};
use crate::chunk::{Ledger, Posting};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;
use ullage_bank::identity;
use ullage_bank::rows::{Rows, apply, decode_rows, decode_writes, encode_rows};
use ullage_net::keyfile;
use ullage_voucher::message::{BankToStore, Refusal, StoreToBank, StoreToClient};
use ullage_voucher::store::{StoreAction, StoreConfig, StoreCore, StoreEvent, StoreOutput};
use ullage_voucher::{Client, Epoch, Incarnation, Keyring, Micros, Op, Params, Piece, Pieces, User};

/// Operations of clients are numbered below this; one operation can free space of several users, each a step of its own.
pub const OP_MAX: u64 = 1 << 56;
/// Users that one chunk can be charged to.
const STEPS_MAX: u64 = 256;

/// How a request is paid for.
#[derive(Debug, Clone)]
pub struct Payment {
    /// Which wallet pays, or gets the refund.
    pub client: Client,
    /// The wallet's number of the request; the same number never has a second effect.
    pub op: u64,
    /// Who is charged for growth.
    pub payer: Arc<str>,
    /// The vouchers.
    pub pieces: Pieces,
    /// The wallet's first request that is not settled, where it says so.
    pub settled: Option<u64>,
}

/// Why a payment is refused.
#[derive(Debug, Clone)]
pub enum Unpaid {
    /// The request was carried out before; this is what was answered.
    Earlier(Vec<StoreToClient>),
    /// The vouchers are refused.
    Refused {
        /// Why.
        reason: Refusal,
        /// What the request would have allocated.
        needed_bytes: u64,
        /// The store's epoch.
        epoch: Epoch,
    },
}

/// What the cores want of the outside.
#[derive(Debug, Default)]
pub(crate) struct Errands {
    /// For the bank of each shard.
    pub(crate) to_bank: Vec<(u32, StoreToBank)>,
    /// Shards that must start a new life.
    pub(crate) reincarnate: Vec<(u32, Incarnation)>,
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
    names: HashMap<User, Arc<str>>,
    /// Without checks: bytes by user.
    unchecked: Option<HashMap<User, i64>>,
    /// What a core wants done: kept for its memory.
    out: StoreOutput,
    origin: Instant,
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
            names: HashMap::new(),
            unchecked: settings.bank.is_none().then(HashMap::new),
            out: StoreOutput::default(),
            origin: Instant::now(),
        }
    }

    /// Makes the cores from the rows that the journal gave back. Those of a store that was used without checks since know
    /// nothing of what was written then: each starts a new life, which holds what was `measured`.
    ///
    /// # Errors
    /// When a row is damaged.
    pub fn start(&mut self, measured: &BTreeMap<Arc<str>, u64>) -> Result<Option<Vec<u8>>, String> {
        if self.unchecked.is_some() {
            return Ok(None);
        }
        let mut note = Note::default();
        let sums: Vec<_> = self.rows.keys().filter(|key| user_of_sum(key).is_some()).cloned().collect();
        for key in &sums {
            self.rows.remove(key);
            note.remove(0, key[4..].into());
        }
        for shard in 0..self.plan.shards {
            let rows: Vec<_> = self.shard_rows(shard);
            let (config, keys) = (self.plan.config.clone(), Arc::clone(&self.plan.keys));
            let core = if rows.is_empty() {
                let mut out = StoreOutput::default();
                let core = StoreCore::new(config, keys, self.plan.boot, Incarnation(1), BTreeMap::new(), &mut out);
                note.add_all(shard, out.writes);
                core
            } else {
                let rows = rows.iter().map(|(key, value)| (key.as_slice(), value.as_slice()));
                StoreCore::load(config, keys, self.plan.boot, rows).map_err(|error| error.to_string())?
            };
            let next = Incarnation(core.incarnation().0.saturating_add(1));
            self.cores.push(core);
            if !sums.is_empty() {
                tracing::warn!(shard, "the store was used without checks since: it starts a new life");
                self.begin_life(shard, next, measured, &mut note);
            }
        }
        // The cores have it all now, and say so when it is to be saved.
        self.rows.clear();
        Ok(note.finish())
    }

    fn shard_rows(&self, shard: u32) -> Vec<(Vec<u8>, Vec<u8>)> {
        let prefix = shard.to_be_bytes();
        self.rows
            .range(prefix.to_vec()..)
            .take_while(|(key, _)| key.starts_with(&prefix))
            .map(|(key, value)| (key[4..].to_vec(), value.clone()))
            .collect()
    }

    /// The cores' clock.
    pub fn now(&self) -> Micros {
        Micros(self.origin.elapsed().as_micros() as u64)
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

    /// Decides the fate of a request that its client gave up: what was answered, or that it never will be carried out.
    pub(crate) fn cancel(
        &mut self,
        client: Client,
        op: u64,
        pieces: &[Piece],
    ) -> (Option<Vec<u8>>, Vec<StoreToClient>) {
        if let Some(earlier) = self.earlier(client, op) {
            return (None, earlier);
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
        (note.finish(), errands)
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
        (note.finish(), errands)
    }

    /// A new life of one shard, holding what was measured.
    pub(crate) fn reincarnate(
        &mut self,
        shard: u32,
        incarnation: Incarnation,
        measured: &BTreeMap<Arc<str>, u64>,
    ) -> Option<Vec<u8>> {
        let mut note = Note::default();
        self.begin_life(shard, incarnation, measured, &mut note);
        note.finish()
    }

    fn begin_life(
        &mut self,
        shard: u32,
        incarnation: Incarnation,
        measured: &BTreeMap<Arc<str>, u64>,
        note: &mut Note,
    ) {
        for row in self.cores.get(shard as usize).into_iter().flat_map(StoreCore::rows) {
            note.remove(shard, row.key);
        }
        let mut base: BTreeMap<User, u64> = BTreeMap::new();
        for (name, bytes) in measured {
            let user = identity::user(name);
            if self.shard_of(user) == shard {
                *base.entry(user).or_default() += bytes;
            }
        }
        // What was to be credited is not in what was measured.
        let settled: Vec<User> = self.credits.keys().copied().filter(|user| self.shard_of(*user) == shard).collect();
        for user in settled {
            self.credits.remove(&user);
            note.remove(CREDIT, row(user.0));
        }
        let mut out = StoreOutput::default();
        let (config, keys) = (self.plan.config.clone(), Arc::clone(&self.plan.keys));
        // What the bank still says to the life before is not for this one.
        let boot = keyfile::random_u64();
        let core = StoreCore::new(config, keys, boot, incarnation, base, &mut out);
        note.add_all(shard, out.writes);
        if let Some(place) = self.cores.get_mut(shard as usize) {
            *place = core;
        }
    }

    /// Any shard may have answered the client: its deletes are charged back to whoever paid.
    fn settle(&mut self, payment: &Payment, note: &mut Note) {
        let Some(settled) = payment.settled else { return };
        let below = Op(settled.min(payment.op) << 8);
        for shard in 0..self.cores.len() as u32 {
            let mut out = StoreOutput::default();
            self.step(shard, StoreEvent::Settled { client: payment.client, below }, &mut out);
            note.add_all(shard, out.writes);
        }
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
            let event = StoreEvent::Free { client: Client(0), user, op: Op(self.next_credit), amount };
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

    fn book_unchecked(&mut self, postings: &[Posting], payment: &Payment) -> (Vec<u8>, Vec<StoreToClient>) {
        let mut used = 0;
        let mut note = Note::default();
        for posting in postings {
            used += posting.delta_bytes.max(0) as u64;
            add_to(self.unchecked.get_or_insert_default(), posting, &mut note);
        }
        let answer =
            StoreToClient::Spent { op: Op(payment.op), used, balance: payment.pieces.to_vec(), epoch: Epoch(0) };
        (note.finish().unwrap_or_default(), vec![answer])
    }
}

/// Without checks: a user's sum.
fn add_to(sums: &mut HashMap<User, i64>, posting: &Posting, note: &mut Note) {
    let user = identity::user(&posting.user);
    let sum = sums.entry(user).or_default();
    *sum += posting.delta_bytes;
    note.put(0, user.0, *sum as u64);
}

/// Whose sum a row is, if it is one: no row of a core has a key as long as these.
fn user_of_sum(key: &[u8]) -> Option<User> {
    let (shard, user) = key.split_first_chunk()?;
    let user = User(u64::from_be_bytes(user.try_into().ok()?));
    (u32::from_be_bytes(*shard) != CREDIT).then_some(user)
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

/// The client's own number back in place of the step's.
fn with_op(mut message: StoreToClient, number: u64) -> StoreToClient {
    match &mut message {
        StoreToClient::Held { op }
        | StoreToClient::Spent { op, .. }
        | StoreToClient::Refunded { op, .. }
        | StoreToClient::Refused { op, .. } => *op = Op(number),
    }
    message
}

impl Ledger for Accounts {
    type Payment = Payment;
    type Receipt = Vec<StoreToClient>;
    type Refusal = Unpaid;

    fn book(&mut self, postings: &[Posting], payment: &Payment) -> Result<(Vec<u8>, Vec<StoreToClient>), Unpaid> {
        if self.unchecked.is_some() {
            return Ok(self.book_unchecked(postings, payment));
        }
        // A number that was used is answered as it was then, and never pays for anything else.
        if let Some(earlier) = self.earlier(payment.client, payment.op) {
            return Err(Unpaid::Earlier(earlier));
        }
        let mut steps: SmallVec<[(User, i64); 1]> =
            postings.iter().map(|posting| (identity::user(&posting.user), posting.delta_bytes)).collect();
        if steps.is_empty() {
            steps.push((identity::user(&payment.payer), 0));
        }
        let now = self.now();
        let mut note = Note::default();
        let mut answers = Vec::new();
        // All steps of one operation succeed or none is taken: what the later ones could be refused for is asked first.
        let closed = steps
            .iter()
            .any(|(user, _)| !self.cores.get(self.shard_of(*user) as usize).is_some_and(|core| core.is_open(now)));
        let needed_bytes = steps.iter().map(|(_, delta)| (*delta).max(0) as u64).sum();
        if closed || steps.len() as u64 > STEPS_MAX {
            return Err(Unpaid::Refused { reason: Refusal::NoLease, needed_bytes, epoch: Epoch(0) });
        }
        for (position, (user, delta)) in steps.into_iter().enumerate() {
            let op = Op((payment.op << 8) | position as u64);
            let client = payment.client;
            let shard = self.shard_of(user);
            let out = &mut self.out;
            out.clear();
            match self.cores.get_mut(shard as usize) {
                Some(core) if delta >= 0 => {
                    core.spend(client, user, op, &payment.pieces, delta as u64, now, out);
                }
                Some(core) => {
                    core.step(StoreEvent::Free { client, user, op, amount: delta.unsigned_abs() }, now, out);
                }
                None => {}
            }
            for action in out.actions.drain(..) {
                if let StoreAction::ToClient(_, answer) = action {
                    if let StoreToClient::Refused { reason, epoch, .. } = answer {
                        return Err(Unpaid::Refused { reason, needed_bytes, epoch });
                    }
                    answers.push(with_op(answer, payment.op));
                }
            }
            note.add_all(shard, out.writes.drain(..));
        }
        self.settle(payment, &mut note);
        Ok((note.finish().unwrap_or_default(), answers))
    }

    fn correct(&mut self, postings: &[Posting]) -> Vec<u8> {
        let mut note = Note::default();
        for posting in postings.iter().filter(|posting| posting.delta_bytes < 0) {
            if let Some(sums) = &mut self.unchecked {
                add_to(sums, posting, &mut note);
                continue;
            }
            let user = identity::user(&posting.user);
            let amount = self.credits.entry(user).or_default();
            *amount += posting.delta_bytes.unsigned_abs();
            note.put(CREDIT, user.0, *amount);
        }
        note.finish().unwrap_or_default()
    }

    fn replay(&mut self, note: &[u8]) -> Result<(), String> {
        let writes = decode_writes(note).map_err(|error| error.to_string())?;
        apply(&mut self.rows, &writes);
        self.load_own();
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        let mut note = Note::default();
        for (shard, core) in (0..).zip(&self.cores) {
            note.add_all(shard, core.rows());
        }
        for (user, bytes) in &self.credits {
            note.put(CREDIT, user.0, *bytes);
        }
        for (user, bytes) in self.unchecked.iter().flatten() {
            note.put(0, user.0, *bytes as u64);
        }
        let mut state = encode_rows(&self.rows);
        state.extend(note.finish().unwrap_or_default());
        state
    }

    fn load(&mut self, state: &[u8]) -> Result<(), String> {
        self.rows = decode_rows(state).map_err(|error| error.to_string())?;
        self.load_own();
        Ok(())
    }

    fn charged(&self) -> Vec<(Arc<str>, u64)> {
        let mut sums = BTreeMap::new();
        for (user, bytes) in self.cores.iter().flat_map(StoreCore::used_by_user) {
            let waiting = self.credits.get(&user).copied().unwrap_or(0);
            let name = self.names.get(&user).cloned().unwrap_or_else(|| user.to_string().into());
            sums.insert(name, bytes.saturating_sub(waiting));
        }
        sums.into_iter().collect()
    }
}

impl Accounts {
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

    fn load_own(&mut self) {
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_be_bytes);
        let prefix = CREDIT.to_be_bytes();
        self.credits =
            self.rows.range(prefix.to_vec()..).map(|(key, value)| (User(number(&key[4..])), number(value))).collect();
        if let Some(sums) = &mut self.unchecked {
            *sums =
                self.rows.iter().filter_map(|(key, value)| Some((user_of_sum(key)?, number(value) as i64))).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use ullage_bank::client::BankClient;
    use ullage_net::client::{Client as Http, Settings};
    use ullage_voucher::{KeyId, Node};

    fn started(checks: bool, state: Option<&[u8]>) -> Accounts {
        start_from(checks, state, &BTreeMap::new())
    }

    fn start_from(checks: bool, state: Option<&[u8]>, measured: &BTreeMap<Arc<str>, u64>) -> Accounts {
        let keys = Arc::new(Keyring::with_root(KeyId(1), [3; 32]));
        let mut settings = StoreSettings::new("/nonexistent".into(), Node(5), keys, [4; 32]);
        let http = Arc::new(Http::new(Settings::default()));
        settings.bank = checks.then(|| BankClient::new(http, vec!["127.0.0.1:1".into()], Duration::from_secs(1)));
        let mut accounts = Accounts::new(&settings);
        if let Some(state) = state {
            accounts.load(state).unwrap();
        }
        accounts.start(measured).unwrap();
        accounts
    }

    #[test]
    fn what_is_saved_comes_back_and_lives_through_a_start_without_checks() {
        let first = started(true, None).save();
        assert!(!first.is_empty());
        assert_eq!(started(true, Some(&first)).save(), first);
        let unchecked = started(false, Some(&first));
        assert!(unchecked.unchecked.as_ref().unwrap().is_empty(), "rows of cores are nobody's sums");
        assert_eq!(started(true, Some(&unchecked.save())).save(), first);
    }

    /// Rows without checks were taken for damaged ones of a core.
    #[test]
    fn what_was_written_without_checks_is_measured_anew() {
        let first = started(true, None).save();
        for before in [None, Some(first.as_slice())] {
            let mut unchecked = started(false, before);
            let posting = Posting { user: "alice".into(), delta_bytes: 8192 };
            let payment =
                Payment { client: Client(1), op: 1, payer: "alice".into(), pieces: Pieces::new(), settled: None };
            unchecked.book(&[posting], &payment).unwrap();
            let state = unchecked.save();
            let mut accounts = start_from(true, Some(&state), &BTreeMap::from([("alice".into(), 4096)]));
            assert_eq!(accounts.used("alice"), 4096);
            assert_eq!(accounts.incarnations(), [Incarnation(2)]);
            accounts = started(true, Some(&accounts.save()));
            assert_eq!(accounts.used("alice"), 4096);
            assert_eq!(accounts.incarnations(), [Incarnation(2)], "once");
        }
    }

    #[test]
    fn without_checks_sums_come_back_and_a_recount_lowers_them() {
        let mut accounts = started(false, None);
        let posting = |delta_bytes| Posting { user: "alice".into(), delta_bytes };
        let payment = Payment { client: Client(1), op: 1, payer: "alice".into(), pieces: Pieces::new(), settled: None };
        accounts.book(&[posting(8192)], &payment).unwrap();
        accounts.correct(&[posting(-4096)]);
        assert_eq!(accounts.used("alice"), 4096);
        assert_eq!(started(false, Some(&accounts.save())).used("alice"), 4096);
    }
}
