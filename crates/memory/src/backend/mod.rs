//! Back ends: what makes the kernel keep to the limits.

mod dip;
mod enabled;
mod lowered;
mod members;
mod probe;
mod shares;
mod signals;
mod v1;
mod v2;

pub(crate) use enabled::disable;
pub(crate) use lowered::Lowered;
pub use members::Members;
pub(crate) use members::hold;
pub use probe::{Found, GROUP_NAME, Plan, choose};
pub(crate) use signals::signal_all;
pub use v1::V1;
pub use v2::V2;

use crate::control::{Feedback, Picture};
use crate::error::Result;
use std::path::{Path, PathBuf};

/// One way of bounding a group of processes.
pub trait Backend: Send {
    /// Its name, for `status`.
    fn name(&self) -> &'static str;

    /// The contributed group's directory.
    fn group(&self) -> &Path;

    /// Where memory is now, in pages.
    fn picture(&mut self) -> Result<Picture>;

    /// Misses and stalls since the previous call.
    fn feedback(&mut self) -> Result<Feedback>;

    /// Contributed processes, also those in groups that they have made.
    fn contributed(&self) -> Result<Vec<i32>>;

    /// Opaque processes: those to be watched.
    fn opaque(&self) -> Result<Vec<i32>>;

    /// Bounds the contributed group to `pages`. It shrinks by a bounded step per call, so that a
    /// call takes well under a second; gives the bound in force.
    fn limit(&mut self, pages: u64) -> Result<u64>;

    /// Evicts up to `pages` of opaque memory by the kernel's own order; gives about how many went.
    fn evict(&mut self, pages: u64) -> Result<u64>;

    /// Stops all contributed processes, keeping their memory; gives those that may not be stopped.
    fn freeze(&mut self) -> Result<Vec<i32>>;

    /// Lets them go on.
    fn thaw(&mut self) -> Result<()>;

    /// Whether it stops them by signals, which outlive the group, as a freezer's state does not.
    fn stops_by_signals(&self) -> bool {
        false
    }

    /// Ends all contributed processes.
    fn kill(&mut self) -> Result<()>;

    /// Where to note what must be undone should this process die in the middle of an eviction.
    fn journal(&mut self, _file: PathBuf) {}
}

/// Largest step, in bytes, by which a group shrinks in one call: about 0.2 s of swapping.
const SHRINK_STEP: u64 = 16 << 20;
