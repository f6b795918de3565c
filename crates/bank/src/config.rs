//! How a bank is set up.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use ullage_journal::Durability;
use ullage_net::keyfile::Secret;
use ullage_net::server::{Gate, Limits};
use ullage_voucher::bank::{Answer, BankConfig, Policy};
use ullage_voucher::{EpochLength, Keyring, Micros, Params};

use crate::engine::EtcdSettings;
use crate::identity;

/// Where the accounts are kept.
#[derive(Debug, Clone)]
pub enum EngineChoice {
    /// A journal in a directory.
    Embedded {
        /// The directory; one subdirectory per shard.
        directory: PathBuf,
        /// What an answered request survives.
        durability: Durability,
    },
    /// etcd, shared with other banks.
    Etcd(EtcdSettings),
}

/// Everything a bank is told at its start.
#[derive(Debug, Clone)]
pub struct BankSettings {
    /// Where the accounts are kept.
    pub engine: EngineChoice,
    /// Over how many shards users are spread; the same for ever at one site.
    pub shards: u32,
    /// X, K and the skew in epochs.
    pub params: Params,
    /// How long epochs last.
    pub epoch_length: EpochLength,
    /// What happens when quota runs low.
    pub policy: Policy,
    /// How long a store's lease lasts.
    pub lease: Micros,
    /// What is done about a cheater.
    pub answer: Answer,
    /// Grants, returns and clients remembered of one user; more are denied until epochs pass.
    pub user_max: usize,
    /// Run for every finding, which it reads as JSON; a program and its arguments.
    pub notify_command: Vec<String>,
    /// Run to make a cheater's data smaller, when the answer is `hook`.
    pub hook_command: Vec<String>,
    /// The voucher keys.
    pub keys: Arc<Keyring>,
    /// The key of capabilities.
    pub capability_key: Secret,
    /// How long capabilities are good.
    pub capability_life: Duration,
    /// Who gets in.
    pub gate: Gate,
    /// What bounds the server.
    pub limits: Limits,
}

impl BankSettings {
    /// The defaults, with these keys: epochs of 10 minutes, X = 2, K = 3, limiting.
    pub fn new(engine: EngineChoice, keys: Arc<Keyring>, capability_key: [u8; 32]) -> Self {
        let defaults = BankConfig::new(identity::bank_node(0), Params::default());
        Self {
            engine,
            shards: 1,
            params: defaults.params,
            epoch_length: defaults.epoch_length,
            policy: defaults.policy,
            lease: defaults.lease,
            answer: defaults.answer,
            user_max: defaults.user_max,
            notify_command: Vec::new(),
            hook_command: Vec::new(),
            keys,
            capability_key: capability_key.into(),
            capability_life: Duration::from_secs(3600),
            gate: Gate::default(),
            limits: Limits { spare: 64, ..Limits::default() },
        }
    }

    pub(crate) fn core(&self, shard: u32) -> BankConfig {
        let mut config = BankConfig::new(identity::bank_node(shard), self.params);
        config.epoch_length = self.epoch_length;
        config.policy = self.policy;
        config.lease = self.lease;
        config.answer = self.answer;
        config.user_max = self.user_max;
        config
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
        let engine = EngineChoice::Embedded { directory: PathBuf::new(), durability: Durability::Process };
        let mut settings = BankSettings::new(engine, keys, capability);
        settings.gate.token_key = Some(token);
        let shown = format!("{settings:?}");
        for key in [voucher, capability, token] {
            let numbers = key[..3].iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
            assert!(!shown.contains(&numbers) && !shown.to_lowercase().contains(&to_hex(&key[..3])), "{shown}");
        }
    }
}
