//! Checking all records against each other (`ullage check`): reads everything, changes nothing.

mod entries;
mod keyspace;
mod totals;

use crate::record::Record;
use crate::{Result, keys};
use rustc_hash::{FxHashMap, FxHashSet};
use ullage_kv::Kv;
use ullage_types::{FileId, Generation, Kind, PoolId, ROOT};

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
    /// Every binding of a file to a backing file.
    pub bindings: FxHashMap<(PoolId, Generation), FileId>,
    /// Where each of those backing files is.
    pub locators: FxHashMap<(PoolId, Generation), Box<[u8]>>,
    /// The length that each of those files has, in bytes.
    pub sizes: FxHashMap<(PoolId, Generation), u64>,
    /// Those of them that could not be read at the last start.
    pub unreadable: FxHashSet<(PoolId, Generation)>,
    /// Leaf directories in which catalog and backing files may differ.
    pub marks: FxHashSet<(PoolId, Box<[u8]>)>,
}

type Name = (FileId, Box<[u8]>);

#[derive(Default)]
struct Seen {
    records: FxHashMap<FileId, Record>,
    links: FxHashMap<FileId, u32>,
    subdirectories: FxHashMap<FileId, u32>,
    entries: FxHashMap<FileId, u64>,
    orphans: FxHashSet<FileId>,
    names: FxHashMap<FileId, FxHashSet<Name>>,
    /// Files of which the name that their record says was met.
    primary: FxHashSet<FileId>,
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
                seen.records.insert(id, record);
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
    if !seen.records.contains_key(&ROOT) {
        wrong("there is no root directory".into());
    }
    for id in seen.orphans.iter().chain(seen.names.keys()).filter(|id| !seen.records.contains_key(id)) {
        wrong(format!("inode {id} is recorded as one without a name, or with several, and does not exist"));
    }
    let bound = keyspace::bound(kv)?;
    for (&id, record) in &seen.records {
        report.files += 1;
        let links = seen.links.get(&id).copied().unwrap_or(0);
        let expected = if record.kind == Kind::Directory {
            report.directories += 1;
            let entries = seen.entries.get(&id).copied().unwrap_or(0);
            if entries != record.entries {
                wrong(format!("directory {id} has {entries} entries and says {}", record.entries));
            }
            let alive = id == ROOT || links == 1;
            if alive { 2 + seen.subdirectories.get(&id).copied().unwrap_or(0) } else { 0 }
        } else {
            links
        };
        if record.nlink != expected {
            wrong(format!("inode {id} has {expected} links and says {}", record.nlink));
        }
        if (record.nlink == 0) != seen.orphans.contains(&id) {
            wrong(format!(
                "inode {id} has {} links and its record among the files without name does not fit",
                record.nlink
            ));
        }
        let names = seen.names.get(&id).map_or(0, |names| names.len() as u32);
        let several = if record.kind != Kind::Directory && record.nlink > 1 { record.nlink } else { 0 };
        if names != several {
            wrong(format!("inode {id} has {names} records of names where {several} are due"));
        }
        if id != ROOT && record.nlink > 0 && links > 0 && !seen.primary.contains(&id) {
            wrong(format!(
                "inode {id} says that it is '{}' in directory {}, and no entry there names it",
                String::from_utf8_lossy(&record.name),
                record.parent
            ));
        }
        if bound.is_some_and(|bound| bound <= record.backing.as_ref().map_or(0, |b| b.generation.0).max(id.0)) {
            wrong(format!("inode {id} has a number that was never given out"));
        }
        if let Some(backing) = &record.backing {
            report.sizes.insert((backing.pool, backing.generation), record.size);
            if record.unreadable {
                report.unreadable.insert((backing.pool, backing.generation));
            }
            report.locators.insert((backing.pool, backing.generation), backing.locator.clone());
        }
        if let Some(backing) = &record.backing
            && let Some(other) = report.bindings.insert((backing.pool, backing.generation), id)
        {
            wrong(format!("inodes {id} and {other} are bound to the same backing file"));
        }
    }
    report.orphans = seen.orphans.len() as u64;
    entries::verify_attributes(kv, &seen, &mut wrong)?;
    totals::verify(kv, &seen, &mut wrong)?;
    let is_directory = |file| seen.records.get(&file).is_some_and(|record| record.kind == Kind::Directory);
    crate::limits::verify(kv, is_directory, &mut wrong)?;
    report.findings = found;
    Ok(report)
}
