//! Servers around the cores: transactions, crashes in the middle of them, restarts.

use super::network::{Chunk, Event, Message};
use super::world::{BANK, StoreHost, Table, World, apply, rows};
use std::collections::BTreeMap;
use ullage_voucher::bank::{BankAction, BankCore, BankEvent, BankOutput};
use ullage_voucher::message::{BankToClient, StoreToBank, StoreToClient};
use ullage_voucher::store::{StoreAction, StoreCore, StoreEvent, StoreOutput};
use ullage_voucher::{Client, Epoch, Incarnation, Node, Op, Piece, User};

/// Where a step is cut by a crash.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Crash {
    No,
    BeforeWrites,
    AfterWrites,
}

impl World {
    fn crash(&mut self) -> Crash {
        if self.healthy || !self.rng.chance(self.plan.crash) {
            Crash::No
        } else if self.rng.chance(0.5) {
            Crash::BeforeWrites
        } else {
            Crash::AfterWrites
        }
    }

    pub(super) fn bank_event(&mut self, event: BankEvent) {
        let now = self.clock(0);
        let mut out = BankOutput::default();
        let Some(bank) = &mut self.bank else { return };
        bank.step(event, now, &mut out);
        let crash = self.crash();
        if crash != Crash::BeforeWrites {
            apply(&mut self.bank_table, &mut out.writes);
            self.note_bank(&out.actions);
        }
        if crash == Crash::No {
            self.carry_bank(out.actions);
        } else {
            self.say(|| "the bank crashes".to_owned());
            self.outcome.crashes += 1;
            self.bank = None;
            let down = self.rng.below(10_000_000);
            self.queue.at(self.now + down, Event::RestartBank);
        }
    }

    /// Vouchers exist from when they are durable, whether or not anybody hears of them.
    fn note_bank(&mut self, actions: &[BankAction]) {
        for action in actions {
            match action {
                BankAction::ToClient(_, BankToClient::Granted { pieces, .. }) => {
                    for piece in pieces.iter().filter(|piece| piece.voucher.terms.issuer.node == BANK) {
                        self.account.issued(piece);
                    }
                }
                BankAction::Excluded { store, .. } => self.note_given_up(*store),
                _ => {}
            }
        }
    }

    /// The life that was given up may be an earlier one than the store is in.
    fn note_given_up(&mut self, node: Node) {
        let (Some(host), Some(bank)) = (self.stores.get_mut(&node), &self.bank) else { return };
        if bank.stores().any(|(n, life, _, lost)| n == node && life == host.life && !lost) {
            return;
        }
        if host.given_up.is_none() && !host.dead {
            self.outcome.given_up += 1;
        }
        host.given_up.get_or_insert_with(|| host.used.clone());
    }

    pub(super) fn carry_bank(&mut self, actions: Vec<BankAction>) {
        for action in actions {
            match action {
                BankAction::ToClient(client, message) => self.send(Message::BankToClient(client, message)),
                BankAction::ToStore(node, message) => self.send(Message::BankToStore(node, message)),
                BankAction::Found(finding) => {
                    self.say(|| format!("FOUND {finding:?}"));
                    if !self.found.contains(&finding) {
                        self.found.push(finding);
                    }
                }
                other => self.say(|| format!("{other:?}")),
            }
        }
    }

    pub(super) fn store_event(&mut self, node: Node, event: StoreEvent) {
        let Some(out) = self.step_store(node, event) else { return };
        self.finish_store(node, out, None);
    }

    fn step_store(&mut self, node: Node, event: StoreEvent) -> Option<StoreOutput> {
        let now = self.clock(node.0.into());
        let core = self.stores.get_mut(&node)?.core.as_mut()?;
        let mut out = StoreOutput::default();
        core.step(event, now, &mut out);
        Some(out)
    }

