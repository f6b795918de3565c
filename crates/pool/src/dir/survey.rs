//! A pool as it lies there, without using it: for checking a space that is down and for rebuilding its catalog.

use super::config::Uuid;
use super::marker::{self, Claim};
use super::record::{self, Annotation, Record};
use super::{leaf, name};
use crate::{Error, Locator, sys};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use ullage_types::{FileId, Generation, Timestamp};

/// One backing file.
#[derive(Clone, Debug)]
pub struct Surveyed {
    /// Where it is.
    pub locator: Locator,
    /// The binding that its name and its attribute agree on, of file 0 where it is kept for the next one; none where they do not agree, as
    /// when it was being used again when a crash came: then it is empty.
    pub numbers: Option<(FileId, Generation)>,
    /// Its name is all there is: its attribute was lost, as in a copy of the pool that was made without any.
    pub bare: bool,
    /// Its name is all that can be read of it, and why: neither attribute, length nor times are known.
    pub unreadable: Option<Errno>,
    /// Class and owner, where they were recorded.
    pub annotation: Option<Annotation>,
    /// Length in bytes.
    pub size: u64,
    /// Allocated 512-byte blocks.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last modification.
    pub mtime: Timestamp,
    /// Last change.
    pub ctime: Timestamp,
}

/// A pool's directory, locked so that nobody uses it meanwhile.
pub struct Survey {
    claim: Claim,
    path: PathBuf,
    space: Uuid,
}

impl Survey {
    /// Locks the pool in this directory: that of `space` and called `pool`, where they are given. A directory that is no
    /// pool is refused.
    pub fn open(path: &Path, space: Option<Uuid>, pool: Option<Uuid>) -> Result<Self, Error> {
        let (own_space, own_pool) = marker::identity(path)?;
        let space = space.unwrap_or(own_space);
        let claim = marker::claim_to_read(path, space, pool.unwrap_or(own_pool))?;
        Ok(Self { claim, path: path.to_owned(), space })
    }

    /// The space that the pool belongs to.
    pub fn space(&self) -> Uuid {
        self.space
    }

    /// Which pool it is.
    pub fn pool(&self) -> Uuid {
        self.claim.pool
    }

    /// Visits every backing file, those in quarantine excepted: they belong to nobody any more. What has neither name nor
    /// attribute of one is none of ours.
    pub fn visit(&self, visit: &mut dyn FnMut(Surveyed)) -> Result<(), Error> {
        let mut todo = vec![String::new()];
        while let Some(path) = todo.pop() {
            let fail = |errno| Error::io("look through", self.path.join(&path))(errno);
            let dir = if path.is_empty() {
                self.claim.root.try_clone().map_err(Error::io("open", &self.path))?
            } else {
                leaf::open_directory(&self.claim.root, &path).map_err(fail)?
            };
            for entry in Dir::read_from(&dir).map_err(fail)? {
                let entry = entry.map_err(fail)?;
                let Ok(name) = entry.file_name().to_str() else { continue };
                let reserved = path.is_empty() && matches!(name, "quarantine" | "limbo" | "lost+found");
                if name.starts_with('.') || reserved {
                    continue;
                }
                match leaf::kind_of(&dir, &entry).map_err(fail)? {
                    FileType::Directory => {
                        todo.push(if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") });
                    }
                    FileType::RegularFile if !path.is_empty() => {
                        let found = match self.look(&dir, &path, name) {
                            Err(errno) if sys::is_damage(errno) => unreadable(errno, &path, name),
                            looked => looked.map_err(fail)?,
                        };
                        found.into_iter().for_each(&mut *visit);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn look(&self, dir: &OwnedFd, leaf: &str, name: &str) -> rustix::io::Result<Option<Surveyed>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(dir.as_fd(), name, flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::LOOP) => return Ok(None),
            other => other?,
        };
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let named = name::parse(name);
        let mut bytes = [0u8; record::LONGEST + 1];
        let (record, bare) = match rustix::fs::fgetxattr(&file, record::NAME, &mut bytes[..]) {
            Ok(length) => {
                let record = bytes.get(..length).and_then(Record::decode);
                (record.filter(|record| self.space.0.starts_with(&record.space)), false)
            }
            Err(Errno::NODATA) => (None, true),
            Err(Errno::RANGE) => (None, false),
            // No attributes here: none is lost.
            Err(Errno::NOTSUP) => return Ok(named.map(|_| surveyed(&stat, leaf, name, named))),
            Err(errno) => return Err(errno),
        };
        if named.is_none() && record.is_none() {
            return Ok(None);
        }
        let agree = record.filter(|record| named == Some((record.file, record.generation)));
        let generation = |(_, generation): (FileId, Generation)| generation;
        let nobodys = record.filter(|it| it.file == record::NOBODY && named.map(generation) == Some(it.generation));
        let numbers = if bare { named } else { agree.or(nobodys).map(|record| (record.file, record.generation)) };
        let annotation = agree.and_then(|record| record.annotation);
        Ok(Some(Surveyed { bare, annotation, ..surveyed(&stat, leaf, name, numbers) }))
    }
}

/// What can be said of a file that cannot be read.
fn unreadable(errno: Errno, leaf: &str, name: &str) -> Option<Surveyed> {
    let never = Timestamp::default();
    name::parse(name).map(|numbers| Surveyed {
        locator: name::locator(leaf, name),
        numbers: Some(numbers),
        bare: false,
        unreadable: Some(errno),
        annotation: None,
        size: 0,
        blocks: 0,
        atime: never,
        mtime: never,
        ctime: never,
    })
}

fn surveyed(stat: &Stat, leaf: &str, name: &str, numbers: Option<(FileId, Generation)>) -> Surveyed {
    let time = |seconds: i64, nanoseconds: u64| Timestamp { seconds, nanoseconds: nanoseconds as u32 };
    Surveyed {
        locator: name::locator(leaf, name),
        numbers,
        bare: false,
        unreadable: None,
        annotation: None,
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
    }
}
