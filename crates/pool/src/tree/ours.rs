//! What in the tree is the space's own. A copy has all attributes of what it was made from (`cp -a`), but not its number and time of
//! birth: what says that something is ours says of which inode, and means nothing on any other. What was moved here out of the tree of
//! another space has both: so it says of which space as well.

use crate::dir::record::{self, Record};
use crate::sys::by_descriptor;
use crate::which::Which;
use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use ullage_types::{FileId, Generation};

/// On directories of the tree: the id of theirs, little-endian, which inode they are, and of which space, with a byte before that which makes
/// the length one that no earlier version wrote.
const IDENTITY: &str = "user.ullage.directory";
const OF_SPACE: u8 = 1;

/// The first bytes of a space's UUID, as backing files have them.
pub type Space = [u8; 8];

/// Which directory one of the tree says that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub id: FileId,
    said: Option<Which>,
    now: Which,
    /// It was said of which space.
    owned: bool,
}

impl Identity {
    /// Whether it was said of this very inode. If not, this is a copy, lies in a copy of the whole pool, or was made by an earlier
    /// version.
    pub fn is_here(&self) -> bool {
        self.said.is_some_and(|said| said.may_be(self.now))
    }

    /// Whether that is said as this version says it.
    pub fn is_certain(&self) -> bool {
        self.owned && self.said == Some(self.now)
    }
}

/// Which directory of a space a directory of the tree is.
pub fn identity(directory: impl AsFd, space: Space) -> rustix::io::Result<Option<Identity>> {
    let mut bytes = [0u8; 8 + Which::LONGEST + 1 + size_of::<Space>()];
    let length = match rustix::fs::fgetxattr(&directory, IDENTITY, &mut bytes[..]) {
        Ok(length) => length,
        Err(Errno::NODATA | Errno::RANGE) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let Some((id, which)) = bytes.get(..length).and_then(<[u8]>::split_first_chunk::<8>) else { return Ok(None) };
    let id = FileId(u64::from_le_bytes(*id));
    let (which, owner) = match which.split_last_chunk::<{ size_of::<Space>() }>() {
        Some(([which @ .., OF_SPACE], owner)) if length % 2 == 1 => (which, Some(owner)),
        _ => (which, None),
    };
    let said = Which::decode(which);
    let whole = which.is_empty() || said.is_some();
    let ours = owner.is_none_or(|owner| *owner == space);
    Ok((whole && ours).then_some(Identity { id, said, now: Which::of(directory)?, owned: owner.is_some() }))
}

/// Says of a directory which one of a space it is.
pub fn identify(directory: impl AsFd, id: FileId, space: Space) -> rustix::io::Result<()> {
    let bytes = [&id.0.to_le_bytes()[..], &Which::of(&directory)?.encode(), &[OF_SPACE], &space].concat();
    rustix::fs::fsetxattr(directory, IDENTITY, &bytes, XattrFlags::empty())
}

/// Says of a directory no more which one it is.
pub fn disown(directory: impl AsFd) -> rustix::io::Result<()> {
    match rustix::fs::fremovexattr(directory, IDENTITY) {
        Err(Errno::NODATA) => Ok(()),
        other => other,
    }
}

/// Whether a regular file is a backing file of a space, and no copy of one.
pub fn is_backing(above: impl AsFd, name: &[u8], space: Space) -> rustix::io::Result<bool> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(above, name, flags, Mode::empty())?;
    let path = by_descriptor(&file);
    let mut bytes = [0u8; record::LONGEST + 1];
    let record = match rustix::fs::getxattr(path, record::NAME, &mut bytes[..]) {
        Ok(length) => bytes.get(..length).and_then(Record::decode),
        Err(Errno::RANGE) => None,
        Err(Errno::NODATA) => return Ok(false),
        Err(errno) => return Err(errno),
    };
    if record.is_some_and(|record| record.space != space) {
        return Ok(false);
    }
    let said = record.and_then(|record| record.inode);
    let now = Which::of(&file)?;
    if said.is_some_and(|said| !said.may_be(now)) {
        return Ok(false);
    }
    // Where it was said of no inode, or there are only numbers, which come again, the only name may be that of a copy, and what is in it
    // would be lost.
    Ok(said.is_some() && now.birth.is_some() || rustix::fs::fstat(&file)?.st_nlink > 1)
}

/// Whether a regular file says of itself that it is a backing file of another space.
pub fn is_anothers(above: impl AsFd, name: &[u8], space: Space) -> rustix::io::Result<bool> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(above, name, flags, Mode::empty())?;
    let (said, now) = (record::at_path(&file)?, Which::of(&file)?);
    Ok(said.is_some_and(|said| said.space != space && said.inode.is_some_and(|inode| inode.may_be(now))))
}

/// Which backing file of a space a regular file is, where it says that of itself.
pub fn backing_of(above: impl AsFd, name: &[u8], space: Space) -> rustix::io::Result<Option<(FileId, Generation)>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(above, name, flags, Mode::empty())?;
    let (said, now) = (record::at_path(&file)?, Which::of(&file)?);
    let own = said.filter(|said| said.space == space && said.inode.is_some_and(|inode| inode.may_be(now)));
    Ok(own.map(|record| (record.file, record.generation)))
}

#[cfg(test)]
mod tests {
    use super::super::Placed;
    use super::super::testing::{SPACE, tree};
    use super::*;
    use rustix::fd::OwnedFd;
    use std::fs::File;

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

