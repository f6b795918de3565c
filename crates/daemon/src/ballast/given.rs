//! What is held for a start, given to a command on a space that is down.

use super::Ballast;
use crate::{Result, State};

/// Lets a command have what is held, where the disk has nothing else for it, and holds what is left again when that is done: the next start needs it.
/// To be made before the catalog is opened, so that it ends after it.
pub(crate) struct Given {
    ballast: Ballast,
    was: bool,
}

impl Given {
    /// Gives it, where nobody else has the catalog.
    pub(crate) fn of(state: &State) -> Result<Self> {
        let ballast = Ballast::of(state)?;
        let was = ballast.release()?;
        Ok(Self { ballast, was })
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        if self.was
            && let Err(error) = self.ballast.hold_left()
        {
            tracing::warn!("what was held for the next start is not held again: {error}");
        }
    }
}
