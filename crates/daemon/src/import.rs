//! `ullage up --import`: what lies in the directory of a new `mirror` pool becomes what is in the space.
//!
//! No data is copied and nothing is moved: each file stays where it is and becomes the backing file of its own record, by a
//! second name and an extended attribute. What the catalog has already is passed over, so that an import that was
//! interrupted goes on at the next start.

mod again;
mod anothers;
mod lent;
mod stale;
mod xattrs;

use crate::error::io_error;
use crate::repair::facts::Progress;
use crate::{Error, Result};
use lent::Lent;
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;
pub(crate) use stale::drop_stale;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use ullage_catalog::{Backing, Brought, Catalog, Inode, New, Record};
use ullage_fs::Space;
use ullage_pool::{Binding, Directory, Hint, Lease, Locator, Pool, Tree, probe_lease};
use ullage_types::{Class, FileId, Kind, PoolId, Timestamp};
use xattrs::{Attribute, xattrs};

/// Files whose records are made durable together.
const BATCH: usize = 4096;

/// A directory being imported.
struct Level {
    directory: Directory,
    inode: Arc<Inode>,
    stat: Stat,
    names: Vec<Vec<u8>>,
    /// Permissions that it gets back when all in it was taken in, or nothing more is.
    _lent: Lent,
}

/// An import under way.
struct Import<'a> {
    catalog: &'a Catalog,
    pool: &'a dyn Pool,
    id: PoolId,
    tree: &'a Tree,
    device: u64,
    privileged: bool,
    /// Files with several names, by their number below.
    linked: FxHashMap<u64, FileId>,
    /// What is no regular file and was taken in by this run, from this tree or one before.
    met: &'a mut FxHashSet<FileId>,
    /// Bound, and not yet durable.
    fresh: Vec<Binding>,
    /// Somebody has them open for writing.
    written: Vec<Arc<Inode>>,
    done: u64,
}

/// Takes everything in the tree of a pool into the catalog. What was `met` in the trees before stays what it is there.
pub(crate) fn import(
    space: &Space,
    (id, pool): (PoolId, &dyn Pool),
    tree: &Tree,
    met: &mut FxHashSet<FileId>,
    progress: &mut Progress<'_>,
) -> Result<u64> {
    let (catalog, root) = (space.catalog(), tree.root());
    let stat = rustix::fs::fstat(&root).map_err(|errno| io_error("look at", tree.path())(errno.into()))?;
    anothers::refuse(tree, stat.st_dev)?;
    let mut import = Import {
        catalog,
        pool,
        id,
        tree,
        device: stat.st_dev,
        privileged: rustix::process::geteuid().is_root(),
        linked: FxHashMap::default(),
        met,
        fresh: Vec::new(),
        written: Vec::new(),
        done: 0,
    };
    let mut path = PathBuf::from(tree.path());
    // Of several trees the first one says what the top is.
    let told = xattrs(&root, b".").and_then(|told| told.all_of(&root, b"."));
    import.bring_up(
        &catalog.root().clone(),
        &stat,
        told.map_err(|errno| io_error("look at", tree.path())(errno.into()))?,
    )?;
    let mut levels = vec![import.level(root, catalog.root().clone(), stat, Lent::default(), &path)?];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.names.pop() else {
            // Its times last: what was made in it changed them.
            import.attributes(&level.inode, &level.stat)?;
            levels.pop();
            path.pop();
            continue;
        };
        path.push(OsStr::from_bytes(&name));
        let deeper = import.take(level, &name, &path)?;
        import.done += 1;
        if import.done.is_multiple_of(1000) {
            progress("files imported", import.done);
        }
        match deeper {
            Some(deeper) => levels.push(deeper),
            None => {
                path.pop();
            }
        }
        if import.fresh.len() >= BATCH {
            import.settle()?;
        }
    }
    import.settle()?;
    for inode in std::mem::take(&mut import.written) {
        import.watch(space, inode)?;
    }
    Ok(import.done)
}

