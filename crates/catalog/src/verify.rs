//! Checking all records against each other (`ullage check`): reads everything, changes nothing.

use crate::directory::Dirent;
use crate::ledger::{TotalsNow, decode_charges};
use crate::record::Record;
use crate::{Result, keys};
use rustc_hash::{FxHashMap, FxHashSet};
use ullage_kv::Kv;
use ullage_types::{ByClass, Charge, FileId, Generation, Kind, PoolId, ROOT};

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
}

#[derive(Default)]
struct Seen {
    records: FxHashMap<FileId, Record>,
    links: FxHashMap<FileId, u32>,
    subdirectories: FxHashMap<FileId, u32>,
    entries: FxHashMap<FileId, u64>,
    orphans: FxHashSet<FileId>,
    names: FxHashMap<FileId, u32>,
}

/// Checks the records in `kv`. The catalog must be at rest: not open, or just cut and synced.
pub fn verify(kv: &dyn Kv) -> Result<Report> {
    let mut report = Report::default();
    let mut seen = Seen::default();
    let mut found = Vec::new();
    let mut wrong = |text: String| found.push(Finding(text));
    kv.scan(&[keys::INODE], &[], &mut |key, value| {
        match keys::id_in(key).map(|id| (id, Record::decode(id, value))) {
            Some((id, Ok(record))) => {
                seen.records.insert(id, record);
            }
            Some((id, Err(error))) => wrong(format!("inode {id}: {error}")),
            None => wrong("an inode key is malformed".into()),
        }
        true
    })?;
    kv.scan(&[keys::ORPHAN], &[], &mut |key, _| {
        seen.orphans.extend(keys::id_in(key));
        true
    })?;
    kv.scan(&[keys::NAME], &[], &mut |key, _| {
        if let Some(id) = keys::id_in(key) {
            *seen.names.entry(id).or_default() += 1;
        }
        true
    })?;
    kv.scan(&[keys::ENTRY], &[], &mut |key, value| {
        report.entries += 1;
        let (Some(directory), Some(dirent)) = (keys::id_in(key), Dirent::decode(value)) else {
            wrong("a directory entry is malformed".into());
            return true;
        };
        let name = String::from_utf8_lossy(&key[9..]);
        *seen.entries.entry(directory).or_default() += 1;
        *seen.links.entry(dirent.file).or_default() += 1;
        match seen.records.get(&directory) {
            None => wrong(format!("entry '{name}' is in directory {directory}, which does not exist")),
            Some(record) if record.kind != Kind::Directory => {
                wrong(format!("entry '{name}' is in inode {directory}, which is no directory"));
            }
            Some(record) if dirent.cookie >= record.next_cookie => {
                wrong(format!("entry '{name}' of directory {directory} has a place not yet given out"));
            }
            Some(_) => {}
        }
        match seen.records.get(&dirent.file) {
            None => wrong(format!(
                "entry '{name}' of directory {directory} names inode {}, which does not exist",
                dirent.file
            )),
            Some(record) if record.kind != dirent.kind => {
                wrong(format!("entry '{name}' of directory {directory} has another kind than inode {}", dirent.file));
            }
            Some(record) => {
                if record.kind == Kind::Directory {
                    *seen.subdirectories.entry(directory).or_default() += 1;
                    if record.parent != directory {
                        wrong(format!("directory {} is listed in {directory} but says {}", dirent.file, record.parent));
                    }
                }
            }
        }
        true
    })?;
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
        let names = seen.names.get(&id).copied().unwrap_or(0);
        let several = if record.kind != Kind::Directory && record.nlink > 1 { record.nlink } else { 0 };
        if names != several {
            wrong(format!("inode {id} has {names} records of names where {several} are due"));
        }
        if let Some(backing) = &record.backing {
            report.locators.insert((backing.pool, backing.generation), backing.locator.clone());
        }
        if let Some(backing) = &record.backing
            && let Some(other) = report.bindings.insert((backing.pool, backing.generation), id)
        {
            wrong(format!("inodes {id} and {other} are bound to the same backing file"));
        }
    }
    report.orphans = seen.orphans.len() as u64;
    verify_totals(kv, &seen, &mut wrong)?;
    let is_directory = |file| seen.records.get(&file).is_some_and(|record| record.kind == Kind::Directory);
    crate::limits::verify(kv, is_directory, &mut wrong)?;
    report.findings = found;
    Ok(report)
}

fn verify_totals(kv: &dyn Kv, seen: &Seen, wrong: &mut dyn FnMut(String)) -> Result<()> {
    let mut totals: FxHashMap<FileId, TotalsNow> = FxHashMap::default();
    let mut users: FxHashMap<u32, ByClass<Charge>> = FxHashMap::default();
    for (&id, record) in &seen.records {
        let charge = record.charge();
        users.entry(record.uid).or_default()[record.class] += charge;
        let mut at = if record.kind == Kind::Directory { id } else { record.parent };
        for step in 0.. {
            if step > seen.records.len() {
                wrong(format!("the ancestors of inode {id} form a ring"));
                break;
            }
            totals.entry(at).or_default().actual[record.class] += charge;
            match seen.records.get(&at) {
                Some(above) if at != ROOT => at = above.parent,
                Some(_) => break,
                None => {
                    wrong(format!("inode {id} is charged to directory {at}, which does not exist"));
                    break;
                }
            }
        }
    }
    kv.scan(&[keys::NAME], &[], &mut |key, _| {
        let Some(bytes) = key.get(9..17) else { return true };
        let mut at = FileId(u64::from_be_bytes(bytes.try_into().expect("eight bytes")));
        for _ in 0..=seen.records.len() {
            totals.entry(at).or_default().linked += 1;
            match seen.records.get(&at) {
                Some(above) if at != ROOT => at = above.parent,
                _ => break,
            }
        }
        true
    })?;
    kv.scan(&[keys::TOTALS], &[], &mut |key, value| {
        let Some(id) = keys::id_in(key) else { return true };
        let counted = totals.remove(&id).unwrap_or_default();
        match TotalsNow::decode(value) {
            Some(stored) if stored == counted => {}
            Some(stored) => wrong(format!("the totals of directory {id} are {stored:?}, a recount gives {counted:?}")),
            None => wrong(format!("the totals of directory {id} cannot be read")),
        }
        true
    })?;
    for (id, _) in totals {
        wrong(format!("directory {id} has no totals"));
    }
    kv.scan(&[keys::USER], &[], &mut |key, value| {
        let Some(uid) = key.get(1..5).and_then(|b| b.try_into().ok()).map(u32::from_be_bytes) else { return true };
        let counted = users.remove(&uid).unwrap_or_default();
        match decode_charges(value) {
            Some(stored) if stored == counted => {}
            Some(stored) => wrong(format!("user {uid} is charged {stored:?}, a recount gives {counted:?}")),
            None => wrong(format!("the totals of user {uid} cannot be read")),
        }
        true
    })?;
    for (uid, _) in users {
        wrong(format!("user {uid} has files but no totals"));
    }
    Ok(())
}
