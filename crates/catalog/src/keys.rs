//! The keys of the catalog. Numbers are big-endian, so that order by bytes is order by number.

use crate::limits::Subject;
use ullage_types::FileId;

/// The superblock: format, space, root.
pub const SUPER: &[u8] = b"S";
/// The first number that was not yet handed out, rounded up.
pub const NUMBERS: &[u8] = b"N";
/// A repair is under way: what it has to tell, a line each. Nobody opens the catalog before it is over.
pub const REPAIR: &[u8] = b"R";
/// Prefix of directory entries.
pub const ENTRY: u8 = b'd';
/// Prefix of inode records.
pub const INODE: u8 = b'i';
/// Prefix of directory totals.
pub const TOTALS: u8 = b't';
/// Prefix of per-user totals.
pub const USER: u8 = b'u';
/// Prefix of extended attributes.
pub const XATTR: u8 = b'x';
/// Prefix of files without names that are still open.
pub const ORPHAN: u8 = b'o';
/// Prefix of the names of files with several.
pub const NAME: u8 = b'n';
/// Prefix of limits.
pub const LIMIT: u8 = b'l';
/// Prefix of the marks of leaf directories in the pools.
pub const MARK: u8 = b'm';

fn with_id(prefix: u8, file: FileId, more: usize) -> Vec<u8> {
    let mut key = Vec::with_capacity(9 + more);
    key.push(prefix);
    key.extend_from_slice(&file.0.to_be_bytes());
    key
}

/// An inode record.
pub fn inode(file: FileId) -> Vec<u8> {
    with_id(INODE, file, 0)
}

/// All entries of a directory.
pub fn entries(directory: FileId) -> Vec<u8> {
    with_id(ENTRY, directory, 0)
}

/// One entry of a directory.
pub fn entry(directory: FileId, name: &[u8]) -> Vec<u8> {
    let mut key = with_id(ENTRY, directory, name.len());
    key.extend_from_slice(name);
    key
}

/// A directory's totals.
pub fn totals(directory: FileId) -> Vec<u8> {
    with_id(TOTALS, directory, 0)
}

/// All extended attributes of a file.
pub fn xattrs(file: FileId) -> Vec<u8> {
    with_id(XATTR, file, 0)
}

/// One extended attribute.
pub fn xattr(file: FileId, name: &[u8]) -> Vec<u8> {
    let mut key = with_id(XATTR, file, name.len());
    key.extend_from_slice(name);
    key
}

/// A file without a name.
pub fn orphan(file: FileId) -> Vec<u8> {
    with_id(ORPHAN, file, 0)
}

/// All names of a file that has several.
pub fn names(file: FileId) -> Vec<u8> {
    with_id(NAME, file, 0)
}

/// One name of a file that has several.
pub fn name(file: FileId, directory: FileId, name: &[u8]) -> Vec<u8> {
    let mut key = with_id(NAME, file, 8 + name.len());
    key.extend_from_slice(&directory.0.to_be_bytes());
    key.extend_from_slice(name);
    key
}

/// A user's totals.
pub fn user(uid: u32) -> Vec<u8> {
    let mut key = Vec::with_capacity(6);
    key.push(USER);
    key.extend_from_slice(&uid.to_be_bytes());
    key
}

/// All leaf marks of a pool.
pub fn marks(pool: u16) -> Vec<u8> {
    let mut key = Vec::with_capacity(3);
    key.push(MARK);
    key.extend_from_slice(&pool.to_be_bytes());
    key
}

/// The mark of one leaf directory.
pub fn mark(pool: u16, leaf: &[u8]) -> Vec<u8> {
    let mut key = marks(pool);
    key.extend_from_slice(leaf);
    key
}

/// A limit.
pub fn limit(subject: Subject) -> Vec<u8> {
    let mut key = vec![LIMIT];
    match subject {
        Subject::User(uid) => {
            key.push(b'u');
            key.extend_from_slice(&uid.to_be_bytes());
        }
        Subject::Directory(file) => {
            key.push(b'd');
            key.extend_from_slice(&file.0.to_be_bytes());
        }
    }
    key
}

/// What the limit with this key is on.
pub fn subject_in(key: &[u8]) -> Option<Subject> {
    let (kind, rest) = key.get(1..)?.split_first()?;
    match kind {
        b'u' => Some(Subject::User(u32::from_be_bytes(rest.try_into().ok()?))),
        b'd' => Some(Subject::Directory(FileId(u64::from_be_bytes(rest.try_into().ok()?)))),
        _ => None,
    }
}

/// The file id in an inode, orphan, entries or names key.
pub fn id_in(key: &[u8]) -> Option<FileId> {
    key.get(1..9).map(|bytes| FileId(u64::from_be_bytes(bytes.try_into().expect("eight bytes"))))
}

/// The file that an inode record's key is of.
pub fn inode_of_key(key: &[u8]) -> Option<FileId> {
    (key.len() == 9 && key[0] == INODE).then(|| id_in(key)).flatten()
}

/// Directory and name in the key of a name record.
pub fn name_in(key: &[u8]) -> Option<(FileId, Box<[u8]>)> {
    let directory = key.get(9..17)?.try_into().ok()?;
    Some((FileId(u64::from_be_bytes(directory)), key.get(17..)?.into()))
}

/// The first bytes of all keys.
pub const KNOWN: [u8; 11] = [SUPER[0], NUMBERS[0], ENTRY, INODE, TOTALS, USER, XATTR, ORPHAN, NAME, MARK, LIMIT];

/// Whether keys may begin with this byte.
pub fn is_known(prefix: u8) -> bool {
    KNOWN.contains(&prefix)
}

/// Whether a key with a known first byte has the form that such keys have, and no value where none belongs.
pub fn is_formed(key: &[u8], value: &[u8]) -> bool {
    match key.first() {
        Some(&(ENTRY | XATTR)) => key.len() > 9,
        Some(&(INODE | TOTALS)) => key.len() == 9,
        Some(&ORPHAN) => key.len() == 9 && value.is_empty(),
        Some(&NAME) => key.len() > 17 && value.is_empty(),
        Some(&MARK) => key.len() > 3 && value.is_empty(),
        Some(&USER) => key.len() == 5,
        Some(&LIMIT) => subject_in(key).is_some(),
        _ => key.len() == 1,
    }
}
