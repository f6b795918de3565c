//! What bodies, and what is copied for them, may take of memory: all together, and one party's.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One party may have this part of it, so that whoever sends or takes slowly holds up nobody else.
const PART: usize = 4;

/// That memory; one permit is one MiB.
#[derive(Debug)]
pub struct Memory {
    all: Arc<Semaphore>,
    share: usize,
    parties: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// Held while something is in memory.
#[derive(Debug)]
pub struct Held {
    _own: Option<OwnedSemaphorePermit>,
    _all: Option<OwnedSemaphorePermit>,
}

impl Memory {
    /// So many MiB; a party's share is `most`, what one request takes, at least.
    pub fn new(mib: u32, most: u64) -> Self {
        let least = permits(most) as usize;
        let mib = (mib as usize).max(least);
        Self { all: Arc::new(Semaphore::new(mib)), share: (mib / PART).max(least), parties: Mutex::default() }
    }

    /// Waits until this party may hold so many bytes more.
    pub async fn take(&self, party: &str, bytes: u64) -> Held {
        let own = self.of(party);
        let permits = permits(bytes);
        // Neither is ever closed.
        let own = own.acquire_many_owned(permits).await.ok();
        Held { _own: own, _all: self.all.clone().acquire_many_owned(permits).await.ok() }
    }

    fn of(&self, party: &str) -> Arc<Semaphore> {
        let mut parties = self.parties.lock();
        if let Some(own) = parties.get(party) {
            return own.clone();
        }
        // Those that nobody holds anything of: a permit keeps its semaphore.
        parties.retain(|_, own| Arc::strong_count(own) > 1);
        parties.entry(party.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(self.share))).clone()
    }
}

fn permits(bytes: u64) -> u32 {
    (bytes.div_ceil(1 << 20) as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    const SOON: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn one_party_cannot_have_it_all_and_none_is_remembered_for_ever() {
        let memory = Memory::new(64, 16 << 20);
        let held = memory.take("slow", 16 << 20).await;
        assert!(timeout(SOON, memory.take("slow", 1)).await.is_err(), "its share is used up");
        let other = timeout(SOON, memory.take("quick", 16 << 20)).await.unwrap();
        drop(held);
        let again = timeout(SOON, memory.take("slow", 1)).await.unwrap();
        drop((other, again));
        let _new = memory.take("new", 1).await;
        assert_eq!(memory.parties.lock().len(), 1);
    }
}
