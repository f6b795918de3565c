//! What can go wrong, each with what the user can do about it.

use std::io;
use std::path::{Path, PathBuf};

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the memory controller.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process does not exist (any more).
    #[error("no process {0}: it is gone, or never was")]
    NoSuchProcess(i32),
    /// The process belongs to somebody else.
    #[error("process {0} is not yours: only root may lend out the memory of another user's process")]
    NotYours(i32),
    /// Nowhere is a memory controller that may be used.
    #[error("no usable memory controller:\n{0}")]
    NoController(String),
    /// No sampler works here.
    #[error("no way to sample page references:\n{0}")]
    NoSampler(String),
    /// A cgroup vanished under us.
    #[error("the cgroup {} vanished: somebody removed it; limits are lifted", .0.display())]
    GroupVanished(PathBuf),
    /// The sampler failed several times in a row, or does not return.
    #[error("the sampler {name} stopped answering ({why}); limits are lifted")]
    SamplerSilent {
        /// Which sampler.
        name: &'static str,
        /// The last thing known.
        why: String,
    },
    /// The kernel does not accept a limit.
    #[error("the kernel refuses a limit of {limit} for {}: {source}", group.display())]
    LimitRefused {
        /// The group's directory.
        group: PathBuf,
        /// The limit as written.
        limit: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// Another controller owns this runtime directory.
    #[error("a controller already runs (pid {0}); stop it first, or give another --box and another --runtime-dir")]
    AlreadyRunning(i32),
    /// A controller of an earlier version owns it: it has no door to come in by.
    #[error(
        "the controller that runs (pid {0}) is of an earlier version: stop it first ('kill {0}'), then run this again"
    )]
    EarlierVersion(i32),
    /// Another controller divides the same memory.
    #[error("another controller divides this box, it holds {}: stop it first, or give another --box", .0.display())]
    BoxTaken(PathBuf),
    /// Others can write in the runtime directory, or made it.
    #[error("{} {why}: the files in it say what is written to; where only you wrote in it, 'chmod go-w' it, else remove it or give another --runtime-dir", directory.display())]
    NotTrusted {
        /// The directory.
        directory: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No controller runs.
    #[error("no controller runs in {}: start one with 'ullage memory daemon'", .0.display())]
    NotRunning(PathBuf),
    /// A signal asked for the end.
    #[error("stopped by a signal: what was measured so far is kept")]
    Stopped,
    /// Input that is not what it should be.
    #[error("{0}")]
    Invalid(String),
    /// Somebody holds the door of a controller, and does not go on: it may have been frozen on the threshold.
    #[error("another 'ullage memory' holds {} and does not go on: try again, or end it", .0.display())]
    DoorHeld(std::path::PathBuf),
    /// A file could not be read or written.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// What was being done: "reading", "writing" and so on.
        what: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Error {
    /// Makes an [`Error::Io`] out of an `io::Error`, for `map_err`.
    pub fn io(what: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::Io { what, path, source }
    }

    /// The errno below, where there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } | Self::LimitRefused { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}
