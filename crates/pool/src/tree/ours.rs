//! What in the tree is the space's own. A copy has all attributes of what it was made from (`cp -a`), but not its number: what says
//! that something is ours says of which inode, and means nothing on any other.

use crate::dir::record::{self, Record};
use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use std::os::fd::AsRawFd;
use ullage_types::FileId;

/// On directories of the tree: the id of theirs and the number of their inode, little-endian.
const IDENTITY: &str = "user.ullage.directory";

/// Which directory one of the tree says that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub id: FileId,
    /// It was said of this very inode. If not, this is a copy, lies in a copy of the whole pool, or was made by an earlier
    /// version.
    pub here: bool,
}

/// Which directory a directory of the tree is.
pub fn identity(directory: impl AsFd) -> rustix::io::Result<Option<Identity>> {
    let mut bytes = [0u8; 16];
    let length = match rustix::fs::fgetxattr(&directory, IDENTITY, &mut bytes[..]) {
        Ok(length) => length,
        Err(Errno::NODATA | Errno::RANGE) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let (id, inode) = bytes.split_at(8);
    let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or_default();
    let here = length == 16 && number(inode) == rustix::fs::fstat(directory)?.st_ino;
    Ok(matches!(length, 8 | 16).then(|| Identity { id: FileId(number(id)), here }))
}

/// Says of a directory which one it is.
pub fn identify(directory: impl AsFd, id: FileId) -> rustix::io::Result<()> {
    let inode = rustix::fs::fstat(&directory)?.st_ino;
    let bytes = [id.0.to_le_bytes(), inode.to_le_bytes()].concat();
    rustix::fs::fsetxattr(directory, IDENTITY, &bytes, XattrFlags::empty())
}

/// Whether a regular file is a backing file, of whichever space, and no copy of one.
pub fn is_backing(above: impl AsFd, name: &[u8]) -> rustix::io::Result<bool> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(above, name, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut bytes = [0u8; record::LONGEST + 1];
    let inode = match rustix::fs::getxattr(path, record::NAME, &mut bytes[..]) {
        Ok(length) => bytes.get(..length).and_then(Record::decode).and_then(|record| record.inode),
        Err(Errno::RANGE) => None,
        Err(Errno::NODATA) => return Ok(false),
        Err(errno) => return Err(errno),
    };
    // Of an earlier version: where this is the only name it may be a copy, and what is in it would be lost.
    Ok(inode.map_or(stat.st_nlink > 1, |inode| inode == stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::super::{Directory, FILES, Placed, Tree};
    use super::*;
    use rustix::fd::OwnedFd;
    use std::fs::File;
    use ullage_types::Generation;

    fn tree() -> (tempfile::TempDir, Tree, Directory) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(FILES)).unwrap();
        let tree = Tree::open(dir.path()).unwrap();
        let root = tree.root();
        (dir, tree, root)
    }

    fn set(path: &std::path::Path, name: &str, value: &[u8]) {
        rustix::fs::setxattr(path, name, value, XattrFlags::empty()).unwrap();
    }

    #[test]
    fn a_directory_of_an_earlier_version_is_ours_once_it_was_found_where_it_belongs() {
        let (dir, tree, root) = tree();
        assert!(!tree.claim() && tree.claim());
        for name in ["dir", "copy"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            set(&dir.path().join(name), IDENTITY, &7u64.to_le_bytes());
        }
        assert!(tree.clear(&root, b"copy").is_err());
        assert!(matches!(tree.directory(&root, b"dir", FileId(7)).unwrap(), Placed::There(_)));
        assert!(tree.clear(&root, b"copy").is_err());
        tree.clear(&root, b"dir").unwrap();
        assert_eq!((tree.waiting().unwrap(), dir.path().join("copy").is_dir()), (vec![FileId(7)], true));
    }

    #[test]
    fn a_file_of_an_earlier_version_is_taken_away_only_if_it_has_another_name_or_was_found_in_the_pool() {
        let (dir, _, root) = tree();
        let path = dir.path().join("file");
        let file = OwnedFd::from(File::create(&path).unwrap());
        let record =
            Record { space: [1; 8], file: FileId(2), generation: Generation(3), annotation: None, inode: None };
        assert!(!is_backing(&root, b"file").unwrap());
        set(&path, record::NAME, &record.encode());
        assert!(!is_backing(&root, b"file").unwrap());
        std::fs::hard_link(&path, dir.path().join("other")).unwrap();
        assert!(is_backing(&root, b"file").unwrap());
        std::fs::remove_file(dir.path().join("other")).unwrap();
        record::bind(&file).unwrap();
        assert!(is_backing(&root, b"file").unwrap());
        File::create(dir.path().join("copy")).unwrap();
        let mut bytes = [0; record::LONGEST];
        assert_eq!(rustix::fs::fgetxattr(&file, record::NAME, &mut bytes[..]), Ok(record::LONGEST));
        set(&dir.path().join("copy"), record::NAME, &bytes);
        assert!(!is_backing(&root, b"copy").unwrap());
    }
}
