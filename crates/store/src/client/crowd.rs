//! A store that has too much to do: it answers so, and is asked again, later each time.

use std::time::{Duration, Instant};
use ullage_net::client::CallError;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(2);
/// Nobody is asked for longer than this without anything coming of it.
const MOST: Duration = Duration::from_secs(3600);

/// How long one request has waited for it.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    pause: Duration,
    waited: Duration,
}

impl Crowd {
    /// Whether a request is to be repeated for that.
    pub(super) fn is_why(&self, error: &CallError) -> bool {
        error.code() == Some("too_many") && self.waited < MOST
    }

    /// Waits before a request that was `begun` then is repeated. Whoever answers is not silent: the time is none of the patience for that.
    pub(super) async fn wait(&mut self, begun: Instant, until: &mut Instant) {
        self.pause = (self.pause * 2).clamp(FIRST, LONGEST);
        tokio::time::sleep(self.pause).await;
        self.waited += begun.elapsed();
        *until += begun.elapsed();
    }
}
