//! Looks at what others have in memory. Its owner can keep it from being read for as long as he likes: what is mapped there may be of a
//! file whose file system does not answer. So a thread apart looks, and is not waited for without end.

use crate::threads;
use parking_lot::Mutex;
use std::sync::mpsc;
use std::time::Duration;

/// How long a look is waited for, and how many there are at most: in all, and at what one user has.
const PATIENCE: Duration = Duration::from_secs(10);
const MOST: usize = 64;
const MOST_EACH: usize = 8;

/// How many have not ended, by whose memory they are at.
struct Looks(Mutex<Vec<Option<u32>>>);

static LOOKS: Looks = Looks(Mutex::new(Vec::new()));

/// One of them, until it has ended.
struct Look(&'static Looks, Option<u32>);

impl Drop for Look {
    fn drop(&mut self) {
        let mut under_way = self.0.0.lock();
        if let Some(own) = under_way.iter().position(|user| *user == self.1) {
            under_way.swap_remove(own);
        }
    }
}

impl Looks {
    /// Who keeps as many from ending as one may has no share of the others'.
    fn begin(&'static self, user: Option<u32>) -> Option<Look> {
        let mut under_way = self.0.lock();
        let own = under_way.iter().filter(|other| **other == user).count();
        if under_way.len() >= MOST || user.is_some() && own >= MOST_EACH {
            return None;
        }
        under_way.push(user);
        Some(Look(self, user))
    }

    /// None where it takes longer than so much, or too many have not ended.
    fn patient<T: Send + 'static>(
        &'static self,
        user: Option<u32>,
        patience: Duration,
        look: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let own = self.begin(user)?;
        let (tells, told) = mpsc::sync_channel(1);
        let work = move || {
            let _own = own;
            let _ = tells.send(look());
        };
        threads::start("look", work).ok()?;
        told.recv_timeout(patience).ok()
    }
}

/// What a look at the memory of a thread says, or of all for none: none where it does not end, or no thread can be started for it.
pub(super) fn patient<T: Send + 'static>(thread: Option<u32>, look: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    #[cfg(test)]
    super::tests::LOOKED.set(super::tests::LOOKED.get() + 1);
    LOOKS.patient(thread.and_then(user_of), PATIENCE, look)
}

/// Whose a thread is; none for root's. Not the owner of its files in `/proc`, which a process can have be root.
fn user_of(thread: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().next()?.parse().ok()?;
    (uid != 0).then_some(uid)
}

/// The same of anything else that may not end, and is waited for so long.
pub(crate) fn within<T: Send + 'static>(patience: Duration, look: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    LOOKS.patient(None, patience, look)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// A thread stood still with memory that was of a file of another file system, which did not answer, and the space with it at its end.
    #[test]
    fn memory_that_cannot_be_read_is_not_waited_for_without_end() {
        static LOOKS: Looks = Looks(Mutex::new(Vec::new()));
        let (ends, end) = mpsc::channel::<()>();
        let end = Arc::new(Mutex::new(end));
        let hangs = |user| {
            let end = end.clone();
            LOOKS.patient(user, Duration::from_millis(1), move || end.lock().recv())
        };
        let answers = |user| LOOKS.patient(user, Duration::from_secs(20), || 7);
        assert_eq!(hangs(None), None);
        assert_eq!(answers(None), Some(7), "others are looked at meanwhile");
        // One user kept all looks from ending, and everybody else was refused what is not known.
        assert!((0..MOST_EACH).all(|_| hangs(Some(1000)).is_none()));
        assert_eq!((answers(Some(1000)), answers(Some(1001)), answers(None)), (None, Some(7), Some(7)));
        assert!((1 + MOST_EACH..MOST).all(|_| hangs(None).is_none()));
        assert_eq!(answers(None), None, "not by any number of threads");
        drop(ends);
    }
}
