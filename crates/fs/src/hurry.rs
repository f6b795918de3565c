//! Who may wait: not a thread that answers the kernel.
//!
//! What is lent is asked back by requests of our own (`refresh.rs`). Were all threads that answer requests to wait for that, or for
//! whoever waits for it, nobody would answer those, and the whole mount would stand still.

use crate::{Errno, Outcome};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::cell::Cell;

thread_local! {
    static HURRIED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a call on a thread that others wait for. What would have to wait for requests of other threads gives [`Errno::LATER`] and has
/// changed nothing that counts: it is to be called again by a thread that may wait.
pub fn hurried<T>(call: impl FnOnce() -> T) -> T {
    HURRIED.set(true);
    let outcome = call();
    HURRIED.set(false);
    outcome
}

/// LATER where the calling thread may not wait.
pub(crate) fn may_wait() -> Outcome<()> {
    if HURRIED.get() { Err(Errno::LATER) } else { Ok(()) }
}

/// Takes a lock that others may hold while they wait.
pub(crate) fn shared(lock: &RwLock<()>) -> Outcome<RwLockReadGuard<'_, ()>> {
    if HURRIED.get() { lock.try_read().ok_or(Errno::LATER) } else { Ok(lock.read()) }
}

/// The same, alone.
pub(crate) fn alone(lock: &RwLock<()>) -> Outcome<RwLockWriteGuard<'_, ()>> {
    if HURRIED.get() { lock.try_write().ok_or(Errno::LATER) } else { Ok(lock.write()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_in_a_hurry_takes_what_is_free_and_waits_for_nothing() {
        let lock = RwLock::new(());
        hurried(|| {
            drop(alone(&lock).unwrap());
            let _held = lock.read();
            drop(shared(&lock).unwrap());
            assert_eq!(alone(&lock).map(drop), Err(Errno::LATER));
            assert_eq!(may_wait(), Err(Errno::LATER));
        });
        let held = lock.write();
        assert_eq!(hurried(|| shared(&lock).map(drop)), Err(Errno::LATER));
        drop(held);
        may_wait().unwrap();
        drop(shared(&lock).unwrap());
    }
}
