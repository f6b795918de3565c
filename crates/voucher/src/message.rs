//! What the parties say to each other. All of it can be serialised with serde; vouchers are their header text
//! in JSON.

use crate::{Client, Epoch, Incarnation, Micros, Node, Op, Piece, User, VoucherId};
use serde::{Deserialize, Serialize};

/// From a client to the bank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ClientToBank {
    /// Asks for vouchers. May be repeated under the same number until answered.
    Request {
        /// For whom.
        user: User,
        /// The client's number of this request.
        op: Op,
        /// How many bytes it would like.
        want: u64,
        /// The only store that is to take them, if it takes no others; an older bank gives such as any store takes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        audience: Option<Node>,
    },
    /// Gives unused vouchers back, by itself or because it was asked to. May be repeated until answered.
    Return {
        /// Whose.
        user: User,
        /// The client's number of this request.
        op: Op,
        /// What it gives back; may be nothing, as an answer to [`BankToClient::Revoke`].
        pieces: Vec<Piece>,
    },
}

/// From the bank to a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum BankToClient {
    /// Vouchers, possibly for less than was wanted.
    Granted {
        /// Whose.
        user: User,
        /// The request this answers.
        op: Op,
        /// The vouchers.
        pieces: Vec<Piece>,
        /// The bank's epoch.
        epoch: Epoch,
    },
    /// No vouchers.
    Denied {
        /// Whose.
        user: User,
        /// The request this answers.
        op: Op,
        /// Why.
        reason: Denial,
        /// The bank's epoch.
        epoch: Epoch,
    },
    /// A return has been recorded.
    Returned {
        /// Whose.
        user: User,
        /// The request this answers.
        op: Op,
        /// How many bytes will be of use to others.
        accepted: u64,
    },
    /// Other clients of this user have run out: give back what is not needed.
    Revoke {
        /// Whose.
        user: User,
    },
}

/// Why the bank gives nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Denial {
    /// Nothing is left of the quota (or may be left, once older vouchers are reconciled).
    OverQuota,
    /// The bank does not know the user.
    UnknownUser,
    /// The user has been refused further vouchers, as an answer to cheating or by the administrator.
    Blocked,
    /// The bank was rebuilt and does not know yet how much is used.
    Recovering,
    /// The request makes no sense (a want of zero).
    Invalid,
    /// The user has been given vouchers, or asked through clients, more often than the bank remembers of one user. It
    /// forgets epoch by epoch.
    TooMany,
}

/// From a store to the bank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum StoreToBank {
    /// Asks for a lease.
    Renew(Renew),
    /// The final account of one epoch.
    Report(Report),
    /// Vouchers seen so far in epochs that are still open, so that cheaters are found sooner.
    Early {
        /// Who reports.
        store: Node,
        /// In which of its lives.
        incarnation: Incarnation,
        /// The totals of each voucher so far.
        spent: Vec<SpentLine>,
    },
}

/// A store asks for a lease: without one it takes no vouchers and makes none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renew {
    /// Who asks.
    pub store: Node,
    /// In which of its lives.
    pub incarnation: Incarnation,
    /// A random number of the process. With `beat` and `before` it betrays a store that was set back to an old copy.
    pub boot: u64,
    /// Counts renewals over all processes of this incarnation; made durable before it is sent.
    pub beat: u64,
    /// The newest life of the bank that this process has heard of. A rebuilt bank believes a base only if it is an
    /// answer to its own question: an older one is not the last word of the store.
    pub bank: Incarnation,
    /// The processes since the last one that had a lease, that one first: each with the last renewal it sent.
    pub before: Vec<(u64, u64)>,
    /// The newest epoch that the store has heard of.
    pub epoch: Epoch,
    /// Free bytes.
    pub free: u64,
    /// All bytes.
    pub total: u64,
    /// What each user has on it, when the bank asked or the store is new in this incarnation.
    pub base: Option<Base>,
}

/// Everything a store holds, by user, as of an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// The store starts a new life and has taken no vouchers in it.
    pub fresh: bool,
    /// The epoch e of the `S_e` below (meaningless if fresh).
    pub epoch: Epoch,
    /// `S_e`, in bytes, of each user that has any.
    pub used: Vec<(User, i64)>,
}

/// One voucher's spending at one store, by one client, as a total.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpentLine {
    /// Which voucher.
    pub voucher: VoucherId,
    /// The epoch it was issued in.
    pub epoch: Epoch,
    /// The user it charges.
    pub user: User,
    /// Its signed value.
    pub value: u64,
    /// Which client spent it.
    pub client: Client,
    /// How much of it, in all so far.
    pub amount: u64,
}

