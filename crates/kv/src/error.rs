//! What can go wrong in a store.

use rustix::io::Errno;
use std::io;
use std::path::PathBuf;

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The medium failed.
    #[error("cannot {doing} the catalog at {path}: {source}")]
    Io {
        /// What was being done, as a verb: `read`, `write`, `sync`, `open`.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The engine failed.
    #[error("the catalog's engine failed: {0}")]
    Engine(String),
    /// What was read is not what was written.
    #[error("the catalog is damaged: {0}; run `ullage check`, or `ullage rebuild` to restore it from the pools")]
    Corrupt(String),
    /// Written by a version that this one does not know.
    #[error("the catalog has format {found}, newer than the {known} this version knows; use a newer ullage")]
    Newer {
        /// The format found.
        found: u32,
        /// The newest one known here.
        known: u32,
    },
    /// Another process has it open.
    #[error("the catalog at {0} is in use by another process")]
    Locked(PathBuf),
    /// An earlier write or sync failed: nothing more is accepted, so that nothing is silently lost.
    #[error("the catalog refuses writes since an earlier one failed ({0}); unmount, mend the disk, and mount again")]
    Poisoned(String),
}

/// Whether this says that what lies on the disk cannot be read any more, rather than that something else is in the way for now.
pub fn is_damage(error: &io::Error) -> bool {
    let damage = [Errno::IO, Errno::NODATA, Errno::BADMSG, Errno::UCLEAN];
    error.raw_os_error().is_some_and(|code| damage.contains(&Errno::from_raw_os_error(code)))
}
