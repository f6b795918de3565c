//! The shipping cores inside the engine: one bank per management server, a core per store, a wallet per user and
//! client.

use super::engine::{Engine, Io, Step, Time, nanos};
use super::model::{Asking, Model};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use ullage_voucher::bank::{BankAction, BankConfig, BankCore, BankEvent, BankOutput, Policy};
use ullage_voucher::message::{BankToClient, BankToStore, ClientToBank, StoreToClient};
use ullage_voucher::store::{StoreAction, StoreConfig, StoreCore, StoreEvent, StoreOutput};
use ullage_voucher::wallet::{Adaptive, RequestPolicy, Wallet, WalletAction, WalletConfig, WalletEvent, WalletOutput};
use ullage_voucher::{Client, EpochLength, Incarnation, KeyId, Keyring, Micros, Node, Op, Params, Piece, User};

enum Message {
    ToBank { client: u32, message: ClientToBank },
    ToWallet { client: u32, user: u32, message: BankToClient },
}

/// The voucher scheme of one run.
pub(super) struct Vouchers {
    banks: Vec<BankCore>,
    stores: Vec<StoreCore>,
    wallets: HashMap<(u32, u32), Wallet>,
    policy: RequestPolicy,
    messages: Vec<Option<Message>>,
    unused: Vec<u32>,
    waiting: HashMap<u64, (Io, Time)>,
    paid: HashMap<u64, Vec<Piece>>,
    /// Each wallet's requests that are not answered yet: what comes before them is settled, which it tells the stores as clients do.
    open: HashMap<(u32, u32), BTreeSet<u64>>,
    next_op: u64,
    /// When the next store has its turn, and which it is.
    next_turn: Time,
    turn: usize,
    exhausted: bool,
    bank_out: BankOutput,
    store_out: StoreOutput,
    wallet_out: WalletOutput,
}

fn micros(time: Time) -> Micros {
    Micros(time / 1000)
}

impl Vouchers {
    pub(super) fn new(model: &Model) -> Self {
        let keys = Arc::new(Keyring::with_root(KeyId(1), [1; 32]));
        let params = Params::new(model.expiry, model.reconcile).expect("a study keeps K above X");
        let mut bank_out = BankOutput::default();
        let banks = (0..model.banks)
            .map(|number| {
                let mut config = BankConfig::new(Node(1 + number), params);
                config.epoch_length = EpochLength::fixed(Micros((model.epoch * 1e6) as u64));
                config.lease = Micros::from_secs(300);
                config.policy = match model.revocation {
                    Some(waits) => Policy::Revocation { timeout: Micros::from_secs(5), waits },
                    None => Policy::Limiting { floor: model.request },
                };
                BankCore::new(config, keys.clone(), Incarnation(1), &mut bank_out)
            })
            .collect();
        let mut store_out = StoreOutput::default();
        let stores = (0..model.stores)
            .map(|number| {
                let mut config = StoreConfig::new(Node(1000 + number), params);
                config.renew_every = Micros::from_secs(20);
                StoreCore::new(config, keys.clone(), 1, Incarnation(1), BTreeMap::new(), &mut store_out)
            })
            .collect();
        let interval = Micros((model.window * 1e6) as u64);
        let policy = match model.asking {
            Asking::Fixed => RequestPolicy::Fixed { amount: model.fixed },
            Asking::Adaptive => RequestPolicy::Adaptive(Adaptive {
                interval,
                window: 3,
                headroom_permille: 250,
                least: 4 * model.request,
                give_back: true,
            }),
            Asking::Expected => RequestPolicy::Expected {
                per_second: model.consumption().ceil() as u64,
                interval,
                least: model.request,
            },
        };
        let mut vouchers = Self {
            banks,
            stores,
            wallets: HashMap::new(),
            policy,
            messages: Vec::new(),
            unused: Vec::new(),
            waiting: HashMap::new(),
            paid: HashMap::new(),
            open: HashMap::new(),
            next_op: 1,
            next_turn: 0,
            turn: 0,
            exhausted: false,
            bank_out,
            store_out,
            wallet_out: WalletOutput::default(),
        };
        for user in 0..model.users {
            let quota = model.quota.filter(|_| user == 0).unwrap_or(1 << 50);
            let bank = (user % model.banks) as usize;
            let event = BankEvent::SetQuota { user: User(user.into()), quota };
            vouchers.banks[bank].step(event, Micros(0), &mut vouchers.bank_out);
        }
        vouchers.bank_out.clear();
        vouchers.store_out.clear();
        vouchers
    }

