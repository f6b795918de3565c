//! The storage server as a whole.

use super::accounts::{Accounts, Unpaid};
use super::config::StoreSettings;
use super::routes::{REQUEST_MAX_BYTES, Shared, route};
use super::{housekeeping, link};
use crate::chunk::{ChunkStore, OpError, Options, Recount};
use std::collections::BTreeMap;
use std::fs::File;
use std::future::Future;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Weak};
use tokio::net::TcpListener;
use ullage_journal::private_directory;
use ullage_net::memory::Memory;
use ullage_net::server::serve;

/// Why a storage server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has the directory, or it cannot be used.
    #[error("use {0}: {1}")]
    Directory(std::path::PathBuf, String),
    /// The bank would count its chunks twice.
    #[error(
        "{directory} is that of store {of}, and this is store {node}: is the name right, or the directory? If it is to be another store's from \
         now on, give {of} up (`ullage bank exclude {of}`) and remove {directory}/node"
    )]
    Foreign {
        /// The directory.
        directory: std::path::PathBuf,
        /// Whose it is.
        of: u32,
        /// Who this is.
        node: u32,
    },
    /// The chunks.
    #[error("open the chunks: {0}")]
    Chunks(#[from] OpError<Unpaid>),
    /// The voucher state does not load.
    #[error("load the accounts: {0}")]
    Accounts(String),
    /// The address.
    #[error("listen on {0}: {1}")]
    Listen(String, std::io::Error),
}

/// Looks, and says in the directory, which store's it is: under another number the bank would count all that is in it once more.
fn check_node(directory: &Path, node: u32) -> Result<(), StoreError> {
    let path = directory.join("node");
    let failed = |error: std::io::Error| StoreError::Directory(path.clone(), error.to_string());
    let said = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        said => said.map_err(failed)?,
    };
    match said.trim() {
        // Older versions did not say it, and a power cut may have left it empty.
        "" => {
            let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&path);
            let written = file.and_then(|mut file| file.write_all(format!("{node}\n").as_bytes()).and(file.sync_all()));
            // On a full disk chunks are to be read and removed all the same.
            written.unwrap_or_else(|error| tracing::warn!(%error, path = %path.display(), "cannot be written"));
            Ok(())
        }
        said => match said.parse() {
            Ok(of) if of == node => Ok(()),
            Ok(of) => Err(StoreError::Foreign { directory: directory.to_owned(), of, node }),
            Err(_) => Err(StoreError::Directory(path.clone(), "it holds no store's number".to_owned())),
        },
    }
}

