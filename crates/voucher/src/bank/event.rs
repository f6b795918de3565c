//! What goes into a bank and what comes out of it.

use super::Finding;
use crate::message::{BankToClient, BankToStore, ClientToBank, StoreToBank};
use crate::{Client, Epoch, Micros, Node, User, Write};

/// What happens to a bank.
#[derive(Clone, Debug)]
pub enum BankEvent {
    /// Time has passed; see [`super::BankCore::next_tick`].
    Tick,
    /// The administrator sets a user's quota, in bytes; the user may be new. A quota below what is used stops
    /// further vouchers, nothing else.
    SetQuota {
        /// Whose.
        user: User,
        /// Bytes.
        quota: u64,
    },
    /// The administrator removes a user's quota: no more vouchers. What the user has stays accounted.
    RemoveUser {
        /// Whose.
        user: User,
    },
    /// The administrator refuses a user vouchers, or allows them again.
    SetBlocked {
        /// Whose.
        user: User,
        /// Whether to refuse.
        blocked: bool,
    },
    /// A message of a client, which the caller has authenticated and found allowed to act for the user.
    FromClient(Client, ClientToBank),
    /// A message of a store, which the caller has authenticated as the node that the message names.
    FromStore(StoreToBank),
    /// The administrator (or a failure detector) gives a store up. Has an effect only once its lease is over;
    /// repeat it until [`BankAction::Excluded`].
    Exclude {
        /// Which.
        store: Node,
    },
}

/// What a bank wants done, after its writes are durable.
#[derive(Clone, Debug, PartialEq)]
pub enum BankAction {
    /// Answer a client, or ask it for vouchers.
    ToClient(Client, BankToClient),
    /// Answer a store.
    ToStore(Node, BankToStore),
    /// A new epoch began; stores hear of it with their next lease.
    Epoch {
        /// Which.
        epoch: Epoch,
        /// How long it will last.
        length: Micros,
    },
    /// Somebody cheated or a store lied; what the site configured is to be done.
    Found(Finding),
    /// The site wants a hook run on a cheater: compress or thin out what the user has.
    Hook {
        /// The user.
        user: User,
        /// By how much the user is over, in bytes.
        excess: u64,
    },
    /// A store has been given up. Its use leaves A once the epoch of its failure is reconciled.
    Excluded {
        /// Which.
        store: Node,
        /// The last epoch in which it can have acted.
        fence: Epoch,
    },
    /// A store that was given up, or an earlier life of it, no longer counts.
    Dropped {
        /// Which.
        store: Node,
    },
    /// A store that counts has had no lease for an epoch or longer: nothing is reconciled before it is back or given up. Told once.
    Lapsed {
        /// Which.
        store: Node,
    },
    /// One that was [`BankAction::Lapsed`] has a lease again.
    Back {
        /// Which.
        store: Node,
    },
    /// A rebuilt bank knows all again.
    Recovered,
}

/// Writes that must be durable before any of the actions leaves.
#[derive(Clone, Debug, Default)]
pub struct BankOutput {
    /// Changes of the durable state.
    pub writes: Vec<Write>,
    /// What to do then.
    pub actions: Vec<BankAction>,
}

impl BankOutput {
    /// Forgets both, keeping the memory.
    pub fn clear(&mut self) {
        self.writes.clear();
        self.actions.clear();
    }
}
