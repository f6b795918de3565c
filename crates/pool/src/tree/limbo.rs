//! Where directories of the tree wait that are not where they should be: each under its id, in hexadecimal.

use super::ours::{Identity, identify, identity};
use super::{Directory, Tree, open_directory};
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
        let name = name(id);
        // One level at a time: a tree may be deeper than a stack, or than there are descriptors.
        while let Err(errno) = rustix::fs::unlinkat(&self.limbo, &*name, AtFlags::REMOVEDIR) {
            match errno {
                Errno::NOENT => return Ok(()),
                Errno::NOTEMPTY | Errno::EXIST => {
                    if !self.thin_out(&open_directory(&self.limbo, name.as_bytes())?)? {
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
            if rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR).is_err() {
                let found = identity(open_directory(directory, name)?, self.space)?.filter(Identity::is_here);
                let Some(ours) = found else { continue };
                self.to_limbo(directory, name, ours.id)?;
            }
            removed = true;
        }
        Ok(removed)
    }

    /// Moves a directory to limbo. Of two with the same id the newer one stays.
    pub(super) fn to_limbo(&self, above: impl AsFd, old: &[u8], id: FileId) -> io::Result<()> {
        let new = name(id);
        loop {
            match rustix::fs::renameat_with(&above, old, &self.limbo, &*new, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => self.purge(id)?,
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
        rustix::fs::renameat_with(&self.limbo, &*old, above, new, RenameFlags::NOREPLACE)?;
        Ok(Some(Arc::new(found)))
    }

    /// Makes a directory. It gets its identity before its place, so that none without one is ever in the tree.
    pub(super) fn make(&self, id: FileId, above: &Directory, new: &[u8]) -> io::Result<Directory> {
        let old = name(id);
        self.floor.admit(&self.limbo)?;
        rustix::fs::mkdirat(&self.limbo, &*old, Mode::from_raw_mode(0o700))?;
        let made = open_directory(&self.limbo, old.as_bytes())?;
        identify(&made, id, self.space)?;
        rustix::fs::renameat_with(&self.limbo, &*old, above, new, RenameFlags::NOREPLACE)?;
        Ok(Arc::new(made))
    }
}

fn name(id: FileId) -> String {
    format!("{:x}", id.0)
}