    /// Makes a step and what it did to the chunks durable together, then sends; or crashes in between.
    fn finish_store(&mut self, node: Node, mut out: StoreOutput, change: Option<(Chunk, Option<(User, u64)>)>) {
        let crash = self.crash();
        let Some(host) = self.stores.get_mut(&node) else { return };
        if crash != Crash::BeforeWrites {
            apply(&mut host.disk.table, &mut out.writes);
            host.closed = host.core.as_ref().map_or(host.closed, StoreCore::reported);
            for action in &out.actions {
                if let StoreAction::ToBank(StoreToBank::Renew(renew)) = action {
                    host.beat = renew.beat;
                }
            }
            if let Some((chunk, value)) = change {
                match value {
                    Some((user, bytes)) => {
                        host.disk.chunks.insert(chunk, (user, bytes));
                        *host.used.entry(user).or_default() += bytes;
                        self.outcome.written += bytes;
                    }
                    None => {
                        if let Some((user, bytes)) = host.disk.chunks.remove(&chunk) {
                            *host.used.entry(user).or_default() -= bytes;
                            self.outcome.freed += bytes;
                        }
                    }
                }
            }
        }
        if crash != Crash::BeforeWrites {
            for action in &out.actions {
                if let StoreAction::ToClient(_, StoreToClient::Refunded { refund: Some(piece), .. }) = action {
                    self.account.issued(piece);
                }
            }
        }
        if crash != Crash::No {
            self.say(|| format!("store {node} crashes"));
            self.outcome.crashes += 1;
            host_down(self, node);
            return;
        }
        for action in out.actions {
            match action {
                StoreAction::ToBank(message) => self.send(Message::StoreToBank(node, message)),
                StoreAction::ToClient(client, message) => self.send(Message::StoreToClient(node, client, message)),
                StoreAction::Reincarnate(incarnation) => reincarnate(self, node, incarnation),
            }
        }
    }

    /// A write: hold, allocate, commit, in one transaction.
    pub(super) fn write(&mut self, node: Node, client: Client, user: User, op: Op, pieces: Vec<Piece>, need: u64) {
        let hold = StoreEvent::Hold { client, user, op, pieces: pieces.clone(), at_most: need };
        let Some(out) = self.step_store(node, hold) else { return };
        let held = out.actions.iter().any(|a| matches!(a, StoreAction::ToClient(_, StoreToClient::Held { .. })));
        if !held {
            self.finish_store(node, out, None);
            return;
        }
        if self.rng.chance(0.05) {
            self.step_store(node, StoreEvent::Abort { client, op });
            return;
        }
        let used = if self.rng.chance(0.5) { need } else { self.rng.between(0, need) };
        let Some(out) = self.step_store(node, StoreEvent::Commit { client, op, used }) else { return };
        self.finish_spend(node, out, (client, op), user, used, &pieces);
    }

    fn finish_spend(&mut self, node: Node, out: StoreOutput, chunk: Chunk, user: User, used: u64, pieces: &[Piece]) {
        let mut due = used;
        let mut parts = Vec::new();
        for piece in pieces {
            let part = due.min(piece.amount);
            due -= part;
            parts.push((*piece, part));
        }
        let before = self.outcome.written;
        self.finish_store(node, out, Some((chunk, Some((user, used)))));
        if self.outcome.written != before {
            for (piece, part) in parts {
                self.account.spent(&piece, part, chunk.0);
            }
        }
    }

    pub(super) fn delete(&mut self, node: Node, client: Client, op: Op, chunk: Chunk) {
        let now = self.clock(node.0.into());
        let Some(host) = self.stores.get_mut(&node) else { return };
        let Some(core) = &host.core else { return };
        if let Some(answer) = core.replay(client, op) {
            self.send(Message::StoreToClient(node, client, answer));
            return;
        }
        if !core.is_open(now) && self.setup.store.is_none() {
            return;
        }
        let Some((user, bytes)) = host.disk.chunks.get(&chunk).copied() else { return };
        let Some(out) = self.step_store(node, StoreEvent::Free { client, user, is_users: true, op, amount: bytes })
        else {
            return;
        };
        let freed =
            out.actions.iter().any(|action| matches!(action, StoreAction::ToClient(_, StoreToClient::Refunded { .. })));
        self.finish_store(node, out, freed.then_some((chunk, None)));
    }
}

