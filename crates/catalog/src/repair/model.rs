//! All records in memory, as far as they can be read.

use crate::catalog::check_format;
use crate::directory::{Dirent, FIRST_COOKIE};
use crate::limits::{Limit, Subject};
use crate::record::Record;
use crate::{Error, Result, keys};
use std::collections::{BTreeMap, BTreeSet};
use ullage_kv::Kv;
use ullage_types::{FileId, Kind, Timestamp};

/// No number is as high: it would have taken a thousand million creates a second, for 36 years.
const NUMBERS_MAX: u64 = 1 << 60;

/// The records of a space, to be mended.
pub(super) struct Model {
    pub records: BTreeMap<FileId, Record>,
    /// Entries by directory and name.
    pub entries: BTreeMap<FileId, BTreeMap<Vec<u8>, Dirent>>,
    /// Name records as found.
    pub names: BTreeMap<FileId, BTreeSet<(FileId, Vec<u8>)>>,
    pub orphans: BTreeSet<FileId>,
    /// Number and bytes of extended attributes.
    pub xattrs: BTreeMap<FileId, (u32, u32)>,
    /// Directories that have totals: a hint of what an inode was.
    pub totalled: BTreeSet<FileId>,
    pub marks: BTreeSet<(u16, Vec<u8>)>,
    /// Those of them that were found: differences in these are of no meaning. Those that a repair sets excuse nothing.
    pub marked: BTreeSet<(u16, Vec<u8>)>,
    pub limits: BTreeMap<Subject, Limit>,
    pub numbers: Option<u64>,
    /// Numbers seen anywhere are below this.
    pub used: u64,
    /// Inodes that were there and are not to be missed.
    pub gone: BTreeSet<FileId>,
    /// Files that came to `lost+found`.
    pub adopted: u64,
    pub done: Vec<String>,
    pub lost: Vec<String>,
    pub owner: (u32, u32),
    pub now: Timestamp,
}

impl Model {
    pub(super) fn load(kv: &dyn Kv, owner: (u32, u32), now: Timestamp) -> Result<Self> {
        let mut model = Self {
            records: BTreeMap::new(),
            entries: BTreeMap::new(),
            names: BTreeMap::new(),
            orphans: BTreeSet::new(),
            xattrs: BTreeMap::new(),
            totalled: BTreeSet::new(),
            marks: BTreeSet::new(),
            marked: BTreeSet::new(),
            limits: BTreeMap::new(),
            numbers: None,
            used: 0,
            gone: BTreeSet::new(),
            adopted: 0,
            done: Vec::new(),
            lost: Vec::new(),
            owner,
            now,
        };
        match kv.get(keys::SUPER)?.map(|bytes| check_format(&bytes)) {
            Some(Err(Error::Kv(newer))) => return Err(newer.into()),
            Some(Ok(())) => {}
            Some(Err(_)) | None => model.done.push("the superblock was made again".into()),
        }
        kv.scan(&[], &[], &mut |key, value| {
            model.take(key, value);
            true
        })?;
        model.marked = model.marks.clone();
        Ok(model)
    }

    fn take(&mut self, key: &[u8], value: &[u8]) {
        let Some((&prefix, rest)) = key.split_first() else { return };
        let id = keys::id_in(key);
        if is_file(prefix) && id.is_some_and(|id| id.0 >= NUMBERS_MAX) {
            self.done.push(format!("{} was dropped: there is no such number", super::describe_key(key)));
            return;
        }
        match (prefix, id) {
            (b'N', _) if rest.is_empty() => {
                let numbers = value.try_into().ok().map(u64::from_le_bytes);
                self.numbers = numbers.filter(|numbers| *numbers < NUMBERS_MAX);
            }
            (keys::INODE, Some(id)) if rest.len() == 8 => match Record::decode(id, value) {
                Ok(record) => drop(self.records.insert(id, record)),
                Err(_) => self.done.push(format!("the record of inode {id} cannot be read and was dropped")),
            },
            (keys::ENTRY, Some(directory)) => match Dirent::decode(value).filter(|d| d.file.0 < NUMBERS_MAX) {
                Some(dirent) => drop(self.entries.entry(directory).or_default().insert(key[9..].to_vec(), dirent)),
                None => self.done.push(format!(
                    "the entry '{}' of directory {directory} cannot be read and was dropped",
                    String::from_utf8_lossy(&key[9..])
                )),
            },
            (keys::NAME, Some(id)) if key.len() > 17 => {
                let directory = u64::from_be_bytes(std::array::from_fn(|at| key[9 + at]));
                self.names.entry(id).or_default().insert((FileId(directory), key[17..].to_vec()));
            }
            (keys::ORPHAN, Some(id)) if rest.len() == 8 => drop(self.orphans.insert(id)),
            (keys::XATTR, Some(id)) if rest.len() > 8 => {
                let (count, bytes) = self.xattrs.entry(id).or_default();
                *count += 1;
                *bytes = bytes.saturating_add((rest.len() - 8 + value.len()) as u32);
            }
            (keys::TOTALS, Some(id)) => drop(self.totalled.insert(id)),
            (keys::MARK, _) if rest.len() > 2 && value.is_empty() => {
                self.marks.insert((u16::from_be_bytes([rest[0], rest[1]]), rest[2..].to_vec()));
            }
            (keys::LIMIT, _) => match (keys::subject_in(key), Limit::decode(value)) {
                (Some(subject), Some(limit)) => drop(self.limits.insert(subject, limit)),
                _ => self.lost.push(format!("{} cannot be read and was dropped", super::describe_key(key))),
            },
            _ => {}
        }
    }

    /// Whether an id is one of a directory that is there.
    pub(super) fn is_directory(&self, id: FileId) -> bool {
        self.records.get(&id).is_some_and(|record| record.kind == Kind::Directory)
    }

    /// Removed while it was open: counted, without a name, and to go with the next start.
    pub(super) fn is_orphan(&self, id: FileId) -> bool {
        self.orphans.contains(&id) && self.records.get(&id).is_some_and(|record| record.nlink == 0)
    }

    /// Every name of every file: directory and name.
    pub(super) fn links(&self) -> BTreeMap<FileId, Vec<(FileId, Vec<u8>)>> {
        let mut links: BTreeMap<FileId, Vec<(FileId, Vec<u8>)>> = BTreeMap::new();
        for (&directory, entries) in &self.entries {
            for (name, dirent) in entries {
                links.entry(dirent.file).or_default().push((directory, name.clone()));
            }
        }
        links
    }

    /// Adds an entry at the end of its directory's listing. Both files exist.
    pub(super) fn enter(&mut self, directory: FileId, name: Vec<u8>, file: FileId) {
        let Some(kind) = self.records.get(&file).map(|record| record.kind) else { return };
        let Some(record) = self.records.get_mut(&directory) else { return };
        let cookie = record.next_cookie.max(FIRST_COOKIE);
        record.next_cookie = cookie + 1;
        self.entries.entry(directory).or_default().insert(name, Dirent { file, kind, cookie });
    }

    /// A directory of which only the number is known.
    pub(super) fn new_directory(&self, parent: FileId, mode: u32) -> Record {
        Record::empty(Kind::Directory, parent, mode, self.owner, self.now)
    }
}

fn is_file(prefix: u8) -> bool {
    matches!(prefix, keys::INODE | keys::ENTRY | keys::NAME | keys::ORPHAN | keys::XATTR | keys::TOTALS)
}
