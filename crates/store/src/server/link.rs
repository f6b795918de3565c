//! Between the voucher cores and the banks: renewals, reports and their answers.

use super::accounts::{Accounts, Errands};
use crate::chunk::ChunkStore;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use ullage_bank::client::BankClient;
use ullage_bank::wire::StoreBatch;
use ullage_net::client::CallError;
use ullage_voucher::message::BankToStore;

/// How often time is told to the cores.
const TICK: Duration = Duration::from_millis(50);

type Chunks = Arc<ChunkStore<Accounts>>;

/// How often a trouble that lasts is said again.
const SAID_EVERY: Duration = Duration::from_secs(600);

/// What is amiss between this store and the bank of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// The bank has it wait.
    Waits,
    /// The bank refuses it.
    Refused,
    /// The bank is not reached.
    Untold,
}

/// How this store stands with the bank of a shard: what is amiss, and when that was said.
#[derive(Debug, Default)]
struct Standing(Mutex<Option<(Trouble, Instant)>>);

impl Standing {
    /// Whether this is to be said: it begins, or has lasted.
    fn is_news(&self, trouble: Trouble) -> bool {
        let mut standing = self.0.lock();
        let is_news = standing.is_none_or(|(before, said)| before != trouble || said.elapsed() >= SAID_EVERY);
        if is_news {
            *standing = Some((trouble, Instant::now()));
        }
        is_news
    }

    fn hear(&self, shard: u32, answers: &[BankToStore]) {
        // What has no answer says nothing of whether it is to wait.
        let stays = |trouble| answers.is_empty() && trouble == Trouble::Waits;
        if !matches!(answers.last(), Some(BankToStore::Wait)) {
            if self.0.lock().take_if(|(trouble, _)| !stays(*trouble)).is_some() {
                tracing::info!(shard, "the bank takes this store again");
            }
        } else if self.is_news(Trouble::Waits) {
            tracing::warn!(
                shard,
                "the bank has this store wait, which takes no vouchers until then: an earlier life of it, or another store of that number, may \
                 still have a lease, or the bank was rebuilt or set back and waits itself (`ullage bank status`, `ullage bank findings`)"
            );
        }
    }

    fn fails(&self, shard: u32, error: &CallError) {
        if error.is_final() {
            if self.is_news(Trouble::Refused) {
                tracing::error!(shard, %error, "the bank refuses this store, which takes no vouchers without its lease");
            }
        } else if self.is_news(Trouble::Untold) {
            tracing::warn!(shard, %error, "the bank cannot be told; the store goes on until its lease ends");
        }
    }
}

/// Off the event loop, since it waits for the disk.
async fn with_accounts<R: Send + 'static>(
    chunks: &Chunks,
    work: impl FnOnce(&mut Accounts) -> (Option<Vec<u8>>, R) + Send + 'static,
) -> Option<R> {
    let chunks = Arc::clone(chunks);
    let result = tokio::task::spawn_blocking(move || chunks.with_ledger(work)).await;
    match result {
        Ok(Ok(result)) => Some(result),
        Ok(Err(error)) => {
            tracing::error!(%error, "the accounts cannot be written; nothing is sent");
            None
        }
        Err(_) => None,
    }
}

/// Runs until the process ends: one pass at a time per shard, so that answers come back in order.
pub(crate) async fn run(chunks: Chunks, bank: BankClient, shards: u32) {
    let mut running: std::collections::HashMap<u32, tokio::task::JoinHandle<()>> = std::collections::HashMap::new();
    let banks: Vec<_> = (0..shards).map(|_| (bank.apart(), Arc::new(Standing::default()))).collect();
    loop {
        let space = space_of(&chunks);
        if let Some(errands) = with_accounts(&chunks, move |accounts| accounts.tick(space)).await {
            let mut by_shard: std::collections::BTreeMap<u32, Errands> = std::collections::BTreeMap::new();
            for (shard, message) in errands.to_bank {
                by_shard.entry(shard).or_default().to_bank.push((shard, message));
            }
            for (shard, incarnation) in errands.reincarnate {
                by_shard.entry(shard).or_default().reincarnate.push((shard, incarnation));
            }
            for (shard, errands) in by_shard {
                // What is dropped while an earlier pass still waits for the bank, the core sends again.
                if running.get(&shard).is_none_or(tokio::task::JoinHandle::is_finished) {
                    let (bank, standing) = banks[shard as usize].clone();
                    let pass = pass(Arc::clone(&chunks), bank, standing, (shard, shards), errands);
                    running.insert(shard, tokio::spawn(pass));
                }
            }
        }
        tokio::time::sleep(TICK).await;
    }
}

/// Sends to one of so many shards, hears the answers, and goes on until neither side has more to say. Each message by itself: reports of
/// several epochs may be more than one request takes.
async fn pass(
    chunks: Chunks,
    bank: BankClient,
    standing: Arc<Standing>,
    (shard, shards): (u32, u32),
    mut errands: Errands,
) {
    let mut waiting = VecDeque::new();
    loop {
        for (shard, incarnation) in errands.reincarnate.drain(..) {
            tracing::warn!(shard, %incarnation, "the bank asks for a new life");
            let chunks = Arc::clone(&chunks);
            let begun = tokio::task::spawn_blocking(move || {
                chunks.with_ledger_and_charges(|accounts, charged| accounts.reincarnate(shard, incarnation, charged))
            });
            if let Ok(Err(error)) = begun.await {
                tracing::error!(%error, "the new life cannot begin");
                return;
            }
        }
        waiting.extend(errands.to_bank.drain(..).map(|(_, message)| message));
        let Some(message) = waiting.pop_front() else { return };
        let answers = match bank.store_messages(&StoreBatch { shard, shards, messages: vec![message] }).await {
            Ok(answers) => answers.messages,
            Err(error) => return standing.fails(shard, &error),
        };
        standing.hear(shard, &answers);
        if answers.iter().all(|answer| matches!(answer, BankToStore::Wait)) {
            continue;
        }
        let heard = with_accounts(&chunks, move |accounts| accounts.from_bank(shard, answers)).await;
        match heard {
            Some(more) => errands = more,
            None => return,
        }
    }
}

/// Free and all bytes of the file system below.
fn space_of(chunks: &Chunks) -> (u64, u64) {
    rustix::fs::statvfs(chunks.root()).map_or((0, 0), |stat| {
        (stat.f_bavail.saturating_mul(stat.f_frsize), stat.f_blocks.saturating_mul(stat.f_frsize))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each shard filled the log with a line every two seconds for as long as a bank was away.
    #[test]
    fn what_is_amiss_is_said_when_it_begins_and_not_at_every_try() {
        let standing = Standing::default();
        assert!(standing.is_news(Trouble::Untold));
        assert!((0..1000).all(|_| !standing.is_news(Trouble::Untold)));
        assert!(standing.is_news(Trouble::Refused) && standing.is_news(Trouble::Waits));
        standing.hear(0, &[BankToStore::Wait]);
        assert!(!standing.is_news(Trouble::Waits));
        standing.hear(0, &[]);
        assert!(!standing.is_news(Trouble::Waits));
        assert!(standing.is_news(Trouble::Untold));
        standing.hear(0, &[]);
        assert!(standing.is_news(Trouble::Untold), "it was over in between");
        assert!(standing.is_news(Trouble::Waits));
        *standing.0.lock() = Instant::now().checked_sub(SAID_EVERY).map(|said| (Trouble::Waits, said));
        assert!(standing.is_news(Trouble::Waits), "it lasts");
    }
}
