//! What goes into a store and what comes out of it.

use crate::message::{BankToStore, StoreToBank, StoreToClient};
use crate::{Client, Incarnation, Op, Piece, User, Write};

/// What happens to a store.
#[derive(Clone, Debug)]
pub enum StoreEvent {
    /// Time has passed; see [`super::StoreCore::next_tick`]. Once a second is enough.
    Tick,
    /// A client wants something done that allocates at most so much. Answered with
    /// [`StoreToClient::Held`] (do it, then commit), with the earlier answer if it is a repetition, or refused.
    Hold {
        /// The authenticated client.
        client: Client,
        /// Who is to be charged.
        user: User,
        /// The client's number of the request.
        op: Op,
        /// What it pays with.
        pieces: Vec<Piece>,
        /// The most that the request can allocate, in bytes.
        at_most: u64,
    },
    /// The request was carried out and allocated this much; its writes belong into the same transaction as
    /// the allocation. Answered with [`StoreToClient::Spent`].
    Commit {
        /// The client of the hold.
        client: Client,
        /// The number of the hold.
        op: Op,
        /// What was really allocated, at most what was held; the rest goes back as balance.
        used: u64,
    },
    /// The request was not carried out: nothing is charged and nobody answered.
    Abort {
        /// The client of the hold.
        client: Client,
        /// The number of the hold.
        op: Op,
    },
    /// Hold and commit in one, where what will be allocated is known in advance.
    Spend {
        /// The authenticated client.
        client: Client,
        /// Who is to be charged.
        user: User,
        /// The client's number of the request.
        op: Op,
        /// What it pays with.
        pieces: Vec<Piece>,
        /// What is allocated.
        used: u64,
    },
    /// A client does not know what became of a request and will not repeat it: if it was carried out, the
    /// answer is given again; if not, it never will be, and the client may use its pieces elsewhere
    /// ([`crate::message::Refusal::Cancelled`]). Needs no lease now, but that
    /// this process once had one.
    Cancel {
        /// The authenticated client.
        client: Client,
        /// The number of the request.
        op: Op,
        /// What it was to be paid with: the cancellation is remembered until none of these can be spent here.
        pieces: Vec<Piece>,
    },
    /// The client knows what became of all its requests numbered below this and repeats none of them: their answers are
    /// forgotten, and copies that come later are refused ([`crate::message::Refusal::Settled`]).
    Settled {
        /// The authenticated client.
        client: Client,
        /// The first request that is not settled.
        below: Op,
    },
    /// Space of a user was freed (delete, truncate). Its writes belong into the same transaction. Ask
    /// [`super::StoreCore::replay`] first whether it is a repetition.
    Free {
        /// The authenticated client.
        client: Client,
        /// The user who had been charged, who need not be the one who deletes.
        user: User,
        /// Whether the client is that user's, and so gets the refund. Else nobody does, and the space is there again when its epoch is
        /// reconciled: whoever spends what was charged to another, spends (and cheats) in that one's name.
        is_users: bool,
        /// The client's number of the request.
        op: Op,
        /// What was freed, in bytes.
        amount: u64,
    },
    /// A message of the bank.
    FromBank(BankToStore),
    /// How full the store is; goes to the bank with the next renewal.
    Space {
        /// Free bytes.
        free: u64,
        /// All bytes.
        total: u64,
    },
}

/// What a store wants done, after its writes are durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreAction {
    /// Send to the bank (of every shard).
    ToBank(StoreToBank),
    /// Answer a client.
    ToClient(Client, StoreToClient),
    /// Stop; measure what each user really has here; start anew with [`super::StoreCore::new`] in this life,
    /// over an emptied table.
    Reincarnate(Incarnation),
}

/// Writes that must be durable before any of the actions leaves.
#[derive(Clone, Debug, Default)]
pub struct StoreOutput {
    /// Changes of the durable state.
    pub writes: Vec<Write>,
    /// What to do then.
    pub actions: Vec<StoreAction>,
}

impl StoreOutput {
    /// Forgets both, keeping the memory.
    pub fn clear(&mut self) {
        self.writes.clear();
        self.actions.clear();
    }
}
