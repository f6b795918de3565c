//! A small cluster without faults, for the unit tests: every message arrives, in order.

use crate::bank::{BankAction, BankConfig, BankCore, BankEvent, BankOutput, Finding};
use crate::message::{BankToClient, BankToStore, ClientToBank, Refusal, StoreToBank, StoreToClient};
use crate::store::{StoreAction, StoreConfig, StoreCore, StoreEvent, StoreOutput};
use crate::{Client, Epoch, EpochLength, Incarnation, KeyId, Keyring, Micros, Node, Op, Params, Piece, User, Write};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) type Table = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) fn apply(table: &mut Table, writes: Vec<Write>) {
    for write in writes {
        write.apply(table);
    }
}

pub(crate) fn rows(table: &Table) -> impl Iterator<Item = (&[u8], &[u8])> {
    table.iter().map(|(key, value)| (key.as_slice(), value.as_slice()))
}

pub(crate) const EPOCH: Micros = Micros::from_secs(60);

/// A bank and some stores.
pub(crate) struct Cluster {
    pub(crate) keys: Arc<Keyring>,
    pub(crate) now: Micros,
    pub(crate) bank: BankCore,
    pub(crate) bank_table: Table,
    pub(crate) stores: BTreeMap<Node, StoreCore>,
    pub(crate) store_tables: BTreeMap<Node, Table>,
    /// Stores that nobody can reach.
    pub(crate) down: Vec<Node>,
    pub(crate) found: Vec<Finding>,
    pub(crate) to_clients: Vec<(Client, BankToClient)>,
    pub(crate) reincarnate: Vec<(Node, Incarnation)>,
    pub(crate) actions: Vec<BankAction>,
    next_op: u64,
}

pub(crate) fn store_node(number: u32) -> Node {
    Node(100 + number)
}

impl Cluster {
    /// Three stores, and a user who may use 1,000 bytes.
    pub(crate) fn with_quota(user: User) -> Self {
        let mut cluster = Self::new(3);
        cluster.quota(user, 1000);
        cluster
    }

    pub(crate) fn new(stores: u32) -> Self {
        Self::with(stores, |_| {}, |_| {})
    }

    pub(crate) fn with(stores: u32, bank: impl Fn(&mut BankConfig), store: impl Fn(&mut StoreConfig)) -> Self {
        let keys = Arc::new(Keyring::with_root(KeyId(1), [7; 32]));
        let mut config = Self::bank_config();
        bank(&mut config);
        let mut out = BankOutput::default();
        let core = BankCore::new(config, keys.clone(), Incarnation(1), &mut out);
        let mut cluster = Self {
            keys: keys.clone(),
            now: Micros::from_secs(1),
            bank: core,
            bank_table: Table::new(),
            stores: BTreeMap::new(),
            store_tables: BTreeMap::new(),
            down: Vec::new(),
            found: Vec::new(),
            to_clients: Vec::new(),
            reincarnate: Vec::new(),
            actions: Vec::new(),
            next_op: 1,
        };
        apply(&mut cluster.bank_table, out.writes);
        for number in 1..=stores {
            let node = store_node(number);
            let mut config = StoreConfig::new(node, Params::default());
            store(&mut config);
            cluster.start_store(config, Incarnation(1), BTreeMap::new());
        }
        cluster.tick();
        cluster
    }

    pub(crate) fn bank_config() -> BankConfig {
        let mut config = BankConfig::new(Node(1), Params::default());
        config.epoch_length = EpochLength::fixed(EPOCH);
        config.policy = crate::bank::Policy::Limiting { floor: 1 };
        config
    }

    pub(crate) fn start_store(&mut self, config: StoreConfig, incarnation: Incarnation, base: BTreeMap<User, u64>) {
        let mut out = StoreOutput::default();
        let node = config.node;
        let boot = self.op().0 + 1_000_000;
        let core = StoreCore::new(config, self.keys.clone(), boot, incarnation, base, &mut out);
        let mut table = Table::new();
        apply(&mut table, out.writes);
        self.store_tables.insert(node, table);
        self.stores.insert(node, core);
    }

    pub(crate) fn reload_store(&mut self, node: Node) {
        let config = StoreConfig::new(node, Params::default());
        let boot = self.op().0 + 1_000_000;
        let core = StoreCore::load(config, self.keys.clone(), boot, rows(&self.store_tables[&node])).unwrap();
        self.stores.insert(node, core);
    }

    pub(crate) fn reload_bank(&mut self) {
        let mut out = BankOutput::default();
        let table = self.bank_table.clone();
        let config = Self::bank_config();
        self.bank = BankCore::load(config, self.keys.clone(), Incarnation(1), rows(&table), &mut out).unwrap();
        self.carry_bank(out);
    }

    pub(crate) fn op(&mut self) -> Op {
        self.next_op += 1;
        Op(self.next_op)
    }

    pub(crate) fn bank_event(&mut self, event: BankEvent) {
        let mut out = BankOutput::default();
        self.bank.step(event, self.now, &mut out);
        self.carry_bank(out);
    }

    pub(crate) fn carry_bank(&mut self, out: BankOutput) {
        apply(&mut self.bank_table, out.writes);
        self.actions.extend(out.actions.iter().cloned());
        for action in out.actions {
            match action {
                BankAction::ToClient(client, message) => self.to_clients.push((client, message)),
                BankAction::ToStore(node, message) => self.to_store(node, message),
                BankAction::Found(finding) => self.found.push(finding),
                _ => {}
            }
        }
    }

