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
    let may_have = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
    make_room(may_have.min(ROOM));
    may_have
}

/// The most descriptors that there is room for at once: half a MiB of the kernel's memory.
const ROOM: u64 = 1 << 16;

/// Has the kernel make room for so many descriptors now. It would double that for whoever opens the next file, and all wait until no
/// other thread can look at the old one: 3 to 15 ms each time, seven times on the way to 20,000.
fn make_room(descriptors: u64) {
    let Ok(last) = i32::try_from(descriptors.saturating_sub(1)) else { return };
    // Given back at once; the room stays.
    let made = std::fs::File::open("/dev/null").map(|file| rustix::io::fcntl_dupfd_cloexec(file, last));
    if !matches!(made, Ok(Ok(_))) {
        tracing::debug!(descriptors, "descriptors get their room as they come");
    }
}

/// The first of these that can be had; none is no limit.
fn raise(resource: Resource, wanted: impl IntoIterator<Item = Option<u64>>) {
    let raised = wanted.into_iter().any(|most| setrlimit(resource, Rlimit { current: most, maximum: most }).is_ok());
    if !raised {
        tracing::debug!(?resource, "the limit stays");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_descriptors_before_they_come() {
        let may_have = raise_descriptors().min(ROOM);
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let room = status.lines().find_map(|line| line.strip_prefix("FDSize:")?.trim().parse::<u64>().ok()).unwrap();
        assert!(room >= may_have, "{room} of {may_have}");
    }
}
