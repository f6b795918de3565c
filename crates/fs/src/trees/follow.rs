//! Makes trees as the catalog says.

use super::kept::{Kept, NEAR};
use super::{Change, Moving, Shared, Stood};
use crate::acl::{ACCESS, Acl};
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use ullage_catalog::{Catalog, Error, Inode};
use ullage_pool::{Directory, Locator, Placed, Shown, Tree};
use ullage_types::{FileId, Kind, PoolId, ROOT};

/// Entries read from the catalog at a time.
const LISTED: usize = 1024;
/// Directories whose times are put right at a time.
const MOST_TOUCHED: usize = 4096;

/// One pool's tree, and what of it is open.
struct Open {
    pool: PoolId,
    tree: Arc<Tree>,
    directories: Kept,
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
    /// What cannot be purged, by its tree: something that is not ours is in it, and what was ours may be gone.
    kept: FxHashSet<(usize, FileId)>,
    /// What could not be done, and is not tried again: something that is not ours stands in the way.
    pub failures: u64,
    /// Files that had only the names that a tree gave them, and have one in their pool again: what other names they have can be shown now.
    saved: Arc<Mutex<Vec<FileId>>>,
}

/// A directory that is not known to stand where it belongs, and its name there.
type Missing = (Arc<Inode>, Box<[u8]>);

/// The way down to a directory.
struct Way {
    /// Where it begins: it stands.
    from: FileId,
    above: Directory,
    /// What is below that, the lowest first.
    down: Vec<Missing>,
}

/// Takes further changes.
type More<'a> = &'a mut dyn FnMut(Change);

impl Follower {
    pub fn new(catalog: Arc<Catalog>, trees: Vec<(PoolId, Arc<Tree>)>, shared: Arc<Shared>) -> Self {
        let saved = Arc::new(Mutex::new(Vec::new()));
        let open = |(pool, tree): (PoolId, Arc<Tree>)| {
            keep_last_names(&catalog, pool, &tree, &saved);
            Open { pool, tree, directories: Kept::default() }
        };
        let trees = trees.into_iter().map(open).collect();
        Self {
            catalog,
            shared,
            trees,
            touched: FxHashSet::default(),
            limbo: true,
            kept: FxHashSet::default(),
            failures: 0,
            saved,
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
        self.show_saved(more);
    }

    fn show_saved(&self, more: More<'_>) {
        for file in std::mem::take(&mut *self.saved.lock()) {
            let Ok(inode) = self.catalog.get(file) else { continue };
            let each =
                self.catalog.each_name(&inode, &mut |directory, name| more(Change::Name(directory, name.into())));
            if let Err(error) = each {
                tracing::debug!(%error, "the next look at the whole plain tree shows inode {file}");
            }
        }
    }

    fn in_each(&mut self, change: &Change, more: More<'_>) {
        for at in 0..self.trees.len() {
            let outcome = match change {
                Change::Name(directory, name) => self.name(at, *directory, name, more),
                Change::Attributes(file) => self.attributes(at, *file, more),
                Change::Names(directory) => self.names(at, *directory, more),
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
            Change::Names(directory) | Change::All(directory) => format!("directory {directory}"),
        };
        let pool = self.trees[at].tree.path().display();
        if error.kind() == io::ErrorKind::AlreadyExists {
            tracing::warn!(%pool, "the plain tree does not show {what}: {error}");
            self.failures += 1;
        } else if self.shared.queue.lock().put_off(change.clone()) {
            tracing::warn!(%pool, "the plain tree does not show {what}: {error}; trying again");
        }
    }

    /// Makes one name what the catalog says it is.
    fn name(&mut self, at: usize, directory: FileId, name: &[u8], more: More<'_>) -> io::Result<()> {
        let Some(above) = self.get(directory)? else { return Ok(()) };
        if directory == ROOT && Tree::is_reserved(name) {
            return Ok(());
        }
        let Some(place) = self.directory(at, &above, more)? else { return Ok(()) };
        self.touched.insert(directory);
        let tree = self.trees[at].tree.clone();
        let (found, stood) = {
            let moving = &mut self.shared.moving.lock()[at];
            let found = match self.catalog.lookup(&above, name) {
                Err(Error::NotDirectory | Error::NotFound) => None,
                other => other.map_err(io::Error::other)?,
            };
            let stood = found.as_ref().and_then(|inode| moving.remove(&inode.id));
            // What stood there and is not what is to be there waits in limbo in a moment.
            moving.retain(|_, from| (from.0, &*from.1) != (directory, name));
            (found, stood)
        };
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
                let directory = self.place(at, &place, name, &inode, stood, more)?;
                self.trees[at].directories.keep(inode.id, &directory);
                Ok(())
            }
            Kind::Regular => match &record.backing {
                Some(backing) if backing.pool == self.trees[at].pool => {
                    let locator = Locator(backing.locator.clone());
                    let shown = self.shown(&inode)?;
                    gone_is_fine(tree.file(&place, name, &locator).and_then(|()| tree.show_file(&locator, shown)))
                }
                _ => tree.clear(&place, name),
            },
            Kind::Symlink => {
                tree.symlink(&place, name, &record.target)?;
                gone_is_fine(tree.show_name(&place, name, self.shown(&inode)?, true))
            }
            kind => {
                tree.special(&place, name, kind, record.rdev)?;
                gone_is_fine(tree.show_name(&place, name, self.shown(&inode)?, false))
            }
        }
    }

