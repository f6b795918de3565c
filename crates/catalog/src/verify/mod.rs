//! Checking all records against each other (`ullage check`): reads everything, changes nothing.

mod entries;
mod keyspace;
mod known;
mod totals;

use crate::record::Record;
use crate::{Result, keys};
use known::Known;
use rustc_hash::{FxHashMap, FxHashSet};
use ullage_kv::Kv;
use ullage_types::{FileId, Generation, PoolId, ROOT};

/// Something that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding(pub String);

/// What a check saw.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Files of all kinds.
    pub files: u64,
    /// Directories among them.
    pub directories: u64,
    /// Entries.
    pub entries: u64,
    /// Files without a name.
    pub orphans: u64,
    /// Everything found wrong.
    pub findings: Vec<Finding>,
    /// Every backing file that is due.
    pub due: FxHashMap<(PoolId, Generation), Due>,
    /// Leaf directories in which catalog and backing files may differ.
    pub marks: FxHashSet<(PoolId, Box<[u8]>)>,
}

/// A backing file that is due, by the record of its file.
#[derive(Clone, Debug)]
pub struct Due {
    /// The file.
    pub file: FileId,
    /// Where in its pool the backing file is.
    pub locator: Box<[u8]>,
    /// Its length in bytes.
    pub size: u64,
    /// It could not be read at the last start.
    pub unreadable: bool,
}

type Name = (FileId, Box<[u8]>);

#[derive(Default)]
struct Seen {
    /// Boxed: a table has places for up to twice as many.
    files: FxHashMap<FileId, Box<Known>>,
    orphans: FxHashSet<FileId>,
    /// Of files with several.
    names: FxHashMap<FileId, FxHashSet<Name>>,
}

/// Checks the records in `kv`. The catalog must be at rest: not open, or just cut and synced.
pub fn verify(kv: &dyn Kv) -> Result<Report> {
    let mut report = Report::default();
    let mut seen = Seen::default();
    let mut found = Vec::new();
    let mut wrong = |text: String| found.push(Finding(text));
    keyspace::verify(kv, &mut wrong)?;
    kv.scan(&[keys::INODE], &[], &mut |key, value| {
        match keys::id_in(key).map(|id| (id, Record::decode(id, value))) {
            Some((id, Ok(record))) => {
                seen.files.insert(id, Box::new(Known::new(record)));
            }
            Some((_, Err(error))) => wrong(error.to_string()),
            None => {}
        }
        true
    })?;
    kv.scan(&[keys::ORPHAN], &[], &mut |key, _| {
        seen.orphans.extend(keys::id_in(key));
        true
    })?;
    kv.scan(&[keys::NAME], &[], &mut |key, _| {
        if let Some((id, name)) = keys::id_in(key).zip(keys::name_in(key)) {
            seen.names.entry(id).or_default().insert(name);
        }
        true
    })?;
    kv.scan(&[keys::MARK], &[], &mut |key, _| {
        if let [_, high, low, leaf @ ..] = key {
            report.marks.insert((PoolId(u16::from_be_bytes([*high, *low])), leaf.into()));
        }
        true
    })?;
    report.entries = entries::verify(kv, &mut seen, &mut wrong)?;
    entries::count_attributes(kv, &mut seen, &mut wrong)?;
    if !seen.files.contains_key(&ROOT) {
        wrong("there is no root directory".into());
    }
    for id in seen.orphans.iter().chain(seen.names.keys()).filter(|id| !seen.files.contains_key(id)) {
        wrong(format!("inode {id} is recorded as one without a name, or with several, and does not exist"));
    }
    let given_out = keyspace::bound(kv)?;
    for (&id, known) in &seen.files {
        report.files += 1;
        report.directories += u64::from(known.is_directory());
        verify_file(id, known, &seen, &mut wrong);
        let highest = known.backing.as_ref().map_or(0, |backing| backing.generation.0).max(id.0);
        if given_out.is_some_and(|bound| bound <= highest) {
            wrong(format!("inode {id} has a number that was never given out"));
        }
    }
    report.orphans = seen.orphans.len() as u64;
    totals::verify(kv, &seen, &mut wrong)?;
    let is_directory = |file| seen.files.get(&file).is_some_and(|known| known.is_directory());
    crate::limits::verify(kv, is_directory, &mut wrong)?;
    for (file, known) in seen.files {
        let Some(backing) = known.backing else { continue };
        let due = Due { file, locator: backing.locator, size: known.size, unreadable: known.unreadable };
        if let Some(other) = report.due.insert((backing.pool, backing.generation), due) {
            wrong(format!("inodes {file} and {} are bound to the same backing file", other.file));
        }
    }
    report.findings = found;
    Ok(report)
}

/// What a file's record says of itself, against what was met of it.
fn verify_file(id: FileId, known: &Known, seen: &Seen, wrong: &mut dyn FnMut(String)) {
    let links = known.links;
    let expected = if known.is_directory() {
        let (entries, said) = (known.met_entries, known.entries);
        if entries != said {
            wrong(format!("directory {id} has {entries} entries and says {said}"));
        }
        let alive = id == ROOT || links == 1;
        if alive { 2 + known.subdirectories } else { 0 }
    } else {
        links
    };
    let nlink = known.nlink;
    if nlink != expected {
        wrong(format!("inode {id} has {expected} links and says {nlink}"));
    }
    if (nlink == 0) != seen.orphans.contains(&id) {
        wrong(format!("inode {id} has {nlink} links and its record among the files without name does not fit"));
    }
    let names = seen.names.get(&id).map_or(0, |names| names.len() as u32);
    let several = if !known.is_directory() && nlink > 1 { nlink } else { 0 };
    if names != several {
        wrong(format!("inode {id} has {names} records of names where {several} are due"));
    }
    if id != ROOT && nlink > 0 && links > 0 && !known.primary {
        wrong(format!(
            "inode {id} says that it is '{}' in directory {}, and no entry there names it",
            String::from_utf8_lossy(&known.name),
            known.parent
        ));
    }
    let ((count, bytes), (said, said_bytes)) = (known.met_xattrs, known.xattrs);
    if (count, bytes) != (said, said_bytes) {
        wrong(format!("inode {id} has {count} extended attributes of {bytes} bytes and says {said} of {said_bytes}"));
    }
}
