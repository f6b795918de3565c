//! Inodes: each has the backing file that it says, and what only its record knew is made again from what is left.

use super::facts::{Facts, Found, Mode, leaf};
use super::model::Model;
use super::tree::name_in_lost_and_found;
use crate::record::{Backing, Record};
use std::collections::{BTreeMap, BTreeSet};
use ullage_types::{Class, FileId, Generation, Kind, ROOT};

/// Mends bindings, and makes inodes again that entries or backing files speak of.
pub(super) fn mend(model: &mut Model, facts: &Facts) {
    make_again(model, facts);
    bind(model, facts);
    let is_root = model.is_directory(ROOT) && !model.is_orphan(ROOT);
    if !is_root {
        let root = model.new_directory(ROOT, 0o755);
        model.records.insert(ROOT, root);
        model.lost.push("the root directory was made again; its mode and owner were lost".into());
    }
}

/// What the other records say that a file is.
#[derive(Default)]
struct Hints {
    kinds: BTreeSet<u8>,
    parent: Option<FileId>,
}

fn make_again(model: &mut Model, facts: &Facts) {
    let mut hints: BTreeMap<FileId, Hints> = BTreeMap::new();
    for (&directory, entries) in &model.entries {
        hints.entry(directory).or_default().kinds.insert(Kind::Directory as u8);
        for dirent in entries.values() {
            let hint = hints.entry(dirent.file).or_default();
            hint.kinds.insert(dirent.kind as u8);
            hint.parent.get_or_insert(directory);
        }
    }
    let backed = facts.by_file();
    for (&id, hint) in hints.iter().filter(|(id, _)| **id != ROOT) {
        let says = |kind: Kind| hint.kinds.contains(&(kind as u8));
        let only = |kind: Kind| hint.kinds.len() == 1 && says(kind);
        let parent = hint.parent.unwrap_or(ROOT);
        let generation = backed.get(&id).copied();
        let (regular, directory) = match model.records.get(&id) {
            None => (generation.is_some(), generation.is_none() && says(Kind::Directory)),
            Some(record) if record.kind == Kind::Directory => (generation.is_some() && only(Kind::Regular), false),
            Some(record) if record.kind == Kind::Regular => {
                (false, generation.is_none() && only(Kind::Directory) && model.totalled.contains(&id))
            }
            Some(_) => (
                generation.is_some() && only(Kind::Regular),
                generation.is_none() && only(Kind::Directory) && model.totalled.contains(&id),
            ),
        };
        if let (true, Some(generation)) = (regular, generation) {
            let found = &facts.found[&(id, generation)];
            model.records.insert(id, from_backing(model, id, generation, found, parent));
            model.lost.push(format!(
                "inode {id} was made again from its backing file; its permission bits{} were lost",
                if found.owner.is_some() { "" } else { " and owner" }
            ));
        } else if directory {
            let record = model.new_directory(parent, 0o700);
            model.records.insert(id, record);
            model.lost.push(format!("directory {id} was made again; its mode and owner were lost"));
        }
    }
}

/// Every regular file is bound to the backing file that carries its number; in records that are older than the pools, to the newest one.
fn bind(model: &mut Model, facts: &Facts) {
    let backed = facts.by_file();
    let mut taken: BTreeSet<(FileId, Generation)> = BTreeSet::new();
    let mut dropped = Vec::new();
    for (&id, record) in &mut model.records {
        let Some(backing) = &mut record.backing else { continue };
        let went = backed.get(&id).is_some_and(|newest| facts.went(id, backing, *newest));
        if facts.gone.contains(&backing.pool) && !went {
            dropped.push((id, "its pool was given up"));
            continue;
        }
        if let Some(found) = facts.found.get(&(id, backing.generation)).filter(|_| !went) {
            taken.insert((id, backing.generation));
            if found.pool != backing.pool || found.locator != backing.locator {
                (backing.pool, backing.locator) = (found.pool, found.locator.clone());
                model.done.push(format!("inode {id} was pointed to its backing file, which lies elsewhere"));
            }
            // In a marked leaf the next start measures; elsewhere nobody would.
            if facts.mode == Mode::Rebuild {
                measure(record, found);
            } else if record.size != found.size && !found.unreadable {
                model.done.push(format!("inode {id} got the length of its backing file: {} bytes", found.size));
                measure(record, found);
            }
        } else if let Some(&generation) = backed.get(&id) {
            let found = &facts.found[&(id, generation)];
            *backing = Backing { pool: found.pool, generation, locator: found.locator.clone() };
            measure(record, found);
            if let Some((class, uid, gid)) = found.owner {
                (record.class, record.uid, record.gid) = (class, uid, gid);
            }
            taken.insert((id, generation));
            model.done.push(format!("inode {id} was bound to the backing file that carries its number"));
        } else if facts.pools.contains(&backing.pool) {
            let leaf = leaf(&backing.locator);
            let marked = model.marked.contains(&(backing.pool.0, leaf.to_vec()));
            // A file that was never flushed may be in the catalog and not in the pool: the next start makes it anew.
            if facts.mode == Mode::Rebuild {
                dropped.push((id, "removed since the snapshot"));
            } else if !own_locator(id, backing) {
                dropped.push((id, "its record names the backing file of another"));
            } else if record.unreadable || !marked && record.size > 0 {
                dropped.push((id, "its backing file is missing, and its data with it"));
            } else if !marked {
                model.marks.insert((backing.pool.0, leaf.to_vec()));
                model.done.push(format!("inode {id} is empty and gets its missing backing file at the next start"));
            }
        } else if !own_locator(id, backing) {
            dropped.push((id, "its record names the backing file of another"));
        }
    }
    for (id, why) in dropped {
        model.gone.insert(id);
        let record = model.records.remove(&id);
        let name = record.as_ref().map(|record| String::from_utf8_lossy(&record.name).into_owned());
        let had_name = record.is_none_or(|record| record.nlink > 0);
        if facts.mode == Mode::Repair && had_name {
            model.lost.push(format!("inode {id} ('{}') was dropped: {why}", name.unwrap_or_default()));
        }
    }
    let bound = model.records.iter().map(|(&id, record)| (id, record.backing.as_ref().map(|b| b.generation)));
    let named = model.entries.values().flat_map(|entries| entries.values()).map(|dirent| (dirent.file, None));
    let found = facts.found.keys().map(|&(file, generation)| (file, Some(generation)));
    let used = bound.chain(named).chain(found).map(|(id, generation)| id.0.max(generation.map_or(0, |g| g.0)));
    model.used = used.max().unwrap_or(0).saturating_add(1).max(ROOT.0 + 1);
}

