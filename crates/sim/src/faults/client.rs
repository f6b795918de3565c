//! Clients: honest ones that write and delete, and cheaters.

use super::network::{Chunk, Event, Message};
use super::world::World;
use crate::Rng;
use std::collections::{BTreeMap, BTreeSet};
use ullage_voucher::message::{ClientToBank, StoreToClient};
use ullage_voucher::wallet::{Adaptive, RequestPolicy, Wallet, WalletAction, WalletConfig, WalletEvent, WalletOutput};
use ullage_voucher::{Client, Micros, Node, Op, Piece, User};

enum Doing {
    Write { pieces: Vec<Piece>, need: u64 },
    Delete { chunk: Chunk },
}

struct Pending {
    store: Node,
    doing: Doing,
    attempts: u32,
    again_at: u64,
}

pub(super) struct ClientHost {
    pub(super) user: User,
    wallet: Wallet,
    cheats: bool,
    next_op: u64,
    pending: BTreeMap<Op, Pending>,
    wanted: BTreeMap<Op, (Node, u64)>,
    chunks: Vec<(Node, Chunk)>,
}

impl ClientHost {
    pub(super) fn new(client: Client, user: User, cheats: bool, rng: &mut Rng, now: Micros) -> Self {
        let policy = if rng.chance(0.5) {
            RequestPolicy::Fixed { amount: rng.between(500, 10_000) }
        } else {
            RequestPolicy::Adaptive(Adaptive {
                interval: Micros::from_secs(rng.between(3, 12)),
                window: 3,
                headroom_permille: 250,
                least: 500,
                give_back: true,
            })
        };
        let config =
            WalletConfig { client, user, policy, retry_after: Micros::from_secs(2), addressed: BTreeSet::new() };
        Self {
            user,
            wallet: Wallet::new(config, Op(1 << 32), now),
            cheats,
            next_op: 1,
            pending: BTreeMap::new(),
            wanted: BTreeMap::new(),
            chunks: Vec::new(),
        }
    }

    fn op(&mut self) -> Op {
        self.next_op += 1;
        Op(self.next_op)
    }

    /// Of everything before this it has the answer, or has given it up and had it cancelled.
    fn settled(&self) -> Op {
        let waiting = self.pending.keys().chain(self.wanted.keys()).copied();
        waiting.chain(self.wallet.oldest_open()).min().unwrap_or(Op(self.next_op + 1))
    }
}

impl World {
    pub(super) fn client_tick(&mut self, client: Client) {
        if !self.clients.contains_key(&client) {
            return;
        }
        let pause = 200_000 + self.rng.below(800_000);
        self.queue.at(self.now + pause, Event::ClientTick(client));
        self.retry(client);
        if self.quiet {
            return;
        }
        self.wallet_event(client, WalletEvent::Tick);
        if self.rng.chance(0.7) {
            self.act(client);
        }
        if !self.healthy && self.clients.get(&client).is_some_and(|host| host.cheats) && self.rng.chance(0.3) {
            self.cheat(client);
        }
    }

    fn act(&mut self, client: Client) {
        let nodes: Vec<Node> = self.stores.keys().copied().collect();
        let store = nodes[self.rng.below(nodes.len() as u64) as usize];
        let need = self.rng.between(1, self.plan.quota / 20);
        let delete = self.rng.chance(0.35);
        let pick = self.rng.next();
        let Some(host) = self.clients.get_mut(&client) else { return };
        let op = host.op();
        if delete && !host.chunks.is_empty() {
            let at = (pick % host.chunks.len() as u64) as usize;
            let (store, chunk) = host.chunks.swap_remove(at);
            let pending =
                Pending { store, doing: Doing::Delete { chunk }, attempts: 1, again_at: self.now + 3_000_000 };
            host.pending.insert(op, pending);
            let settled = host.settled();
            self.send(Message::Delete { store, client, op, settled, chunk });
        } else if host.wanted.len() < 4 {
            host.wanted.insert(op, (store, need));
            self.wallet_event(client, WalletEvent::Spend { op, store, need });
        }
    }

