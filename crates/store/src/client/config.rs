//! A client's configuration file.

use super::chunks::{Chunks, StoreAddress};
use super::files::Files;
use super::purse::{Purse, PurseSettings};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use ullage_bank::client::BankClient;
use ullage_net::client::{Client, Settings};
use ullage_net::{keyfile, pki, tls};
use ullage_voucher::wallet::RequestPolicy;

/// A year, as good as for ever: no clock can add whatever a file says.
const PATIENCE_MAX_SECS: u64 = 365 * 24 * 3600;

/// Why a client cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file.
    #[error("read {0}: {1}; another is named with --config, and `ullage put --help` shows its form")]
    Read(PathBuf, std::io::Error),
    /// Its content.
    #[error("read {0}: {1}")]
    Parse(PathBuf, toml::de::Error),
    /// Certificates.
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
    /// The token.
    #[error(transparent)]
    Token(#[from] keyfile::KeyFileError),
}

/// `client.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientConfig {
    /// Whose files.
    #[serde(deserialize_with = "user")]
    pub user: String,
    /// `host:port` of the banks.
    #[serde(deserialize_with = "banks")]
    pub banks: Vec<String>,
    /// The stores.
    #[serde(default, deserialize_with = "stores")]
    pub stores: Vec<StoreAddress>,
    /// Directory of `ca.pem` and of `NAME.pem`, `NAME.key`; without it connections are plain.
    #[serde(default)]
    pub certificates: Option<PathBuf>,
    /// NAME of the certificate; the user by default.
    #[serde(default)]
    pub certificate: Option<String>,
    /// File with a bearer token, mode 0600.
    #[serde(default)]
    pub token: Option<PathBuf>,
    /// Bytes per stripe of new files.
    #[serde(default)]
    pub stripe_bytes: Option<u64>,
    /// How vouchers are asked for; what a command will need, all at once, by default.
    #[serde(default)]
    pub policy: Option<RequestPolicy>,
    /// Seconds for which a request is repeated.
    #[serde(default)]
    pub patience_secs: Option<u64>,
    /// Listen for revocations.
    #[serde(default)]
    pub listen: bool,
}

/// Refused here, a mistake is told with its line, and not found by waiting for what cannot answer.
fn user<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let name = String::deserialize(from)?;
    pki::refused_user(&name).map_or(Ok(name), |why| Err(serde::de::Error::custom(why)))
}

fn banks<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let banks = Vec::<String>::deserialize(from)?;
    let wrong = banks.iter().find_map(|bank| wrong_address(bank));
    let none = || "no bank is named: write where they are, as in [\"10.0.0.1:7000\"]".to_owned();
    match wrong.or_else(|| banks.is_empty().then(none)) {
        Some(wrong) => Err(serde::de::Error::custom(wrong)),
        None => Ok(banks),
    }
}

fn stores<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<StoreAddress>, D::Error> {
    let stores = Vec::<StoreAddress>::deserialize(from)?;
    let (mut nodes, mut addresses) = (BTreeSet::new(), BTreeSet::new());
    let wrong = stores.iter().find_map(|store| {
        let (node, address) = (store.node, &store.address);
        if node.0 == 0 {
            return Some("node 0 is no store: write the number at the end of its certificate's name".to_owned());
        }
        let twice = |what: String| format!("{what} is there twice: each store has one number and one address");
        wrong_address(address)
            .or_else(|| (!nodes.insert(node)).then(|| twice(format!("node {node}"))))
            .or_else(|| (!addresses.insert(address)).then(|| twice(format!("address {address:?}"))))
    });
    wrong.map_or(Ok(stores), |wrong| Err(serde::de::Error::custom(wrong)))
}

