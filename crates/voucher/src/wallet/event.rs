//! What goes into a wallet and what comes out of it.

use crate::message::{BankToClient, ClientToBank, Denial, Refusal, StoreToClient};
use crate::{Node, Op, Piece, Pieces};

/// What happens to a wallet.
#[derive(Clone, Debug)]
pub enum WalletEvent {
    /// The application is about to send a request that allocates at most `need` bytes to a store. Answered
    /// with [`WalletAction::Pay`] at once or later, or with [`WalletAction::CannotPay`].
    Spend {
        /// The number of the request to the store: unique for this client, and the same for repetitions.
        op: Op,
        /// Where.
        store: Node,
        /// Bytes.
        need: u64,
    },
    /// A store's answer to a payment or a deletion. Repetitions do no harm.
    FromStore(StoreToClient),
    /// A message of the bank. Repetitions do no harm.
    FromBank(BankToClient),
    /// The application will not repeat this request although it has no answer. The wallet asks the store
    /// to cancel it, and uses the pieces again once it knows what became of it.
    GiveUp {
        /// Which.
        op: Op,
    },
    /// The application is done for now: everything on hand goes back to the bank, for other clients of the user.
    GiveBack,
    /// Time has passed; see [`super::Wallet::next_tick`].
    Tick,
}

/// What a wallet wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WalletAction {
    /// Send the request with these pieces; repeat it, if necessary, with exactly these pieces and this number.
    Pay {
        /// Which request.
        op: Op,
        /// Where.
        store: Node,
        /// What to pay with: amounts add up to the need.
        pieces: Pieces,
    },
    /// The request cannot be paid, or was refused: it has not been carried out.
    CannotPay {
        /// Which request.
        op: Op,
        /// Why.
        reason: Unpaid,
    },
    /// Send [`crate::store::StoreEvent::Cancel`] to a store, whose answer goes to the wallet: only then can the pieces
    /// of a request that was refused or given up be used again, because a copy of it may still be under way.
    Cancel {
        /// Which request.
        op: Op,
        /// Where it was sent.
        store: Node,
        /// What it was sent with.
        pieces: Vec<Piece>,
    },
    /// Send to the bank; with whatever else goes there, if that is soon.
    ToBank(ClientToBank),
}

/// Why a request is not paid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unpaid {
    /// The bank gives nothing.
    Denied(Denial),
    /// The store refused.
    Refused(Refusal),
}

/// Actions, in order.
#[derive(Clone, Debug, Default)]
pub struct WalletOutput {
    /// What to do.
    pub actions: Vec<WalletAction>,
}

impl WalletOutput {
    /// Forgets them, keeping the memory.
    pub fn clear(&mut self) {
        self.actions.clear();
    }
}