    fn to_store(&mut self, node: Node, message: BankToStore) {
        if !self.down.contains(&node) {
            self.store_event(node, StoreEvent::FromBank(message));
        }
    }

    /// Runs one event at a store; the last answer to a client, if any.
    pub(crate) fn store_event(&mut self, node: Node, event: StoreEvent) -> Option<StoreToClient> {
        let mut out = StoreOutput::default();
        self.stores.get_mut(&node)?.step(event, self.now, &mut out);
        let table = self.store_tables.get_mut(&node)?;
        apply(table, out.writes);
        let mut state = Table::new();
        apply(&mut state, self.stores[&node].rows().collect());
        assert_eq!(state, *table, "a store's rows are what its writes add up to");
        let mut answer = None;
        for action in out.actions {
            match action {
                StoreAction::ToBank(message) => {
                    if !self.down.contains(&node) {
                        self.to_bank(message);
                    }
                }
                StoreAction::ToClient(_, message) => answer = Some(message),
                StoreAction::Reincarnate(incarnation) => self.reincarnate.push((node, incarnation)),
            }
        }
        answer
    }

    pub(crate) fn to_bank(&mut self, message: StoreToBank) {
        self.bank_event(BankEvent::FromStore(message));
    }

    pub(crate) fn tick(&mut self) {
        self.bank_event(BankEvent::Tick);
        for node in self.stores.keys().copied().collect::<Vec<_>>() {
            if !self.down.contains(&node) {
                self.store_event(node, StoreEvent::Tick);
            }
        }
    }

    /// Lets this much time pass, a second at a time.
    pub(crate) fn run(&mut self, time: Micros) {
        for _ in 0..time.0 / 1_000_000 {
            self.now = self.now + Micros::from_secs(1);
            self.tick();
        }
    }

    pub(crate) fn epochs(&mut self, count: u64) {
        let target = self.bank.epoch().plus(count);
        for _ in 0..100_000 {
            if self.bank.epoch() >= target {
                break;
            }
            self.run(Micros::from_secs(1));
        }
        assert!(self.bank.epoch() >= target, "epochs turn");
        self.run(Micros::from_secs(5));
    }

    pub(crate) fn quota(&mut self, user: User, quota: u64) {
        self.bank_event(BankEvent::SetQuota { user, quota });
    }

    pub(crate) fn withdraw(&mut self, client: Client, user: User, want: u64) -> Vec<Piece> {
        let op = self.op();
        self.withdraw_as(client, user, op, want)
    }

    pub(crate) fn withdraw_as(&mut self, client: Client, user: User, op: Op, want: u64) -> Vec<Piece> {
        self.bank_event(BankEvent::FromClient(client, ClientToBank::Request { user, op, want, audience: None }));
        match self.to_clients.last() {
            Some((to, BankToClient::Granted { op: o, pieces, .. })) if (*to, *o) == (client, op) => pieces.clone(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn give_back(&mut self, client: Client, user: User, op: Op, pieces: Vec<Piece>) -> u64 {
        self.bank_event(BankEvent::FromClient(client, ClientToBank::Return { user, op, pieces }));
        let found = self.to_clients.iter().rev().find_map(|(_, message)| match message {
            BankToClient::Returned { op: o, accepted, .. } if *o == op => Some(*accepted),
            _ => None,
        });
        found.unwrap()
    }

    /// Spends; the balance.
    pub(crate) fn spend(
        &mut self,
        node: Node,
        client: Client,
        user: User,
        pieces: &[Piece],
        used: u64,
    ) -> Result<Vec<Piece>, Refusal> {
        let op = self.op();
        self.spend_as(node, client, user, op, pieces, used)
    }

    pub(crate) fn spend_as(
        &mut self,
        node: Node,
        client: Client,
        user: User,
        op: Op,
        pieces: &[Piece],
        used: u64,
    ) -> Result<Vec<Piece>, Refusal> {
        let event = StoreEvent::Spend { client, user, op, pieces: pieces.to_vec(), used };
        match self.store_event(node, event) {
            Some(StoreToClient::Spent { balance, .. }) => Ok(balance),
            Some(StoreToClient::Refused { reason, .. }) => Err(reason),
            other => panic!("a spend is answered, not {other:?}"),
        }
    }

    pub(crate) fn free(&mut self, node: Node, client: Client, user: User, amount: u64) -> Result<Piece, Refusal> {
        let op = self.op();
        match self.store_event(node, StoreEvent::Free { client, user, is_users: true, op, amount }) {
            Some(StoreToClient::Refunded { refund, .. }) => Ok(refund.unwrap()),
            Some(StoreToClient::Refused { reason, .. }) => Err(reason),
            other => panic!("a free is answered, not {other:?}"),
        }
    }

    pub(crate) fn a(&self, user: User) -> i128 {
        self.bank.authorized(user).unwrap()
    }

    pub(crate) fn used(&self, user: User) -> u64 {
        self.stores.iter().filter(|(node, _)| !self.down.contains(node)).map(|(_, store)| store.used(user)).sum()
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.bank.epoch()
    }
}
