//! Makes trees as the catalog says.

use super::{Change, Moving, Shared};
use rustc_hash::{FxHashMap, FxHashSet};
use std::io;
use std::sync::Arc;
use ullage_catalog::{Catalog, Error, Inode, Record};
use ullage_pool::{Directory, Locator, Placed, Shown, Tree};
use ullage_types::{FileId, Kind, PoolId, ROOT};

/// Directories kept open.
const MOST_OPEN: usize = 256;
/// Entries read from the catalog at a time.
const LISTED: usize = 1024;
/// Directories whose times are put right at a time.
const MOST_TOUCHED: usize = 4096;

/// One pool's tree, and what of it is open.
struct Open {
    pool: PoolId,
    tree: Arc<Tree>,
    directories: FxHashMap<FileId, Directory>,
}

/// Who follows the catalog.
pub(super) struct Follower {
    catalog: Arc<Catalog>,
    shared: Arc<Shared>,
    trees: Vec<Open>,
    /// Directories in which something was done, and which have other times by that.
    touched: FxHashSet<FileId>,
    /// Something may wait in limbo.
    limbo: bool,
    /// What cannot be purged: something that is not ours is in it.
    kept: FxHashSet<FileId>,
    /// What could not be done.
    pub failures: u64,
}

/// Takes further changes.
type More<'a> = &'a mut dyn FnMut(Change);

impl Follower {
    pub fn new(catalog: Arc<Catalog>, trees: Vec<(PoolId, Arc<Tree>)>, shared: Arc<Shared>) -> Self {
        let open = |(pool, tree)| Open { pool, tree, directories: FxHashMap::default() };
        let trees = trees.into_iter().map(open).collect();
        Self {
            catalog,
            shared,
            trees,
            touched: FxHashSet::default(),
            limbo: true,
            kept: FxHashSet::default(),
            failures: 0,
        }
    }

    /// Whether there is something left for a quiet moment.
    pub fn has_rest(&self) -> bool {
        self.limbo || !self.touched.is_empty()
    }

    /// Makes every tree show a change.
    pub fn follow(&mut self, change: &Change, more: More<'_>) {
        self.in_each(change, more);
        if self.touched.len() > MOST_TOUCHED {
            self.put_times_right(more);
        }
    }

    fn in_each(&mut self, change: &Change, more: More<'_>) {
        let shared = self.shared.clone();
        for at in 0..self.trees.len() {
            let outcome = match change {
                Change::Name(directory, name) => self.name(at, *directory, name, &mut shared.moving.lock()[at], more),
                Change::Attributes(file) => self.attributes(at, *file, &mut shared.moving.lock()[at], more),
                Change::All(directory) => self.all(at, *directory, more),
            };
            if let Err(error) = outcome {
                self.fail(at, change, &error);
            }
        }
    }

    fn fail(&mut self, at: usize, change: &Change, error: &io::Error) {
        let what = match change {
            Change::Name(directory, name) => format!("'{}' in directory {directory}", name.escape_ascii()),
            Change::Attributes(file) => format!("the attributes of file {file}"),
            Change::All(directory) => format!("directory {directory}"),
        };
        tracing::warn!(pool = %self.trees[at].tree.path().display(), "the plain tree does not show {what}: {error}");
        self.failures += 1;
    }

