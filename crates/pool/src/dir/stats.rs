//! What a pool counts.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters since the pool was opened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
        pub struct Stats { $($(#[$doc])* pub $name: u64,)* }

        impl Stats {
            /// Each counter by name, for reports.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }

        #[derive(Default)]
        pub struct Counters { $(pub $name: AtomicU64,)* }

        impl Counters {
            pub fn read(&self) -> Stats {
                Stats { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Files given out that were ready.
    hits,
    /// Files given out that had to be made first.
    misses,
    /// Ready files moved to a series that had none.
    moved,
    /// Files emptied and made ready again.
    recycled,
    /// Files emptied and kept, closed, to be made ready when there is demand.
    emptied,
    /// Files removed.
    removed,
    /// Files put into quarantine, since somebody still held them open for writing or mapped writable.
    quarantined,
    /// Files in quarantine now.
    in_quarantine,
    /// Files that could not be taken back; they stay where they are until the leaf is looked through.
    failed,
}

/// One more.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
