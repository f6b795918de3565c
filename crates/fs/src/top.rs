//! The top directory, which the kernel takes for root's until somebody has looked at it: it refuses others to change its mode or its times.

use crate::{Envoy, Space, threads};
use std::io;
use std::sync::mpsc;
use std::time::Duration;

impl Space {
    /// Has the top directory looked at by a process apart, and waits for that so long at most: an answer that is lost is waited for by nobody
    /// else.
    pub fn show_top(&self, patience: Duration) {
        let shown = self.take_envoy().and_then(|envoy| look(envoy, patience));
        if let Err(error) = shown {
            tracing::debug!(%error, "the kernel may take root for the owner of the top directory until somebody looks at it");
        }
    }
}

fn look(mut envoy: Box<dyn Envoy>, patience: Duration) -> io::Result<()> {
    let (tells, told) = mpsc::sync_channel(1);
    threads::start("look at the top", move || {
        let _ = tells.send(envoy.look());
    })?;
    told.recv_timeout(patience).map_err(io::Error::other)?
}
