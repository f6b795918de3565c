//! A client's configuration file.

use super::chunks::{Chunks, StoreAddress};
use super::files::Files;
use super::purse::{Purse, PurseSettings};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use ullage_bank::client::BankClient;
use ullage_net::client::{Client, Settings};
use ullage_net::{keyfile, tls};
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
    pub user: String,
    /// `host:port` of the banks.
    pub banks: Vec<String>,
    /// The stores.
    #[serde(default)]
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
        std::fs::write(&path, "user = \"a\"\nbanks = []\ncertificates = \"pki\"\ntoken = \"/etc/a.token\"\n").unwrap();
        let config = ClientConfig::read(&path).unwrap();
        assert_eq!(config.certificates, Some(directory.path().join("pki")));
        assert_eq!(config.token, Some("/etc/a.token".into()));
        let error = ClientConfig::read(&directory.path().join("none")).unwrap_err().to_string();
        assert!(error.contains("--config"), "{error}");
    }

    /// It ended the client by a panic.
    #[test]
    fn whoever_waits_for_ever_can_be_told_until_when() {
        let text = format!("user = \"a\"\nbanks = []\npatience_secs = {}\n", i64::MAX);
        let config: ClientConfig = toml::from_str(&text).unwrap();
        assert!(std::time::Instant::now().checked_add(config.patience()).is_some());
    }

    #[tokio::test]
    async fn without_stores_a_list_is_refused_as_a_put_is() {
        let config: ClientConfig = toml::from_str("user = \"a\"\nbanks = []\n").unwrap();
        let error = config.files(0).unwrap().list("").await.unwrap_err().to_string();
        assert!(error.contains("[[stores]]"), "{error}");
    }
}