    /// Ticks, leases and reports, once a simulated second. They are few; their cost at the management servers is
    /// charged, their way through the network is not. All stores begin together; then each has its own part of
    /// the second, as servers have that were not started at the same instant.
    fn background(&mut self, engine: &mut Engine, time: Time) {
        while self.next_turn <= time {
            let now = micros(self.next_turn);
            if self.turn == 0 {
                for bank in &mut self.banks {
                    bank.step(BankEvent::Tick, now, &mut self.bank_out);
                }
                self.flush_bank(engine, self.next_turn);
            }
            if self.next_turn == 0 {
                (0..self.stores.len()).for_each(|number| self.tick_store(engine, number, now));
            }
            if now >= self.stores[self.turn].next_tick() {
                self.tick_store(engine, self.turn, now);
            }
            self.turn = (self.turn + 1) % self.stores.len();
            self.next_turn += 1_000_000_000 / self.stores.len() as u64;
        }
    }

    fn tick_store(&mut self, engine: &mut Engine, number: usize, now: Micros) {
        self.stores[number].step(StoreEvent::Tick, now, &mut self.store_out);
        self.flush_store(engine, number, now);
    }

    /// Reports go to the banks of all shards; what the first answers counts.
    fn flush_store(&mut self, engine: &mut Engine, number: usize, now: Micros) {
        self.store_out.writes.clear();
        for action in std::mem::take(&mut self.store_out.actions) {
            let StoreAction::ToBank(message) = action else { continue };
            for bank in 0..self.banks.len() {
                let mut out = BankOutput::default();
                self.banks[bank].step(BankEvent::FromStore(message.clone()), now, &mut out);
                let service = engine.model.voucher_service;
                engine.visit(bank as u32, now.0 * 1000, service);
                for action in out.actions {
                    match action {
                        BankAction::ToStore(_, answer) if bank == 0 && !matches!(answer, BankToStore::Wait) => {
                            self.stores[number].step(StoreEvent::FromBank(answer), now, &mut self.store_out);
                        }
                        other => self.bank_out.actions.push(other),
                    }
                }
            }
        }
        if !self.store_out.actions.is_empty() {
            self.flush_store(engine, number, now);
        }
    }

    fn post(&mut self, engine: &mut Engine, time: Time, message: Message) {
        let number = if let Some(number) = self.unused.pop() {
            self.messages[number as usize] = Some(message);
            number
        } else {
            self.messages.push(Some(message));
            self.messages.len() as u32 - 1
        };
        engine.at(time, Step::Message(number));
    }

    fn flush_bank(&mut self, engine: &mut Engine, done: Time) {
        self.bank_out.writes.clear();
        for action in std::mem::take(&mut self.bank_out.actions) {
            if let BankAction::ToClient(client, message) = action {
                let user = match &message {
                    BankToClient::Granted { user, .. }
                    | BankToClient::Denied { user, .. }
                    | BankToClient::Returned { user, .. }
                    | BankToClient::Revoke { user } => user.0 as u32,
                };
                let client = (client.0 & 0xffff) as u32;
                let at = done + engine.network;
                self.post(engine, at, Message::ToWallet { client, user, message });
            }
        }
    }

    fn wallet(&mut self, user: u32, client: u32, now: Micros) -> &mut Wallet {
        let policy = self.policy;
        self.wallets.entry((user, client)).or_insert_with(|| {
            let config = WalletConfig {
                client: Client(u64::from(user) << 16 | u64::from(client)),
                user: User(user.into()),
                policy,
                addressed: BTreeSet::new(),
                retry_after: Micros::from_secs(30),
            };
            Wallet::new(config, Op(1), now)
        })
    }

    /// A write begins: pay, and ask in time.
    pub(super) fn write(&mut self, engine: &mut Engine, mut io: Io, arrival: Time) {
        self.background(engine, arrival);
        if self.exhausted && io.user == 0 {
            // Its user is out of quota and issues no writes any more.
            return;
        }
        self.next_op += 1;
        io.op = self.next_op;
        let now = micros(arrival);
        let need = engine.model.request;
        let (op, store) = (Op(io.op), Node(1000 + io.store));
        let mut out = std::mem::take(&mut self.wallet_out);
        let wallet = self.wallet(io.user, io.client, now);
        if now >= wallet.next_tick() {
            wallet.step(WalletEvent::Tick, now, &mut out);
        }
        wallet.step(WalletEvent::Spend { op, store, need }, now, &mut out);
        self.waiting.insert(io.op, (io, arrival));
        self.open.entry((io.user, io.client)).or_default().insert(io.op);
        self.act(engine, io.user, io.client, arrival, &mut out, true);
        self.wallet_out = out;
    }

