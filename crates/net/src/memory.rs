//! What bodies, and what is copied for them, may take of memory: all together, and one party's.

use crate::Problem;
use hyper::StatusCode;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One party may have this part of it, so that whoever sends or takes slowly holds up nobody else.
const PART: usize = 4;

/// What takes no more needs no part of it: connections bound that well enough, and some parties who hardly send cannot keep all others
/// from the little that is asked most.
pub const SMALL_BYTES: u64 = 64 << 10;
/// How many such requests of one party.
const SMALL: usize = 64;

/// Who waits longer is told to ask again, before it takes the server to be silent.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// That memory; one permit is one MiB.
#[derive(Debug)]
pub struct Memory {
    all: Arc<Semaphore>,
    share: usize,
    parties: Mutex<HashMap<String, Party>>,
}

/// What one party may hold; a permit keeps its semaphore.
#[derive(Debug)]
struct Party {
    large: Arc<Semaphore>,
    small: Arc<Semaphore>,
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
    ///
    /// # Errors
    /// When it may not for some seconds: 429, which clients repeat.
    pub async fn take(&self, party: &str, bytes: u64) -> Result<Held, Problem> {
        tokio::time::timeout(WAIT_MAX, self.wait(party, bytes)).await.map_err(|_| {
            let message = "other requests take the memory that there is for such: ask again";
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many", message)
        })
    }

    async fn wait(&self, party: &str, bytes: u64) -> Held {
        let (large, small) = self.of(party);
        // None is ever closed.
        if bytes <= SMALL_BYTES {
            return Held { _own: small.acquire_owned().await.ok(), _all: None };
        }
        let permits = permits(bytes);
        let own = large.acquire_many_owned(permits).await.ok();
        Held { _own: own, _all: self.all.clone().acquire_many_owned(permits).await.ok() }
    }

    fn of(&self, party: &str) -> (Arc<Semaphore>, Arc<Semaphore>) {
        let mut parties = self.parties.lock();
        if !parties.contains_key(party) {
            // Those that nobody holds anything of.
            parties.retain(|_, own| Arc::strong_count(&own.large) > 1 || Arc::strong_count(&own.small) > 1);
        }
        let new = || Party { large: Arc::new(Semaphore::new(self.share)), small: Arc::new(Semaphore::new(SMALL)) };
        let own = parties.entry(party.to_owned()).or_insert_with(new);
        (own.large.clone(), own.small.clone())
    }
}

fn permits(bytes: u64) -> u32 {
    (bytes.div_ceil(1 << 20) as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    const SOON: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn one_party_cannot_have_it_all_and_none_is_remembered_for_ever() {
        let memory = Memory::new(64, 16 << 20);
        let held = memory.take("slow", 16 << 20).await.unwrap();
        assert!(timeout(SOON, memory.take("slow", 1 << 20)).await.is_err(), "its share is used up");
        let other = timeout(SOON, memory.take("quick", 16 << 20)).await.unwrap().unwrap();
        drop(held);
        let again = timeout(SOON, memory.take("slow", 1 << 20)).await.unwrap().unwrap();
        drop((other, again));
        let _new = memory.take("new", 1).await.unwrap();
        assert_eq!(memory.parties.lock().len(), 1);
    }

    /// Regression: four parties that hardly sent held all there was, and whoever else asked for the smallest thing waited.
    #[tokio::test]
    async fn what_is_small_waits_for_no_other_party() {
        let memory = Memory::new(64, 16 << 20);
        let mut held = Vec::new();
        for party in ["a", "b", "c", "d"] {
            held.push(memory.take(party, 16 << 20).await.unwrap());
        }
        let small = timeout(SOON, memory.take("e", SMALL_BYTES)).await.unwrap();
        let of_one = timeout(SOON, memory.take("a", SMALL_BYTES)).await.unwrap();
        assert!(small.is_ok() && of_one.is_ok());
        for _ in 0..SMALL {
            held.push(memory.take("f", 1).await.unwrap());
        }
        assert!(timeout(SOON, memory.take("f", 1)).await.is_err(), "one party's small ones are bounded too");
    }

    /// Regression: who waited for memory was taken to be silent after a minute, and so were those who waited behind it.
    #[tokio::test]
    async fn who_waits_for_long_is_told_to_ask_again() {
        let memory = Memory::new(16, 16 << 20);
        let held = memory.take("a", 16 << 20).await.unwrap();
        let begun = std::time::Instant::now();
        let told = memory.take("a", 1 << 20).await.unwrap_err();
        assert_eq!((told.status, told.code.as_str()), (429, "too_many"));
        assert!(begun.elapsed() < Duration::from_secs(10));
        drop(held);
        memory.take("a", 1 << 20).await.unwrap();
    }
}
