//! The cluster: machines, disks, clocks, and the loop.

use super::check::{Account, Breach};
use super::client::ClientHost;
use super::network::{Chunk, Event, Message, Queue, send};
use super::plan::{Plan, Setup};
use super::{Outcome, server};
use crate::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use ullage_voucher::bank::{Answer, BankConfig, BankCore, BankEvent, Finding, Policy, Waits};
use ullage_voucher::message::StoreToBank;
use ullage_voucher::store::{StoreConfig, StoreCore, StoreEvent};
use ullage_voucher::{Client, Epoch, EpochLength, Incarnation, KeyId, Keyring, Micros, Node, Params, User, Write};

/// Durable rows.
pub(super) type Table = BTreeMap<Vec<u8>, Vec<u8>>;

pub(super) fn apply(table: &mut Table, writes: &mut Vec<Write>) {
    for write in writes.drain(..) {
        write.apply(table);
    }
}

pub(super) fn rows(table: &Table) -> impl Iterator<Item = (&[u8], &[u8])> {
    table.iter().map(|(key, value)| (key.as_slice(), value.as_slice()))
}

/// What survives a crash of a store.
#[derive(Clone, Default)]
pub(super) struct Disk {
    pub(super) table: Table,
    pub(super) chunks: BTreeMap<Chunk, (User, u64)>,
}

impl Disk {
    pub(super) fn used(&self) -> BTreeMap<User, u64> {
        let mut used = BTreeMap::new();
        for (user, bytes) in self.chunks.values() {
            *used.entry(*user).or_insert(0) += bytes;
        }
        used
    }
}

pub(super) struct StoreHost {
    pub(super) core: Option<StoreCore>,
    pub(super) disk: Disk,
    /// An old copy of the disk, and the beat it was taken at.
    pub(super) copy: Option<Disk>,
    pub(super) dead: bool,
    pub(super) cut_until: u64,
    /// Cut off, and the administrator gives it up until then.
    pub(super) giving_up: bool,
    /// What each user had there when the bank gave this life up: it stays so, since nobody counts it any more.
    pub(super) given_up: Option<BTreeMap<User, u64>>,
    /// Set back and not yet known to the bank in a new life.
    pub(super) restored: bool,
    pub(super) life: Incarnation,
    /// What the disk says is closed: nothing of this epoch or before is accepted.
    pub(super) closed: Epoch,
    /// Bytes by user, kept with the chunks.
    pub(super) used: BTreeMap<User, u64>,
    /// The last renewal that its disk knows of, that the copy knows of, and that the bank has taken.
    pub(super) beat: u64,
    pub(super) copied_beat: u64,
    pub(super) taken_beat: u64,
}

pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) setup: Setup,
    pub(super) rng: Rng,
    pub(super) now: u64,
    pub(super) healthy: bool,
    pub(super) quiet: bool,
    pub(super) queue: Queue,
    pub(super) keys: Arc<Keyring>,
    pub(super) bank: Option<BankCore>,
    pub(super) bank_table: Table,
    pub(super) bank_lives: u32,
    pub(super) stores: BTreeMap<Node, StoreHost>,
    pub(super) clients: BTreeMap<Client, ClientHost>,
    pub(super) next_client: u64,
    pub(super) cheaters: BTreeSet<Client>,
    pub(super) account: Account,
    pub(super) found: Vec<Finding>,
    pub(super) outcome: Outcome,
    rates: BTreeMap<u64, u64>,
}

pub(super) const BANK: Node = Node(1);

impl World {
    pub(super) fn new(plan: Plan, setup: &Setup) -> Self {
        let mut rng = Rng::new(plan.seed ^ 0x5eed);
        let keys = Arc::new(Keyring::with_root(KeyId(1), [7; 32]));
        let mut rates = BTreeMap::new();
        for node in 0..200 {
            let drift = rng.between(0, 2 * plan.drift_permille);
            rates.insert(node, 1000 + drift - plan.drift_permille);
        }
        let mut world = Self {
            account: Account::default(),
            plan,
            setup: *setup,
            rng,
            now: 1_000_000,
            healthy: false,
            quiet: false,
            queue: Queue::default(),
            keys,
            bank: None,
            bank_table: Table::new(),
            bank_lives: 1,
            stores: BTreeMap::new(),
            clients: BTreeMap::new(),
            next_client: 1,
            cheaters: BTreeSet::new(),
            found: Vec::new(),
            outcome: Outcome::default(),
            rates,
        };
        world.start();
        world
    }

