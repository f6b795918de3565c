//! The threads that answer the kernel, for whoever cannot wait until it is their turn.

use crate::standing::Standing;
use parking_lot::Mutex;
use std::sync::Arc;

/// The threads of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Servers(Arc<Mutex<Vec<Arc<Standing>>>>);

/// The calling thread is one of them, until this is dropped.
pub(crate) struct Serving {
    servers: Servers,
    standing: Arc<Standing>,
}

impl Servers {
    /// Adds the calling thread.
    pub fn enlist(&self) -> Serving {
        let standing = Arc::new(Standing::of_this_thread());
        self.0.lock().push(Arc::clone(&standing));
        Serving { servers: self.clone(), standing }
    }

    /// Runs what has requests sent while those who answer them go before all others.
    pub fn first<T>(&self, work: impl FnOnce() -> T) -> T {
        let chosen = {
            // None of them leaves meanwhile.
            let servers = self.0.lock();
            for standing in servers.iter() {
                standing.begin_first();
            }
            servers.clone()
        };
        let outcome = work();
        for standing in &chosen {
            standing.end_first();
        }
        outcome
    }
}

impl Serving {
    /// What is wanted of the thread.
    pub fn standing(&self) -> Arc<Standing> {
        Arc::clone(&self.standing)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.servers.0.lock().retain(|it| !Arc::ptr_eq(it, &self.standing));
        self.standing.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;

    fn class() -> i32 {
        sys::class(0).unwrap()
    }

    #[test]
    fn those_who_answer_go_first_meanwhile_and_no_longer() {
        let servers = Servers::default();
        let serving = servers.enlist();
        if servers.first(class) != libc::SCHED_RR {
            eprintln!("skipped: this process may not enter SCHED_RR");
            return;
        }
        assert_eq!(class(), libc::SCHED_OTHER);
        // Two at once: the first one that is done leaves it to the other.
        let within = servers.first(|| {
            let inner = servers.first(class);
            (inner, class())
        });
        assert_eq!((within, class()), ((libc::SCHED_RR, libc::SCHED_RR), libc::SCHED_OTHER));
        drop(serving);
        assert_eq!(servers.first(class), libc::SCHED_OTHER);
    }
}
