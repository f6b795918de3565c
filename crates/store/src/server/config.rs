//! How a storage server is set up.

use std::path::PathBuf;
use std::sync::Arc;
use ullage_bank::client::BankClient;
use ullage_journal::Durability;
use ullage_net::keyfile::Secret;
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
    pub capability_key: Secret,
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
            capability_key: capability_key.into(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use ullage_net::keyfile::to_hex;
    use ullage_voucher::KeyId;

    /// The key of capabilities, which opens all chunks, was shown with all else.
    #[test]
    fn no_key_is_shown_with_the_settings() {
        let [voucher, capability, token] = [1, 2, 3].map(|key| std::array::from_fn(|byte| 61 * key + byte as u8));
        let keys = Arc::new(Keyring::with_root(KeyId(1), voucher));
        let mut settings = StoreSettings::new(PathBuf::new(), Node(1), keys, capability);
        settings.gate.token_key = Some(token);
        let shown = format!("{settings:?}");
        for key in [voucher, capability, token] {
            let numbers = key[..3].iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
            assert!(!shown.contains(&numbers) && !shown.to_lowercase().contains(&to_hex(&key[..3])), "{shown}");
        }
    }
}
