//! Writes the queue of a leader to etcd, as long as it leads.

use super::super::{EngineError, EtcdSettings};
use super::queue::{PART_BYTES, Task, refuse};
use super::{Shared, depose, failed, gets};
use etcd_client::{Client, Compare, CompareOp, DeleteOptions, Txn, TxnOp};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often a commit that etcd does not answer is tried again, before giving the lead up.
const ATTEMPTS: u32 = 5;

/// The leader's hand.
pub(super) struct Committer {
    pub(super) settings: EtcdSettings,
    pub(super) client: Client,
    pub(super) prefix: String,
    pub(super) leader: String,
    pub(super) revision: i64,
    pub(super) shared: Arc<Shared>,
}

impl Committer {
    pub(super) async fn run(mut self) {
        loop {
            let task = self.shared.queue.lock().take();
            if !self.shared.leading.load(Ordering::SeqCst) {
                if let Task::Commit { waiting, .. } = task {
                    refuse(waiting);
                }
                self.shared.refuse_rest();
                return;
            }
            match task {
                Task::Nothing => self.shared.work.notified().await,
                Task::Snapshot { number, state } => self.write_snapshot(number, &state).await,
                Task::Commit { number, record, waiting } => {
                    let commit = async {
                        if record.is_empty() { self.confirm().await } else { self.commit(number, &record).await }
                    };
                    let result = commit.await;
                    if result.is_err() {
                        depose(&self.shared);
                    }
                    for done in waiting {
                        done(result.clone());
                    }
                }
            }
        }
    }

    fn still_leading(&self) -> Compare {
        Compare::create_revision(self.leader.as_bytes(), CompareOp::Equal, self.revision)
    }

    /// Removes beginnings whose ends were never written: the commit of that number is to be another one.
    pub(super) async fn forget_parts_from(&mut self, next: u64) -> Result<(), EngineError> {
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
            self.shared.bytes.fetch_add(part.len() as u64, Ordering::Relaxed);
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
            self.turn_to_another().await;
        }
        Err(last)
    }

    /// After a failure: the member may be gone, and the others know all that it knew.
    async fn turn_to_another(&mut self) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if let Ok(client) = self.settings.connect().await {
            self.client = client;
        }
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
                    self.shared.bytes.fetch_add(record.len() as u64, Ordering::Relaxed);
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
            self.turn_to_another().await;
        }
        Err(last)
    }

    fn is_ours(&self, answer: &etcd_client::TxnResponse, record: &[u8]) -> bool {
        let mut gets = gets(answer);
        let leads = gets
            .next()
            .is_some_and(|get| get.kvs().first().is_some_and(|pair| pair.create_revision() == self.revision));
        let same = gets.next().is_some_and(|get| get.kvs().first().is_some_and(|pair| pair.value() == record));
        leads && same
    }

    /// A barrier without writes: nothing may leave unless this process still leads.
    async fn confirm(&mut self) -> Result<(), EngineError> {
        let mut last = EngineError::Deposed;
        for _ in 0..ATTEMPTS {
            match self.client.get(self.leader.as_bytes(), None).await {
                Ok(answer) => {
                    let leads = answer.kvs().first().is_some_and(|pair| pair.create_revision() == self.revision);
                    return if leads { Ok(()) } else { Err(EngineError::Deposed) };
                }
                Err(error) => last = failed(error),
            }
            if !self.shared.leading.load(Ordering::SeqCst) {
                return Err(EngineError::Deposed);
            }
            self.turn_to_another().await;
        }
        Err(last)
    }

    /// Parts first, then the base that makes them count, then away with what they replace: also out of etcd's past, which
    /// keeps whatever was removed.
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
            let mut removed = 0;
            for replaced in ["log/", "part/", "snapshot/"] {
                let below = format!("{}{replaced}", self.prefix);
                let gone = self.client.delete(below.clone(), until(format!("{below}{number:020}"))).await?;
                removed = gone.header().map_or(removed, etcd_client::ResponseHeader::revision);
            }
            match self.client.compact(removed, None).await {
                // Another shard's bank, or whoever else, has compacted beyond it.
                Err(etcd_client::Error::GRpcStatus(status)) if status.message().contains("compacted") => Ok(()),
                result => result.map(drop),
            }
        };
        if let Err(error) = result.await {
            tracing::warn!(%error, "the snapshot in etcd fails; the log grows until one succeeds");
        }
    }
}