    fn start(&mut self) {
        let mut out = ullage_voucher::bank::BankOutput::default();
        let mut bank = BankCore::new(self.bank_config(), self.keys.clone(), Incarnation(1), &mut out);
        for user in 1..=self.plan.users {
            let quota = self.plan.quota;
            bank.step(BankEvent::SetQuota { user: User(user), quota }, Micros(1), &mut out);
        }
        apply(&mut self.bank_table, &mut out.writes);
        self.bank = Some(bank);
        self.queue.at(self.now, Event::BankTick);
        for number in 1..=self.plan.stores {
            let node = Node(100 + number);
            let mut host = StoreHost {
                core: None,
                disk: Disk::default(),
                copy: None,
                dead: false,
                cut_until: 0,
                giving_up: false,
                given_up: None,
                restored: false,
                life: Incarnation(1),
                closed: Epoch(0),
                used: BTreeMap::new(),
                beat: 0,
                copied_beat: 0,
                taken_beat: 0,
            };
            let mut out = ullage_voucher::store::StoreOutput::default();
            let config = self.store_config(node);
            let boot = self.rng.next();
            host.core =
                Some(StoreCore::new(config, self.keys.clone(), boot, Incarnation(1), BTreeMap::new(), &mut out));
            apply(&mut host.disk.table, &mut out.writes);
            self.stores.insert(node, host);
            self.queue.at(self.now, Event::StoreTick(node));
        }
        for user in 1..=self.plan.users {
            for number in 0..self.plan.clients_per_user {
                let cheats = number == 0 && user <= self.plan.cheaters;
                self.start_client(User(user), cheats);
            }
        }
        self.queue.at(self.now, Event::Second);
    }

    pub(super) fn start_client(&mut self, user: User, cheats: bool) {
        let client = Client(self.next_client);
        self.next_client += 1;
        if cheats {
            self.cheaters.insert(client);
            self.account.cheating.insert(user);
        }
        let host = ClientHost::new(client, user, cheats, &mut self.rng, Micros(self.now));
        self.clients.insert(client, host);
        self.queue.at(self.now + 100_000, Event::ClientTick(client));
    }

    pub(super) fn params(&self) -> Params {
        Params::new(self.plan.expiry, self.plan.reconcile).expect("plans keep K above X")
    }

    pub(super) fn bank_config(&self) -> BankConfig {
        let mut config = BankConfig::new(BANK, self.params());
        config.epoch_length = EpochLength {
            normal: Micros::from_secs(self.plan.epoch_secs),
            shortest: Micros::from_secs(self.plan.epoch_secs / 3),
            low_permille: 0,
        };
        config.lease = Micros::from_secs(6);
        config.lease_margin = Micros::from_secs(1);
        config.answer = if self.plan.seed.is_multiple_of(2) { Answer::Refuse } else { Answer::Notify };
        config.policy = if self.plan.revocation {
            let waits = if self.plan.seed.is_multiple_of(3) { Waits::Enough } else { Waits::Answers };
            Policy::Revocation { timeout: Micros::from_secs(4), waits }
        } else {
            Policy::Limiting { floor: 64 }
        };
        self.setup.bank.map_or(config.clone(), |change| change(config))
    }

    pub(super) fn store_config(&self, node: Node) -> StoreConfig {
        let mut config = StoreConfig::new(node, self.params());
        config.early_every = self.plan.early.then_some(Micros::from_secs(4));
        self.setup.store.map_or(config.clone(), |change| change(config))
    }

    /// A node's own clock: its own origin and speed.
    pub(super) fn clock(&self, node: u64) -> Micros {
        let rate = self.rates.get(&(node % 200)).copied().unwrap_or(1000);
        Micros(self.now * rate / 1000 + node * 1_000_003)
    }

    pub(super) fn say(&self, text: impl FnOnce() -> String) {
        if let Some(say) = self.setup.say {
            say(&format!("{:10.3} {}", self.now as f64 / 1e6, text()));
        }
    }

    pub(super) fn send(&mut self, message: Message) {
        self.say(|| format!("send {message:?}"));
        send(&mut self.queue, &mut self.rng, &self.plan, self.healthy, self.now, message);
    }

