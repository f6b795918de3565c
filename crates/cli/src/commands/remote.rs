//! What the commands around banks and stores share: configuration, run time, log, progress, the end of a server.

use anyhow::Context;
use clap::Args;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use ullage_net::server::Gate;
use ullage_net::{keyfile, tls};
use ullage_store::client::{ClientConfig, Progress};
use ullage_types::Bytes;
use ullage_voucher::{KeyId, Keyring, Node};

/// Where a client finds its banks and stores.
#[derive(Debug, Args)]
pub struct Remote {
    /// Configuration: user, banks, stores, certificates
    #[arg(long, env = "ULLAGE_CLIENT", default_value = "/etc/ullage/client.toml", value_name = "FILE")]
    pub config: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Remote {
    /// Reads the configuration.
    pub fn read(&self) -> anyhow::Result<ClientConfig> {
        Ok(ClientConfig::read(&self.config)?)
    }
}

/// Who may talk to a server, and how it shows who it is.
#[derive(Debug, Args)]
pub struct GateArguments {
    /// Directory made by `ullage pki`: ca.pem, NAME.pem, NAME.key, voucher.key, capability.key, token.key
    #[arg(long, value_name = "DIR")]
    pub pki: PathBuf,
    /// This server's certificate in it; stores are called NAME-NUMBER
    #[arg(long)]
    pub name: String,
    /// Speak plain HTTP: anybody on the way can read and change everything. For trials on one machine only
    #[arg(long)]
    pub plain: bool,
}

impl GateArguments {
    /// TLS and tokens.
    pub fn gate(&self) -> anyhow::Result<Gate> {
        let files = tls::Files::in_directory(&self.pki, &self.name);
        let token = self.pki.join("token.key");
        Ok(Gate {
            tls: if self.plain { None } else { Some(tls::server(&files)?) },
            token_key: if token.exists() { Some(keyfile::read_key(&token)?) } else { None },
        })
    }

    /// The voucher keys: of all audiences, or only of this store's own if that is all there is.
    pub fn keyring(&self, node: Option<Node>) -> anyhow::Result<Arc<Keyring>> {
        let mut keys = Keyring::new();
        let own = node.map(|node| (node, self.pki.join(format!("voucher-{node}.key"))));
        match own {
            Some((node, path)) if path.exists() => keys.add_audience(KeyId(1), node, keyfile::read_key(&path)?),
            _ => {
                keys.add_root(KeyId(1), keyfile::read_key(&self.pki.join("voucher.key"))?);
                // Rotation: newer keys are called voucher.2.key and so on; the newest signs.
                for id in 2..=u8::MAX {
                    let path = self.pki.join(format!("voucher.{id}.key"));
                    if !path.exists() {
                        break;
                    }
                    keys.add_root(KeyId(id), keyfile::read_key(&path)?);
                }
            }
        }
        Ok(Arc::new(keys))
    }

    /// The key of capabilities.
    pub fn capability_key(&self) -> anyhow::Result<[u8; 32]> {
        Ok(keyfile::read_key(&self.pki.join("capability.key"))?)
    }

    /// As a client of the banks.
    pub fn http(&self) -> anyhow::Result<Arc<ullage_net::client::Client>> {
        let mut settings = ullage_net::client::Settings::default();
        if self.plain {
            let path = self.pki.join(format!("{}.token", self.name));
            let token = keyfile::read(&path).context("without TLS this server needs a token")?;
            settings.token = Some(String::from_utf8_lossy(&token).trim().to_owned());
        } else {
            settings.tls = Some(tls::client(&tls::Files::in_directory(&self.pki, &self.name))?);
        }
        Ok(Arc::new(ullage_net::client::Client::new(settings)))
    }
}

/// Runs a future to its end.
pub fn block_on<F: Future>(future: F) -> anyhow::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the run time")?;
    Ok(runtime.block_on(future))
}

/// Logs to standard error; `RUST_LOG` chooses what.
pub fn log() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    // A second call, in tests, keeps the first subscriber.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
}

/// Completes at SIGINT or SIGTERM.
pub async fn end_signal() {
    let mut term = match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        Ok(term) => term,
        Err(error) => {
            tracing::warn!(%error, "SIGTERM will end this server without its last snapshot");
            return std::future::pending().await;
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = term.recv() => {}
    }
}

/// A progress bar on a terminal; nothing elsewhere or with `--json`.
pub fn progress(quiet: bool, name: &str) -> Progress {
    if quiet || !std::io::stderr().is_terminal() {
        return Arc::new(|_, _| {});
    }
    let bar = indicatif::ProgressBar::new(0);
    let style = indicatif::ProgressStyle::with_template("{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.set_message(name.to_owned());
    Arc::new(move |done, all| {
        bar.set_length(all);
        bar.set_position(done);
        if done >= all {
            bar.finish();
        }
    })
}

/// Prints a value as JSON.
pub fn print_json<T: serde::Serialize>(value: &T) -> anyhow::Result<()> {
    say!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}

/// Bytes from text with a unit.
pub fn bytes(text: &str) -> Result<u64, String> {
    text.parse::<Bytes>().map(|bytes| bytes.0).map_err(|error| error.to_string())
}
