//! etcd: several banks, one leader per shard. The leader's rows are in its memory; what it commits are records of many
//! callers' writes at once, since a compare-and-swap per voucher would give a few hundred a second.
//!
//! # Keys, under `/ullage/NAME/SHARD/`
//! `leader` the leader's address, `waiting/ADDRESS` of each who would lead, both bound to leases; `log/N` one commit, or the end of one
//! whose beginning is `part/N/PART`; `snapshot/N/PART` all rows before commit N; `base` the N of the newest whole snapshot.
//!
//! # Never two leaders
//! Every commit is one transaction that compares the creation revision of `leader` with the one this process won. A
//! bank that lost its lease, however late it notices, commits nothing more; and nothing leaves a bank before its commit.

mod committer;
mod load;
mod queue;

use self::committer::Committer;
use self::load::{Loaded, load};
use self::queue::{Item, Queue, refuse};
use super::{Done, Engine, EngineError, EtcdSettings};
use crate::rows::{Rows, encode_rows, encode_writes};
use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, GetOptions, GetResponse, Identity, PutOptions, TlsOptions,
    Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use ullage_net::keyfile;
use ullage_net::tls::Files;
use ullage_voucher::Write;

/// Commits, or bytes in them, after which a snapshot is due: etcd holds 2 GiB by default.
const SNAPSHOT_AFTER_COMMITS: u64 = 2000;
const SNAPSHOT_AFTER_BYTES: u64 = 64 << 20;

/// Who leads a shard, and who would.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The leader's address.
    pub leader: Option<String>,
    /// Addresses of those that wait for the lead.
    pub waiting: Vec<String>,
}

impl EtcdSettings {
    fn prefix(&self, shard: u32) -> String {
        format!("/ullage/{}/{shard}/", self.name)
    }

    async fn connect(&self) -> Result<Client, EngineError> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(Duration::from_secs(2))
            .with_timeout(Duration::from_secs(3))
            .with_keep_alive(Duration::from_secs(2), Duration::from_secs(2));
        if let Some(files) = &self.tls {
            options = options.with_tls(shown(files)?);
        }
        // Each begins at another, so that all have about as much to do.
        let (before, after) = self.endpoints.split_at(keyfile::random_u64() as usize % self.endpoints.len().max(1));
        let mut last = EngineError::Etcd("no member is known".into());
        for endpoint in after.iter().chain(before) {
            match Self::connect_to(endpoint, options.clone()).await {
                Ok(client) => return Ok(client),
                Err(error) => last = failed(error),
            }
        }
        Err(last)
    }

    /// A connection to this member, if it answers, for which it needs most of the others. A client of all of them would go on sending a part
    /// of all requests to one that is gone.
    async fn connect_to(endpoint: &str, options: ConnectOptions) -> Result<Client, etcd_client::Error> {
        let mut client = Client::connect([endpoint], Some(options)).await?;
        client.get("/ullage", Some(GetOptions::new().with_count_only())).await?;
        Ok(client)
    }

    /// The present leader's address.
    ///
    /// # Errors
    /// When etcd cannot be reached.
    pub async fn leader(&self, shard: u32) -> Result<Option<String>, EngineError> {
        let answer = self.connect().await?.get(format!("{}leader", self.prefix(shard)), None).await;
        Ok(value(&answer.map_err(failed)?))
    }

    /// Who leads, and who waits for that, of each of so many shards. One round trip a shard.
    ///
    /// # Errors
    /// When etcd cannot be reached.
    pub async fn standings(&self, shards: u32) -> Result<Vec<Standing>, EngineError> {
        let mut client = self.connect().await?;
        let mut standings = Vec::new();
        for shard in 0..shards {
            let prefix = self.prefix(shard);
            let below = waiting(&prefix, "");
            let keys = GetOptions::new().with_prefix().with_keys_only();
            let both = [TxnOp::get(format!("{prefix}leader"), None), TxnOp::get(below.as_str(), Some(keys))];
            let answer = client.txn(Txn::new().and_then(both)).await.map_err(failed)?;
            let mut found = gets(&answer);
            let leader = found.next().and_then(|leader| value(&leader));
            let address = |key: &str| key.strip_prefix(&below).map(str::to_owned);
            let waiting = found.next().map_or_else(Vec::new, |all| {
                all.kvs().iter().filter_map(|pair| address(pair.key_str().ok()?)).collect()
            });
            standings.push(Standing { leader, waiting });
        }
        Ok(standings)
    }
}