    pub(super) fn run(mut self) -> Result<Outcome, Box<Breach>> {
        let second = 1_000_000;
        let heal = self.now + self.plan.epochs * self.plan.epoch_secs * second;
        self.until(heal)?;
        // The network heals and everybody is up; what is late still arrives.
        self.healthy = true;
        self.heal();
        self.until(heal + 3 * self.plan.epoch_secs * second)?;
        // Nobody asks any more: after K epochs and some for the reports, A is what there is.
        self.quiet = true;
        let rest = (self.plan.reconcile + self.plan.expiry + 4) * self.plan.epoch_secs;
        self.until(self.now + (rest + 60) * second)?;
        self.check_end()?;
        self.outcome.epoch = self.bank.as_ref().map_or(Epoch(0), BankCore::epoch);
        self.outcome.found = self.found.len() as u64;
        Ok(self.outcome)
    }

    fn until(&mut self, end: u64) -> Result<(), Box<Breach>> {
        while let Some((time, event)) = self.queue.pop() {
            if time > end {
                self.queue.at(time, event);
                break;
            }
            self.now = self.now.max(time);
            self.handle(event);
            self.outcome.steps += 1;
            self.check()?;
        }
        self.now = end;
        Ok(())
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Deliver(message) => self.deliver(message),
            Event::BankTick => {
                self.bank_event(BankEvent::Tick);
                let now = self.now;
                let is_gone = |s: &StoreHost| s.dead || (s.giving_up && s.given_up.is_none() && s.cut_until > now);
                let gone: Vec<Node> = self.stores.iter().filter(|(_, s)| is_gone(s)).map(|(node, _)| *node).collect();
                for store in gone {
                    self.bank_event(BankEvent::Exclude { store });
                }
                self.queue.at(self.now + 1_000_000, Event::BankTick);
            }
            Event::StoreTick(node) => {
                self.store_event(node, StoreEvent::Tick);
                self.queue.at(self.now + 700_000, Event::StoreTick(node));
            }
            Event::ClientTick(client) => self.client_tick(client),
            Event::RestartBank => server::restart_bank(self),
            Event::RestartStore(node) => server::restart_store(self, node),
            Event::Second => {
                self.mischief();
                self.queue.at(self.now + 1_000_000, Event::Second);
            }
        }
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::ClientToBank(client, message) => self.bank_event(BankEvent::FromClient(client, message)),
            Message::StoreToBank(node, message) => {
                if !self.is_cut(node) {
                    let renewal = match &message {
                        StoreToBank::Renew(renew) => Some((renew.incarnation, renew.beat)),
                        _ => None,
                    };
                    self.bank_event(BankEvent::FromStore(message));
                    self.taken(node, renewal);
                }
            }
            Message::BankToStore(node, message) => {
                if !self.is_cut(node) {
                    self.store_event(node, StoreEvent::FromBank(message));
                }
            }
            Message::BankToClient(client, message) => {
                self.wallet_event(client, ullage_voucher::wallet::WalletEvent::FromBank(message));
            }
            Message::StoreToClient(node, client, message) => self.answered(node, client, message),
            Message::Write { store, client, user, op, settled, pieces, need } => {
                self.store_event(store, StoreEvent::Settled { client, below: settled });
                self.write(store, client, user, op, pieces, need);
            }
            Message::Cancel { store, client, op, pieces } => {
                self.store_event(store, StoreEvent::Cancel { client, op, pieces });
            }
            Message::Delete { store, client, op, settled, chunk } => {
                self.store_event(store, StoreEvent::Settled { client, below: settled });
                self.delete(store, client, op, chunk);
            }
        }
    }

    /// Notes the newest renewal that the bank has taken.
    fn taken(&mut self, node: Node, renewal: Option<(Incarnation, u64)>) {
        let (Some((life, beat)), Some(bank)) = (renewal, &self.bank) else { return };
        let known = bank.stores().any(|(n, i, _, lost)| n == node && i == life && !lost);
        if let Some(host) = self.stores.get_mut(&node).filter(|host| known && host.life == life) {
            host.taken_beat = host.taken_beat.max(beat);
        }
    }

    fn is_cut(&self, node: Node) -> bool {
        !self.healthy && self.stores.get(&node).is_some_and(|store| store.cut_until > self.now)
    }
}
