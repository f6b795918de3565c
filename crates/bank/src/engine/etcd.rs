//! etcd: several banks, one leader per shard. The leader's rows are in its memory; what it commits are records of many
//! callers' writes at once, since a compare-and-swap per voucher would give a few hundred a second.
//!
//! # Keys, under `/ullage/NAME/SHARD/`
//! `leader` the leader's address, bound to its lease; `log/N` one commit, or the end of one whose beginning is `part/N/PART`;
//! `snapshot/N/PART` all rows before commit N; `base` the N of the newest whole snapshot.
//!
//! # Never two leaders
//! Every commit is one transaction that compares the creation revision of `leader` with the one this process won. A
//! bank that lost its lease, however late it notices, commits nothing more; and nothing leaves a bank before its commit.

mod load;

use self::load::load;
use super::{Done, Engine, EngineError, EtcdSettings};
use crate::rows::{Rows, encode_rows, encode_writes};
use etcd_client::{Client, Compare, CompareOp, ConnectOptions, DeleteOptions, PutOptions, Txn, TxnOp};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use ullage_voucher::Write;

/// etcd refuses requests above 1.5 MiB by default.
const PART_BYTES: usize = 1 << 20;
/// Commits after which a snapshot is due.
const SNAPSHOT_AFTER_COMMITS: u64 = 2000;
/// How often a commit that etcd does not answer is tried again, before giving the lead up.
const ATTEMPTS: u32 = 5;

impl EtcdSettings {
    fn prefix(&self, shard: u32) -> String {
        format!("/ullage/{}/{shard}/", self.name)
    }

    async fn connect(&self) -> Result<Client, EngineError> {
        let options = ConnectOptions::new()
            .with_connect_timeout(Duration::from_secs(2))
            .with_timeout(Duration::from_secs(3))
            .with_keep_alive(Duration::from_secs(2), Duration::from_secs(2));
        Client::connect(&self.endpoints, Some(options)).await.map_err(failed)
    }

    /// The present leader's address.
    ///
    /// # Errors
    /// When etcd cannot be reached.
    pub async fn leader(&self, shard: u32) -> Result<Option<String>, EngineError> {
        let mut client = self.connect().await?;
        let answer = client.get(format!("{}leader", self.prefix(shard)), None).await.map_err(failed)?;
        Ok(answer.kvs().first().map(|pair| String::from_utf8_lossy(pair.value()).into_owned()))
    }
}

fn failed(error: impl std::fmt::Display) -> EngineError {
    EngineError::Etcd(error.to_string())
}

#[derive(Default)]
struct Queue {
    batches: VecDeque<(Vec<u8>, Done)>,
    snapshot: Option<(u64, Vec<u8>)>,
    /// Number of the commit that the next batch taken will be.
    next: u64,
}

struct Shared {
    queue: Mutex<Queue>,
    work: Notify,
    leading: AtomicBool,
    commits: AtomicU64,
}

/// The leader's side of one shard.
pub struct Etcd {
    shared: Arc<Shared>,
}

/// Waits until this process leads the shard, and returns the rows as the last leader left them.
///
/// # Errors
/// When etcd cannot be reached; try again.
pub async fn campaign(settings: &EtcdSettings, shard: u32) -> Result<(Etcd, Rows), EngineError> {
    let mut client = settings.connect().await?;
    let prefix = settings.prefix(shard);
    let leader = format!("{prefix}leader");
    let lease = client.lease_grant(settings.lease_secs, None).await.map_err(failed)?.id();
    let revision =
        loop {
            let won = Txn::new().when([Compare::create_revision(leader.as_bytes(), CompareOp::Equal, 0)]).and_then([
                TxnOp::put(leader.as_bytes(), settings.address.as_bytes(), Some(PutOptions::new().with_lease(lease))),
            ]);
            let answer = client.txn(won).await.map_err(failed)?;
            if answer.succeeded() {
                break answer.header().map_or(0, etcd_client::ResponseHeader::revision);
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
        commits: AtomicU64::new(0),
    });
    tokio::spawn(keep_lease(client.clone(), lease, settings.lease_secs, Arc::clone(&shared)));
    let loaded = load(&client, &prefix).await;
    let (rows, next) = loaded.inspect_err(|_| depose(&shared))?;
    shared.queue.lock().next = next;
    let mut committer = Committer { client, prefix, leader, revision, shared: Arc::clone(&shared) };
    committer.forget_parts_from(next).await.inspect_err(|_| depose(&shared))?;
    tokio::spawn(committer.run());
    Ok((Etcd { shared }, rows))
}