/// What is wrong with where a server is said to be.
fn wrong_address(address: &str) -> Option<String> {
    let sound = address.rsplit_once(':').is_some_and(|(host, port)| {
        let is_whole = host.starts_with('[') == host.ends_with(']') && (host.starts_with('[') || !host.contains(':'));
        !host.is_empty() && is_whole && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    (!sound).then(|| format!("{address:?} is no address: write HOST:PORT, of IPv6 [HOST]:PORT"))
}

impl ClientConfig {
    /// Reads a configuration file. Paths in it that are relative are meant from its directory.
    ///
    /// # Errors
    /// When it cannot be read or is no configuration.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError::Read(path.to_owned(), error))?;
        let mut config: Self = toml::from_str(&text).map_err(|error| ConfigError::Parse(path.to_owned(), error))?;
        let directory = path.parent().unwrap_or(Path::new(""));
        let beside = |file: &mut PathBuf| *file = directory.join(&*file);
        config.certificates.iter_mut().chain(&mut config.token).for_each(beside);
        Ok(config)
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(self.patience_secs.unwrap_or(30).min(PATIENCE_MAX_SECS))
    }

    /// The connections.
    ///
    /// # Errors
    /// When certificates or token cannot be used.
    pub fn http(&self) -> Result<Arc<Client>, ConfigError> {
        let mut settings = Settings::default();
        if let Some(directory) = &self.certificates {
            let name = self.certificate.as_deref().unwrap_or(&self.user);
            settings.tls = Some(tls::client(&tls::Files::in_directory(directory, name))?);
        }
        if let Some(path) = &self.token {
            let token = keyfile::read(path)?;
            settings.token = Some(String::from_utf8_lossy(&token).trim().to_owned());
        }
        Ok(Arc::new(Client::new(settings)))
    }

    /// The banks.
    pub fn bank(&self, http: Arc<Client>) -> BankClient {
        BankClient::new(http, self.banks.clone(), self.patience())
    }

    /// Everything, ready for work that will be charged about `expected_bytes`: unless a policy is configured, so much is asked
    /// for at once and no more, since what a client takes and does not use is of no use to others until it is
    /// reconciled. Needs a running tokio.
    ///
    /// # Errors
    /// As [`Self::http`].
    pub fn files(&self, expected_bytes: u64) -> Result<Files, ConfigError> {
        let http = self.http()?;
        let addressed: BTreeSet<_> =
            self.stores.iter().filter(|store| store.addressed).map(|store| store.node).collect();
        // For those so much is asked for as each write needs, and the rest is not to be taken from it.
        let (all, open) = (self.stores.len().max(1) as u64, (self.stores.len() - addressed.len()) as u64);
        let amount =
            if addressed.is_empty() { expected_bytes } else { expected_bytes.div_ceil(all).saturating_mul(open) };
        let settings = PurseSettings {
            user: self.user.clone(),
            policy: self.policy.unwrap_or(RequestPolicy::Fixed { amount: amount.clamp(64 << 10, 4 << 30) }),
            patience: self.patience(),
            listen: self.listen,
            addressed,
        };
        let purse = Purse::new(self.bank(Arc::clone(&http)), settings);
        Ok(Files::new(Chunks::new(http, purse, self.stores.clone(), self.patience())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// They were looked for below the directory that the command was started in.
    #[test]
    fn relative_paths_are_meant_from_the_directory_of_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("client.toml");
        std::fs::write(
            &path,
            "user = \"a\"\nbanks = [\"127.0.0.1:1\"]\ncertificates = \"pki\"\ntoken = \"/etc/a.token\"\n",
        )
        .unwrap();
        let config = ClientConfig::read(&path).unwrap();
        assert_eq!(config.certificates, Some(directory.path().join("pki")));
        assert_eq!(config.token, Some("/etc/a.token".into()));
        let error = ClientConfig::read(&directory.path().join("none")).unwrap_err().to_string();
        assert!(error.contains("--config"), "{error}");
    }

    /// It ended the client by a panic.
    #[test]
    fn whoever_waits_for_ever_can_be_told_until_when() {
        let text = format!("user = \"a\"\nbanks = [\"127.0.0.1:1\"]\npatience_secs = {}\n", i64::MAX);
        let config: ClientConfig = toml::from_str(&text).unwrap();
        assert!(std::time::Instant::now().checked_add(config.patience()).is_some());
    }

    /// Each was found out by waiting for half a minute, or not at all: of two stores of one number only the first got anything.
    #[test]
    fn a_mistake_is_told_with_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("client.toml");
        let store = |node: u32, address: &str| format!("[[stores]]\nnode = {node}\naddress = {address:?}\n");
        let (one, two) = (store(1, "s:1"), store(2, "[::1]:2"));
        let with = |user: &str, banks: &str, stores: &[&str]| {
            let text = format!("# mine\nuser = {user:?}\nbanks = {banks}\n{}", stores.concat());
            std::fs::write(&path, text).unwrap();
            ClientConfig::read(&path).map_err(|error| error.to_string())
        };
        let good = "[\"bank.example.org:7000\"]";
        assert!(with("alice", good, &[&one, &two]).is_ok() && with("alice", good, &[]).is_ok());
        for (user, banks, stores, line, says) in [
            ("", good, vec![&one], 2, "no user's name"),
            ("a/b", good, vec![&one], 2, "no user's name"),
            ("alice", "[]", vec![&one], 3, "no bank is named"),
            ("alice", "[\"10.0.0.1\"]", vec![&one], 3, "HOST:PORT"),
            ("alice", "[\"::1:7000\"]", vec![&one], 3, "[HOST]:PORT"),
            ("alice", "[\"b:70000\"]", vec![&one], 3, "HOST:PORT"),
            ("alice", good, vec![&one, &two, &store(1, "s:3")], 4, "node 1 is there twice"),
            ("alice", good, vec![&one, &store(2, "s:1")], 4, "\"s:1\" is there twice"),
            ("alice", good, vec![&store(0, "s:1")], 4, "node 0 is no store"),
            ("alice", good, vec![&store(1, "s")], 4, "HOST:PORT"),
        ] {
            let stores: Vec<&str> = stores.iter().map(|store| store.as_str()).collect();
            let error = with(user, banks, &stores).unwrap_err();
            assert!(error.contains(&format!("line {line}")) && error.contains(says), "{line} {says}: {error}");
        }
    }

    #[tokio::test]
    async fn without_stores_a_list_is_refused_as_a_put_is() {
        let config: ClientConfig = toml::from_str("user = \"a\"\nbanks = [\"127.0.0.1:1\"]\n").unwrap();
        let error = config.files(0).unwrap().list("").await.unwrap_err().to_string();
        assert!(error.contains("[[stores]]"), "{error}");
    }
}
