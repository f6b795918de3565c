//! Backing files of which the tree alone has a name left, as after fsck(8) has given up a damaged leaf directory.

use super::ours::backing_of;
use super::{FILES, Tree, open_directory};
use crate::dir::name;
use crate::{Error, Locator, Uuid, sys};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;
use ullage_types::{FileId, Generation};

/// Where a backing file should lie that is missing; none for one that is not.
pub type Missing<'a> = dyn FnMut(FileId, Generation) -> Option<Locator> + 'a;

impl Tree {
    /// Looks through the tree of the pool of a space at `path`, which nobody uses, and gives backing files that are `missing` in the pool, and
    /// have a name in the tree, their name in the pool again.
    pub fn bring_back(path: &Path, space: Uuid, missing: &mut Missing<'_>) -> Result<(), Error> {
        let fail = |errno| Error::io("look through the plain tree of", path)(errno);
        let root = Arc::new(open_directory(rustix::fs::CWD, path.as_os_str().as_encoded_bytes()).map_err(fail)?);
        let files = open_directory(&root, FILES.as_bytes()).map_err(fail)?;
        let device = rustix::fs::fstat(&root).map_err(fail)?.st_dev;
        // Above each directory is the one that it is opened from: a tree may be deeper than a path can be long.
        let mut todo: Vec<(Arc<OwnedFd>, Vec<u8>)> = vec![(root, b".".to_vec())];
        let mut top = true;
        while let Some((above, own)) = todo.pop() {
            let directory = match open_directory(&*above, &own) {
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                opened => Arc::new(opened.map_err(fail)?),
            };
            if rustix::fs::fstat(&directory).map_err(fail)?.st_dev != device {
                continue;
            }
            for entry in Dir::read_from(&*directory).map_err(fail)? {
                let entry = entry.map_err(fail)?;
                let name = entry.file_name().to_bytes();
                if name == b"." || name == b".." || top && Self::is_reserved(name) {
                    continue;
                }
                match crate::dir::kind_of(&directory, &entry).map_err(fail)? {
                    FileType::Directory => todo.push((directory.clone(), name.to_owned())),
                    FileType::RegularFile => {
                        let found = match backing_of(&*directory, name, space.short()) {
                            // What cannot be read brings nothing back, and keeps nothing else from that.
                            Err(errno) if errno == Errno::NOENT || sys::is_damage(errno) => None,
                            read => read.map_err(fail)?,
                        };
                        if let Some(lost) = found.and_then(|(file, generation)| missing(file, generation)) {
                            name_again(&*directory, name, &files, &lost).map_err(fail)?;
                        }
                    }
                    _ => {}
                }
            }
            top = false;
        }
        Ok(())
    }
}

/// A backing file has several names in a tree where the file has.
fn name_again(above: impl AsFd, shown: &[u8], files: &OwnedFd, lost: &Locator) -> rustix::io::Result<()> {
    let Some((leaf, _)) = name::split(lost) else { return Ok(()) };
    for (end, _) in leaf.match_indices('/').chain([(leaf.len(), "")]) {
        match crate::dir::make_own(files, &leaf[..end]) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    match rustix::fs::linkat(above, shown, files, &*lost.0, AtFlags::empty()) {
        Err(Errno::EXIST) => Ok(()),
        linked => linked,
    }
}