impl Import<'_> {
    fn level(&self, directory: Directory, inode: Arc<Inode>, stat: Stat, lent: Lent, path: &Path) -> Result<Level> {
        // What carries the numbers of another space would carry ours then, and be lost to that.
        if self.tree.is_other_pool(&directory) {
            return Err(Error::Refused(format!(
                "{} is a pool of its own: move it elsewhere, or take its {} away if its space is given up, and run `up` again",
                path.display(),
                ullage_pool::MARKER
            )));
        }
        let names = self.tree.names(&directory).map_err(io_error("list", path))?;
        Ok(Level { directory, inode, stat, names, _lent: lent })
    }

    /// What an ordinary user needs of what is his own, to say of it what it is, as long as he needs it: its record keeps what it had.
    fn lend(&self, level: &Level, name: &[u8], stat: &Stat, bits: u32) -> rustix::io::Result<Lent> {
        if self.privileged || stat.st_mode & bits == bits {
            return Ok(Lent::default());
        }
        Lent::to(&level.directory, name, stat.st_mode & 0o7777, bits)
    }

    /// The attributes of a name, and what is lent for these to be read: after a first look, since bits that are lent change an ACL.
    fn told(&self, level: &Level, name: &[u8], stat: &Stat, bits: u32) -> rustix::io::Result<(Vec<Attribute>, Lent)> {
        let told = xattrs(&level.directory, name)?;
        let lent = self.lend(level, name, stat, bits)?;
        Ok((told.all_of(&level.directory, name)?, lent))
    }

    /// Takes in one name; gives the directory that it is.
    fn take(&mut self, level: &Level, name: &[u8], path: &Path) -> Result<Option<Level>> {
        let fail = |errno: Errno| io_error("import", path)(errno.into());
        let above = &level.directory;
        let stat = rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW).map_err(fail)?;
        if stat.st_dev != self.device {
            return Err(Error::Refused(format!(
                "{} is on another file system than the pool: unmount it, or give it a pool of its own, and run `up` again",
                path.display()
            )));
        }
        let kind = Kind::from_mode(stat.st_mode)
            .ok_or_else(|| Error::Refused(format!("{} is of a kind that is not known", path.display())))?;
        let known = self.catalog.lookup(&level.inode, name)?;
        if kind == Kind::Directory {
            return self.enter(level, name, known, path).map(Some);
        }
        let bits = if kind == Kind::Regular { 0o600 } else { 0 };
        let first = if kind == Kind::Regular && stat.st_nlink > 1 {
            taken_in(self.catalog, self.tree, above, name).map_err(io_error("import", path))?
        } else {
            None
        };
        if let Some(known) = known {
            let same = first.as_ref().is_some_and(|first| first.id == known.id);
            if !same && !self.is_it(&known, level, name, &stat).map_err(fail)? {
                return Err(taken(path));
            }
            let (xattrs, _lent) = self.told(level, name, &stat, bits).map_err(fail)?;
            if kind == Kind::Regular && is_written(above, name) {
                self.written.push(known.clone());
            }
            self.bring_up(&known, &stat, xattrs)?;
            // Of an import that was interrupted: other names of it may be still to come. A regular file has one in the pool already.
            let is_here = known.record().backing.is_none_or(|backing| backing.pool == self.id);
            if stat.st_nlink > if kind == Kind::Regular { 2 } else { 1 } && is_here {
                self.linked.insert(stat.st_ino, known.id);
            }
            return Ok(None);
        }
        let linked = self.linked.get(&stat.st_ino).filter(|_| stat.st_nlink > 1);
        let linked = linked.map(|first| self.catalog.get(*first)).transpose()?;
        // It may have been taken in by a name in another pool: a second backing file would take the first one's place.
        if let Some(first) = linked.or(first) {
            self.catalog.link(&first, &level.inode, name, ullage_fs::now()).map_err(|error| match error {
                ullage_catalog::Error::TooManyLinks => Error::Refused(format!(
                    "cannot import {}: {error}: remove some of its names, or put a copy in the place of some, and run `up` again",
                    path.display()
                )),
                error => error.into(),
            })?;
            return Ok(None);
        }
        let (xattrs, _lent) = self.told(level, name, &stat, bits).map_err(fail)?;
        let mut new = New { xattrs, ..self.plain(kind, &stat) };
        let mut written = false;
        match kind {
            Kind::Regular => {
                let hint = Hint { parent: level.inode.id, pid: 0 };
                let binding = self.pool.adopt(hint, above.as_fd(), name).map_err(|source| cannot(path, &source))?;
                new.id = binding.file;
                let (generation, locator) = (binding.generation, binding.locator.0.clone());
                new.backing = Some(Backing { pool: self.id, generation, locator });
                self.fresh.push(binding);
                written = is_written(above, name);
                // Its attribute may have taken a block.
                new.brought = Some(brought(&rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW).map_err(fail)?));
            }
            Kind::Symlink => {
                let target = rustix::fs::readlinkat(above, name, Vec::new()).map_err(fail)?;
                new.target = target.into_bytes().into();
            }
            Kind::CharDevice | Kind::BlockDevice => new.rdev = stat.st_rdev as u32,
            Kind::Fifo | Kind::Socket | Kind::Directory => {}
        }
        let inode = self.make(level, name, new)?;
        if kind != Kind::Regular {
            self.met.insert(inode.id);
        }
        self.written.extend(written.then(|| inode.clone()));
        if stat.st_nlink > 1 {
            self.linked.insert(stat.st_ino, inode.id);
        }
        Ok(None)
    }

    /// Whether what the space has by this name was taken in from here, or is the same as if it had been. It may be from another pool.
    fn is_it(&self, known: &Inode, level: &Level, name: &[u8], stat: &Stat) -> rustix::io::Result<bool> {
        let record = known.record();
        let is_here = |record: &Record| record.backing.as_ref().is_some_and(|backing| backing.pool == self.id);
        Ok(is_like(&record, &level.directory, name, stat)? && (record.kind != Kind::Regular || is_here(&record)))
    }

    /// Takes in a directory, but for what is in it.
    fn enter(&mut self, level: &Level, name: &[u8], known: Option<Arc<Inode>>, path: &Path) -> Result<Level> {
        let fail = |errno: Errno| io_error("import", path)(errno.into());
        let (above, kind) = (&level.directory, Kind::Directory);
        let stat = rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW).map_err(fail)?;
        let (xattrs, lent) = self.told(level, name, &stat, 0o700).map_err(fail)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = Arc::new(rustix::fs::openat(above, name, flags, Mode::empty()).map_err(fail)?);
        let inode = match known {
            Some(inode) if inode.kind == kind => {
                self.bring_up(&inode, &stat, xattrs)?;
                inode
            }
            Some(_) => return Err(taken(path)),
            None => {
                let inode = self.make(level, name, New { xattrs, ..self.plain(kind, &stat) })?;
                self.met.insert(inode.id);
                inode
            }
        };
        self.tree.identify(&directory, inode.id).map_err(io_error("import", path))?;
        drop(lent);
        // Whoever takes in what is in it needs these until the end: longer than a kill may be away.
        let lent = if stat.st_mode & 0o500 == 0o500 {
            Lent::default()
        } else {
            self.settle()?;
            self.lend(level, name, &stat, 0o500).map_err(fail)?
        };
        self.level(directory, inode, stat, lent, path)
    }

    fn plain(&self, kind: Kind, stat: &Stat) -> New {
        New {
            id: self.catalog.numbers().pair().0,
            kind,
            class: Class::Persistent,
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            rdev: 0,
            target: Box::default(),
            backing: None,
            xattrs: Vec::new(),
            brought: Some(brought(stat)),
        }
    }

    fn make(&self, level: &Level, name: &[u8], new: New) -> Result<Arc<Inode>> {
        Ok(self.catalog.create(&level.inode, name, new, ullage_fs::now())?)
    }

    /// A directory's times as they are below.
    fn attributes(&self, inode: &Arc<Inode>, stat: &Stat) -> Result<()> {
        self.catalog.update(inode, |record| {
            record.atime = time(stat.st_atime, stat.st_atime_nsec);
            record.mtime = time(stat.st_mtime, stat.st_mtime_nsec);
            Ok(())
        })?;
        Ok(())
    }

    /// Has what others write to a file measured until they are gone, as after a kill.
    fn watch(&self, space: &Space, inode: Arc<Inode>) -> Result<()> {
        let Some(backing) = inode.record().backing.filter(|backing| backing.pool == self.id) else { return Ok(()) };
        let (file, generation, locator) = (inode.id, backing.generation, Locator(backing.locator));
        if let Err(error) = space.watch(inode) {
            let error = std::io::Error::from_raw_os_error(error.0);
            tracing::warn!(
                "what others write to inode {file}, which they had open before, shows at the next start ({error})"
            );
            let doomed = self.pool.doom(&Binding { file, generation, locator });
            doomed.map_err(|source| Error::Refused(format!("{}: {source}", self.tree.path().display())))?;
        }
        Ok(())
    }

    /// Makes the records durable; what they are bound to is no longer in doubt then.
    fn settle(&mut self) -> Result<()> {
        self.catalog.sync()?;
        for binding in self.fresh.drain(..) {
            self.pool.closed(&binding);
        }
        Ok(())
    }
}

