//! The limits that this process inherits from whoever started it: a login, a job of a batch system, a unit.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::SIGXFSZ;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// They bound work that a server does for others, for as long as it runs.
const OF_WHOM_IT_SERVES: [Resource; 5] =
    [Resource::Fsize, Resource::Cpu, Resource::As, Resource::Data, Resource::Nofile];

/// Raises them as far as this process may. What one user has started does not bound what another writes: it is the kernel
/// that holds callers to their own limits. Where the longest file stays bounded, a longer one is refused (EFBIG) and nobody is ended by
/// a signal for it.
pub fn raise_rlimits() {
    for resource in OF_WHOM_IT_SERVES {
        raise(resource, [None, getrlimit(resource).maximum]);
    }
    // A handler is enough for the kernel to give back the error.
    if let Err(error) = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))) {
        tracing::warn!(%error, "who writes a file that is too long for this process may end it");
    }
}

/// Gives this process as many descriptors as it may have, and says how many: backing files stay open for a while.
pub(crate) fn raise_descriptors() -> u64 {
    let most = std::fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|text| text.trim().parse().ok());
    let given = getrlimit(Resource::Nofile).maximum;
    raise(Resource::Nofile, [most, given].into_iter().flatten().map(Some));
    getrlimit(Resource::Nofile).current.unwrap_or(1 << 20)
}

/// The first of these that can be had; none is no limit.
fn raise(resource: Resource, wanted: impl IntoIterator<Item = Option<u64>>) {
    let raised = wanted.into_iter().any(|most| setrlimit(resource, Rlimit { current: most, maximum: most }).is_ok());
    if !raised {
        tracing::debug!(?resource, "the limit stays");
    }
}