/// The one value that was asked for, if it is there.
fn value(answer: &GetResponse) -> Option<String> {
    answer.kvs().first().map(|pair| String::from_utf8_lossy(pair.value()).into_owned())
}

/// What a transaction read.
fn gets(answer: &TxnResponse) -> impl Iterator<Item = GetResponse> + use<> {
    answer.op_responses().into_iter().filter_map(|response| match response {
        TxnOpResponse::Get(get) => Some(get),
        _ => None,
    })
}

/// The key of who waits for a lead.
fn waiting(prefix: &str, address: &str) -> String {
    format!("{prefix}waiting/{address}")
}

/// What TLS takes. Read anew for each connection, so that a renewed certificate counts at once.
fn shown(files: &Files) -> Result<TlsOptions, EngineError> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|error| EngineError::Etcd(format!("read {}: {error}", path.display())))
    };
    let key = keyfile::read(&files.key).map_err(failed)?;
    Ok(TlsOptions::new()
        .ca_certificate(Certificate::from_pem(read(&files.authority)?))
        .identity(Identity::from_pem(read(&files.certificate)?, key)))
}

fn failed(error: impl std::fmt::Display) -> EngineError {
    EngineError::Etcd(error.to_string())
}

struct Shared {
    queue: Mutex<Queue>,
    work: Notify,
    leading: AtomicBool,
    /// The lease is no more, as far as this process can see to that.
    left: AtomicBool,
    /// Since the last snapshot.
    commits: AtomicU64,
    bytes: AtomicU64,
}

impl Shared {
    fn refuse_rest(&self) {
        let rest = self.queue.lock().give_up();
        refuse(rest);
    }
}

/// The leader's side of one shard.
pub struct Etcd {
    shared: Arc<Shared>,
}

/// The rows of a shard that another process may lead.
///
/// # Errors
/// When etcd cannot be reached, and where the leader replaces what is being read; try again.
pub async fn look(settings: &EtcdSettings, shard: u32) -> Result<Rows, EngineError> {
    let client = settings.connect().await?;
    Ok(load(&client, &settings.prefix(shard)).await?.rows)
}