    /// Brings owner, permissions and times of a file up to the catalog.
    fn attributes(&mut self, at: usize, file: FileId, more: More<'_>) -> io::Result<()> {
        let Some(inode) = self.get(file)? else { return Ok(()) };
        let record = inode.record();
        let tree = self.trees[at].tree.clone();
        match (record.kind, &record.backing) {
            (Kind::Directory, _) => {
                let Some(directory) = self.directory(at, &inode, more)? else { return Ok(()) };
                tree.show_directory(&directory, self.shown(&inode)?)
            }
            (Kind::Regular, Some(backing)) if backing.pool == self.trees[at].pool => {
                gone_is_fine(tree.show_file(&Locator(backing.locator.clone()), self.shown(&inode)?))
            }
            (Kind::Regular, _) => Ok(()),
            // Each of its names may have been made by itself.
            _ => {
                let mut names = Vec::new();
                let each =
                    self.catalog.each_name(&inode, &mut |directory, name| names.push((directory, name.to_vec())));
                each.map_err(io::Error::other)?;
                names.into_iter().try_for_each(|(directory, name)| self.name(at, directory, &name, more))
            }
        }
    }

    /// Compares a whole directory with the catalog, and says that what is below it is to be compared as well.
    fn all(&mut self, at: usize, directory: FileId, more: More<'_>) -> io::Result<()> {
        let Some(inode) = self.get(directory)? else { return Ok(()) };
        if directory == ROOT {
            // Whatever a crash left there may be older than what stands in the tree.
            while self.purge(at) {}
            if let Err(error) = self.trees[at].tree.sweep() {
                self.fail(at, &Change::All(ROOT), &error);
            }
        }
        let place = self.directory(at, &inode, more)?;
        let Some(place) = place else { return Ok(()) };
        self.touched.insert(directory);
        let mut there: FxHashSet<Vec<u8>> = self.trees[at].tree.names(&place)?.into_iter().collect();
        let below = self.below(&inode)?;
        for (name, ..) in &below {
            there.remove(name);
        }
        for name in there {
            more(Change::Name(directory, name.into()));
        }
        for (name, file, kind) in below {
            self.name_or_fail(at, directory, &name, more);
            if kind == Kind::Directory {
                more(Change::All(file));
            }
        }
        Ok(())
    }

    /// Makes every name in a directory what the catalog says it is.
    fn names(&mut self, at: usize, directory: FileId, more: More<'_>) -> io::Result<()> {
        let Some(inode) = self.get(directory)? else { return Ok(()) };
        for (name, ..) in self.below(&inode)? {
            self.name_or_fail(at, directory, &name, more);
        }
        Ok(())
    }

    fn name_or_fail(&mut self, at: usize, directory: FileId, name: &[u8], more: More<'_>) {
        if let Err(error) = self.name(at, directory, name, more) {
            self.fail(at, &Change::Name(directory, name.into()), &error);
        }
    }

