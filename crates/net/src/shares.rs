//! How many of a server's connections one party has: however many it opens, there are places for others.

use crate::{Peer, Role};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// A party has no more than so many times the places that are left: alone three quarters of all, with another three sevenths each.
const TIMES_LEFT: usize = 3;

/// One part in so many of all places anybody may have, whatever is left.
const PART: usize = 64;

/// Counts the connections of those who have shown who they are.
pub(crate) struct Shares {
    places: usize,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    all: usize,
    of: HashMap<Peer, usize>,
}

/// One connection counts, until it is dropped.
pub(crate) struct Share {
    peer: Peer,
    of: Arc<Shares>,
}

impl Shares {
    pub(crate) fn new(places: usize) -> Arc<Self> {
        Arc::new(Self { places, held: Mutex::default() })
    }

    /// Counts one more, unless this party has too many. Only users have, and who acts for them: without stores a bank is of no use, and an
    /// administrator may be about to help.
    pub(crate) fn take(self: &Arc<Self>, peer: &Peer) -> Option<Share> {
        let mut held = self.held.lock();
        let own = held.of.get(peer).copied().unwrap_or(0);
        let left = self.places.saturating_sub(held.all);
        let is_bounded = matches!(peer.role, Role::User | Role::Node);
        if is_bounded && own >= (self.places / PART).max(1) && own >= TIMES_LEFT * left {
            return None;
        }
        held.all += 1;
        *held.of.entry(peer.clone()).or_default() += 1;
        Some(Share { peer: peer.clone(), of: Arc::clone(self) })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.of.held.lock();
        held.all -= 1;
        if let Some(own) = held.of.get_mut(&self.peer) {
            *own -= 1;
            if *own == 0 {
                held.of.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_party_leaves_places_to_others_and_they_to_more() {
        let shares = Shares::new(4096);
        let party = |name: &str, role| Peer { name: name.into(), role };
        let fill = |peer: &Peer| -> Vec<Share> { std::iter::from_fn(|| shares.take(peer)).take(5000).collect() };
        let alice = fill(&party("alice", Role::User));
        assert_eq!(alice.len(), 3072);
        let bob = fill(&party("bob", Role::Node));
        assert_eq!(bob.len(), 768);
        // Another role of the same name is another party; stores and administrators are let in whatever there is.
        assert!(shares.take(&party("bob", Role::User)).is_some());
        for role in [Role::Store, Role::Bank, Role::Admin] {
            assert_eq!(fill(&party("alice", role)).len(), 5000);
        }
        // With none left everybody has a few, which wait for a place.
        let stores = fill(&party("store", Role::Store));
        assert_eq!(fill(&party("carol", Role::User)).len(), 64);
        drop((stores, alice));
        assert_eq!(shares.take(&party("bob", Role::Node)).map(|_| ()), Some(()));
        drop(bob);
        let held = shares.held.lock();
        assert_eq!((held.all, held.of.len()), (0, 0));
    }
}
