//! Work that several threads share.

use std::thread::{Builder, scope};

/// Does `work` on as many threads as asked for, this one among them, or on as many as the system starts: each takes of the same work, of
/// which there are `parts`.
pub(crate) fn on_threads(asked: usize, parts: usize, work: &(dyn Fn() + Sync)) {
    scope(|scope| {
        for _ in 1..asked.min(parts) {
            if Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Regression: as many were started as were asked for, for however little; where the system had no more, that was a panic.
    #[test]
    fn there_are_no_more_threads_than_parts_and_always_one() {
        for (asked, parts, done) in [(0, 3, 1), (2, 3, 2), (3, 2, 2), (1_000_000, 4, 4), (usize::MAX, 0, 1)] {
            let counted = AtomicUsize::new(0);
            on_threads(asked, parts, &|| {
                counted.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(counted.into_inner(), done);
        }
    }
}
