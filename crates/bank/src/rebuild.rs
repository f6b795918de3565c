//! A bank of which everything was lost but the limits (voucher-quotas, section 3, *Failures*): writes the accounts that a
//! bank then starts from, and learns the rest of from the stores.

#[cfg(feature = "etcd")]
use crate::engine::{self, EtcdSettings};
use crate::engine::{Embedded, Engine, EngineError};
use crate::history::Memory;
use crate::identity;
use crate::shards as shard_row;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
#[cfg(feature = "etcd")]
use std::time::Duration;
use ullage_journal::Durability;
use ullage_net::{clock, pki};
use ullage_types::Bytes;
use ullage_voucher::bank::{BankConfig, BankCore, BankOutput};
use ullage_voucher::{Epoch, Incarnation, Keyring, Node, Params, User, Write};

/// How long another process may have the lead of accounts that are not there: one that has just ended keeps it for a few seconds.
#[cfg(feature = "etcd")]
const LEAD_MAX: Duration = Duration::from_secs(15);

/// What is still known, as TOML.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remembered {
    /// Each user's quota: a number of bytes, or text with a unit.
    #[serde(deserialize_with = "limits")]
    pub limits: BTreeMap<String, Bytes>,
    /// Every storage server there is, by number: nothing is issued before all have said what they hold.
    pub stores: Vec<u32>,
    /// The newest epoch that anybody remembers. Matters only if all stores that knew of the last epochs are lost too.
    #[serde(default)]
    pub epoch_at_least: u64,
    /// The share of each quota, in thousandths, that may be issued before the use is known: by so much a quota can be exceeded.
    #[serde(default)]
    pub issue_permille: u16,
}

/// A user's name, as a quota is set for: others could be neither asked about nor changed nor removed.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Name(String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        pki::refused_user(&name).map_or(Ok(Self(name)), |why| Err(serde::de::Error::custom(why)))
    }
}

/// Sizes as numbers or as text with a unit.
fn limits<'de, D: serde::Deserializer<'de>>(from: D) -> Result<BTreeMap<String, Bytes>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Size {
        Number(u64),
        Text(String),
    }
    let sizes = BTreeMap::<Name, Size>::deserialize(from)?;
    let size = |(Name(name), size)| match size {
        Size::Number(bytes) => Ok((name, Bytes(bytes))),
        Size::Text(text) => text.parse().map(|bytes| (name, bytes)).map_err(serde::de::Error::custom),
    };
    sizes.into_iter().map(size).collect()
}

/// Why accounts are not rebuilt.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// What is remembered.
    #[error("what is remembered is not readable: {0}")]
    Toml(#[from] toml::de::Error),
    /// A share above the whole.
    #[error("issue_permille is at most 1000")]
    Share,
    /// Nobody is left to ask for the epoch: one that was used before would make old vouchers good again.
    #[error("without any store nobody can say which epochs there were: state epoch_at_least")]
    NoEpoch,
    /// There are accounts already.
    #[error("{0} has accounts already: a bank can serve them, or give an empty directory")]
    NotEmpty(std::path::PathBuf),
    /// There are accounts already, in etcd.
    #[error(
        "etcd has accounts of the name {0} already: a bank can serve them, or give another name, etcds://HOST:PORT,.../NAME"
    )]
    NotEmptyThere(String),
    /// They cannot be written.
    #[error("write the accounts: {0}")]
    Engine(#[from] EngineError),
}

impl Remembered {
    /// From TOML.
    ///
    /// # Errors
    /// When it is no TOML or has other fields, or nothing in it tells the epoch.
    pub fn parse(text: &str) -> Result<Self, RebuildError> {
        let remembered: Self = toml::from_str(text)?;
        if remembered.issue_permille > 1000 {
            Err(RebuildError::Share)
        } else if remembered.stores.is_empty() && remembered.epoch_at_least == 0 {
            Err(RebuildError::NoEpoch)
        } else {
            Ok(remembered)
        }
    }

