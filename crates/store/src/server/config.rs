//! How a storage server is set up.

use std::path::PathBuf;
use std::sync::Arc;
use ullage_bank::client::BankClient;
use ullage_journal::Durability;
use ullage_net::server::{Gate, Limits};
use ullage_voucher::{ChargeBy, Keyring, Micros, Node, Params};

/// Everything a storage server is told at its start.
#[derive(Debug, Clone)]
pub struct StoreSettings {
    /// Where the chunks are.
    pub directory: PathBuf,
    /// Which node it is; its certificate's name ends in `-NODE`.
    pub node: Node,
    /// Over how many shards the banks spread users.
    pub shards: u32,
    /// The voucher keys, or only the one of this store's own audience.
    pub keys: Arc<Keyring>,
    /// The key of capabilities.
    pub capability_key: [u8; 32],
    /// Accept only vouchers addressed to this store.
    pub only_addressed: bool,
    /// Who is charged for a write: the chunk's owner or its writer.
    pub charge_by: ChargeBy,
    /// X, K and the skew; the same as at the bank.
    pub params: Params,
    /// Send open epochs' vouchers this often, so that cheaters are named sooner.
    pub early_every: Option<Micros>,
    /// How often the lease is renewed.
    pub renew_every: Micros,
    /// The banks; without them nothing is checked (for measuring what checking costs).
    pub bank: Option<BankClient>,
    /// What an answered request survives.
    pub durability: Durability,
    /// Journal bytes after which a snapshot is due.
    pub snapshot_after_bytes: u64,
    /// Who gets in.
    pub gate: Gate,
    /// What bounds the server.
    pub limits: Limits,
    /// Bodies held in memory at a time, in MiB.
    pub bodies_mib: u32,
}

impl StoreSettings {
    /// The defaults, with these keys.
    pub fn new(directory: PathBuf, node: Node, keys: Arc<Keyring>, capability_key: [u8; 32]) -> Self {
        Self {
            directory,
            node,
            shards: 1,
            keys,
            capability_key,
            only_addressed: false,
            charge_by: ChargeBy::default(),
            params: Params::default(),
            early_every: Some(Micros::from_secs(5)),
            renew_every: Micros::from_secs(2),
            bank: None,
            durability: Durability::Disk,
            snapshot_after_bytes: 256 << 20,
            gate: Gate::default(),
            limits: Limits::default(),
            bodies_mib: 256,
        }
    }
}
