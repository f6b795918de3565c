//! Where directories of the tree wait that are not where they should be: each under its id, in hexadecimal.

use super::ours::{Identity, identify, identity};
use super::{Directory, Tree, open_directory};
use crate::which::Which;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, RenameFlags};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use ullage_types::FileId;

impl Tree {
    /// The directories that wait.
    pub fn waiting(&self) -> io::Result<Vec<FileId>> {
        let mut waiting = Vec::new();
        for entry in Dir::read_from(&self.limbo)? {
            let entry = entry?;
            let id = entry.file_name().to_str().ok().and_then(|name| u64::from_str_radix(name, 16).ok());
            waiting.extend(id.map(FileId));
        }
        Ok(waiting)
    }

    /// Removes a directory that waits, with everything of ours below it. Backing files lose a name by that and nothing else.
    pub fn purge(&self, id: FileId) -> io::Result<()> {
        self.purge_at(&self.limbo, name(id).as_bytes())
    }

    fn purge_at(&self, above: impl AsFd, name: &[u8]) -> io::Result<()> {
        // One level at a time: a tree may be deeper than a stack, or than there are descriptors.
        while let Err(errno) = rustix::fs::unlinkat(&above, name, AtFlags::REMOVEDIR) {
            match errno {
                Errno::NOENT => return Ok(()),
                Errno::NOTEMPTY | Errno::EXIST => {
                    if !self.thin_out(&open_directory(&above, name)?)? {
                        return Err(super::foreign());
                    }
                }
                errno => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Removes what is in a directory; directories that are not empty go to limbo, to be purged as well. False when nothing
    /// could be removed.
    fn thin_out(&self, directory: &OwnedFd) -> io::Result<bool> {
        let mut removed = false;
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                removed |= self.remove(directory, name, &stat)?;
                continue;
            }
            // An empty one may be somebody else's, too.
            let opened = match open_directory(directory, name) {
                Err(Errno::ACCESS) => continue,
                opened => opened?,
            };
            let Some(ours) = identity(opened, self.space)?.filter(Identity::is_here) else { continue };
            if rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR).is_err() {
                self.to_limbo(directory, name, ours.id)?;
            }
            removed = true;
        }
        Ok(removed)
    }

    /// A directory of the tree, by what is above it, lowest first, each with its name. It begins at the lowest that waits, or at `top`.
    pub fn find(&self, top: Option<Directory>, way: &[(FileId, Box<[u8]>)]) -> io::Result<Option<Directory>> {
        let (mut from, mut down) = (top, way);
        for (at, (id, _)) in way.iter().enumerate() {
            if let Some(waits) = there(open_directory(&self.limbo, name(*id).as_bytes()))? {
                (from, down) = (Some(Arc::new(waits)), &way[..at]);
                break;
            }
        }
        for (_, name) in down.iter().rev() {
            let Some(above) = from else { return Ok(None) };
            from = there(open_directory(&*above, name))?.map(Arc::new);
        }
        Ok(from)
    }

    /// Moves a directory to limbo. Of two with the same id the one that was made later stays: the other one was not found then.
    pub(super) fn to_limbo(&self, above: impl AsFd, old: &[u8], id: FileId) -> io::Result<()> {
        let new = name(id);
        loop {
            match rename_to_free(&above, old, &self.limbo, new.as_bytes()) {
                Err(Errno::EXIST) => {
                    let comes = Which::of(open_directory(&above, old)?)?.birth;
                    let waits = Which::of(open_directory(&self.limbo, new.as_bytes())?)?.birth;
                    if comes.zip(waits).is_some_and(|(comes, waits)| comes < waits) {
                        return self.purge_at(above, old);
                    }
                    self.purge(id)?;
                }
                other => return Ok(other?),
            }
        }
    }

