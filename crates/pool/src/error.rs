//! What can go wrong in a pool.

use std::io;
use std::path::PathBuf;

/// An error of a pool.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file system below failed; `source` carries its errno.
    #[error("cannot {doing} {path} in the pool: {source}")]
    Io {
        /// What was being done, as a verb.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The backing file is not the one the catalog means: missing, or of another generation.
    #[error("the backing file {path} does not carry generation {expected}")]
    Mismatch {
        /// Where.
        path: PathBuf,
        /// What the catalog says.
        expected: u64,
    },
    /// A process of the same space has it.
    #[error("the pool {0} is in use by a running process: stop that one first ('ullage down')")]
    Locked(PathBuf),
    /// The pool cannot be used at all; the text says why and what to do.
    #[error("{0}")]
    Unusable(String),
}

impl Error {
    /// Wraps an error of a system call: `.map_err(Error::io("open", path))`.
    pub(crate) fn io<E: Into<io::Error>>(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(E) -> Self {
        move |source| Self::Io { doing, path: path.into(), source: source.into() }
    }

    /// The errno, where the file system below gave one.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } => source.raw_os_error(),
            Self::Mismatch { .. } | Self::Locked(_) | Self::Unusable(_) => None,
        }
    }

    /// Whether it would have had to wait, and was not to ([`crate::Wait::Nothing`]).
    pub fn would_wait(&self) -> bool {
        self.raw_os_error() == Some(libc::EAGAIN)
    }

    /// Whether what lies on the disk cannot be read, rather than that something else is in the way.
    pub fn is_damage(&self) -> bool {
        self.raw_os_error().is_some_and(|code| crate::sys::is_damage(rustix::io::Errno::from_raw_os_error(code)))
    }

    /// Whether the pool is full, or its owner's quota below it is.
    pub fn is_full(&self) -> bool {
        matches!(self.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
    }
}
