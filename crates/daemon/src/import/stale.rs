//! What an import took in that was refused in the end, or interrupted, and that has another name since, or none: as the refusal says.

use super::{is_like, taken_in};
use crate::Result;
use crate::error::io_error;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use ullage_catalog::{Catalog, Entry, Inode};
use ullage_pool::{Directory, Tree};
use ullage_types::{Kind, ROOT};

/// A directory of the catalog, and what it is in each tree where it is there.
struct Level {
    inode: Arc<Inode>,
    name: Vec<u8>,
    there: Vec<Option<Directory>>,
    entries: Vec<Entry>,
}

/// Takes names that are in none of these trees, which make up the space, out of the catalog. Nobody has used it yet.
pub(crate) fn drop_stale(catalog: &Catalog, trees: &[&Tree]) -> Result<()> {
    let there = trees.iter().map(|tree| Some(tree.root())).collect();
    let mut path = PathBuf::new();
    let mut levels = vec![level(catalog, catalog.root().clone(), Vec::new(), there)?];
    while let Some(level) = levels.last_mut() {
        let Some(entry) = level.entries.pop() else {
            let Some(done) = levels.pop() else { break };
            path.pop();
            if let Some(above) = levels.last()
                && done.there.iter().all(Option::is_none)
            {
                catalog.rmdir(&above.inode, &done.name, ullage_fs::now())?;
            }
            continue;
        };
        let fail = |error| io_error("look at", path.join(OsStr::from_bytes(&entry.name)))(error);
        if entry.kind == Kind::Directory {
            let open = |at: &Option<Directory>| at.as_ref().map_or(Ok(None), |above| below(above, &entry.name));
            match level.there.iter().map(open).collect::<io::Result<Vec<_>>>() {
                Ok(there) => {
                    path.push(OsStr::from_bytes(&entry.name));
                    let deeper = self::level(catalog, catalog.get(entry.file)?, entry.name, there)?;
                    levels.push(deeper);
                }
                // An ordinary user's, who lets himself in when it is taken in.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                Err(error) => return Err(fail(error)),
            }
        } else {
            match is_there(catalog, trees, level, &entry) {
                // As above.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                found => {
                    if !found.map_err(fail)? {
                        catalog.unlink(&level.inode, &entry.name, ullage_fs::now())?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn level(catalog: &Catalog, inode: Arc<Inode>, name: Vec<u8>, there: Vec<Option<Directory>>) -> Result<Level> {
    let mut entries = catalog.list(&inode, 0, catalog.newest_place(&inode), usize::MAX)?;
    if inode.id == ROOT {
        entries.retain(|entry| !Tree::is_reserved(&entry.name));
    }
    Ok(Level { inode, name, there, entries })
}

fn below(above: &Directory, name: &[u8]) -> io::Result<Option<Directory>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(above, name, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        opened => Ok(Some(Arc::new(opened?))),
    }
}

/// Whether what is no directory has this name in a tree: a regular file in any, since its names may lie in several.
fn is_there(catalog: &Catalog, trees: &[&Tree], level: &Level, entry: &Entry) -> io::Result<bool> {
    for (tree, above) in trees.iter().zip(&level.there) {
        let Some(above) = above else { continue };
        let stat = match rustix::fs::statat(above, &*entry.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            found => found?,
        };
        let is_it = || -> io::Result<bool> {
            Ok(taken_in(catalog, tree, above, &entry.name)?.is_some_and(|file| file.id == entry.file))
        };
        let record = catalog.get(entry.file).map_err(io::Error::other)?.record();
        let same = is_like(&record, above, &entry.name, &stat)? && (entry.kind != Kind::Regular || is_it()?);
        if same {
            return Ok(true);
        }
    }
    Ok(false)
}
