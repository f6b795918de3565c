//! What the commands around banks and stores share: configuration, run time, log, progress, the end of a server.

use anyhow::Context;
use clap::Args;
use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use ullage_bank::identity::BANK_NODE;
use ullage_net::server::Gate;
use ullage_net::{ends, keyfile, tls};
use ullage_store::client::{ClientConfig, Progress};
use ullage_types::Bytes;
use ullage_voucher::{KeyId, Keyring, Node};

/// The form of a client's configuration, for the help of those who read one.
pub const CLIENT_TOML: &str = "\
The configuration:
  user = \"alice\"
  banks = [\"10.0.0.1:7000\"]
  certificates = \"pki\"         # a directory, from that of this file: ca.pem, alice.pem, alice.key (of mode 0600)
  # certificate = \"alice\"      # the NAME in NAME.pem and NAME.key; the user by default
  [[stores]]
  node = 1
  address = \"10.0.0.2:7101\"
  # addressed = true           # if the store takes only vouchers addressed to it (--only-addressed, or no root key)
`ullage pki issue pki alice --role user` makes the certificate; docs/bank-and-store.md describes a whole site.";

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
    /// Refuses to speak plainly to other machines.
    pub fn check_listen(&self, address: &str) -> anyhow::Result<()> {
        let is_here = |address: SocketAddr| address.ip().is_loopback();
        // What is no address is refused when it is listened on.
        let here = address.to_socket_addrs().is_ok_and(|mut addresses| addresses.all(is_here));
        anyhow::ensure!(
            !self.plain || here,
            "--plain is for one machine, and {address} is open to others: --listen 127.0.0.1:PORT, or leave --plain out"
        );
        Ok(())
    }

    /// TLS and tokens.
    pub fn gate(&self) -> anyhow::Result<Gate> {
        let files = tls::Files::in_directory(&self.pki, &self.name);
        let token = self.pki.join("token.key");
        Ok(Gate {
            tls: if self.plain { None } else { Some(tls::server(&files)?) },
            token_key: if token.exists() { Some(keyfile::read_key(&token)?) } else { None },
        })
    }

    /// Says in the log when this server's certificate is about to end; to be called where tasks run.
    pub fn warn_of_end(&self) -> anyhow::Result<()> {
        if !self.plain {
            tokio::spawn(ends::warnings(&tls::Files::in_directory(&self.pki, &self.name))?);
        }
        Ok(())
    }

    /// The voucher keys: of all audiences, or only of this store's own if there are any.
    pub fn keyring(&self, node: Option<Node>) -> anyhow::Result<Arc<Keyring>> {
        let mut keys = Keyring::new();
        let own = node.map(|node| anyhow::Ok((node, numbered_keys(&self.pki, &audience_stem(node))?))).transpose()?;
        match own {
            Some((node, found)) if !found.is_empty() => {
                for (id, path) in found {
                    keys.add_audience(KeyId(id), node, keyfile::read_key(&path)?);
                }
            }
            _ => {
                let found = voucher_keys(&self.pki)?;
                anyhow::ensure!(
                    !found.is_empty(),
                    "there is no voucher key in {}: `ullage pki init` makes voucher.key, `ullage pki rotate` newer ones",
                    self.pki.display()
                );
                // In order: the newest signs.
                for (id, path) in found {
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

/// The voucher keys in a directory: `voucher.key` is number 1, `voucher.N.key` number N. Old ones are removed after a rotation,
/// so any may be missing.
pub fn voucher_keys(directory: &Path) -> anyhow::Result<BTreeMap<u8, PathBuf>> {
    numbered_keys(directory, "voucher")
}

/// How the names of the keys begin with which a store checks, and makes, vouchers for itself alone.
pub fn audience_stem(node: Node) -> String {
    format!("voucher-{node}")
}

/// The file of the key of this number.
pub fn numbered_key(directory: &Path, stem: &str, id: u8) -> PathBuf {
    directory.join(if id == 1 { format!("{stem}.key") } else { format!("{stem}.{id}.key") })
}

fn numbered_keys(directory: &Path, stem: &str) -> anyhow::Result<BTreeMap<u8, PathBuf>> {
    let number = |name: &str| match name.strip_prefix(stem)?.strip_prefix('.')?.strip_suffix("key")? {
        "" => Some(1),
        middle => middle.strip_suffix('.')?.parse().ok().filter(|id| *id > 1 && name == format!("{stem}.{id}.key")),
    };
    let reading = || format!("read {}", directory.display());
    let mut keys = BTreeMap::new();
    for entry in std::fs::read_dir(directory).with_context(reading)? {
        let entry = entry.with_context(reading)?;
        if let Some(id) = entry.file_name().to_str().and_then(number) {
            keys.insert(id, entry.path());
        }
    }
    Ok(keys)
}

/// Over how many shards users can be spread: the bank of each has a number of its own.
pub fn shards() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(u32::MAX - BANK_NODE) + 1)
}

/// Runs a future to its end.
pub fn block_on<F: Future>(future: F) -> anyhow::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the run time")?;
    Ok(runtime.block_on(future))
}

/// Logs to standard error where nobody does so yet: in the program `main` does, and `ULLAGE_LOG` chooses what.
pub fn log() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    // The first subscriber is kept.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
}

/// Everything this process writes from now on is for its user alone: what banks and stores keep is other users' data and vouchers. The
/// directories that are missing above it are made before, with the modes that the caller's umask gives: what others keep there is theirs.
pub fn keep_private(directory: Option<&Path>) -> anyhow::Result<()> {
    if let Some(above) = directory.and_then(Path::parent) {
        std::fs::create_dir_all(above).with_context(|| format!("create {}", above.display()))?;
    }
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    Ok(())
}

/// Completes at a signal that ends servers, which from now on ends the process no more: to be called before anybody is told that it is ready.
pub fn end_signal() -> impl Future<Output = ()> {
    let all: std::io::Result<Vec<_>> =
        ullage_daemon::end_signals().into_iter().map(|number| signal(SignalKind::from_raw(number))).collect();
    async move {
        match all {
            Ok(mut all) => {
                std::future::poll_fn(|context| {
                    let came = all.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
                    if came { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
                })
                .await;
            }
            Err(error) => {
                tracing::warn!(%error, "signals will end this server without its last snapshot");
                std::future::pending::<()>().await;
            }
        }
    }
}

/// A progress bar on a terminal; nothing elsewhere or with `--json`.
pub fn progress(quiet: bool, name: &str) -> Progress {
    let bar = crate::output::bar(quiet, "{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    bar.set_message(crate::output::shown(name));
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

/// A value with the version of its form, for what is an object of its own.
pub fn versioned<T: serde::Serialize>(value: &T) -> anyhow::Result<serde_json::Value> {
    let mut value = serde_json::to_value(value)?;
    if let Some(fields) = value.as_object_mut() {
        fields.insert("version".into(), 1.into());
    }
    Ok(value)
}

/// Bytes from text with a unit.
pub fn bytes(text: &str) -> Result<u64, String> {
    text.parse::<Bytes>().map(|bytes| bytes.0).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::process::ExitCode;
    use ullage_voucher::{Epoch, Issuer, Terms, User};

    fn pki(action: &str, directory: &Path, more: &[&str]) -> anyhow::Result<ExitCode> {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            pki: super::super::pki::Arguments,
        }
        let line = [OsStr::new("ullage"), OsStr::new(action), directory.as_os_str()];
        let line = line.into_iter().chain(more.iter().map(OsStr::new));
        super::super::pki::run(<Line as clap::Parser>::parse_from(line).pki)
    }

    fn rotate(directory: &Path) -> anyhow::Result<ExitCode> {
        pki("rotate", directory, &[])
    }

    fn numbers(directory: &Path) -> Vec<u8> {
        voucher_keys(directory).unwrap().into_keys().collect()
    }

    /// Without `voucher.key` a bank did not start, without number 2 nobody had number 3, and a rotation made number 2 again.
    #[test]
    fn old_voucher_keys_may_be_removed_and_their_numbers_never_come_again() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let gate = || GateArguments { pki: directory.path().to_owned(), name: "bank".into(), plain: true };
        let error = gate().keyring(None).unwrap_err().to_string();
        assert!(error.contains("ullage pki init"), "{error}");
        assert!(rotate(directory.path()).is_err(), "there is nothing to be rotated");
        for name in ["voucher.key", "voucher-3.key", "voucher.x.key", "voucher.02.key", "capability.key"] {
            keyfile::new_key(&at(name)).unwrap();
        }
        rotate(directory.path()).unwrap();
        rotate(directory.path()).unwrap();
        assert_eq!(numbers(directory.path()), [1, 2, 3]);
        std::fs::remove_file(at("voucher.key")).unwrap();
        std::fs::remove_file(at("voucher.2.key")).unwrap();
        rotate(directory.path()).unwrap();
        assert_eq!(numbers(directory.path()), [3, 4]);
        let keys = format!("{:?}", gate().keyring(None).unwrap());
        assert!(keys.contains("[3, 4]") && keys.contains("KeyId(4)"), "{keys}");
    }

    /// Regression: of a rotated key no part could be made for a store that has only its own, and with `voucher.key` gone none at all:
    /// every voucher addressed to it had "a wrong signature" from then on.
    #[test]
    fn a_store_with_its_own_keys_alone_takes_part_in_a_rotation() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let gate = || GateArguments { pki: directory.path().to_owned(), name: "store-7".into(), plain: true };
        assert!(pki("audience", directory.path(), &["7"]).is_err(), "there is nothing to have a part of");
        keyfile::new_key(&at("voucher.key")).unwrap();
        let audience = || pki("audience", directory.path(), &["7"]);
        audience().unwrap();
        let terms = Terms {
            epoch: Epoch(1),
            expiry: Epoch(3),
            user: User(1),
            value: 5,
            serial: 1,
            issuer: Issuer::default(),
            audience: Node(7),
        };
        let old = gate().keyring(None).unwrap().sign(terms).unwrap();
        rotate(directory.path()).unwrap();
        let new = gate().keyring(None).unwrap().sign(terms).unwrap();
        audience().unwrap();
        let keys = gate().keyring(Some(Node(7))).unwrap();
        assert_eq!((keys.verify(&old), keys.verify(&new), keys.limited_to()), (Ok(()), Ok(()), Some(Node(7))));
        let error = audience().unwrap_err().to_string();
        assert!(error.contains("voucher-7.2.key exists already"), "{error}");
        for old in ["voucher.key", "voucher-7.key"] {
            std::fs::remove_file(at(old)).unwrap();
        }
        rotate(directory.path()).unwrap();
        audience().unwrap();
        let keys = format!("{:?}", gate().keyring(Some(Node(7))).unwrap());
        assert!(keys.contains("[2, 3]") && keys.contains("KeyId(3)"), "{keys}");
    }
}
