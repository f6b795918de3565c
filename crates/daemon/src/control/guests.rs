//! How many may ask at one time: each costs a thread and a descriptor of the process that serves everybody.

use parking_lot::Mutex;
use std::sync::Arc;

/// Connections of all users but root and who mounted the space.
const ALL_MAX: usize = 64;
/// Of one of them.
const EACH_MAX: usize = 8;

/// Users who are connected, each as often as it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guests(Arc<Mutex<Vec<u32>>>);

/// One connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct Guest {
    uid: u32,
    all: Guests,
}

impl Guests {
    /// None when there are too many; root and who mounted the space always come in.
    pub(crate) fn admit(&self, uid: u32) -> Option<Guest> {
        let mut here = self.0.lock();
        let counts = |uid: u32| uid != 0 && uid != rustix::process::geteuid().as_raw();
        let own = here.iter().filter(|other| **other == uid).count();
        let others = here.iter().filter(|other| counts(**other)).count();
        if counts(uid) && (own >= EACH_MAX || others >= ALL_MAX) {
            return None;
        }
        here.push(uid);
        Some(Guest { uid, all: self.clone() })
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut here = self.all.0.lock();
        if let Some(at) = here.iter().position(|uid| *uid == self.uid) {
            here.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_user_and_not_all_together_have_more_than_their_connections_but_root_always_comes_in() {
        let guests = Guests::default();
        let mut inside: Vec<Guest> = (0..EACH_MAX).map(|_| guests.admit(4001).unwrap()).collect();
        assert!(guests.admit(4001).is_none());
        inside.pop();
        inside.push(guests.admit(4001).unwrap());
        for n in EACH_MAX..ALL_MAX {
            inside.push(guests.admit(5000 + n as u32).unwrap());
        }
        assert!(guests.admit(4002).is_none());
        let own = rustix::process::geteuid().as_raw();
        let trusted: Vec<Guest> = (0..2 * ALL_MAX).map(|n| guests.admit([0, own][n % 2]).unwrap()).collect();
        drop(inside);
        assert!(guests.admit(4002).is_some());
        drop(trusted);
        assert!(guests.0.lock().is_empty());
    }
}
