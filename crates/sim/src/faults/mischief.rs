//! The large faults: partitions, lost and restored stores, rebuilt banks, crashed clients.

use super::network::Event;
use super::server;
use super::world::World;
use ullage_voucher::{Client, Node};

impl World {
    /// Once a second.
    pub(super) fn mischief(&mut self) {
        if self.healthy {
            return;
        }
        if self.rng.chance(0.05) {
            self.copy_a_disk();
        }
        if self.plan.client_crashes && self.rng.chance(0.01) {
            self.crash_client();
        }
        if self.plan.give_ups && self.rng.chance(self.plan.calamity) {
            self.give_up_a_store();
        }
        if !self.rng.chance(self.plan.calamity) {
            return;
        }
        let nodes: Vec<Node> = self.stores.keys().copied().collect();
        let node = nodes[self.rng.below(nodes.len() as u64) as usize];
        match self.rng.below(4) {
            0 if self.plan.partitions => {
                let length = self.rng.below(2 * self.plan.epoch_secs * 1_000_000);
                self.say(|| format!("store {node} is cut off from the bank"));
                if let Some(host) = self.stores.get_mut(&node) {
                    host.cut_until = self.now + length;
                }
            }
            1 if self.plan.losses => self.lose_store(node),
            2 if self.plan.restores => self.restore_store(node),
            3 if self.plan.rebuilds => {
                // What betrays an old copy is the bank's memory: the two faults at once are outside of what is
                // promised (docs/results/vouchers).
                let pending = self.stores.values().any(|host| host.restored);
                if !pending && self.bank.is_some() {
                    server::rebuild_bank(self);
                }
            }
            _ => {}
        }
    }

    fn copy_a_disk(&mut self) {
        let nodes: Vec<Node> = self.stores.keys().copied().collect();
        let node = nodes[self.rng.below(nodes.len() as u64) as usize];
        if let Some(host) = self.stores.get_mut(&node)
            && !host.dead
            && !host.restored
            && host.copy.is_none()
        {
            host.copy = Some(host.disk.clone());
            host.copied_beat = host.beat;
        }
    }

    fn crash_client(&mut self) {
        let clients: Vec<Client> = self.clients.keys().copied().collect();
        let client = clients[self.rng.below(clients.len() as u64) as usize];
        let Some(host) = self.clients.remove(&client) else { return };
        self.say(|| format!("client {client} crashes"));
        self.outcome.crashes += 1;
        self.start_client(host.user, self.cheaters.contains(&client));
    }

    /// The store goes on where clients can reach it, and the bank counts on it no more; often until it has left A.
    fn give_up_a_store(&mut self) {
        let nodes: Vec<Node> = self.stores.keys().copied().collect();
        let node = nodes[self.rng.below(nodes.len() as u64) as usize];
        let epochs = self.rng.between(1, 2 * self.plan.reconcile + 2);
        let counted = self.stores.values().filter(|host| !host.dead && !host.restored && !host.giving_up).count();
        let recovering = self.bank.as_ref().is_none_or(ullage_voucher::bank::BankCore::is_recovering);
        let Some(host) = self.stores.get_mut(&node) else { return };
        if host.dead || host.restored || host.giving_up || counted < 2 || recovering {
            return;
        }
        host.giving_up = true;
        host.cut_until = self.now + epochs * self.plan.epoch_secs * 1_000_000;
        self.say(|| format!("store {node} is cut off and to be given up"));
    }

    fn lose_store(&mut self, node: Node) {
        let alive = self.stores.values().filter(|host| !host.dead).count();
        let recovering = self.bank.as_ref().is_none_or(ullage_voucher::bank::BankCore::is_recovering);
        let Some(host) = self.stores.get_mut(&node) else { return };
        if host.dead || alive < 2 || recovering {
            return;
        }
        host.dead = true;
        host.core = None;
        self.outcome.lost += 1;
        self.say(|| format!("store {node} is lost for good"));
    }

    /// Sets a store back to an old copy, if the bank has leased it since and knows it.
    fn restore_store(&mut self, node: Node) {
        let settled = self.bank.as_ref().is_some_and(|bank| {
            let life = self.stores.get(&node).map(|host| host.life);
            !bank.is_recovering() && bank.stores().any(|(n, i, _, lost)| n == node && Some(i) == life && !lost)
        });
        let Some(host) = self.stores.get_mut(&node) else { return };
        if host.dead || host.restored || !settled {
            return;
        }
        // The copy must be older than the last renewal that the bank has taken: nothing else betrays it.
        if host.copied_beat >= host.taken_beat {
            return;
        }
        let Some(copy) = host.copy.take() else { return };
        host.disk = copy;
        host.used = host.disk.used();
        host.core = None;
        host.restored = true;
        self.outcome.restored += 1;
        self.say(|| format!("store {node} is set back to an old copy"));
        self.queue.at(self.now + 20_000_000, Event::RestartStore(node));
    }

    /// Everything is up again and can talk.
    pub(super) fn heal(&mut self) {
        server::restart_bank(self);
        for node in self.stores.keys().copied().collect::<Vec<_>>() {
            server::restart_store(self, node);
        }
    }
}
