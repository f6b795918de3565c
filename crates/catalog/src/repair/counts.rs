//! What follows from everything else: parents, names, link and entry counts, places in listings, attribute counts.

use super::model::Model;
use crate::directory::FIRST_COOKIE;
use std::collections::{BTreeMap, BTreeSet};
use ullage_types::{FileId, Kind, ROOT};

/// Sets counts and back references. After this every record is as it must be.
pub(super) fn mend(model: &mut Model) {
    places(model);
    let links = model.links();
    let mut subdirectories: BTreeMap<FileId, u32> = BTreeMap::new();
    for (&directory, entries) in &model.entries {
        let count = entries.values().filter(|dirent| dirent.kind == Kind::Directory).count();
        subdirectories.insert(directory, count as u32);
    }
    let mut orphans = BTreeSet::new();
    let none = Vec::new();
    for (&id, record) in &mut model.records {
        let before = record.clone();
        let own = links.get(&id).unwrap_or(&none);
        let directory = record.kind == Kind::Directory;
        if id == ROOT {
            (record.parent, record.name) = (ROOT, Box::default());
        } else if let Some(first) = own.first() {
            let stands = own.iter().any(|(parent, name)| *parent == record.parent && **name == *record.name);
            if !stands {
                (record.parent, record.name) = (first.0, first.1.clone().into());
            }
        } else {
            orphans.insert(id);
        }
        record.nlink = match (directory, id == ROOT || !own.is_empty()) {
            (true, true) => 2 + subdirectories.get(&id).copied().unwrap_or(0),
            (true, false) => 0,
            (false, _) => own.len() as u32,
        };
        record.entries = model.entries.get(&id).map_or(0, |entries| entries.len() as u64);
        (record.xattrs, record.xattr_bytes) = model.xattrs.get(&id).copied().unwrap_or_default();
        let mut changed = Vec::new();
        let mut note = |what: &'static str, differs: bool| differs.then(|| changed.push(what));
        note("parent", before.parent != record.parent);
        note("name", before.name != record.name);
        note("link count", before.nlink != record.nlink);
        note("entry count", before.entries != record.entries);
        note("attribute counts", (before.xattrs, before.xattr_bytes) != (record.xattrs, record.xattr_bytes));
        if before.xattrs > record.xattrs {
            let (due, there) = (before.xattrs, record.xattrs);
            model
                .lost
                .push(format!("of the {due} extended attributes that inode {id} has by its record {there} are there"));
        }
        if !changed.is_empty() {
            model.done.push(format!("the {} of inode {id} was set right", changed.join(", ")));
        }
    }
    model.orphans = orphans;
    let reached = chains(model);
    for id in reached {
        if let Some(record) = model.records.get_mut(&id) {
            record.parent = ROOT;
        }
    }
}

/// Orphans whose directory is gone.
fn chains(model: &Model) -> Vec<FileId> {
    let lost = |id: &&FileId| model.records.get(id).is_some_and(|record| !model.is_directory(record.parent));
    model.orphans.iter().filter(lost).copied().collect()
}

/// Every entry has a place of its own in its directory's listing, below the next one.
fn places(model: &mut Model) {
    for (directory, entries) in &mut model.entries {
        let Some(record) = model.records.get_mut(directory) else { continue };
        let mut seen = BTreeSet::new();
        let wrong = entries.values().any(|dirent| dirent.cookie < FIRST_COOKIE || !seen.insert(dirent.cookie));
        if wrong {
            for (cookie, dirent) in (FIRST_COOKIE..).zip(entries.values_mut()) {
                dirent.cookie = cookie;
            }
            model.done.push(format!("the entries of directory {directory} were numbered anew"));
        }
        // Places near the end of all numbers are damage: the next ones would overflow.
        let last = entries.values().map(|dirent| dirent.cookie).max().unwrap_or(0);
        if last > 1 << 62 || record.next_cookie > 1 << 62 {
            for (cookie, dirent) in (FIRST_COOKIE..).zip(entries.values_mut()) {
                dirent.cookie = cookie;
            }
            record.next_cookie = FIRST_COOKIE + entries.len() as u64;
            model.done.push(format!("the entries of directory {directory} were numbered anew"));
        } else if record.next_cookie <= last || record.next_cookie < FIRST_COOKIE {
            record.next_cookie = last.max(FIRST_COOKIE - 1) + 1;
            model.done.push(format!("the next place in directory {directory} was set right"));
        }
    }
    for (id, record) in &mut model.records {
        if record.kind == Kind::Directory && !model.entries.contains_key(id) && record.next_cookie < FIRST_COOKIE {
            record.next_cookie = FIRST_COOKIE;
        }
    }
}
