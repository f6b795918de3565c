//! How a bank is set up.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use ullage_journal::Durability;
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
    pub capability_key: [u8; 32],
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
            capability_key,
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
