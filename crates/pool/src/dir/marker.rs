//! `.ullage-pool.toml` at a pool's root: whose the directory is. Its lock says that a process is using it.

use super::config::Uuid;
use crate::{Error, sys};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::SystemTime;

/// The marker's name.
pub const NAME: &str = ".ullage-pool.toml";
const NEW: &str = ".ullage-pool.toml.new";
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Marker {
    /// Version of the layout on disk.
    format: u32,
    space: String,
    pool: String,
    /// Seconds since 1970.
    created: u64,
}

/// Only the version: what every later format will still have.
#[derive(Deserialize)]
struct Version {
    format: u32,
}

/// A pool directory that is ours until this is dropped.
#[derive(Debug)]
pub struct Claim {
    /// The directory.
    pub root: OwnedFd,
    /// Which pool it is.
    pub pool: Uuid,
    /// Whether this is its first use.
    pub first: bool,
    /// Holds the lock.
    _lock: Lock,
}

/// Gives the lock back by name: closing the descriptor is not enough while a child that is just being started has a copy.
#[derive(Debug)]
struct Lock(OwnedFd);

impl Drop for Lock {
    fn drop(&mut self) {
        // It ends with the last descriptor at the latest.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// Claims the directory for a pool of this space: makes the marker at first use, else checks it.
pub fn claim(path: &Path, space: Uuid, expected: Option<Uuid>) -> Result<Claim, Error> {
    claim_in(open_root(path)?, path, space, expected)
}

/// Claims a pool that is there, only to look at it: its file system may be mounted read-only, as that of a disk that fails.
pub fn claim_to_read(path: &Path, space: Uuid, pool: Uuid) -> Result<Claim, Error> {
    let (root, _) = open_directory(path)?;
    claim_in(root, path, space, Some(pool))
}

fn claim_in(root: OwnedFd, path: &Path, space: Uuid, expected: Option<Uuid>) -> Result<Claim, Error> {
    let Some(marker) = open_marker(&root, path, expected)? else { return first_use(root, path, space) };
    // What it says never changes; so who comes to the wrong pool is told so, whether or not it is in use.
    let pool = check(&read(&marker, path)?, path, space, expected)?;
    Ok(Claim { root, pool, first: false, _lock: lock(marker, path)? })
}

/// Refuses what [`claim`] would refuse, but for one that is in use now, and changes nothing.
pub fn examine(path: &Path, space: Uuid, expected: Option<Uuid>) -> Result<(), Error> {
    let root = open_root(path)?;
    match open_marker(&root, path, expected)? {
        Some(marker) => check(&read(&marker, path)?, path, space, expected).map(drop),
        None => refuse_foreign_data(&root, path),
    }
}

/// The directory, in which this user can create files.
pub(crate) fn open_root(path: &Path) -> Result<OwnedFd, Error> {
    match open_directory(path)? {
        (root, false) => Ok(root),
        (_, true) => Err(Error::Unusable(format!(
            "the pool {} is on a file system that is mounted read-only: remount it with 'mount -o remount,rw', \
             after looking for errors in the kernel's log",
            path.display()
        ))),
    }
}

/// The directory, in which this user could create files but for its file system, which may be mounted read-only. Whether it is.
fn open_directory(path: &Path) -> Result<(OwnedFd, bool), Error> {
    let shown = path.display();
    let refuse = |text: String| Err(Error::Unusable(text));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(root) => root,
        Err(Errno::NOENT) => {
            return refuse(format!(
                "the pool {shown} does not exist: create the directory, or mount the disk that it is on"
            ));
        }
        Err(Errno::NOTDIR) => return refuse(format!("the pool {shown} is not a directory")),
        Err(Errno::ACCESS) => return refuse(format!("the pool {shown} may not be read by this user: {OWNERSHIP}")),
        Err(errno) => return Err(Error::io("open", path)(errno)),
    };
    let is_read_only = is_read_only(&root, path)?;
    Ok((root, is_read_only))
}

/// The marker; none where there may be none yet.
fn open_marker(root: &OwnedFd, path: &Path, expected: Option<Uuid>) -> Result<Option<OwnedFd>, Error> {
    let shown = path.display();
    match rustix::fs::openat(root, NAME, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty()) {
        Ok(marker) => Ok(Some(marker)),
        Err(Errno::NOENT) => match expected {
            Some(pool) => Err(Error::Unusable(format!(
                "the pool {shown} has no {NAME}: it is not the pool {pool} that this space used before; \
                 mount the right disk there, or, where it lies elsewhere now, correct its path in the state's space.toml"
            ))),
            None => Ok(None),
        },
        Err(Errno::ACCESS) => Err(Error::Unusable(format!("{shown}/{NAME} may not be read by this user: {OWNERSHIP}"))),
        Err(errno) => Err(Error::io("open", path.join(NAME))(errno)),
    }
}

fn read(marker: &OwnedFd, path: &Path) -> Result<String, Error> {
    let mut text = String::new();
    File::from(marker.try_clone().map_err(Error::io("open", path.join(NAME)))?)
        .read_to_string(&mut text)
        .map_err(Error::io("read", path.join(NAME)))?;
    Ok(text)
}

/// The space and the pool that a directory says it is, without claiming it.
pub fn identity(path: &Path) -> Result<(Uuid, Uuid), Error> {
    let full = path.join(NAME);
    let shown = full.display();
    let text = match std::fs::read_to_string(&full) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::Unusable(format!(
                "the pool {} has no {NAME}: it is none, or not mounted; mount the right disk there, or correct the path",
                path.display()
            )));
        }
        Err(source) => return Err(Error::Io { doing: "read", path: full, source }),
    };
    let damaged = || Error::Unusable(format!("{shown} is damaged: restore it from a backup, or write it anew by hand"));
    let marker: Marker = toml::from_str(&text).map_err(|_| damaged())?;
    Uuid::parse(&marker.space).zip(Uuid::parse(&marker.pool)).ok_or_else(damaged)
}

