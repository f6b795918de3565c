//! What can go wrong around a space; each text says what to do.

use crate::control::client::LOG;
use std::io;
use std::path::PathBuf;

/// The daemon's result.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a space's start, end or control.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text says what is wrong and what to do.
    #[error("{0}")]
    Refused(String),
    /// A file or directory around the space.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// What was being done, as a verb.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The settings cannot be read.
    #[error("{path} is not a valid space.toml: {source}")]
    Settings {
        /// Where.
        path: PathBuf,
        /// Why.
        source: Box<toml::de::Error>,
    },
    /// The catalog.
    #[error(transparent)]
    Catalog(#[from] ullage_catalog::Error),
    /// A pool.
    #[error("pool '{name}': {source}")]
    Pool {
        /// Which.
        name: String,
        /// Why.
        source: ullage_pool::Error,
    },
    /// The daemon was asked, and let the time go by.
    #[error("{}", silent(*.0))]
    Silent(Option<u32>),
    /// Nobody takes connections, and no more can wait.
    #[error(
        "nobody answers at {0}, and too many wait there: the daemon may have been stopped, or may wait for a disk; {log} may say why",
        log = LOG
    )]
    Crowded(PathBuf),
    /// A signal came before the space was up.
    #[error("interrupted: the space was not started; what was done so far stays, and the next `up` goes on with it")]
    Interrupted(i32),
    /// Another process has the catalog, and the kernel tells which.
    #[error("the catalog at {0} is in use by another process, number {1}")]
    InUse(PathBuf, u32),
    /// Two first uses met.
    #[error("another `ullage up` is making the space of {0}; try again when it has ended")]
    Overtaken(std::path::PathBuf),
    /// Another command changed the settings between when they were read and when the catalog was locked.
    #[error("the settings of {0} were changed by another command just now; try again")]
    Changed(std::path::PathBuf),
}

impl Error {
    /// Whether another process has the catalog or a pool, or is making the space, or had it until now.
    pub(crate) fn is_lock(&self) -> bool {
        matches!(
            self,
            Self::Catalog(ullage_catalog::Error::Kv(ullage_kv::Error::Locked(_)))
                | Self::Pool { source: ullage_pool::Error::Locked(_), .. }
                | Self::Overtaken(_)
                | Self::Changed(_)
        )
    }

    /// Says who has the catalog, where that is why, and it can be known.
    pub(crate) fn with_holder(self) -> Self {
        match self {
            Self::Catalog(ullage_catalog::Error::Kv(ullage_kv::Error::Locked(dir))) => {
                match crate::process::holder::of(&dir.join("lock")) {
                    Some(pid) => Self::InUse(dir, pid),
                    None => ullage_kv::Error::Locked(dir).into(),
                }
            }
            other => other,
        }
    }

    /// Whether no process could be started, now: there are too many, or memory is short.
    pub(crate) fn lacks_process(&self) -> bool {
        let passes = |kind| matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory);
        matches!(self, Self::Io { source, .. } if passes(source.kind()))
    }

    /// Whether the state found no room: its disk is full, or a quota that nobody sees in what is free there.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Self::Io { source, .. } | Self::Catalog(ullage_catalog::Error::Kv(ullage_kv::Error::Io { source, .. })) => {
                is_full(source)
            }
            _ => false,
        }
    }
}

/// Whether a disk, or a quota on it, has no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl From<ullage_kv::Error> for Error {
    fn from(error: ullage_kv::Error) -> Self {
        Self::Catalog(error.into())
    }
}

/// Of a container's daemon the process may not be seen from here.
fn silent(pid: Option<u32>) -> String {
    match pid {
        Some(pid) => format!(
            "the daemon, process {pid}, does not answer: `kill -CONT {pid}` wakes it if it was stopped; else it may wait for a disk, and {LOG} \
             may say why"
        ),
        None => {
            format!("the daemon does not answer: it may have been stopped, or wait for a disk, and {LOG} may say why")
        }
    }
}

/// Names what was being done to which path.
pub(crate) fn io_error(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Error {
    let path = path.into();
    move |source| Error::Io { doing, path: ullage_kv::shown(&path), source }
}
