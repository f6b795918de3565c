//! From the mended model to the records that the store must hold, and what that changes.

use super::model::Model;
use crate::catalog::FORMAT;
use crate::ledger::{TotalsNow, encode_charges};
use crate::limits::Subject;
use crate::{Result, keys};
use std::collections::BTreeMap;
use ullage_kv::Kv;
use ullage_types::{ByClass, Charge, FileId, Kind, ROOT};

/// New values by key; none where a record goes.
pub(super) type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// What must change in the store so that it holds the model, and nothing else.
pub(super) fn changes(kv: &dyn Kv, model: &mut Model) -> Result<Changes> {
    let mut due = due(model);
    let mut changes = Changes::new();
    let mut seen = BTreeMap::new();
    kv.scan(&[], &[], &mut |key, value| {
        if key.first() == Some(&keys::XATTR) {
            let owner = keys::id_in(key).filter(|_| key.len() > 9);
            if !owner.is_some_and(|id| model.records.contains_key(&id)) {
                changes.insert(key.to_vec(), None);
                *seen.entry((keys::XATTR, false)).or_insert(0u64) += 1;
            }
            return true;
        }
        match due.remove(key) {
            Some(wanted) if wanted == value => {}
            Some(wanted) => {
                *seen.entry((key.first().copied().unwrap_or(0), true)).or_insert(0) += 1;
                changes.insert(key.to_vec(), Some(wanted));
            }
            // Who has nothing left keeps a record that says so.
            None if key.first() == Some(&keys::USER) && key.len() == 5 && value == [0; 48] => {}
            None => {
                *seen.entry((key.first().copied().unwrap_or(0), false)).or_insert(0) += 1;
                changes.insert(key.to_vec(), None);
            }
        }
        true
    })?;
    for key in due.keys() {
        *seen.entry((key.first().copied().unwrap_or(0), true)).or_insert(0) += 1;
    }
    changes.extend(due.into_iter().map(|(key, value)| (key, Some(value))));
    summarize(model, &seen);
    Ok(changes)
}

/// What was only counted, or was there for nothing, is told by kind.
fn summarize(model: &mut Model, seen: &BTreeMap<(u8, bool), u64>) {
    for (&(prefix, written), count) in seen {
        let text = match (prefix, written) {
            (keys::TOTALS, true) => format!("the totals of {count} directories were counted anew"),
            (keys::TOTALS, false) => format!("{count} totals of directories that do not exist were dropped"),
            (keys::USER, true) => format!("the totals of {count} users were counted anew"),
            (keys::USER, false) => format!("{count} totals of users that cannot be read were dropped"),
            (keys::NAME, true) => format!("{count} name records were made again"),
            (keys::NAME, false) => format!("{count} name records that nothing needs were dropped"),
            (keys::ORPHAN, true) => format!("{count} files without a name were recorded as such"),
            (keys::ORPHAN, false) => format!("{count} records of files without a name were dropped"),
            (keys::XATTR, _) => format!("{count} extended attributes of files that do not exist were dropped"),
            (b'N', _) => "the counter of numbers was set above all that were used".into(),
            (keys::MARK, false) => format!("{count} marks of leaf directories that cannot be read were dropped"),
            (keys::LIMIT, _) => format!("{count} limits that cannot be read, or are on nothing, were dropped"),
            (keys::INODE | keys::ENTRY | keys::MARK | b'S' | b'R', _) => continue,
            _ => format!("{count} records of no known kind were dropped"),
        };
        model.done.push(text);
    }
}

fn due(model: &Model) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut due = BTreeMap::new();
    due.insert(keys::SUPER.to_vec(), FORMAT.to_le_bytes().to_vec());
    let used = model.used.max(ROOT.0 + 1);
    if let Some(numbers) = model.numbers.filter(|numbers| *numbers >= used && *numbers < u64::MAX >> 2) {
        due.insert(keys::NUMBERS.to_vec(), numbers.to_le_bytes().to_vec());
    } else if model.numbers.is_some() || model.records.len() > 1 || used > ROOT.0 + 1 {
        // Numbers that were given out and left no trace are skipped too, as well as that can be known.
        const MARGIN: u64 = 1 << 20;
        due.insert(keys::NUMBERS.to_vec(), used.saturating_add(MARGIN).to_le_bytes().to_vec());
    }
    for (&id, record) in &model.records {
        due.insert(keys::inode(id), record.encode());
    }
    for (&directory, entries) in &model.entries {
        for (name, dirent) in entries {
            due.insert(keys::entry(directory, name), dirent.encode());
        }
    }
    for &id in &model.orphans {
        due.insert(keys::orphan(id), Vec::new());
    }
    for (pool, leaf) in &model.marks {
        due.insert(keys::mark(*pool, leaf), Vec::new());
    }
    for (&subject, limit) in &model.limits {
        if !matches!(subject, Subject::Directory(id) if !model.is_directory(id)) {
            due.insert(keys::limit(subject), limit.encode());
        }
    }
    totals(model, &mut due);
    due
}

fn totals(model: &Model, due: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
    let mut totals: BTreeMap<FileId, TotalsNow> = BTreeMap::new();
    let mut users: BTreeMap<u32, ByClass<Charge>> = BTreeMap::new();
    let above = |mut at: FileId, change: &mut dyn FnMut(FileId)| {
        loop {
            change(at);
            match model.records.get(&at) {
                Some(record) if at != ROOT => at = record.parent,
                _ => return,
            }
        }
    };
    for (&id, record) in &model.records {
        let charge = record.charge();
        users.entry(record.uid).or_default()[record.class] += charge;
        let directory = record.kind == Kind::Directory;
        above(if directory { id } else { record.parent }, &mut |at| {
            totals.entry(at).or_default().actual[record.class] += charge;
        });
    }
    for (file, links) in model.links() {
        let several = links.len() > 1 && model.records.get(&file).is_some_and(|record| record.kind != Kind::Directory);
        for (directory, name) in links.iter().filter(|_| several) {
            due.insert(keys::name(file, *directory, name), Vec::new());
            above(*directory, &mut |at| totals.entry(at).or_default().linked += 1);
        }
    }
    for (id, now) in totals {
        due.insert(keys::totals(id), now.encode());
    }
    for (uid, charges) in users {
        let mut value = Vec::with_capacity(48);
        encode_charges(charges, &mut value);
        due.insert(keys::user(uid), value);
    }
}