    /// Carries out what a wallet wants. A message can ride on the metadata request of a write that is being sent: it is then
    /// no message of its own, but the bank has the same work with it, where it is delivered.
    fn act(&mut self, engine: &mut Engine, user: u32, client: u32, time: Time, out: &mut WalletOutput, riding: bool) {
        let mut pays = Vec::new();
        for action in out.actions.drain(..) {
            match action {
                WalletAction::Pay { op, pieces, .. } => pays.push((op, pieces)),
                WalletAction::CannotPay { op, .. } => {
                    if let Some((io, _)) = self.waiting.remove(&op.0) {
                        engine.refused += 1;
                        self.answered(&io);
                        engine.finish(&io, time);
                        self.exhausted |= io.user == 0 && engine.model.quota.is_some();
                    }
                }
                WalletAction::Cancel { .. } => {}
                WalletAction::ToBank(message) => {
                    let rides = riding && engine.scheme_rng.chance(engine.model.grouped);
                    let counted = u64::from(engine.measuring(time));
                    match &message {
                        ClientToBank::Request { .. } => engine.withdrawals += counted,
                        ClientToBank::Return { .. } => engine.returns += counted,
                    }
                    engine.messages += if rides { 0 } else { counted };
                    self.post(engine, time, Message::ToBank { client, message });
                }
            }
        }
        let _ = user;
        for (op, pieces) in pays {
            self.paid.insert(op.0, pieces.into_vec());
            if let Some((io, began)) = self.waiting.remove(&op.0) {
                if began == time {
                    engine.metadata(io, time, 0.0);
                } else {
                    engine.at(time + engine.network, Step::Metadata(io));
                }
            }
        }
    }

    /// One of a wallet's requests has its answer; the first that has none.
    fn answered(&mut self, io: &Io) -> u64 {
        let Some(open) = self.open.get_mut(&(io.user, io.client)) else { return io.op };
        open.remove(&io.op);
        open.first().copied().unwrap_or(self.next_op)
    }

    pub(super) fn deliver(&mut self, engine: &mut Engine, number: u32, time: Time) {
        let Some(message) = self.messages.get_mut(number as usize).and_then(Option::take) else { return };
        self.unused.push(number);
        match message {
            Message::ToBank { client, message } => {
                let (ClientToBank::Request { user, .. } | ClientToBank::Return { user, .. }) = &message;
                let user = user.0 as u32;
                let bank = user % engine.model.banks;
                let done = engine.visit(bank, time, engine.model.voucher_service);
                let sender = Client(u64::from(user) << 16 | u64::from(client));
                let event = BankEvent::FromClient(sender, message);
                self.banks[bank as usize].step(event, micros(time), &mut self.bank_out);
                self.flush_bank(engine, done);
            }
            Message::ToWallet { client, user, message } => {
                let now = micros(time);
                let mut out = std::mem::take(&mut self.wallet_out);
                self.wallet(user, client, now).step(WalletEvent::FromBank(message), now, &mut out);
                self.act(engine, user, client, time, &mut out, false);
                self.wallet_out = out;
            }
        }
    }

    /// A request reached its store: the voucher is checked and spent, or a refund made.
    pub(super) fn at_store(&mut self, engine: &mut Engine, io: &Io, time: Time, back: Time) {
        let now = micros(time);
        let (client, user) = (Client(u64::from(io.user) << 16 | u64::from(io.client)), User(io.user.into()));
        let store = io.store as usize;
        let event = match io.kind {
            super::engine::Kind::Write => {
                let pieces = self.paid.remove(&io.op).unwrap_or_default();
                StoreEvent::Spend { client, user, op: Op(io.op), pieces, used: engine.model.request }
            }
            super::engine::Kind::Delete => {
                self.next_op += 1;
                let amount = engine.model.request.min(self.stores[store].used(user));
                StoreEvent::Free { client, user, is_users: true, op: Op(self.next_op), amount }
            }
            _ => return,
        };
        let settled = StoreEvent::Settled { client, below: Op(self.answered(io)) };
        self.stores[store].step(event, now, &mut self.store_out);
        self.stores[store].step(settled, now, &mut self.store_out);
        self.store_out.writes.clear();
        let mut out = std::mem::take(&mut self.wallet_out);
        for action in self.store_out.actions.drain(..) {
            if let StoreAction::ToClient(_, answer) = action {
                if let StoreToClient::Refused { .. } = &answer {
                    engine.refused += 1;
                }
                if let Some(wallet) = self.wallets.get_mut(&(io.user, io.client)) {
                    wallet.step(WalletEvent::FromStore(answer), micros(back), &mut out);
                }
            }
        }
        self.act(engine, io.user, io.client, time + nanos(0.0), &mut out, false);
        self.wallet_out = out;
    }
}