const OWNERSHIP: &str = "run as the user that owns the directory, or give it to this one with chown";

/// Refuses a directory in which this user cannot create files, in the words of the reason; but gives back whether the file system is what keeps
/// everybody from it.
fn is_read_only(root: &OwnedFd, path: &Path) -> Result<bool, Error> {
    let shown = path.display();
    match rustix::fs::accessat(root, ".", rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK, AtFlags::EACCESS)
    {
        Ok(()) => Ok(false),
        Err(Errno::ROFS) => Ok(true),
        Err(Errno::ACCESS | Errno::PERM) => {
            Err(Error::Unusable(format!("the pool {shown} may not be written by this user: {OWNERSHIP}")))
        }
        Err(errno) => Err(Error::io("check access to", path)(errno)),
    }
}

/// Reads invented text as a marker.
pub(crate) fn fuzz(text: &str) {
    let space = Uuid::parse("0b8e1f6a-0000-4000-8000-000000000001");
    if let Some(space) = space {
        let _ = check(text, Path::new("fuzz"), space, None);
    }
}

fn check(text: &str, path: &Path, space: Uuid, expected: Option<Uuid>) -> Result<Uuid, Error> {
    let shown = path.join(NAME).display().to_string();
    let damaged = |why: &dyn std::fmt::Display| {
        Error::Unusable(format!(
            "{shown} is damaged ({why}): restore it from a backup, or from the space's configuration"
        ))
    };
    let version: Version = toml::from_str(text).map_err(|error| damaged(&error.message()))?;
    if version.format > FORMAT {
        return Err(Error::Unusable(format!(
            "{shown} is of format {}, and this program knows formats up to {FORMAT}: use a newer version of ullage",
            version.format
        )));
    }
    let marker: Marker = toml::from_str(text).map_err(|error| damaged(&error.message()))?;
    let owner = Uuid::parse(&marker.space).ok_or_else(|| damaged(&"the space is no UUID"))?;
    let pool = Uuid::parse(&marker.pool).ok_or_else(|| damaged(&"the pool is no UUID"))?;
    if owner != space {
        return Err(Error::Unusable(format!(
            "the pool {} is in use by another space ({owner}): choose another directory",
            path.display()
        )));
    }
    match expected {
        Some(expected) if expected != pool => Err(Error::Unusable(format!(
            "the pool {} was swapped: this is pool {pool} of the space, and pool {expected} belongs there; \
             correct the paths of the pools, or mount the disks where they were",
            path.display()
        ))),
        _ => Ok(pool),
    }
}