/// Whether a name is of what a record says, as far as that can be told without what names its file.
fn is_like(record: &Record, above: &Directory, name: &[u8], stat: &Stat) -> rustix::io::Result<bool> {
    Ok(Kind::from_mode(stat.st_mode) == Some(record.kind)
        && match record.kind {
            Kind::Symlink => rustix::fs::readlinkat(above, name, Vec::new())?.as_bytes() == &*record.target,
            Kind::CharDevice | Kind::BlockDevice => u64::from(record.rdev) == stat.st_rdev,
            Kind::Regular | Kind::Fifo | Kind::Socket | Kind::Directory => true,
        })
}

/// Whether somebody has a file open for writing, as far as that can be told.
fn is_written(above: &Directory, name: &[u8]) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(above, name, flags, Mode::empty());
    opened.is_ok_and(|file| probe_lease(file, Lease::Read) == Err(Errno::AGAIN))
}

/// The file that a name was taken in as already.
fn taken_in(catalog: &Catalog, tree: &Tree, above: &Directory, name: &[u8]) -> std::io::Result<Option<Arc<Inode>>> {
    let numbers = match tree.backing_of(above, name) {
        // An ordinary user's, who cannot look at it just now.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => None,
        looked => looked?,
    };
    let Some((file, generation)) = numbers else { return Ok(None) };
    let inode = match catalog.get(file) {
        Err(ullage_catalog::Error::NotFound) => return Ok(None),
        found => found.map_err(std::io::Error::other)?,
    };
    let record = inode.record();
    let bound = record.nlink > 0 && record.backing.is_some_and(|backing| backing.generation == generation);
    Ok(bound.then_some(inode))
}

/// Names are taken in once: which of two files is meant only their owner knows.
fn taken(path: &Path) -> Error {
    Error::Refused(format!(
        "{} has the name of something else in the space, taken in from another pool: rename or remove one of them below its pool, and run `up` \
         again",
        path.display()
    ))
}

/// What a record says of a file that is as `stat` says.
fn brought(stat: &Stat) -> Brought {
    Brought {
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}

fn time(seconds: i64, nanoseconds: u64) -> Timestamp {
    Timestamp { seconds, nanoseconds: nanoseconds as u32 }
}

/// Why a file cannot be taken in, and what to do about it where that is not plain.
fn cannot(path: &Path, source: &ullage_pool::Error) -> Error {
    let advice = if source.raw_os_error() == Some(libc::EMLINK) {
        ": it has as many names as its file system lets a file have, and needs one more; remove one of them, or put a copy in its place"
    } else {
        ""
    };
    Error::Refused(format!("cannot import {}: {source}{advice}", path.display()))
}