    /// It was told by its number alone, which is given out again.
    #[test]
    fn what_has_the_number_but_was_born_at_another_time_is_a_copy() {
        let (dir, tree, root) = tree();
        let [directory, file] = ["directory", "file"].map(|name| dir.path().join(name));
        std::fs::create_dir(&directory).unwrap();
        File::create(&file).unwrap();
        let [there, here] = [&directory, &file].map(|path| Which::of(File::open(path).unwrap()).unwrap());
        if there.birth.is_none() {
            eprintln!("skipped: there are no times of birth here");
            return;
        }
        let other = |which: Which| Which { birth: which.birth.map(|birth| birth - 1), ..which };
        let record = |which| Record {
            space: [1; 8],
            file: FileId(2),
            generation: Generation(3),
            annotation: None,
            inode: Some(which),
        };
        let identity = |which: Which| [7u64.to_le_bytes().to_vec(), which.encode()].concat();
        set(&directory, IDENTITY, &identity(other(there)));
        set(&file, record::NAME, &record(other(here)).encode());
        assert!(tree.clear(&root, b"directory").is_err() && tree.clear(&root, b"file").is_err());
        // What an earlier version said of it is true, as far as it goes.
        let number = |which: Which| Which { birth: None, ..which };
        set(&directory, IDENTITY, &identity(number(there)));
        set(&file, record::NAME, &record(number(here)).encode());
        assert!(is_backing(&root, b"file", [1; 8]).unwrap());
        let found = super::identity(File::open(&directory).unwrap(), [1; 8]).unwrap().unwrap();
        assert!(found.is_here() && !found.is_certain());
        // Where it belongs all is said.
        assert!(matches!(tree.directory(&root, b"directory", FileId(7)).unwrap(), Placed::There(_)));
        record::bind(File::open(&file).unwrap()).unwrap();
        let mut bytes = [0; record::LONGEST];
        rustix::fs::getxattr(&file, record::NAME, &mut bytes[..]).unwrap();
        assert_eq!(bytes[..], record(here).encode());
        assert!(super::identity(File::open(&directory).unwrap(), [1; 8]).unwrap().unwrap().is_certain());
        tree.clear(&root, b"directory").unwrap();
        tree.clear(&root, b"file").unwrap();
        assert!(!directory.exists() && !file.exists());
    }

    #[test]
    fn a_tree_that_an_earlier_version_claimed_is_looked_at_once() {
        let (_dir, tree, _) = tree();
        let said = [0u64.to_le_bytes().to_vec(), Which::of(&tree.limbo).unwrap().encode()].concat();
        rustix::fs::fsetxattr(&tree.limbo, IDENTITY, &said, XattrFlags::empty()).unwrap();
        assert!(!tree.claim() && tree.claim());
    }

    /// What was moved here from the tree of another space has number and time of birth: it was taken away with all that was in it.
    #[test]
    fn what_belongs_to_another_space_is_not_ours() {
        let (dir, tree, root) = tree();
        let [directory, file] = ["directory", "file"].map(|name| dir.path().join(name));
        std::fs::create_dir(&directory).unwrap();
        File::create(&file).unwrap();
        for (space, ours) in [([2; 8], false), ([1; 8], true)] {
            identify(File::open(&directory).unwrap(), FileId(7), space).unwrap();
            let inode = Some(Which::of(File::open(&file).unwrap()).unwrap());
            let record = Record { space, file: FileId(2), generation: Generation(3), annotation: None, inode };
            set(&file, record::NAME, &record.encode());
            std::fs::hard_link(&file, dir.path().join("other")).unwrap();
            for name in [&b"directory"[..], b"file"] {
                assert_eq!(tree.clear(&root, name).is_ok(), ours, "{space:?}");
            }
            std::fs::remove_file(dir.path().join("other")).unwrap();
        }
        assert_eq!((tree.waiting().unwrap(), file.exists()), (vec![FileId(7)], false));
    }

    /// Where there are no times of birth nothing else says that an earlier version made it.
    #[test]
    fn a_tree_without_a_place_for_first_names_is_looked_at_once() {
        let (dir, tree, _) = tree();
        assert!(!tree.claim() && tree.claim());
        std::fs::remove_dir(dir.path().join(super::super::FILES).join(super::super::NAMES)).unwrap();
        let tree = super::super::Tree::open(dir.path(), SPACE).unwrap();
        assert!(!tree.claim() && tree.claim());
    }

    #[test]
    fn a_file_of_an_earlier_version_is_taken_away_only_if_it_has_another_name_or_was_found_in_the_pool() {
        let (dir, _, root) = tree();
        let path = dir.path().join("file");
        let file = OwnedFd::from(File::create(&path).unwrap());
        let record =
            Record { space: [1; 8], file: FileId(2), generation: Generation(3), annotation: None, inode: None };
        assert!(!is_backing(&root, b"file", [1; 8]).unwrap());
        set(&path, record::NAME, &record.encode());
        assert!(!is_backing(&root, b"file", [1; 8]).unwrap());
        std::fs::hard_link(&path, dir.path().join("other")).unwrap();
        assert!(is_backing(&root, b"file", [1; 8]).unwrap());
        std::fs::remove_file(dir.path().join("other")).unwrap();
        record::bind(&file).unwrap();
        assert!(is_backing(&root, b"file", [1; 8]).unwrap());
        File::create(dir.path().join("copy")).unwrap();
        let mut bytes = [0; record::LONGEST];
        assert_eq!(rustix::fs::fgetxattr(&file, record::NAME, &mut bytes[..]), Ok(record::LONGEST));
        set(&dir.path().join("copy"), record::NAME, &bytes);
        assert!(!is_backing(&root, b"copy", [1; 8]).unwrap());
    }
}