fn lock(marker: OwnedFd, path: &Path) -> Result<Lock, Error> {
    let take = |marker: &OwnedFd| rustix::fs::flock(marker, FlockOperation::NonBlockingLockExclusive);
    let (marker, taken) = match take(&marker) {
        // NFS takes locks only from who could write.
        Err(Errno::BADF) => {
            let writer = sys::reopen(&marker, OFlags::RDWR).map_err(Error::io("open", path.join(NAME)))?;
            let taken = take(&writer);
            (writer, taken)
        }
        taken => (marker, taken),
    };
    match taken {
        Ok(()) => Ok(Lock(marker)),
        Err(Errno::WOULDBLOCK) => Err(Error::Locked(path.to_owned())),
        Err(errno) => Err(Error::io("lock", path.join(NAME))(errno)),
    }
}

fn first_use(root: OwnedFd, path: &Path, space: Uuid) -> Result<Claim, Error> {
    refuse_foreign_data(&root, path)?;
    let pool = Uuid::random().map_err(Error::io("read", "/dev/urandom"))?;
    let created = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let marker = Marker { format: FORMAT, space: space.to_string(), pool: pool.to_string(), created };
    let text = toml::to_string(&marker).map_err(|error| Error::Unusable(error.to_string()))?;
    let full = path.join(NEW);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(&root, NEW, flags, Mode::from_raw_mode(0o600)).map_err(Error::io("create", &full))?;
    // Locked before it has its name, so that of two processes one sees the other.
    let lock = lock(file, path)?;
    if let Err(error) = write(&lock.0, &text).and_then(|()| give_name(&root)) {
        // A directory that is no pool is as empty as it was.
        let _ = rustix::fs::unlinkat(&root, NEW, AtFlags::empty());
        return Err(Error::io("make", &full)(error));
    }
    rustix::fs::fsync(&root).map_err(Error::io("flush", path))?;
    // Held open for reading only, the marker does not stand in the way of a remount.
    drop(lock);
    Ok(Claim { first: true, ..claim(path, space, Some(pool))? })
}

fn write(file: &OwnedFd, text: &str) -> std::io::Result<()> {
    let mut file = File::from(file.try_clone()?);
    file.set_len(0)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn give_name(root: &OwnedFd) -> std::io::Result<()> {
    Ok(match rustix::fs::renameat_with(root, NEW, root, NAME, rustix::fs::RenameFlags::NOREPLACE) {
        // Not every file system can; the lock has kept others out.
        Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::renameat(root, NEW, root, NAME),
        other => other,
    }?)
}

/// A pool's first directory must be empty, so that data never mixes; a fresh file system's `lost+found` and the
/// remains of a first use that was interrupted do not count.
fn refuse_foreign_data(root: impl AsFd, path: &Path) -> Result<(), Error> {
    let entries = rustix::fs::Dir::read_from(root).map_err(Error::io("list", path))?;
    for entry in entries {
        let entry = entry.map_err(Error::io("list", path))?;
        if !matches!(entry.file_name().to_bytes(), b"." | b".." | b"lost+found")
            && entry.file_name().to_bytes() != NEW.as_bytes()
        {
            return Err(Error::Unusable(format!(
                "the pool {} is not empty (it holds '{}', for one): a new pool needs an empty directory; \
                 make one inside it and use that",
                path.display(),
                entry.file_name().to_string_lossy()
            )));
        }
    }
    Ok(())
}