fn host_down(world: &mut World, node: Node) {
    if let Some(host) = world.stores.get_mut(&node) {
        host.core = None;
    }
    let down = world.rng.below(15_000_000);
    world.queue.at(world.now + down, Event::RestartStore(node));
}

pub(super) fn restart_store(world: &mut World, node: Node) {
    let (config, boot) = (world.store_config(node), world.rng.next());
    let Some(host) = world.stores.get_mut(&node) else { return };
    if host.dead || host.core.is_some() {
        return;
    }
    let core = StoreCore::load(config, world.keys.clone(), boot, rows(&host.disk.table));
    host.core = Some(core.expect("what a store wrote, a store can read"));
    world.say(|| format!("store {node} is up again"));
}

/// The bank wants a new life: measure, empty the table, start.
fn reincarnate(world: &mut World, node: Node, incarnation: Incarnation) {
    let (config, boot) = (world.store_config(node), world.rng.next());
    let Some(host) = world.stores.get_mut(&node) else { return };
    let base = host.disk.used();
    for (user, bytes) in &base {
        // It may hold what was given up, or deleted since: the stated bound of this failure.
        world.account.excused(*user, *bytes);
    }
    let mut out = StoreOutput::default();
    let core = StoreCore::new(config, world.keys.clone(), boot, incarnation, base, &mut out);
    host.disk.table = Table::new();
    apply(&mut host.disk.table, &mut out.writes);
    host.core = Some(core);
    host.restored = false;
    host.giving_up = false;
    host.given_up = None;
    host.life = incarnation;
    host.closed = Epoch(0);
    host.copy = None;
    host.beat = 0;
    host.taken_beat = 0;
    world.say(|| format!("store {node} starts life {incarnation}"));
}

pub(super) fn restart_bank(world: &mut World) {
    if world.bank.is_some() {
        return;
    }
    let mut out = BankOutput::default();
    let config = world.bank_config();
    let bank = BankCore::load(config, world.keys.clone(), Incarnation(0), rows(&world.bank_table), &mut out);
    world.bank = Some(bank.expect("what a bank wrote, a bank can read"));
    world.bank_lives += 1;
    apply(&mut world.bank_table, &mut out.writes);
    world.say(|| "the bank is up again".to_owned());
    world.carry_bank(out.actions);
}

/// Everything of the bank is lost but the limits and the list of stores.
pub(super) fn rebuild_bank(world: &mut World) {
    let mut out = BankOutput::default();
    world.bank_lives += 1000;
    let limits: BTreeMap<User, u64> = (1..=world.plan.users).map(|user| (User(user), world.plan.quota)).collect();
    let is_listed = |store: &StoreHost| !store.dead && store.given_up.is_none();
    let stores: Vec<Node> = world.stores.iter().filter(|(_, store)| is_listed(store)).map(|(node, _)| *node).collect();
    // With no store left to ask, the administrator must remember the epoch.
    let remembered = world.bank.as_ref().filter(|_| stores.is_empty()).map_or(Epoch(0), BankCore::epoch);
    let bank = BankCore::rebuild(
        world.bank_config(),
        world.keys.clone(),
        Incarnation(world.bank_lives),
        limits,
        stores,
        0,
        remembered,
        &mut out,
    );
    world.bank = Some(bank);
    for host in world.stores.values_mut() {
        host.taken_beat = 0;
    }
    world.bank_table = Table::new();
    apply(&mut world.bank_table, &mut out.writes);
    world.outcome.rebuilt += 1;
    world.say(|| "the bank is rebuilt from limits".to_owned());
    world.carry_bank(out.actions);
}