    /// Repeats what has not been answered, exactly as before; gives up after some attempts.
    fn retry(&mut self, client: Client) {
        let now = self.now;
        let mut again = Vec::new();
        let mut hopeless = Vec::new();
        let Some(host) = self.clients.get_mut(&client) else { return };
        let (user, settled) = (host.user, host.settled());
        for (op, pending) in &mut host.pending {
            if now < pending.again_at {
                continue;
            }
            if pending.attempts >= 5 {
                hopeless.push(*op);
                continue;
            }
            pending.attempts += 1;
            pending.again_at = now + 3_000_000;
            let store = pending.store;
            again.push(match &pending.doing {
                Doing::Write { pieces, need } => {
                    Message::Write { store, client, user, op: *op, settled, pieces: pieces.clone(), need: *need }
                }
                Doing::Delete { chunk } => Message::Delete { store, client, op: *op, settled, chunk: *chunk },
            });
        }
        for op in &hopeless {
            host.pending.remove(op);
        }
        for op in hopeless {
            self.wallet_event(client, WalletEvent::GiveUp { op });
        }
        for message in again {
            self.send(message);
        }
    }

    pub(super) fn wallet_event(&mut self, client: Client, event: WalletEvent) {
        let now = Micros(self.now);
        let Some(host) = self.clients.get_mut(&client) else { return };
        let user = host.user;
        let mut out = WalletOutput::default();
        host.wallet.step(event, now, &mut out);
        for action in out.actions {
            match action {
                WalletAction::Pay { op, store, pieces } => {
                    let Some(host) = self.clients.get_mut(&client) else { return };
                    let Some((_, need)) = host.wanted.remove(&op) else { continue };
                    let pieces = pieces.into_vec();
                    let doing = Doing::Write { pieces: pieces.clone(), need };
                    host.pending.insert(op, Pending { store, doing, attempts: 1, again_at: self.now + 3_000_000 });
                    let settled = host.settled();
                    self.send(Message::Write { store, client, user, op, settled, pieces, need });
                }
                WalletAction::CannotPay { op, .. } => {
                    let Some(host) = self.clients.get_mut(&client) else { return };
                    host.wanted.remove(&op);
                    host.pending.remove(&op);
                }
                WalletAction::Cancel { op, store, pieces } => {
                    self.send(Message::Cancel { store, client, op, pieces });
                }
                WalletAction::ToBank(message) => self.send(Message::ClientToBank(client, message)),
            }
        }
    }

    pub(super) fn answered(&mut self, node: Node, client: Client, message: StoreToClient) {
        let Some(host) = self.clients.get_mut(&client) else { return };
        match &message {
            StoreToClient::Spent { op, used, .. } => {
                if host.pending.remove(op).is_some() && *used > 0 {
                    host.chunks.push((node, (client, *op)));
                }
            }
            StoreToClient::Refunded { op, .. } | StoreToClient::Refused { op, .. } => {
                host.pending.remove(op);
            }
            StoreToClient::Held { .. } => {}
        }
        self.wallet_event(client, WalletEvent::FromStore(message));
    }

    /// Spends copies of what it has at several stores, or returns to the bank what it keeps.
    fn cheat(&mut self, client: Client) {
        let Some(host) = self.clients.get_mut(&client) else { return };
        let user = host.user;
        let copies: Vec<Piece> = host.wallet.pieces().take(3).copied().collect();
        if copies.is_empty() {
            return;
        }
        let need = copies.iter().map(|piece| piece.amount).sum();
        let settled = host.settled();
        let (first, second) = (host.op(), host.op());
        let nodes: Vec<Node> = self.stores.keys().copied().collect();
        if self.rng.chance(0.25) {
            let message = ClientToBank::Return { user, op: Op(first.0 | 1 << 40), pieces: copies };
            self.send(Message::ClientToBank(client, message));
            return;
        }
        for op in [first, second] {
            let store = nodes[self.rng.below(nodes.len() as u64) as usize];
            let mut pieces = copies.clone();
            if self.rng.chance(0.2) {
                // Claims more than the balance.
                for piece in &mut pieces {
                    piece.amount = piece.voucher.terms.value;
                }
            }
            if self.rng.chance(0.1) {
                pieces[0].voucher.terms.value += 1000;
            }
            self.send(Message::Write { store, client, user, op, settled, pieces, need });
        }
    }
}