/// One refund voucher that a store has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefundLine {
    /// Which voucher.
    pub voucher: VoucherId,
    /// The user who had been charged.
    pub user: User,
    /// How much was freed.
    pub value: u64,
    /// Which client was given it; 0 if nobody was.
    pub client: Client,
}

/// The final account of one epoch at one store: after it, the store accepts nothing of that epoch or before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Who reports.
    pub store: Node,
    /// In which of its lives.
    pub incarnation: Incarnation,
    /// Which epoch.
    pub epoch: Epoch,
    /// `S_e` of each user whose use changed in this epoch.
    pub used: Vec<(User, i64)>,
    /// All vouchers of this epoch that were spent here.
    pub spent: Vec<SpentLine>,
    /// All refunds made in this epoch.
    pub refunds: Vec<RefundLine>,
}

/// From the bank to a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum BankToStore {
    /// The store may go on.
    Lease(Lease),
    /// The bank does not know this store: it must say what it holds ([`Renew::base`]).
    NeedBase {
        /// The life of the bank that asks.
        bank: Incarnation,
    },
    /// The store was set back or given up: it must measure what it holds and start the given life.
    Reincarnate {
        /// The next life.
        incarnation: Incarnation,
        /// The process whose renewal is refused; a later one goes by the answer to its own.
        boot: u64,
    },
    /// An earlier life of this store may still be running; ask again later.
    Wait,
    /// The bank has this store's reports up to and including this epoch.
    Ack {
        /// The life of the bank that has them.
        bank: Incarnation,
        /// Which life the answer is for.
        incarnation: Incarnation,
        /// The last epoch reported without a gap.
        reported: Epoch,
        /// Epochs up to here have left the sum of what was issued and need not be kept.
        horizon: Epoch,
    },
}

/// A lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The life of the bank that gives it. What an earlier one said of reports and horizon is of no use to a bank
    /// that was rebuilt.
    pub bank: Incarnation,
    /// Which life the answer is for.
    pub incarnation: Incarnation,
    /// The process it is for.
    pub boot: u64,
    /// The renewal it answers: the lease runs from when that was sent.
    pub beat: u64,
    /// How long it lasts.
    pub length: Micros,
    /// The current epoch.
    pub epoch: Epoch,
    /// Reports up to here have been received.
    pub reported: Epoch,
    /// Epochs up to here need not be kept.
    pub horizon: Epoch,
    /// A store that is new in this life acts in no epoch before this one.
    pub accept_from: Epoch,
}

/// From a store to a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum StoreToClient {
    /// The vouchers cover the request; it is to be carried out and committed.
    Held {
        /// The request this answers.
        op: Op,
    },
    /// Carried out and paid.
    Spent {
        /// The request this answers.
        op: Op,
        /// How much was charged.
        used: u64,
        /// What is left of the pieces that were sent.
        balance: Vec<Piece>,
        /// The store's epoch.
        epoch: Epoch,
    },
    /// Space was freed.
    Refunded {
        /// The request this answers.
        op: Op,
        /// The refund, unless nothing was freed.
        refund: Option<Piece>,
        /// The store's epoch.
        epoch: Epoch,
    },
    /// Not carried out.
    Refused {
        /// The request this answers.
        op: Op,
        /// Why.
        reason: Refusal,
        /// The store's epoch.
        epoch: Epoch,
    },
}

/// Why a store does not accept a payment. In the order in which they are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The store has no lease: it may have been given up.
    NoLease,
    /// The store starts a new life and must wait for an epoch.
    NotYetOpen,
    /// More pieces than a request may carry, or of this user than the store can remember or tell the bank of in one epoch.
    TooMany,
    /// For another user than the one to be charged.
    ForeignUser,
    /// Addressed to another store.
    ForeignAudience,
    /// From an epoch too far ahead.
    Future,
    /// No longer valid.
    Expired,
    /// From an epoch that this store has reported already.
    Reported,
    /// The amount exceeds the value, or the terms contradict the parameters.
    Malformed,
    /// The signature is not right, or its key unknown.
    BadSignature,
    /// More than the voucher's value would have been spent here.
    Overspent,
    /// The pieces do not cover the request.
    Short,
    /// The client cancelled it: it has not been carried out and never will be.
    Cancelled,
    /// The client has said that it knows what became of it; the store no longer does.
    Settled,
    /// No request of that number is being held.
    UnknownOp,
    /// More would be refunded than the user has here.
    MoreThanHeld,
}
