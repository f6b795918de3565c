//! Looks at what others have in memory. Its owner can keep it from being read for as long as he likes: what is mapped there may be of a
//! file whose file system does not answer. So a thread apart looks, and is not waited for without end.

use crate::threads;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Duration;

/// How long a look is waited for, and how many there are at most.
const PATIENCE: Duration = Duration::from_secs(10);
const MOST: usize = 64;

/// How many have not ended.
struct Looks(AtomicUsize);

static LOOKS: Looks = Looks(AtomicUsize::new(0));

/// One of them, until it has ended.
struct Look(&'static Looks);

impl Drop for Look {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

impl Looks {
    /// None where it takes longer than so much, or too many have not ended.
    fn patient<T: Send + 'static>(
        &'static self,
        patience: Duration,
        look: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (under_way, own) = (self.0.fetch_add(1, Relaxed), Look(self));
        if under_way >= MOST {
            return None;
        }
        let (tells, told) = mpsc::sync_channel(1);
        let work = move || {
            let _own = own;
            let _ = tells.send(look());
        };
        threads::start("look", work).ok()?;
        told.recv_timeout(patience).ok()
    }
}

/// What a look at memory says: none where it does not end, or no thread can be started for it.
pub(super) fn patient<T: Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    #[cfg(test)]
    super::tests::LOOKED.set(super::tests::LOOKED.get() + 1);
    within(PATIENCE, look)
}

/// The same of anything else that may not end, and is waited for so long.
pub(crate) fn within<T: Send + 'static>(patience: Duration, look: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    LOOKS.patient(patience, look)
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::sync::Arc;

    /// A thread stood still with memory that was of a file of another file system, which did not answer, and the space with it at its end.
    #[test]
    fn memory_that_cannot_be_read_is_not_waited_for_without_end() {
        static LOOKS: Looks = Looks(AtomicUsize::new(0));
        let (ends, end) = mpsc::channel::<()>();
        let end = Arc::new(Mutex::new(end));
        let hangs = || {
            let end = end.clone();
            LOOKS.patient(Duration::from_millis(1), move || end.lock().recv())
        };
        assert_eq!(hangs(), None);
        assert_eq!(LOOKS.patient(Duration::from_secs(20), || 7), Some(7), "others are looked at meanwhile");
        assert!((1..MOST).all(|_| hangs().is_none()));
        assert_eq!(LOOKS.patient(Duration::from_secs(20), || 7), None, "not by any number of threads");
        drop(ends);
    }
}