/// A storage server that listens.
pub struct StoreServer {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for StoreServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl StoreServer {
    /// Opens the chunks, recounts, and listens on `address`; with port 0 the kernel chooses one.
    ///
    /// # Errors
    /// When the directory is in use or damaged, or the address taken.
    pub async fn bind(address: &str, settings: StoreSettings) -> Result<Self, StoreError> {
        let directory = settings.directory.clone();
        let failed = |error: std::io::Error| StoreError::Directory(directory.clone(), error.to_string());
        private_directory(&directory).map_err(failed)?;
        let lock = File::create(directory.join("lock")).map_err(failed)?;
        lock.try_lock().map_err(|error| StoreError::Directory(directory.clone(), format!("in use: {error}")))?;
        check_node(&directory, settings.node.0)?;
        let options = Options { durability: settings.durability, snapshot_after_bytes: settings.snapshot_after_bytes };
        let accounts = Accounts::new(&settings);
        let open = move || Ok::<_, StoreError>(ChunkStore::open(&directory, accounts, options)?.with_claim(lock));
        let opened = tokio::task::spawn_blocking(open).await;
        let chunks = opened.map_err(|error| StoreError::Accounts(error.to_string()))??;
        let mut started = Ok(());
        chunks.with_ledger_and_charges(|accounts, measured| {
            accounts.start(measured).unwrap_or_else(|error| {
                started = Err(StoreError::Accounts(error));
                None
            })
        })?;
        started?;
        let listener =
            TcpListener::bind(address).await.map_err(|error| StoreError::Listen(address.to_owned(), error))?;
        let address = listener.local_addr().map_err(|error| StoreError::Listen(address.to_owned(), error))?;
        let memory = Memory::new(settings.bodies_mib, REQUEST_MAX_BYTES);
        let shared = Arc::new(Shared { settings, chunks: Arc::new(chunks), memory });
        Ok(Self { listener, address, shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the recount at the start found.
    pub fn recount(&self) -> &Recount {
        self.shared.chunks.recount()
    }

    /// A handle that tells what is charged while the server runs.
    pub fn meter(&self) -> Meter {
        Meter(Arc::downgrade(&self.shared.chunks))
    }

    /// Answers until `end` completes, then writes a snapshot.
    pub async fn serve(self, end: impl Future<Output = ()>) {
        let shared = self.shared;
        let housekeeping = tokio::spawn(housekeeping::run(Arc::clone(&shared.chunks)));
        let shards = shared.settings.shards.max(1);
        let run = |bank| tokio::spawn(link::run(Arc::clone(&shared.chunks), bank, shards));
        let link = shared.settings.bank.clone().map(run);
        let (gate, limits) = (shared.settings.gate.clone(), shared.settings.limits);
        let chunks = Arc::clone(&shared.chunks);
        serve(self.listener, gate, limits, move |request, peer| route(Arc::clone(&shared), request, peer), end).await;
        for task in link.into_iter().chain([housekeeping]) {
            task.abort();
            // Another may have the directory when this has returned.
            let _ = task.await;
        }
        let last = tokio::task::spawn_blocking(move || chunks.snapshot()).await;
        if let Ok(Err(error)) = last {
            tracing::warn!(%error, "the last snapshot fails; the journal has everything");
        }
    }
}

/// What a running storage server holds; once it has ended, nothing.
#[derive(Debug, Clone)]
pub struct Meter(Weak<ChunkStore<Accounts>>);

impl Meter {
    fn look<R: Default>(&self, look: impl FnOnce(&ChunkStore<Accounts>) -> R) -> R {
        self.0.upgrade().map(|chunks| look(&chunks)).unwrap_or_default()
    }

    fn ask<R: Default>(&self, ask: impl FnOnce(&mut Accounts) -> R) -> R {
        self.look(|chunks| chunks.with_ledger(|accounts| (None, ask(accounts))).unwrap_or_default())
    }

    /// Bytes that chunks occupy, by user charged.
    pub fn charged(&self) -> BTreeMap<Arc<str>, u64> {
        self.look(ChunkStore::charged)
    }

    /// Bytes that the voucher core has charged to a user.
    pub fn used(&self, user: &str) -> u64 {
        self.ask(|accounts| accounts.used(user))
    }

    /// How many requests' answers are remembered.
    pub fn remembered(&self) -> usize {
        self.ask(|accounts| accounts.remembered())
    }

    /// Whether vouchers are taken.
    pub fn is_open(&self) -> bool {
        self.ask(|accounts| accounts.is_open())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ullage_voucher::{KeyId, Keyring, Node};

    /// What a request had begun went on when the server had ended, and another process could open the journal that it still wrote to.
    #[tokio::test]
    async fn the_directory_is_taken_until_the_last_operation_is_over() {
        let directory = tempfile::tempdir().unwrap();
        let bind = || {
            let keys = Arc::new(Keyring::with_root(KeyId(1), [1; 32]));
            let settings = StoreSettings::new(directory.path().to_owned(), Node(1), keys, [2; 32]);
            StoreServer::bind("127.0.0.1:0", settings)
        };
        let server = bind().await.unwrap();
        let operation = Arc::clone(&server.shared.chunks);
        server.serve(async {}).await;
        let error = bind().await.unwrap_err().to_string();
        assert!(error.contains("in use"), "{error}");
        drop(operation);
        let server = bind().await.unwrap();
        server.serve(async {}).await;
        bind().await.unwrap();
    }

    /// Regression: a directory that was served under another store's name once had all its chunks counted twice, and thrice when it was
    /// served under its own again.
    #[test]
    fn a_directory_is_one_stores() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("node");
        check_node(directory.path(), 2).unwrap();
        let error = check_node(directory.path(), 3).unwrap_err().to_string();
        assert!(error.contains("that of store 2, and this is store 3"), "{error}");
        check_node(directory.path(), 2).unwrap();
        for (said, is_good) in [("", true), ("two", false)] {
            std::fs::write(&path, said).unwrap();
            assert_eq!(check_node(directory.path(), 3).is_ok(), is_good);
        }
    }
}
