//! Whether all that a file system was given to write has been written.

use parking_lot::Mutex;
use std::io;

/// What syncfs(2) said. A file system that could not write something says so once: the next call succeeds, and the data is not there.
#[derive(Debug, Default)]
pub struct Written {
    /// It failed, ever. Held during the call: it tells one of two callers.
    failed: Mutex<bool>,
}

impl Written {
    /// Writes everything out by `sync`.
    pub fn out<E: Into<io::Error> + Copy>(&self, sync: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let mut failed = self.failed.lock();
        let written = sync();
        if let Err(error) = written
            && !std::mem::replace(&mut *failed, true)
        {
            let error: io::Error = error.into();
            tracing::error!(%error, "the pool's disk did not take all that was written: what was in doubt stays so until the next start");
        }
        written
    }

    /// Whether nothing was lost yet.
    pub fn all(&self) -> bool {
        !*self.failed.lock()
    }
}