    /// Moves a directory from limbo to its place, which is free.
    pub(super) fn out_of_limbo(&self, id: FileId, above: &Directory, new: &[u8]) -> io::Result<Option<Directory>> {
        let old = name(id);
        let found = match open_directory(&self.limbo, old.as_bytes()) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        // Without an identity it was being made when the power went.
        if !self.is(&found, id)? {
            self.purge(id)?;
            return Ok(None);
        }
        rename_to_free(&self.limbo, old.as_bytes(), above, new)?;
        Ok(Some(Arc::new(found)))
    }

    /// Makes a directory. It gets its identity before its place, so that none without one is ever in the tree.
    pub(super) fn make(&self, id: FileId, above: &Directory, new: &[u8]) -> io::Result<Directory> {
        let old = name(id);
        self.floor.admit(&self.limbo)?;
        rustix::fs::mkdirat(&self.limbo, &*old, Mode::from_raw_mode(0o700))?;
        let made = open_directory(&self.limbo, old.as_bytes())?;
        identify(&made, id, self.space)?;
        rename_to_free(&self.limbo, old.as_bytes(), above, new)?;
        Ok(Arc::new(made))
    }
}

/// Gives a directory a name that is free.
fn rename_to_free(above: impl AsFd, old: &[u8], below: impl AsFd, new: &[u8]) -> rustix::io::Result<()> {
    match rustix::fs::renameat_with(&above, old, &below, new, RenameFlags::NOREPLACE) {
        // Not every file system can. A directory that comes to stand there meanwhile stays unless it is empty.
        Err(Errno::INVAL | Errno::NOSYS) => match rustix::fs::statat(&below, new, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => rustix::fs::renameat(&above, old, &below, new),
            Err(errno) => Err(errno),
        },
        other => other,
    }
}

fn there(opened: rustix::io::Result<OwnedFd>) -> io::Result<Option<OwnedFd>> {
    match opened {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        other => Ok(Some(other?)),
    }
}

fn name(id: FileId) -> String {
    format!("{:x}", id.0)
}

#[cfg(test)]
mod tests {
    use super::super::Placed;
    use super::super::testing::tree;
    use super::*;

    /// Regression: a directory that had been made anew, with all that was in it since, gave way to the older one when that came to limbo after it.
    #[test]
    fn of_two_directories_with_one_id_the_one_that_was_made_later_stays() {
        for order in [["older", "newer"], ["newer", "older"]] {
            let (dir, tree, root) = tree();
            if Which::of(&root).unwrap().birth.is_none() {
                eprintln!("skipped: there are no times of birth here");
                return;
            }
            for name in ["older", "newer"] {
                let Placed::Made(made) = tree.directory(&root, name.as_bytes(), FileId(7)).unwrap() else { panic!() };
                tree.symlink(&made, name.as_bytes(), b"target").unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            for name in order {
                tree.clear(&root, name.as_bytes()).unwrap();
            }
            assert!(matches!(tree.directory(&root, b"it", FileId(7)).unwrap(), Placed::There(_)));
            let names = std::fs::read_dir(dir.path().join("it")).unwrap().map(|entry| entry.unwrap().file_name());
            assert_eq!(names.collect::<Vec<_>>(), ["newer"], "{order:?}");
            assert_eq!(tree.names(&root).unwrap(), [b"it"]);
            assert!(tree.waiting().unwrap().is_empty());
        }
    }

    /// Regression: an empty directory that somebody else had made went with the one that it was in.
    #[test]
    fn an_empty_directory_of_somebody_elses_stays_with_what_it_is_in() {
        let (dir, tree, root) = tree();
        let Placed::Made(made) = tree.directory(&root, b"ours", FileId(7)).unwrap() else { panic!() };
        tree.directory(&made, b"below", FileId(8)).unwrap();
        std::fs::create_dir(dir.path().join("ours/theirs")).unwrap();
        tree.clear(&root, b"ours").unwrap();
        assert!(tree.purge(FileId(7)).is_err());
        assert_eq!(tree.names(&Arc::new(open_directory(&tree.limbo, b"7").unwrap())).unwrap(), [b"theirs"]);
    }
}
