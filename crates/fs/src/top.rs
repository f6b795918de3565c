//! The top directory, which the kernel takes for root's until somebody has looked at it: it refuses others to change its mode or its times.

use crate::Space;
use crate::headroom::waiting::looks;
use std::io::ErrorKind;
use std::time::Duration;

impl Space {
    /// Has the top directory looked at by a process apart, and waits for that so long at most: an answer that is lost is waited for by nobody
    /// else.
    pub fn show_top(&self, patience: Duration) {
        let shown = self.take_envoy().and_then(|mut envoy| {
            looks::within(patience, move || envoy.look()).unwrap_or_else(|| Err(ErrorKind::TimedOut.into()))
        });
        if let Err(error) = shown {
            tracing::debug!(%error, "the kernel may take root for the owner of the top directory until somebody looks at it");
        }
    }
}