/// Waits until this process leads the shard, and returns the rows as the last leader left them. `heard` is told meanwhile who leads,
/// and says whether to go on.
///
/// # Errors
/// When etcd cannot be reached; try again. When it was not to go on.
pub async fn campaign(
    settings: &EtcdSettings,
    shard: u32,
    heard: &(dyn Fn(Option<String>) -> bool + Sync),
) -> Result<(Etcd, Rows), EngineError> {
    let mut client = settings.connect().await?;
    let prefix = settings.prefix(shard);
    let leader = format!("{prefix}leader");
    let lease = client.lease_grant(settings.lease_secs, None).await.map_err(failed)?.id();
    let bound = || Some(PutOptions::new().with_lease(lease));
    let waiting = waiting(&prefix, &settings.address);
    let revision = loop {
        let won = Txn::new().when([Compare::create_revision(leader.as_bytes(), CompareOp::Equal, 0)]).and_then([
            TxnOp::put(leader.as_bytes(), settings.address.as_bytes(), bound()),
            TxnOp::delete(waiting.as_bytes(), None),
        ]);
        let won = won.or_else([TxnOp::get(leader.as_bytes(), None), TxnOp::get(waiting.as_bytes(), None)]);
        let answer = client.txn(won).await.map_err(failed)?;
        if answer.succeeded() {
            break answer.header().map_or(0, etcd_client::ResponseHeader::revision);
        }
        let mut found = gets(&answer);
        if !heard(found.next().and_then(|leader| value(&leader))) {
            // Nobody is to hand a lead to who does not wait for it any more.
            client.lease_revoke(lease).await.map_err(failed)?;
            return Err(EngineError::Etcd("the wait for the lead was given up".into()));
        }
        if found.next().is_some_and(|waiting| waiting.kvs().is_empty()) {
            client.put(waiting.as_bytes(), "", bound()).await.map_err(failed)?;
        }
        let (mut keeper, mut kept) = client.lease_keep_alive(lease).await.map_err(failed)?;
        keeper.keep_alive().await.map_err(failed)?;
        match kept.message().await.map_err(failed)? {
            Some(answer) if answer.ttl() > 0 => {}
            _ => return Err(EngineError::Etcd("the lease ran out while waiting for the lead".into())),
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    };
    let shared = Arc::new(Shared {
        queue: Mutex::default(),
        work: Notify::new(),
        leading: AtomicBool::new(true),
        left: AtomicBool::new(false),
        commits: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
    });
    tokio::spawn(keep_lease(settings.clone(), client.clone(), lease, Arc::clone(&shared)));
    let loaded = load(&client, &prefix).await;
    let Loaded { rows, next, commits, bytes } = loaded.inspect_err(|_| depose(&shared))?;
    shared.queue.lock().next = next;
    // Leaders that follow each other soon would else never write one.
    shared.commits.store(commits, Ordering::Relaxed);
    shared.bytes.store(bytes, Ordering::Relaxed);
    let settings = settings.clone();
    let mut committer = Committer { settings, client, prefix, leader, revision, shared: Arc::clone(&shared) };
    committer.forget_parts_from(next).await.inspect_err(|_| depose(&shared))?;
    tokio::spawn(committer.run());
    Ok((Etcd { shared }, rows))
}

fn depose(shared: &Shared) {
    shared.leading.store(false, Ordering::SeqCst);
    shared.work.notify_one();
}

/// Keeps the lease while leading; gives the lead up when etcd has not confirmed it for most of its length.
async fn keep_lease(settings: EtcdSettings, mut client: Client, lease: i64, shared: Arc<Shared>) {
    let patience = Duration::from_millis(settings.lease_secs.unsigned_abs() * 800);
    let mut confirmed = tokio::time::Instant::now();
    while shared.leading.load(Ordering::SeqCst) {
        let sent = tokio::time::Instant::now();
        let attempt = async {
            let (mut keeper, mut kept) = client.lease_keep_alive(lease).await?;
            keeper.keep_alive().await?;
            kept.message().await
        };
        match tokio::time::timeout(Duration::from_secs(1), attempt).await {
            Ok(Ok(Some(answer))) if answer.ttl() > 0 => confirmed = sent,
            Ok(Ok(_)) => break,
            Ok(Err(_)) | Err(_) => {
                if let Ok(Ok(other)) = tokio::time::timeout(Duration::from_secs(1), settings.connect()).await {
                    client = other;
                }
            }
        }
        if confirmed.elapsed() > patience {
            break;
        }
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    depose(&shared);
    // Lets the next leader begin at once; if it fails, the lease runs out.
    let _ = client.lease_revoke(lease).await;
    shared.left.store(true, Ordering::SeqCst);
}

impl Engine for Etcd {
    fn append(&self, writes: &[Write], done: Done) {
        if !self.is_leading() {
            return done(Err(EngineError::Deposed));
        }
        self.shared.queue.lock().items.push_back(Item::Batch(encode_writes(writes), done));
        self.shared.work.notify_one();
        if !self.is_leading() {
            // The committer may have ended between the check and the push.
            self.shared.refuse_rest();
        }
    }

    fn snapshot_due(&self) -> bool {
        self.shared.commits.load(Ordering::Relaxed) > SNAPSHOT_AFTER_COMMITS
            || self.shared.bytes.load(Ordering::Relaxed) > SNAPSHOT_AFTER_BYTES
    }

    fn snapshot(&self, rows: &Rows) {
        self.shared.commits.store(0, Ordering::Relaxed);
        self.shared.bytes.store(0, Ordering::Relaxed);
        self.shared.queue.lock().items.push_back(Item::Snapshot(encode_rows(rows)));
        self.shared.work.notify_one();
    }

    fn is_leading(&self) -> bool {
        self.shared.leading.load(Ordering::SeqCst)
    }

    fn give_up(&self) {
        depose(&self.shared);
    }

    fn has_left(&self) -> bool {
        self.shared.left.load(Ordering::SeqCst)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        depose(&self.shared);
    }
}
