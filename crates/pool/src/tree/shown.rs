//! Backing files of which the tree alone has a name left, as after fsck(8) has given up a damaged leaf directory.

use super::ours::{Space, backing_of};
use super::{Directory, FILES, LIMBO, Tree, open_directory};
use crate::dir::name;
use crate::{Error, Locator, Uuid, sys};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Stat};
use rustix::io::Errno;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use ullage_types::{FileId, Generation};

/// Where a backing file should lie that is missing; none for one that is not.
pub type Missing<'a> = dyn FnMut(FileId, Generation) -> Option<Locator> + 'a;
/// Where the backing file lies that a file has now; none where no file has it.
pub type Bound = dyn Fn(FileId, Generation) -> rustix::io::Result<Option<Locator>> + Send + Sync;

/// Who knows which backing files are some file's, and is told of those that were saved.
pub(super) struct Keeper {
    bound: Box<Bound>,
    saved: Box<dyn Fn(FileId) + Send + Sync>,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Keeper")
    }
}

impl Tree {
    /// From now on asks `bound` before what may be the last name of a backing file goes, and says of what file one was `saved`.
    pub fn keep(&self, bound: Box<Bound>, saved: Box<dyn Fn(FileId) + Send + Sync>) {
        let _ = self.keeper.set(Keeper { bound, saved });
    }

    /// Gives a backing file that some file has, and whose last name this is, its name in the pool again. False where something else has that.
    pub(super) fn save(&self, above: impl AsFd, name: &[u8], now: &Stat) -> rustix::io::Result<bool> {
        let Some(Keeper { bound, saved: tell }) = self.keeper.get().filter(|_| now.st_nlink == 1) else {
            return Ok(true);
        };
        let Some((file, generation)) = backing_of(&above, name, self.space)? else { return Ok(true) };
        let Some(lost) = bound(file, generation)? else { return Ok(true) };
        let saved = name_again(above, name, &self.files, &lost)?;
        if saved {
            tell(file);
            tracing::warn!("the backing file of inode {file} was missing, and is there again: the plain tree had it");
        }
        Ok(saved)
    }

    /// As [`Tree::bring_back`], in the tree of a pool that is in use.
    pub fn bring_back_here(&self, missing: &mut Missing<'_>) -> Result<(), Error> {
        look_through(self.root.clone(), &self.files, self.space, &self.path, missing)
    }

    /// Looks through the tree of the pool of a space at `path`, which nobody uses, and gives backing files that are `missing` in the pool, and
    /// have a name in the tree, their name in the pool again.
    pub fn bring_back(path: &Path, space: Uuid, missing: &mut Missing<'_>) -> Result<(), Error> {
        let fail = |errno| Error::io("look through the plain tree of", path)(errno);
        let root = Arc::new(open_directory(rustix::fs::CWD, path.as_os_str().as_encoded_bytes()).map_err(fail)?);
        let files = open_directory(&root, FILES.as_bytes()).map_err(fail)?;
        look_through(root, &files, space.short(), path, missing)
    }
}

/// What waits in limbo belongs to the tree.
fn look_through(
    root: Directory,
    files: &OwnedFd,
    space: Space,
    path: &Path,
    missing: &mut Missing<'_>,
) -> Result<(), Error> {
    let fail = |errno| Error::io("look through the plain tree of", path)(errno);
    let device = rustix::fs::fstat(&root).map_err(fail)?.st_dev;
    // Above each directory is the one that it is opened from: a tree may be deeper than a path can be long.
    let own = Arc::new(files.try_clone().map_err(|error| fail(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?);
    let mut todo: Vec<(Directory, Vec<u8>)> = vec![(own, LIMBO.into()), (root, b".".to_vec())];
    let mut top = true;
    while let Some((above, own)) = todo.pop() {
        let directory = match open_directory(&*above, &own) {
            // What nobody can look into is none of ours.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => continue,
            opened => Arc::new(opened.map_err(fail)?),
        };
        if rustix::fs::fstat(&directory).map_err(fail)?.st_dev != device {
            continue;
        }
        for entry in Dir::read_from(&*directory).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." || top && Tree::is_reserved(name) {
                continue;
            }
            match crate::dir::kind_of(&directory, &entry).map_err(fail)? {
                FileType::Directory => todo.push((directory.clone(), name.to_owned())),
                FileType::RegularFile => {
                    let found = match backing_of(&*directory, name, space) {
                        // What cannot be read brings nothing back, and keeps nothing else from that.
                        Err(errno) if matches!(errno, Errno::NOENT | Errno::ACCESS) || sys::is_damage(errno) => None,
                        read => read.map_err(fail)?,
                    };
                    if let Some(lost) = found.and_then(|(file, generation)| missing(file, generation)) {
                        name_again(&*directory, name, files, &lost).map_err(fail)?;
                    }
                }
                _ => {}
            }
        }
        top = false;
    }
    Ok(())
}

/// Whether it has that now: a backing file has several names in a tree where the file has.
fn name_again(above: impl AsFd, shown: &[u8], files: &OwnedFd, lost: &Locator) -> rustix::io::Result<bool> {
    let Some((leaf, _)) = name::split(lost) else { return Ok(false) };
    for (end, _) in leaf.match_indices('/').chain([(leaf.len(), "")]) {
        match crate::dir::make_own(files, &leaf[..end]) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    match rustix::fs::linkat(above, shown, files, &*lost.0, AtFlags::empty()) {
        Err(Errno::EXIST) => Ok(false),
        linked => linked.map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{SPACE, tree};
    use super::*;
    use crate::dir::record::{self, Record};
    use crate::which::Which;
    use std::fs::File;

    /// Regression: a file whose name in the pool was lost went with its name in the tree when it was renamed: there was the last one of its data.
    #[test]
    fn what_a_file_has_gets_its_name_in_the_pool_again_before_the_last_one_in_the_tree_goes() {
        let (dir, tree, root) = tree();
        let make = |name: &str, id| {
            let path = dir.path().join(name);
            std::fs::write(&path, name).unwrap();
            let which = Which::of(File::open(&path).unwrap()).unwrap();
            let record = Record {
                space: SPACE.short(),
                file: FileId(id),
                generation: Generation(3),
                annotation: None,
                inode: Some(which),
            };
            rustix::fs::setxattr(&path, record::NAME, &record.encode(), rustix::fs::XattrFlags::empty()).unwrap();
            which.birth.is_some()
        };
        let born = [("lost", 2), ("removed", 4), ("in-the-way", 6)].map(|(name, id)| make(name, id));
        if born.contains(&false) {
            eprintln!("skipped: there are no times of birth here");
            return;
        }
        let files = dir.path().join(FILES);
        std::fs::create_dir(files.join("leaf")).unwrap();
        std::fs::write(files.join("leaf/6.3"), "of somebody else").unwrap();
        let lies =
            |file: FileId, generation| Locator(format!("leaf/{}", name::of(file, generation)).into_bytes().into());
        tree.keep(
            Box::new(move |file, generation| Ok((file != FileId(4)).then(|| lies(file, generation)))),
            Box::new(drop),
        );
        tree.clear(&root, b"lost").unwrap();
        tree.clear(&root, b"removed").unwrap();
        assert!(tree.clear(&root, b"in-the-way").is_err(), "it was the last name of its data");
        assert_eq!(std::fs::read_to_string(files.join("leaf/2.3")).unwrap(), "lost");
        assert_eq!(tree.names(&root).unwrap(), [b"in-the-way"]);
    }
}