fn depose(shared: &Shared) {
    shared.leading.store(false, Ordering::SeqCst);
    shared.work.notify_one();
}

/// Keeps the lease while leading; gives the lead up when etcd has not confirmed it for most of its length.
async fn keep_lease(mut client: Client, lease: i64, lease_secs: i64, shared: Arc<Shared>) {
    let patience = Duration::from_millis(lease_secs.unsigned_abs() * 800);
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
            Ok(Err(_)) | Err(_) => {}
        }
        if confirmed.elapsed() > patience {
            break;
        }
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    depose(&shared);
    // Lets the next leader begin at once; if it fails, the lease runs out.
    let _ = client.lease_revoke(lease).await;
}

struct Committer {
    client: Client,
    prefix: String,
    leader: String,
    revision: i64,
    shared: Arc<Shared>,
}

impl Committer {
    async fn run(mut self) {
        loop {
            let (number, record, waiting) = self.take();
            if !self.shared.leading.load(Ordering::SeqCst) {
                for done in waiting {
                    done(Err(EngineError::Deposed));
                }
                self.refuse_rest();
                return;
            }
            if waiting.is_empty() {
                let snapshot = self.shared.queue.lock().snapshot.take();
                match snapshot {
                    Some((number, state)) => self.write_snapshot(number, &state).await,
                    None => self.shared.work.notified().await,
                }
                continue;
            }
            let result = if record.is_empty() { self.confirm().await } else { self.commit(number, &record).await };
            if result.is_err() {
                depose(&self.shared);
            }
            for done in waiting {
                done(result.clone());
            }
        }
    }

    /// Takes as many batches as fit one commit.
    fn take(&mut self) -> (u64, Vec<u8>, Vec<Done>) {
        let mut queue = self.shared.queue.lock();
        let (mut record, mut waiting) = (Vec::new(), Vec::new());
        // A snapshot was taken after a certain batch: commits before it must not contain later ones, which holds since it
        // is given the number of the commit after all batches queued then, and only written when the queue is empty.
        while let Some((bytes, _)) = queue.batches.front() {
            if !waiting.is_empty() && record.len() + bytes.len() > PART_BYTES {
                break;
            }
            let Some((bytes, done)) = queue.batches.pop_front() else { break };
            record.extend_from_slice(&bytes);
            waiting.push(done);
        }
        let number = queue.next;
        if !record.is_empty() {
            queue.next += 1;
        }
        (number, record, waiting)
    }

    fn refuse_rest(&self) {
        let rest: Vec<_> = self.shared.queue.lock().batches.drain(..).collect();
        for (_, done) in rest {
            done(Err(EngineError::Deposed));
        }
    }

    fn still_leading(&self) -> Compare {
        Compare::create_revision(self.leader.as_bytes(), CompareOp::Equal, self.revision)
    }

    /// Removes beginnings whose ends were never written: the commit of that number is to be another one.
    async fn forget_parts_from(&mut self, next: u64) -> Result<(), EngineError> {
        let (from, end) = (format!("{}part/{next:020}", self.prefix), format!("{}part/~", self.prefix));
        let away = TxnOp::delete(from, Some(DeleteOptions::new().with_range(end)));
        let done = self.client.txn(Txn::new().when([self.still_leading()]).and_then([away])).await.map_err(failed)?;
        if done.succeeded() { Ok(()) } else { Err(EngineError::Deposed) }
    }

    /// What is too large for one request goes ahead in parts, which count for nothing before their end is there.
    async fn commit(&mut self, number: u64, record: &[u8]) -> Result<(), EngineError> {
        let beginning = record.len().saturating_sub(1) / PART_BYTES * PART_BYTES;
        for (position, part) in record[..beginning].chunks(PART_BYTES).enumerate() {
            self.commit_part(format!("{}part/{number:020}/{position:06}", self.prefix), part).await?;
        }
        self.commit_end(number, &record[beginning..]).await
    }

