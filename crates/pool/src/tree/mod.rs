//! The plain tree of a pool in the `mirror` layout: the paths that users see, below the pool's directory. Regular files in
//! it are hard links to their backing files, which lie in `.ullage` beside it as in the `sparse` layout. So a name costs
//! nothing when it is made; the tree follows in the background, and can be read, backed up or taken away as it is.
//!
//! Whatever happens to the tree, no backing file is touched through it. Directories carry the id of theirs in an extended
//! attribute: one that stands in the wrong place goes to *limbo* whole, from where its right place takes it.

mod attributes;
mod limbo;
mod names;
mod ours;
mod own;
mod shown;
#[cfg(test)]
mod testing;

pub use attributes::Shown;
pub use shown::{Bound, Missing};

use crate::dir::{Floor, MARKER, open_root, own_directory};
use crate::{Error, Locator, Uuid};
use ours::{Identity, Space, identify, identity};
use own::{close, own_files};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Access, AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use ullage_types::{FileId, Generation};

/// The directory below a pool in which its backing files lie.
pub const FILES: &str = ".ullage";
pub(crate) const LIMBO: &str = "limbo";
/// Not looked into by who looks for backing files: it begins with a dot.
pub(crate) const NAMES: &str = ".names";

/// A directory of the tree.
pub type Directory = Arc<OwnedFd>;

/// How a directory came to stand where it should.
#[derive(Debug)]
pub enum Placed {
    /// It stood there, or was found elsewhere; what is in it is as up to date as the rest of the tree.
    There(Directory),
    /// It is new, and empty.
    Made(Directory),
}

/// The plain tree of one pool.
#[derive(Debug)]
pub struct Tree {
    root: Directory,
    files: OwnedFd,
    limbo: OwnedFd,
    /// Where first names are: none while there is no room to make it.
    names: OnceLock<OwnedFd>,
    path: PathBuf,
    /// Whose it is.
    space: Space,
    /// Who may give files to other owners.
    privileged: bool,
    /// What it leaves to others.
    floor: Floor,
    /// None in the tree of a space that nobody follows.
    keeper: OnceLock<shown::Keeper>,
}

impl Tree {
    /// Refuses a directory that [`Tree::prepare`] and [`Tree::open`] would refuse for a new pool. Nothing is changed.
    pub fn examine(path: &Path, imported: bool) -> Result<(), Error> {
        let root = open_root(path)?;
        if own_files(&root, path)?.is_none() && !imported {
            refuse_contents(path)?;
        }
        require_attributes(root, path)
    }

    /// Where the backing files of a pool at `path` lie, made at first use. A directory with anything in it becomes a pool only
    /// when that is to be `imported`.
    pub fn prepare(path: &Path, imported: bool) -> Result<PathBuf, Error> {
        let (root, files) = (open_root(path)?, path.join(FILES));
        if own_files(&root, path)?.is_some() {
            return Ok(files);
        }
        if !imported {
            refuse_contents(path)?;
        }
        let made = own_directory(&root, FILES).map_err(Error::io("create", &files))?;
        close(&made, &files)?;
        Ok(files)
    }