    /// What is in a directory of the catalog.
    fn below(&self, directory: &Inode) -> io::Result<Vec<(Vec<u8>, FileId, Kind)>> {
        let mut below = Vec::new();
        self.each(directory, &mut |name, file, kind| below.push((name.to_vec(), file, kind)))?;
        Ok(below)
    }

    /// A directory of the tree, put where it belongs when it is not known to be there, with what is above it. None when it is gone.
    fn directory(&mut self, at: usize, inode: &Arc<Inode>, more: More<'_>) -> io::Result<Option<Directory>> {
        'anew: loop {
            let way = {
                let _moving = self.shared.moving.lock();
                self.way_to(at, inode)?
            };
            let Some(Way { mut from, mut above, mut down }) = way else { return Ok(None) };
            if from != ROOT {
                // It is come to again.
                self.trees[at].directories.keep(from, &above);
            }
            while let Some((missing, name)) = down.pop() {
                let stood = {
                    let moving = &mut self.shared.moving.lock()[at];
                    // All that is above it may have moved since, and has it all the same.
                    if !belongs(&missing, from, &name) {
                        continue 'anew;
                    }
                    moving.remove(&missing.id)
                };
                above = self.place(at, &above, &name, &missing, stood, more)?;
                from = missing.id;
                if down.len() < NEAR {
                    self.trees[at].directories.keep(from, &above);
                }
            }
            return Ok(Some(above));
        }
    }

    /// The way to a directory from the lowest above it that is known to stand. None where it is not in the tree.
    fn way_to(&self, at: usize, inode: &Arc<Inode>) -> io::Result<Option<Way>> {
        let (mut inode, mut down) = (inode.clone(), Vec::new());
        loop {
            if let Some(above) = self.standing(at, inode.id) {
                return Ok(Some(Way { from: inode.id, above, down }));
            }
            let record = inode.record();
            // What is below a name that the tree cannot have is not in it either.
            if record.nlink == 0 || record.parent == ROOT && Tree::is_reserved(&record.name) {
                return Ok(None);
            }
            let Some(parent) = self.get(record.parent)? else { return Ok(None) };
            down.push((inode, record.name));
            inode = parent;
        }
    }

    /// Makes a name the directory that it is, taken from where it stood if it moved.
    fn place(
        &mut self,
        at: usize,
        above: &Directory,
        name: &[u8],
        inode: &Arc<Inode>,
        stood: Option<Stood>,
        more: More<'_>,
    ) -> io::Result<Directory> {
        let placed = match self.put(at, above, name, inode.id, stood.as_ref()) {
            Ok(placed) => placed,
            Err(error) => {
                // Wherever it was said to move from meanwhile, it never came there.
                self.shared.moving.lock()[at].extend(stood.map(|stood| (inode.id, stood)));
                return Err(error);
            }
        };
        let (Placed::There(directory) | Placed::Made(directory)) = &placed;
        if self.kept.remove(&(at, inode.id)) || matches!(placed, Placed::Made(_)) {
            self.touched.insert(inode.id);
            more(Change::Names(inode.id));
        }
        Ok(directory.clone())
    }

    fn put(&self, at: usize, above: &Directory, name: &[u8], id: FileId, stood: Option<&Stood>) -> io::Result<Placed> {
        let tree = &self.trees[at].tree;
        // Wherever it is it is taken from there: made anew it would be one of two, and the stale one might take its place later.
        if let Some((from, old)) = stood
            && let Some(from) = self.whereabouts(at, *from)?
        {
            tree.displace(&from, old, id)?;
        }
        tree.directory(above, name, id)
    }

    /// Where a directory of the tree is now, which may be elsewhere than where it belongs.
    fn whereabouts(&self, at: usize, id: FileId) -> io::Result<Option<Directory>> {
        let (mut way, mut seen, mut next) = (Vec::new(), FxHashSet::default(), id);
        let top = {
            let moving = &self.shared.moving.lock()[at];
            loop {
                if let Some(standing) = self.standing(at, next) {
                    break Some(standing);
                }
                let place = match moving.get(&next) {
                    Some(stood) => Some(stood.clone()),
                    None => self.get(next)?.map(|inode| inode.record()).map(|record| (record.parent, record.name)),
                };
                // Of what waits in limbo the catalog may say that it is below itself.
                let Some((above, name)) = place.filter(|_| seen.insert(next)) else {
                    way.push((next, Box::default()));
                    break None;
                };
                way.push((next, name));
                next = above;
            }
        };
        // Not kept open: what is goes for what stands where it belongs.
        self.trees[at].tree.find(top, &way)
    }

    /// A directory of the tree that is open, or the top. Not what somebody has removed by hand: what is put there is nowhere.
    fn standing(&self, at: usize, id: FileId) -> Option<Directory> {
        let open = &self.trees[at];
        if id == ROOT {
            return Some(open.tree.root());
        }
        let directory = open.directories.get(id)?;
        let stat = rustix::fs::fstat(directory).ok()?;
        (stat.st_nlink > 0).then(|| directory.clone())
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

    /// Times of data are the backing file's own: whoever sets them sets them there. The tree has no ACLs, and the group no more for that.
    fn shown(&self, inode: &Arc<Inode>) -> io::Result<Shown> {
        let record = inode.record();
        let acl = if record.xattrs > 0 { self.catalog.xattr(inode, ACCESS) } else { Err(Error::NoAttribute) };
        let mode = match acl {
            Ok(acl) => Acl::decode(&acl).map_or(record.mode, |acl| acl.without_names() | record.mode & 0o7000),
            Err(Error::NoAttribute | Error::NotFound) => record.mode,
            Err(error) => return Err(io::Error::other(error)),
        };
        let times = (record.kind != Kind::Regular).then_some((record.atime, record.mtime));
        Ok(Shown { mode, uid: record.uid, gid: record.gid, times })
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
        self.show_saved(more);
    }

    fn put_times_right(&mut self, more: More<'_>) {
        let mut touched: Vec<FileId> = std::mem::take(&mut self.touched).into_iter().collect();
        // As a rule what is above another was made before it: so that is still open.
        touched.sort_unstable();
        for directory in touched {
            self.in_each(&Change::Attributes(directory), more);
        }
    }

    /// Purges what waits in limbo; whether there was anything, and there may be more by that.
    fn purge(&mut self, at: usize) -> bool {
        let waiting = self.trees[at].tree.waiting().unwrap_or_default();
        let mut purged = false;
        for id in waiting.into_iter().filter(|id| !self.kept.contains(&(at, *id))).collect::<Vec<_>>() {
            purged = true;
            self.trees[at].directories.remove(id);
            if let Err(error) = self.trees[at].tree.purge(id) {
                self.fail(at, &Change::All(id), &error);
                self.kept.insert((at, id));
            }
        }
        purged
    }

    /// Returns when the trees are on disk.
    pub fn sync(&self) -> io::Result<()> {
        self.trees.iter().try_for_each(|open| open.tree.sync())
    }
}

/// Has a tree keep what some file has, whatever becomes of its name in the pool.
fn keep_last_names(catalog: &Arc<Catalog>, pool: PoolId, tree: &Tree, saved: &Arc<Mutex<Vec<FileId>>>) {
    // The follower has it as long as it does anything.
    let (catalog, saved) = (Arc::downgrade(catalog), saved.clone());
    let bound = move |file, generation| {
        let record = match catalog.upgrade().ok_or(Errno::IO)?.get(file) {
            Err(Error::NotFound) => return Ok(None),
            found => found.map_err(|_| Errno::IO)?.record(),
        };
        let backing = record.backing.filter(|_| record.nlink > 0);
        let bound = backing.filter(|backing| backing.pool == pool && backing.generation == generation);
        Ok(bound.map(|backing| Locator(backing.locator)))
    };
    tree.keep(Box::new(bound), Box::new(move |file| saved.lock().push(file)));
}

/// Whether a directory has this name.
fn belongs(inode: &Inode, parent: FileId, name: &[u8]) -> bool {
    let record = inode.record();
    record.nlink > 0 && record.parent == parent && *record.name == *name
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
