//! What travels between the bank and everybody else, in JSON. The protocol's own messages are [`ullage_voucher::message`].

use crate::capability::Rights;
use serde::{Deserialize, Serialize};
use ullage_voucher::bank::Finding;
use ullage_voucher::message::{BankToClient, BankToStore, ClientToBank, StoreToBank};
use ullage_voucher::{Client, Epoch};

/// Most messages in one request.
pub const MESSAGES_MAX: usize = 1024;

/// Anything a client wants of the bank, in one request: so a request for vouchers rides on whatever else goes there.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ClientBatch {
    /// Which wallet; must be a number of the authenticated party ([`crate::identity::client`]).
    pub client: Client,
    /// Requests and returns. All must concern users that the party may act for.
    #[serde(default)]
    pub messages: Vec<ClientToBank>,
    /// Capabilities wanted.
    #[serde(default)]
    pub capabilities: Vec<CapabilityRequest>,
    /// Whether the own account is wanted too.
    #[serde(default)]
    pub account: bool,
}

/// A capability wanted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CapabilityRequest {
    /// For whom; the asker by default. An owner may give others a part of what is the owner's.
    #[serde(default)]
    pub user: Option<String>,
    /// Chunk names start so; the first component is the owner.
    pub prefix: String,
    /// What for.
    pub rights: Rights,
}

/// The bank's answers, in the order of the questions.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClientAnswers {
    /// One answer to each message, and whatever else the bank has to say to this client.
    pub messages: Vec<BankToClient>,
    /// The capabilities.
    pub capabilities: Vec<String>,
    /// Whether the bank asks clients to give back, and waits for those that do not listen. Older ones do not say.
    #[serde(default)]
    pub revokes: bool,
    /// The asker's account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<AccountView>,
}

/// From a store: messages for the bank of one shard.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoreBatch {
    /// Which shard.
    pub shard: u32,
    /// Of how many: a store that spreads users over another number would account for them at banks that do not know them. 0 from
    /// an older store, which does not say.
    #[serde(default)]
    pub shards: u32,
    /// The messages.
    pub messages: Vec<StoreToBank>,
}

/// The bank's answers to a store.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoreAnswers {
    /// In order.
    pub messages: Vec<BankToStore>,
}

/// A user's account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountView {
    /// The user.
    pub user: String,
    /// Bytes allowed.
    pub quota_bytes: u64,
    /// Bytes reconciled with the stores, as of the horizon.
    pub settled_bytes: i64,
    /// Bytes of vouchers issued since the horizon.
    pub issued_bytes: u64,
    /// What may be in use at most (the paper's A).
    pub authorized_bytes: i64,
    /// Whether further vouchers are refused.
    pub blocked: bool,
    /// Whether there is no quota any more, and what the user has is all that is left.
    #[serde(default)]
    pub removed: bool,
    /// The bank's epoch.
    pub epoch: Epoch,
    /// Up to which epoch stores are reconciled.
    pub horizon: Epoch,
}

/// An administrator's change of an account. What is not known is refused: who misspells a field is not to be told that it was done.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccountChange {
    /// Bytes allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
    /// Whether to refuse further vouchers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<bool>,
}

/// What happened to a user in one epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// The epoch.
    pub epoch: Epoch,
    /// Requests answered with vouchers.
    pub grants: u64,
    /// Their value.
    pub granted_bytes: u64,
    /// Requests denied.
    pub denials: u64,
    /// Value given back.
    pub returned_bytes: u64,
    /// Times the user was found to have cheated.
    pub findings: u64,
}

/// A user's past, newest epoch last.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct History {
    /// The user.
    pub user: String,
    /// One entry per epoch in which anything happened.
    pub entries: Vec<HistoryEntry>,
}

/// Something that cannot happen while everybody is honest, and when it was found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FindingView {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// The user's name, if one is concerned and known.
    pub user: Option<String>,
    /// What.
    pub finding: Finding,
}

/// How a bank is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BankStatus {
    /// The shards, in order.
    pub shards: Vec<ShardStatus>,
}

/// How one shard of a bank is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ShardStatus {
    /// Its number.
    pub shard: u32,
    /// Whether this process leads it.
    pub leading: bool,
    /// Where its leader is, as far as known.
    pub leader: Option<String>,
    /// The epoch, if leading.
    pub epoch: Option<Epoch>,
    /// Reconciled up to, if leading.
    pub horizon: Option<Epoch>,
    /// Stores that count: node, life, last epoch reported, given up.
    pub stores: Vec<StoreView>,
    /// Whether it leads accounts that were rebuilt, and issues nothing (or the stated share) until all old vouchers are reconciled.
    #[serde(default)]
    pub recovering: bool,
    /// The stores among those that it was told of which have not said yet what they hold: it waits for them, or until they are given up.
    #[serde(default)]
    pub awaited: Vec<u32>,
}

/// A store as the bank sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoreView {
    /// Its number.
    pub node: u32,
    /// Its life.
    pub incarnation: u32,
    /// Reported up to.
    pub reported: Epoch,
    /// Given up.
    pub given_up: bool,
    /// It has a lease of this bank: it takes vouchers.
    #[serde(default)]
    pub leased: bool,
    /// When it was last given one, in milliseconds since 1970; never while this bank leads.
    #[serde(default)]
    pub heard_at_ms: Option<u64>,
}