    /// The tree of the pool of a space at `path`, in which [`Tree::prepare`] was.
    pub fn open(path: &Path, space: Uuid) -> Result<Self, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty()).map_err(Error::io("open", path))?;
        let below = path.join(FILES);
        let files = open_directory(&root, FILES.as_bytes()).map_err(Error::io("open", &below))?;
        let own = |name| own_directory(&files, name).map_err(Error::io("create", below.join(name)));
        let tree = Self {
            root: Arc::new(root),
            limbo: own(LIMBO)?,
            names: OnceLock::new(),
            files,
            path: path.to_owned(),
            space: space.short(),
            privileged: rustix::process::geteuid().is_root(),
            floor: Floor::default(),
            keeper: OnceLock::new(),
        };
        require_attributes(&tree.limbo, path)?;
        match tree.first_names() {
            Ok(_) | Err(Errno::NOSPC | Errno::DQUOT) => Ok(tree),
            Err(errno) => Err(Error::io("create", below.join(NAMES))(errno)),
        }
    }

    /// Whether the tree was here before, as far as can be told; it is from now on. Else it lies in a copy of the pool, or was
    /// left by an earlier version: what is in it is to be looked at before anything is known to be ours. Where first names have no place yet
    /// that is so at the next start as well.
    pub fn claim(&self) -> bool {
        let here = identity(&self.limbo, self.space).is_ok_and(|found| found.is_some_and(|found| found.is_certain()));
        if here || self.names.get().is_none() {
            return here;
        }
        if let Err(error) = identify(&self.limbo, FileId(0), self.space) {
            tracing::debug!(%error, "the next start looks at the whole plain tree again");
        }
        false
    }

    /// Leaves so many inodes of its file system to others: what would take one of them is not shown.
    pub fn leave_inodes(&self, least: u64) {
        self.floor.set(least);
    }

    /// The top of the tree.
    pub fn root(&self) -> Directory {
        self.root.clone()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a name at the top is the pool's own and cannot be in the tree.
    pub fn is_reserved(name: &[u8]) -> bool {
        name == FILES.as_bytes() || name == b"lost+found"
    }

    /// Makes `name` the directory `id`: the one that is there, the one in limbo, or a new one.
    pub fn directory(&self, above: &Directory, name: &[u8], id: FileId) -> io::Result<Placed> {
        match open_directory(above, name) {
            Ok(found) if self.is(&found, id)? => return Ok(Placed::There(Arc::new(found))),
            Ok(_) | Err(Errno::NOTDIR | Errno::LOOP) => self.clear(above, name)?,
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        if let Some(found) = self.out_of_limbo(id, above, name)? {
            return Ok(Placed::There(found));
        }
        Ok(Placed::Made(self.make(id, above, name)?))
    }

    /// Moves the directory `id` to limbo, if it still stands here.
    pub fn displace(&self, above: &Directory, name: &[u8], id: FileId) -> io::Result<()> {
        match open_directory(above, name) {
            Ok(found) if identity(&found, self.space)?.is_some_and(|found| found.id == id) => {
                self.to_limbo(above, name, id)
            }
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Makes `name` a link to a backing file.
    pub fn file(&self, above: &Directory, name: &[u8], locator: &Locator) -> io::Result<()> {
        let link = || rustix::fs::linkat(&self.files, &*locator.0, above, name, AtFlags::empty());
        match link() {
            Err(Errno::EXIST) => {
                let there = rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW)?;
                let wanted = rustix::fs::statat(&self.files, &*locator.0, AtFlags::SYMLINK_NOFOLLOW)?;
                if (there.st_dev, there.st_ino) == (wanted.st_dev, wanted.st_ino) {
                    return Ok(());
                }
                self.clear(above, name)?;
                Ok(link()?)
            }
            other => Ok(other?),
        }
    }

    /// Takes away what `name` is. What is none of ours stays, with [`io::ErrorKind::AlreadyExists`].
    pub fn clear(&self, above: &Directory, name: &[u8]) -> io::Result<()> {
        let stat = match rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            let found = open_directory(above, name)?;
            let ours = identity(&found, self.space)?.filter(Identity::is_here).ok_or_else(foreign)?;
            return self.to_limbo(above, name, ours.id);
        }
        if self.remove(above, name, &stat)? { Ok(()) } else { Err(foreign()) }
    }

    /// Says of a directory that was there before the space that it is the directory `id`.
    pub fn identify(&self, directory: &Directory, id: FileId) -> io::Result<()> {
        Ok(identify(&**directory, id, self.space)?)
    }

    /// Which backing file of the space a regular file is that has a name here, where it says that of itself. It may lie in another pool.
    pub fn backing_of(&self, above: &Directory, name: &[u8]) -> io::Result<Option<(FileId, Generation)>> {
        Ok(ours::backing_of(&**above, name, self.space)?)
    }

    /// Whether a regular file is a backing file of another space, or was one.
    pub fn is_anothers(&self, above: &Directory, name: &[u8]) -> io::Result<bool> {
        Ok(ours::is_anothers(&**above, name, self.space)?)
    }

    /// Whether a directory is another pool, of whichever layout.
    pub fn is_other_pool(&self, directory: &Directory) -> bool {
        let has = |marker: &str| rustix::fs::accessat(directory, marker, Access::EXISTS, AtFlags::empty()).is_ok();
        has(MARKER) || !Arc::ptr_eq(directory, &self.root) && has(&format!("{FILES}/{MARKER}"))
    }

    /// The names in a directory of the tree, the pool's own excepted.
    pub fn names(&self, directory: &Directory) -> io::Result<Vec<Vec<u8>>> {
        let top = Arc::ptr_eq(directory, &self.root);
        let mut names = Vec::new();
        for entry in Dir::read_from(&**directory)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." && !(top && Self::is_reserved(name)) {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Whether a directory that stands where `id` belongs is that one; if so that is said of its inode from now on.
    fn is(&self, found: &OwnedFd, id: FileId) -> rustix::io::Result<bool> {
        match identity(found, self.space)? {
            Some(found) if found.id != id => Ok(false),
            Some(now) if now.is_certain() => Ok(true),
            Some(_) => identify(found, id, self.space).map(|()| true),
            None => Ok(false),
        }
    }

    /// Returns when what was done to the tree is on disk.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&*self.root)?)
    }
}

fn foreign() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "something that is not of this space stands in the way")
}

fn open_directory(above: impl AsFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(above, name, flags, Mode::empty())
}

fn require_attributes(directory: impl AsFd, path: &Path) -> Result<(), Error> {
    identity(directory, Space::default()).map(drop).map_err(|_| {
        Error::Unusable(format!(
            "the pool {} is on a file system without user extended attributes: the layout 'mirror' needs them; use \
             layout=sparse there",
            path.display()
        ))
    })
}

fn refuse_contents(path: &Path) -> Result<(), Error> {
    for entry in std::fs::read_dir(path).map_err(Error::io("list", path))? {
        let entry = entry.map_err(Error::io("list", path))?;
        if entry.file_name() != "lost+found" {
            return Err(Error::Unusable(format!(
                "the pool {} is not empty (it holds '{}', for one): name an empty directory, or, where the space is new, have \
                 `ullage up --import` take what is in it into the space",
                path.display(),
                entry.file_name().to_string_lossy()
            )));
        }
    }
    Ok(())
}
