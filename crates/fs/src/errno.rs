//! The one table from typed errors to errno; no catch-all arm.

use crate::Errno;
use parking_lot::Mutex;
use std::io;
use std::time::{Duration, Instant};
use ullage_catalog::Error as CatalogError;
use ullage_kv::Error as KvError;
use ullage_pool::Error as PoolError;

macro_rules! errnos {
    ($($name:ident),* $(,)?) => {
        impl Errno {
            $(#[doc = concat!("`", stringify!($name), "`.")] pub const $name: Self = Self(libc::$name);)*
        }
    };
}

errnos!(
    EACCES,
    EAGAIN,
    EBADF,
    EBUSY,
    EDQUOT,
    EEXIST,
    EINVAL,
    EIO,
    EISDIR,
    EMLINK,
    ENAMETOOLONG,
    ENFILE,
    ENODATA,
    ENOENT,
    ENOSPC,
    ENOSYS,
    ENOTDIR,
    ENOTEMPTY,
    EOPNOTSUPP,
    EPERM,
    ERANGE,
    EROFS,
    ESTALE,
    EXDEV,
    E2BIG,
    ENXIO,
    EFBIG
);

impl Errno {
    /// No errno: a call that may not wait where it was made, and is to be made again elsewhere ([`crate::hurried`]).
    pub const LATER: Self = Self(i32::MAX);
}

impl From<CatalogError> for Errno {
    fn from(error: CatalogError) -> Self {
        match error {
            CatalogError::NotFound => Self::ENOENT,
            CatalogError::Exists => Self::EEXIST,
            CatalogError::NotDirectory => Self::ENOTDIR,
            CatalogError::IsDirectory => Self::EISDIR,
            CatalogError::NotEmpty => Self::ENOTEMPTY,
            CatalogError::NameTooLong => Self::ENAMETOOLONG,
            CatalogError::TooManyLinks => Self::EMLINK,
            CatalogError::Invalid => Self::EINVAL,
            CatalogError::NoAttribute => Self::ENODATA,
            CatalogError::AttributesFull | CatalogError::OverDirectoryLimit | CatalogError::NoRoom => Self::ENOSPC,
            CatalogError::OverUserLimit => Self::EDQUOT,
            CatalogError::CrossDomain => Self::EXDEV,
            CatalogError::TooLarge => Self::EFBIG,
            CatalogError::Damaged(text) => {
                tracing::error!("{text}");
                Self::EIO
            }
            CatalogError::Kv(error) => error.into(),
        }
    }
}

impl From<KvError> for Errno {
    fn from(error: KvError) -> Self {
        match error {
            KvError::Poisoned(_) => Self::EROFS,
            KvError::Io { .. }
            | KvError::Engine(_)
            | KvError::Corrupt(_)
            | KvError::Newer { .. }
            | KvError::Locked(_) => {
                tracing::error!("{error}");
                Self::EIO
            }
        }
    }
}

/// Says now and then why files are not opened.
fn say_all_open() {
    const SAID_EVERY: Duration = Duration::from_secs(60);
    static SAID: Mutex<Option<Instant>> = Mutex::new(None);
    let mut said = SAID.lock();
    if said.is_none_or(|said| said.elapsed() >= SAID_EVERY) {
        *said = Some(Instant::now());
        let may = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        tracing::warn!(
            descriptors = may,
            "as many files are open as this process may have: whoever opens another one is refused (ENFILE). `ulimit -Hn` where it is started, or \
             LimitNOFILE= of its unit, gives it more"
        );
    }
}

impl From<PoolError> for Errno {
    fn from(error: PoolError) -> Self {
        match &error {
            PoolError::Io { source, .. } => match source.raw_os_error() {
                Some(number @ (libc::ENOSPC | libc::EDQUOT | libc::EFBIG | libc::EROFS)) => Self(number),
                // Ours, not the caller's: all users together have more files open than this process may.
                Some(libc::EMFILE | libc::ENFILE) => {
                    say_all_open();
                    Self::ENFILE
                }
                _ => {
                    tracing::error!("{error}");
                    Self::EIO
                }
            },
            PoolError::Mismatch { .. } | PoolError::Locked(_) | PoolError::Unusable(_) => {
                tracing::error!("{error}");
                Self::EIO
            }
        }
    }
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Self {
        Self(error.raw_os_error())
    }
}