    /// Written again as often as it takes: the same bytes below the same key.
    async fn commit_part(&mut self, key: String, part: &[u8]) -> Result<(), EngineError> {
        let mut last = EngineError::Deposed;
        for _ in 0..ATTEMPTS {
            let put = Txn::new().when([self.still_leading()]).and_then([TxnOp::put(key.as_str(), part, None)]);
            match self.client.txn(put).await {
                Ok(answer) if answer.succeeded() => return Ok(()),
                Ok(_) => return Err(EngineError::Deposed),
                Err(error) => last = failed(error),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err(last)
    }

    async fn commit_end(&mut self, number: u64, record: &[u8]) -> Result<(), EngineError> {
        let key = format!("{}log/{number:020}", self.prefix);
        let still_leading = self.still_leading();
        let mut last = EngineError::Deposed;
        for attempt in 0..ATTEMPTS {
            // Not yet there: a retry of a commit whose answer was lost must not write it a second time.
            let new = Compare::create_revision(key.as_bytes(), CompareOp::Equal, 0);
            let commit = Txn::new()
                .when([still_leading.clone(), new])
                .and_then([TxnOp::put(key.as_bytes(), record, None)])
                .or_else([TxnOp::get(self.leader.as_bytes(), None), TxnOp::get(key.as_bytes(), None)]);
            match self.client.txn(commit).await {
                Ok(answer) if answer.succeeded() => {
                    self.shared.commits.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                // Ours if it holds our bytes and we still lead: nobody else writes under our revision.
                Ok(answer) => {
                    return if attempt > 0 && self.is_ours(&answer, record) {
                        Ok(())
                    } else {
                        Err(EngineError::Deposed)
                    };
                }
                Err(error) => last = failed(error),
            }
            if !self.shared.leading.load(Ordering::SeqCst) {
                return Err(EngineError::Deposed);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err(last)
    }

    fn is_ours(&self, answer: &etcd_client::TxnResponse, record: &[u8]) -> bool {
        let mut gets = answer.op_responses().into_iter().filter_map(|response| match response {
            etcd_client::TxnOpResponse::Get(get) => Some(get),
            _ => None,
        });
        let leads = gets
            .next()
            .is_some_and(|get| get.kvs().first().is_some_and(|pair| pair.create_revision() == self.revision));
        let same = gets.next().is_some_and(|get| get.kvs().first().is_some_and(|pair| pair.value() == record));
        leads && same
    }

    /// A barrier without writes: nothing may leave unless this process still leads.
    async fn confirm(&mut self) -> Result<(), EngineError> {
        let answer = self.client.get(self.leader.as_bytes(), None).await.map_err(failed)?;
        let leads = answer.kvs().first().is_some_and(|pair| pair.create_revision() == self.revision);
        if leads { Ok(()) } else { Err(EngineError::Deposed) }
    }

    /// Parts first, then the base that makes them count, then away with what they replace.
    async fn write_snapshot(&mut self, number: u64, state: &[u8]) {
        let result = async {
            let directory = format!("{}snapshot/{number:020}/", self.prefix);
            for (position, part) in state.chunks(PART_BYTES).enumerate() {
                self.client.put(format!("{directory}{position:06}"), part, None).await?;
            }
            let install = Txn::new().when([self.still_leading()]).and_then([TxnOp::put(
                format!("{}base", self.prefix),
                number.to_string(),
                None,
            )]);
            if !self.client.txn(install).await?.succeeded() {
                return Ok(());
            }
            let until = |end: String| Some(DeleteOptions::new().with_range(end));
            for replaced in ["log/", "part/", "snapshot/"] {
                let below = format!("{}{replaced}", self.prefix);
                self.client.delete(below.clone(), until(format!("{below}{number:020}"))).await?;
            }
            Ok::<_, etcd_client::Error>(())
        };
        if let Err(error) = result.await {
            tracing::warn!(%error, "the snapshot in etcd fails; the log grows until one succeeds");
        }
    }
}

impl Engine for Etcd {
    fn append(&self, writes: &[Write], done: Done) {
        if !self.is_leading() {
            return done(Err(EngineError::Deposed));
        }
        self.shared.queue.lock().batches.push_back((encode_writes(writes), done));
        self.shared.work.notify_one();
        if !self.is_leading() {
            // The committer may have ended between the check and the push.
            let rest: Vec<_> = self.shared.queue.lock().batches.drain(..).collect();
            for (_, done) in rest {
                done(Err(EngineError::Deposed));
            }
        }
    }

    fn snapshot_due(&self) -> bool {
        self.shared.commits.load(Ordering::Relaxed) > SNAPSHOT_AFTER_COMMITS
            && self.shared.queue.lock().batches.is_empty()
    }

    fn snapshot(&self, rows: &Rows) {
        let mut queue = self.shared.queue.lock();
        // With batches queued, the number of the commit after them is not known yet: another time.
        if queue.batches.is_empty() {
            self.shared.commits.store(0, Ordering::Relaxed);
            queue.snapshot = Some((queue.next, encode_rows(rows)));
            self.shared.work.notify_one();
        }
    }

    fn is_leading(&self) -> bool {
        self.shared.leading.load(Ordering::SeqCst)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        depose(&self.shared);
    }
}