/// Backing files that no file is bound to: data goes to `lost+found`, the rest is left to the next start.
pub(super) fn adopt(model: &mut Model, facts: &Facts) {
    let bound: BTreeSet<(FileId, Generation)> =
        model.records.iter().filter_map(|(&id, record)| Some((id, record.backing.as_ref()?.generation))).collect();
    let mut strays: Vec<_> = facts.found.iter().filter(|(numbers, _)| !bound.contains(numbers)).collect();
    strays.sort_by_key(|(numbers, _)| (numbers.0, std::cmp::Reverse(numbers.1)));
    for (&(file, generation), found) in strays {
        let mark = (found.pool.0, leaf(&found.locator).to_vec());
        let expected = facts.mode == Mode::Repair && model.marked.contains(&mark);
        if expected {
            continue;
        }
        let known = model.records.contains_key(&file);
        if known && found.holds() {
            model.done.push(format!(
                "{} is not what inode {file} has its data in: the next start takes it away ({} bytes)",
                String::from_utf8_lossy(&found.locator),
                found.size
            ));
        }
        if !found.holds() || known || file <= ROOT {
            if model.marks.insert(mark) {
                model.done.push(format!(
                    "the leaf {} holds files that nobody knows; the next start looks through it",
                    String::from_utf8_lossy(leaf(&found.locator))
                ));
            }
            continue;
        }
        let directory = super::tree::lost_and_found(model);
        let record = from_backing(model, file, generation, found, directory);
        let (uid, size) = (record.uid, record.size);
        model.records.insert(file, record);
        let name = name_in_lost_and_found(model, directory, file);
        model.done.push(format!(
            "a backing file without an inode became lost+found/{} ({size} bytes, {})",
            String::from_utf8_lossy(&name),
            if found.owner.is_some() { format!("of user {uid}") } else { "its owner is not known".into() }
        ));
        model.enter(directory, name, file);
        model.adopted += 1;
    }
}

/// Where backing files have lost their attributes, the next start looks, and writes them again. Where one cannot be read each start looks,
/// until it can be measured.
pub(super) fn mark_bare(model: &mut Model, facts: &Facts) {
    let mut bare: BTreeMap<_, u64> = BTreeMap::new();
    for found in facts.found.values().filter(|found| found.bare) {
        *bare.entry((found.pool.0, leaf(&found.locator).to_vec())).or_default() += 1;
    }
    for (mark, count) in bare.into_iter().filter(|(mark, _)| !model.marked.contains(mark)) {
        model.done.push(format!(
            "{count} backing files in the leaf {} have lost their attribute, which the next start writes again",
            String::from_utf8_lossy(&mark.1)
        ));
        model.marks.insert(mark);
    }
    for found in facts.found.values().filter(|found| found.unreadable) {
        model.marks.insert((found.pool.0, leaf(&found.locator).to_vec()));
    }
}

fn from_backing(model: &Model, id: FileId, generation: Generation, found: &Found, parent: FileId) -> Record {
    let (class, uid, gid) = found.owner.unwrap_or((Class::Persistent, model.owner.0, model.owner.1));
    debug_assert!(id > ROOT);
    Record {
        kind: Kind::Regular,
        class,
        mode: 0o600,
        uid,
        gid,
        nlink: 1,
        size: found.size,
        blocks: found.blocks,
        atime: found.atime,
        mtime: found.mtime,
        ctime: found.ctime,
        btime: found.ctime,
        backing: Some(Backing { pool: found.pool, generation, locator: found.locator.clone() }),
        ..model.new_directory(parent, 0)
    }
}

fn measure(record: &mut Record, found: &Found) {
    if !found.unreadable && (record.size, record.blocks) != (found.size, found.blocks) {
        (record.size, record.blocks) = (found.size, found.blocks);
        record.atime = record.atime.max(found.atime);
        record.mtime = record.mtime.max(found.mtime);
        record.ctime = record.ctime.max(found.ctime);
    }
}

/// Whether a locator carries the numbers of its binding, as those of `dir` pools do.
fn own_locator(id: FileId, backing: &Backing) -> bool {
    let name = backing.locator.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let numbers = std::str::from_utf8(name).ok().and_then(|name| name.split_once('.'));
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    match numbers.map(|(file, generation)| (hex(file), hex(generation))) {
        Some((Some(file), Some(generation))) => (file, generation) == (id.0, backing.generation.0),
        // Another kind of pool.
        _ => true,
    }
}
