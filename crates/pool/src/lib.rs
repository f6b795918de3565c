//! Where file data lives: data drivers behind one trait.

#![deny(missing_docs)]

mod absent;
mod descriptors;
mod dir;
mod disk;
mod error;
mod fence;
mod fsxattr;
mod fuzz;
mod null;
mod pool;
mod quota;
mod sys;
#[cfg(test)]
mod testing;
mod tree;
mod which;

pub use absent::AbsentPool;
pub use dir::{Abilities, Annotation, DirPool, MARKER, PoolConfig, Stats, Survey, Surveyed, Uuid, clear};
pub use disk::disk_of;
pub use error::Error;
pub use fence::{Fence, Fences};
pub use fsxattr::{extent_size, set_copy_extent_size, set_extent_size};
pub use fuzz::fuzz_decode;
pub use null::NullPool;
pub use pool::{
    Access, Binding, Description, Fresh, Hint, Locator, Marks, Numbers, Pool, Prepare, Prepared, Suspect, Usage, Wait,
    leaf_of,
};
pub use sys::{Lease, by_descriptor, chmod, probe_lease, reopen};
pub use tree::{Bound, Directory, FILES, Missing, Placed, Shown, Tree};
