//! What a check keeps of each file, of all files at once: as little as tells whether they agree.

use crate::record::{Backing, Record};
use ullage_types::{Charge, Class, FileId, Kind};

/// What the record of a file says, and what was met of it.
pub(super) struct Known {
    pub kind: Kind,
    pub class: Class,
    pub unreadable: bool,
    /// The name that its record says was met.
    pub primary: bool,
    pub uid: u32,
    pub nlink: u32,
    /// Number and bytes of extended attributes: as it says, and as met.
    pub xattrs: (u32, u32),
    pub met_xattrs: (u32, u32),
    /// Entries that name it.
    pub links: u32,
    /// Directories in it.
    pub subdirectories: u32,
    /// Entries in it: as it says, and as met.
    pub entries: u64,
    pub met_entries: u64,
    pub next_cookie: u64,
    pub size: u64,
    pub charge: Charge,
    pub parent: FileId,
    pub name: Box<[u8]>,
    pub backing: Option<Backing>,
}

impl Known {
    pub(super) fn new(record: Record) -> Self {
        Self {
            kind: record.kind,
            class: record.class,
            unreadable: record.unreadable,
            primary: false,
            uid: record.uid,
            nlink: record.nlink,
            xattrs: (record.xattrs, record.xattr_bytes),
            met_xattrs: (0, 0),
            links: 0,
            subdirectories: 0,
            entries: record.entries,
            met_entries: 0,
            next_cookie: record.next_cookie,
            size: record.size,
            charge: record.charge(),
            parent: record.parent,
            name: record.name,
            backing: record.backing,
        }
    }

    pub(super) fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }
}
