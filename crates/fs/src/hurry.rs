//! Who may wait: not a thread that answers the kernel.
//!
//! What is lent is asked back by requests of our own (`refresh.rs`). Were all threads that answer requests to wait for that, or for
//! whoever waits for it, nobody would answer those, and the whole mount would stand still.

use crate::{Errno, Outcome};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::cell::Cell;
use std::time::Duration;
use ullage_types::PoolId;

/// How long a file's lock may be waited for all the same: most who hold it are done in no time.
const MOMENT: Duration = Duration::from_millis(1);

thread_local! {
    static HURRIED: Cell<bool> = const { Cell::new(false) };
    static IRREPLACEABLE: Cell<bool> = const { Cell::new(false) };
    static WAITS_FOR: Cell<WaitsFor> = const { Cell::new(WaitsFor::Anything) };
}

/// What a call may have to wait for, as far as is known. Those that wait for one thing may take no more than a part of the threads that may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// Nobody knows.
    Anything,
    /// A pool's file system.
    Pool(PoolId),
    /// Who reads the kernel's copy of a listing.
    Listers,
}

/// Runs a call on a thread that others wait for. What would have to wait for requests of other threads gives [`Errno::LATER`] and has
/// changed nothing that counts: it is to be called again by a thread that may wait.
pub fn hurried<T>(call: impl FnOnce() -> T) -> T {
    HURRIED.set(true);
    WAITS_FOR.set(WaitsFor::Anything);
    let outcome = call();
    HURRIED.set(false);
    outcome
}

/// The same on a thread that nobody can take the place of while it stands still: over io_uring what the kernel has sent to one stays with it.
pub fn irreplaceable<T>(call: impl FnOnce() -> T) -> T {
    IRREPLACEABLE.set(true);
    let outcome = hurried(call);
    IRREPLACEABLE.set(false);
    outcome
}

/// Runs what can be done without, where it would have to wait, whatever thread this is.
pub(crate) fn without_waiting<T>(call: impl FnOnce() -> T) -> T {
    let before = HURRIED.replace(true);
    let outcome = call();
    HURRIED.set(before);
    outcome
}

/// What the call that gave [`Errno::LATER`] last on this thread would have waited for.
pub fn waits_for() -> WaitsFor {
    WAITS_FOR.get()
}

/// LATER where the calling thread may not wait, and what for.
pub(crate) fn may_wait_for(what: WaitsFor) -> Outcome<()> {
    may_wait().inspect_err(|_| WAITS_FOR.set(what))
}

/// Whether the calling thread is one of those.
pub(crate) fn is_irreplaceable() -> bool {
    IRREPLACEABLE.get()
}

/// LATER where the calling thread may not wait.
pub(crate) fn may_wait() -> Outcome<()> {
    if HURRIED.get() { Err(Errno::LATER) } else { Ok(()) }
}

/// LATER where the calling thread may not wait, and who holds this lock does, maybe for a disk.
pub(crate) fn can_lock<T>(lock: &Mutex<T>) -> Outcome<()> {
    if HURRIED.get() && lock.is_locked() { lock.try_lock_for(MOMENT).map(drop).ok_or(Errno::LATER) } else { Ok(()) }
}

/// Takes a lock that others hold for a moment, but for those who wait with it.
pub(crate) fn locked<T>(lock: &Mutex<T>) -> Outcome<MutexGuard<'_, T>> {
    if HURRIED.get() { lock.try_lock_for(MOMENT).ok_or(Errno::LATER) } else { Ok(lock.lock()) }
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

    #[test]
    fn who_is_in_a_hurry_does_not_wait_for_who_has_a_file() {
        let lock = Mutex::new(());
        hurried(|| can_lock(&lock)).unwrap();
        let _held = lock.lock();
        assert_eq!(hurried(|| can_lock(&lock)), Err(Errno::LATER));
        assert_eq!(hurried(|| locked(&lock).map(drop)), Err(Errno::LATER));
        can_lock(&lock).unwrap();
    }
}