    /// Makes one name what the catalog says it is.
    fn name(
        &mut self,
        at: usize,
        directory: FileId,
        name: &[u8],
        moving: &mut Moving,
        more: More<'_>,
    ) -> io::Result<()> {
        let Some(above) = self.get(directory)? else { return Ok(()) };
        if directory == ROOT && Tree::is_reserved(name) {
            return Ok(());
        }
        let Some(place) = self.directory(at, &above, moving, more)? else { return Ok(()) };
        self.touched.insert(directory);
        let tree = self.trees[at].tree.clone();
        let found = self.catalog.lookup(&above, name);
        let found = match found {
            Err(Error::NotDirectory | Error::NotFound) => None,
            other => other.map_err(io::Error::other)?,
        };
        // What stood there and is not what is to be there waits in limbo in a moment.
        let id = found.as_ref().map(|inode| inode.id);
        moving.retain(|moved, from| Some(*moved) == id || (from.0, &*from.1) != (directory, name));
        let Some(inode) = found else {
            self.limbo = true;
            return match tree.clear(&place, name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    let path = tree.path().display();
                    tracing::info!(
                        "'{}' in directory {directory} of the plain tree {path} is none of ours: it stays",
                        name.escape_ascii()
                    );
                    Ok(())
                }
                other => other,
            };
        };
        let record = inode.record();
        match record.kind {
            Kind::Directory => {
                self.limbo = true;
                self.place(at, &place, name, &inode, moving, more)?;
                Ok(())
            }
            Kind::Regular => match &record.backing {
                Some(backing) if backing.pool == self.trees[at].pool => {
                    let locator = Locator(backing.locator.clone());
                    gone_is_fine(
                        tree.file(&place, name, &locator).and_then(|()| tree.show_file(&locator, shown(&record))),
                    )
                }
                _ => tree.clear(&place, name),
            },
            Kind::Symlink => {
                tree.symlink(&place, name, &record.target)?;
                gone_is_fine(tree.show_name(&place, name, shown(&record), true))
            }
            kind => {
                tree.special(&place, name, kind, record.rdev)?;
                gone_is_fine(tree.show_name(&place, name, shown(&record), false))
            }
        }
    }

    /// Brings owner, permissions and times of a file up to the catalog.
    fn attributes(&mut self, at: usize, file: FileId, moving: &mut Moving, more: More<'_>) -> io::Result<()> {
        let Some(inode) = self.get(file)? else { return Ok(()) };
        let record = inode.record();
        let tree = self.trees[at].tree.clone();
        match (record.kind, &record.backing) {
            (Kind::Directory, _) => {
                let Some(directory) = self.directory(at, &inode, moving, more)? else { return Ok(()) };
                tree.show_directory(&directory, shown(&record))
            }
            (Kind::Regular, Some(backing)) if backing.pool == self.trees[at].pool => {
                gone_is_fine(tree.show_file(&Locator(backing.locator.clone()), shown(&record)))
            }
            (Kind::Regular, _) => Ok(()),
            // It shows what it is wherever its first name is made.
            _ => self.name(at, record.parent, &record.name, moving, more),
        }
    }

    /// Compares a whole directory with the catalog, and says that what is below it is to be compared as well.
    fn all(&mut self, at: usize, directory: FileId, more: More<'_>) -> io::Result<()> {
        let Some(inode) = self.get(directory)? else { return Ok(()) };
        let shared = self.shared.clone();
        if directory == ROOT {
            // Whatever a crash left there may be older than what stands in the tree.
            while self.purge(at) {}
            if let Err(error) = self.trees[at].tree.sweep() {
                self.fail(at, &Change::All(ROOT), &error);
            }
        }
        let place = self.directory(at, &inode, &mut shared.moving.lock()[at], more)?;
        let Some(place) = place else { return Ok(()) };
        self.touched.insert(directory);
        let mut there: FxHashSet<Vec<u8>> = self.trees[at].tree.names(&place)?.into_iter().collect();
        let mut below = Vec::new();
        self.each(&inode, &mut |name, file, kind| {
            there.remove(name);
            below.push((name.to_vec(), file, kind));
        })?;
        for name in there {
            more(Change::Name(directory, name.into()));
        }
        for (name, file, kind) in below {
            let outcome = self.name(at, directory, &name, &mut shared.moving.lock()[at], more);
            if let Err(error) = outcome {
                self.fail(at, &Change::Name(directory, name.into()), &error);
            }
            if kind == Kind::Directory {
                more(Change::All(file));
            }
        }
        Ok(())
    }

    /// A directory of the tree, put where it belongs when it is not known to be there. None when it is gone.
    fn directory(
        &mut self,
        at: usize,
        inode: &Arc<Inode>,
        moving: &mut Moving,
        more: More<'_>,
    ) -> io::Result<Option<Directory>> {
        let mut missing = Vec::new();
        let mut inode = inode.clone();
        let mut above = loop {
            if inode.id == ROOT {
                break self.trees[at].tree.root();
            }
            if let Some(open) = self.trees[at].directories.get(&inode.id) {
                break open.clone();
            }
            let record = inode.record();
            if record.nlink == 0 {
                return Ok(None);
            }
            let Some(parent) = self.get(record.parent)? else { return Ok(None) };
            missing.push((inode, record.name));
            inode = parent;
        };
        while let Some((inode, name)) = missing.pop() {
            above = self.place(at, &above, &name, &inode, moving, more)?;
        }
        Ok(Some(above))
    }

    /// Makes a name the directory that it is.
    fn place(
        &mut self,
        at: usize,
        above: &Directory,
        name: &[u8],
        inode: &Arc<Inode>,
        moving: &mut Moving,
        more: More<'_>,
    ) -> io::Result<Directory> {
        if let Some((from, old)) = moving.get(&inode.id)
            && let Some(from) = self.standing(at, *from)
        {
            self.trees[at].tree.displace(&from, old, inode.id)?;
        }
        let placed = self.trees[at].tree.directory(above, name, inode.id)?;
        // If it moves again it moves from here: not from where it was before.
        moving.remove(&inode.id);
        let (Placed::There(directory) | Placed::Made(directory)) = &placed;
        if self.trees[at].directories.len() >= MOST_OPEN {
            self.trees[at].directories.clear();
        }
        self.trees[at].directories.insert(inode.id, directory.clone());
        if let Placed::Made(_) = placed {
            self.touched.insert(inode.id);
            self.each(inode, &mut |name, _, _| more(Change::Name(inode.id, name.into())))?;
        }
        Ok(directory.clone())
    }

    /// A directory of the tree that is open, or the top.
    fn standing(&self, at: usize, id: FileId) -> Option<Directory> {
        let open = &self.trees[at];
        if id == ROOT { Some(open.tree.root()) } else { open.directories.get(&id).cloned() }
    }

    /// Visits every entry of a directory of the catalog.
    fn each(&self, directory: &Inode, visit: &mut dyn FnMut(&[u8], FileId, Kind)) -> io::Result<()> {
        // What comes later is announced by itself.
        let (mut after, end) = (0, self.catalog.newest_place(directory));
        loop {
            let listed = match self.catalog.list(directory, after, end, LISTED) {
                Err(Error::NotFound | Error::NotDirectory) => return Ok(()),
                other => other.map_err(io::Error::other)?,
            };
            let Some(last) = listed.last() else { return Ok(()) };
            after = last.cookie;
            for entry in &listed {
                visit(&entry.name, entry.file, entry.kind);
            }
        }
    }

    fn get(&self, file: FileId) -> io::Result<Option<Arc<Inode>>> {
        match self.catalog.get(file) {
            Err(Error::NotFound) => Ok(None),
            other => other.map(Some).map_err(io::Error::other),
        }
    }

    /// What was put off: the times of directories, and what waits in limbo for nothing.
    pub fn finish(&mut self, more: More<'_>) {
        self.put_times_right(more);
        {
            let mut moving = self.shared.moving.lock();
            if self.shared.queue.lock().waiting.is_empty() {
                // What is left are directories that were removed after they had moved.
                moving.iter_mut().for_each(Moving::clear);
            }
        }
        if std::mem::take(&mut self.limbo) {
            for at in 0..self.trees.len() {
                while self.purge(at) {}
            }
        }
    }

    fn put_times_right(&mut self, more: More<'_>) {
        for directory in std::mem::take(&mut self.touched) {
            self.in_each(&Change::Attributes(directory), more);
        }
    }

    /// Purges what waits in limbo; whether there was anything, and there may be more by that.
    fn purge(&mut self, at: usize) -> bool {
        let waiting = self.trees[at].tree.waiting().unwrap_or_default();
        let mut purged = false;
        for id in waiting.into_iter().filter(|id| !self.kept.contains(id)).collect::<Vec<_>>() {
            purged = true;
            self.trees[at].directories.remove(&id);
            if let Err(error) = self.trees[at].tree.purge(id) {
                self.fail(at, &Change::All(id), &error);
                self.kept.insert(id);
            }
        }
        purged
    }

    /// Returns when the trees are on disk.
    pub fn sync(&self) -> io::Result<()> {
        self.trees.iter().try_for_each(|open| open.tree.sync())
    }
}

/// Times of data are the backing file's own: whoever sets them sets them there.
fn shown(record: &Record) -> Shown {
    let times = (record.kind != Kind::Regular).then_some((record.atime, record.mtime));
    Shown { mode: record.mode, uid: record.uid, gid: record.gid, times }
}

/// A file that has gone meanwhile is a change of its own, to come.
fn gone_is_fine(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
