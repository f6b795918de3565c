//! The tree: everything is reached from the root, over `lost+found` where nothing else is known.

use super::facts::{Facts, Mode};
use super::model::Model;
use crate::directory::Dirent;
use std::collections::BTreeSet;
use ullage_types::{FileId, Kind, ROOT};

const LOST_AND_FOUND: &[u8] = b"lost+found";
/// What a mode lets everybody but the owner do.
const OTHERS: u32 = 0o077;

/// Gives every file a way from the root, and every record the parent and name that it has.
pub(super) fn mend(model: &mut Model, facts: &Facts) {
    name_the_nameless(model, facts);
    break_rings(model);
    // A ring of directories without names is one of orphans.
    let orphans: Vec<FileId> = model.records.keys().copied().filter(|id| model.is_orphan(*id)).collect();
    for id in orphans {
        let parent = model.records.get(&id).map_or(ROOT, |record| record.parent);
        if !ends_at_root(model, parent) {
            model.done.push(format!("inode {id}, removed while it was open, is charged to the root now"));
            if let Some(record) = model.records.get_mut(&id) {
                record.parent = ROOT;
            }
        }
    }
}

/// The directory for what has no place, made when there is none. One that somebody else made, or may look into, is not it: who owns a
/// directory owns the names in it.
pub(super) fn lost_and_found(model: &mut Model) -> FileId {
    let mut name = LOST_AND_FOUND.to_vec();
    loop {
        match model.entries.get(&ROOT).and_then(|entries| entries.get(&name)) {
            Some(dirent) if is_private(model, dirent) => return dirent.file,
            Some(_) => name.push(b'+'),
            None => break,
        }
    }
    let id = FileId(model.used.max(model.numbers.unwrap_or(0)).max(ROOT.0 + 1));
    model.used = id.0 + 1;
    let mut record = model.new_directory(ROOT, 0o700);
    record.name = name.clone().into();
    model.records.insert(id, record);
    model.enter(ROOT, name, id);
    id
}

fn is_private(model: &Model, dirent: &Dirent) -> bool {
    let record = model.records.get(&dirent.file).filter(|record| record.kind == Kind::Directory);
    record.is_some_and(|record| record.uid == model.owner.0 && record.mode & OTHERS == 0)
}

/// A free name for a file in `lost+found`: its number, as e2fsck writes it.
pub(super) fn name_in_lost_and_found(model: &Model, directory: FileId, file: FileId) -> Vec<u8> {
    let mut name = format!("#{file}").into_bytes();
    while model.entries.get(&directory).is_some_and(|entries| entries.contains_key(&name)) {
        name.push(b'+');
    }
    name
}

fn to_lost_and_found(model: &mut Model, file: FileId, why: &str) {
    let directory = lost_and_found(model);
    let name = name_in_lost_and_found(model, directory, file);
    model.done.push(format!("inode {file}, {why}, became lost+found/{}", String::from_utf8_lossy(&name)));
    model.enter(directory, name, file);
    model.orphans.remove(&file);
    model.adopted += 1;
}

/// A file that had no name when the records were written may have got one since (linkat(2), after O_TMPFILE): if it still has data it
/// is kept.
fn may_be_named_by_now(model: &Model, facts: &Facts, id: FileId) -> bool {
    let backing = model.records.get(&id).and_then(|record| record.backing.as_ref());
    let found = backing.and_then(|backing| facts.found.get(&(id, backing.generation)));
    facts.mode == Mode::Rebuild && found.is_some_and(|found| found.size > 0)
}

fn name_the_nameless(model: &mut Model, facts: &Facts) {
    let named = model.links();
    let has_entries = |model: &Model, id: &FileId| model.entries.get(id).is_some_and(|entries| !entries.is_empty());
    let nameless: Vec<FileId> = model
        .records
        .keys()
        .copied()
        .filter(|id| *id != ROOT && !named.contains_key(id))
        // Removed while it was open; but a directory that holds something was not.
        .filter(|id| !model.is_orphan(*id) || has_entries(model, id) || may_be_named_by_now(model, facts, *id))
        .collect();
    for file in nameless {
        to_lost_and_found(model, file, "which had no name");
    }
}

/// What is not reached from the root hangs on a ring of directories: it is cut at its lowest number.
fn break_rings(model: &mut Model) {
    loop {
        let reached = reached(model);
        let Some(first) = model.entries.iter().find_map(|(directory, entries)| {
            let child = entries.values().find(|dirent| dirent.kind == Kind::Directory)?;
            (!reached.contains(directory) && !entries.is_empty()).then_some(child.file)
        }) else {
            return;
        };
        // Up from there, the first directory met twice is on the ring.
        let links = model.links();
        let (mut at, mut seen) = (first, BTreeSet::new());
        while seen.insert(at) {
            let Some((above, _)) = links.get(&at).and_then(|links| links.first()) else { break };
            at = *above;
        }
        let Some(cut) = links.get(&at).and_then(|links| links.first()) else { return };
        if let Some(entries) = model.entries.get_mut(&cut.0) {
            entries.remove(&cut.1);
        }
        to_lost_and_found(model, at, "which was below itself");
    }
}

fn reached(model: &Model) -> BTreeSet<FileId> {
    let mut reached = BTreeSet::from([ROOT]);
    let mut todo = vec![ROOT];
    while let Some(directory) = todo.pop() {
        for dirent in model.entries.get(&directory).into_iter().flat_map(|entries| entries.values()) {
            if dirent.kind == Kind::Directory && reached.insert(dirent.file) {
                todo.push(dirent.file);
            }
        }
    }
    reached
}

/// Whether the chain of parents from a directory reaches the root.
fn ends_at_root(model: &Model, mut at: FileId) -> bool {
    let links = |id: FileId| {
        let record = model.records.get(&id).filter(|record| record.kind == Kind::Directory)?;
        Some(record.parent)
    };
    let mut seen = BTreeSet::new();
    while at != ROOT {
        if !seen.insert(at) {
            return false;
        }
        let Some(parent) = links(at) else { return false };
        at = parent;
    }
    true
}