    /// Writes the accounts of all shards into `directory`, which a bank then serves as usual. Its lives are numbered from
    /// the current time on, above all that the lost bank can have had.
    ///
    /// # Errors
    /// When the directory has accounts already or cannot be written.
    pub fn rebuild(&self, directory: &Path, shards: u32, params: Params) -> Result<(), RebuildError> {
        let shards = shards.max(1);
        let mut engines = Vec::new();
        for shard in 0..shards {
            let place = directory.join(shard.to_string());
            let (engine, rows) = Embedded::open(&place, Durability::Disk)?;
            if !rows.is_empty() {
                return Err(RebuildError::NotEmpty(place));
            }
            engines.push(engine);
        }
        for (shard, engine) in (0..shards).zip(engines) {
            let (sender, receiver) = std::sync::mpsc::channel();
            let writes = self.accounts(shard, shards, params);
            engine.append(&writes, Box::new(move |result| drop(sender.send(result))));
            receiver.recv().unwrap_or(Err(EngineError::Deposed))?;
        }
        Ok(())
    }

    /// The same in etcd.
    ///
    /// # Errors
    /// When there are accounts of that name already, or etcd cannot be reached.
    #[cfg(feature = "etcd")]
    pub async fn rebuild_in(&self, etcd: &EtcdSettings, shards: u32, params: Params) -> Result<(), RebuildError> {
        let shards = shards.max(1);
        for shard in 0..shards {
            if !engine::look(etcd, shard).await?.is_empty() {
                return Err(RebuildError::NotEmptyThere(etcd.name.clone()));
            }
        }
        for shard in 0..shards {
            let led = tokio::time::timeout(LEAD_MAX, engine::campaign(etcd, shard, &|_| true)).await;
            let (engine, rows) = led.unwrap_or(Err(EngineError::Deposed))?;
            if !rows.is_empty() {
                return Err(RebuildError::NotEmptyThere(etcd.name.clone()));
            }
            let (sender, receiver) = tokio::sync::oneshot::channel();
            let writes = self.accounts(shard, shards, params);
            engine.append(&writes, Box::new(move |result| drop(sender.send(result))));
            receiver.await.unwrap_or(Err(EngineError::Deposed))?;
        }
        Ok(())
    }

    /// The rows of one shard.
    fn accounts(&self, shard: u32, shards: u32, params: Params) -> Vec<Write> {
        let users = || self.limits.iter().map(|(name, quota)| (identity::user(name), name, quota.0));
        let users = || users().filter(|(user, ..)| identity::shard_of(*user, shards) == shard);
        let limits: Vec<(User, u64)> = users().map(|(user, _, quota)| (user, quota)).collect();
        let mut out = BankOutput::default();
        BankCore::rebuild(
            BankConfig::new(identity::bank_node(shard), params),
            Arc::new(Keyring::new()),
            Incarnation(clock::now_secs() as u32),
            limits,
            self.stores.iter().map(|node| Node(*node)),
            self.issue_permille,
            Epoch(self.epoch_at_least),
            &mut out,
        );
        out.writes.push(shard_row::row(shards));
        let mut memory = Memory::default();
        for (user, name, _) in users() {
            memory.set_name(user, name, &mut out.writes);
        }
        out.writes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_written_once_and_never_over_others() {
        let directory = tempfile::tempdir().unwrap();
        let remembered = Remembered::parse("stores = [1, 2]\n[limits]\nann = \"1MiB\"\nbob = 5\n").unwrap();
        remembered.rebuild(directory.path(), 2, Params::default()).unwrap();
        let again = remembered.rebuild(directory.path(), 2, Params::default());
        assert!(matches!(again, Err(RebuildError::NotEmpty(_))), "{again:?}");
    }

    #[test]
    fn without_stores_the_epoch_must_be_stated() {
        assert!(matches!(Remembered::parse("stores = []\n[limits]\n"), Err(RebuildError::NoEpoch)));
        assert!(Remembered::parse("stores = []\nepoch_at_least = 7\n[limits]\n").is_ok());
    }

    /// Regression: accounts were written that no request can name.
    #[test]
    fn names_that_are_no_users_are_refused_with_their_line() {
        for name in ["a b", "a/b", "", "..", "\u{e9}"] {
            let text = format!("stores = [1]\n[limits]\nann = 5\n{name:?} = 5\n");
            let error = Remembered::parse(&text).unwrap_err().to_string();
            assert!(error.contains("line 4") && error.contains("is no user's name"), "{error}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(Remembered::parse("stores = [1]").is_err());
        assert!(Remembered::parse("stores = [1]\nissue_permille = 1001\n[limits]\n").is_err());
        assert!(Remembered::parse("stores = [1]\ncolour = 1\n[limits]\n").is_err());
    }
}
