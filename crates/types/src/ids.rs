//! Identities. Each is a newtype, so that one can never be passed for another.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A file of the catalog, of any kind; what `st_ino` shows. Never used twice in the life of a space.
    FileId(u64)
);
id!(
    /// What the kernel holds: a dynamic handle for a (file, view) pair, not the file itself.
    NodeId(u64)
);
id!(
    /// One binding of a file to a backing file. Never used twice in the life of a space; the catalog and
    /// the backing file both carry it, and a mismatch is never served.
    Generation(u64)
);
id!(
    /// A pool of a space, by its place in the space's configuration.
    PoolId(u16)
);

/// The root directory of every space.
pub const ROOT: FileId = FileId(1);
