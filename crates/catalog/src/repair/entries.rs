//! Entries: each names a file that is there, in a directory that is there; what lost its entry gets it back where its own
//! record, or one of its name records, says.

use super::model::Model;
use crate::directory::Dirent;
use crate::ops::check_name;
use std::collections::BTreeMap;
use ullage_types::{FileId, Kind, ROOT};

/// Mends entries.
pub(super) fn mend(model: &mut Model) {
    drop_impossible(model);
    one_entry_per_directory(model);
    swap_back(model);
    restore(model);
}

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Drops what names nothing, or stands nowhere; entries of the wrong kind take that of their inode.
fn drop_impossible(model: &mut Model) {
    let mut entries = std::mem::take(&mut model.entries);
    let (mut done, mut lost) = (Vec::new(), Vec::new());
    entries.retain(|&directory, names| {
        if !model.is_directory(directory) {
            done.push(format!("{} entries of directory {directory}, which does not exist, were dropped", names.len()));
            return false;
        }
        names.retain(|name, dirent| {
            let Some(record) = model.records.get(&dirent.file) else {
                if !model.gone.contains(&dirent.file) {
                    lost.push(format!(
                        "the entry '{}' of directory {directory} was dropped: inode {} is lost",
                        shown(name),
                        dirent.file
                    ));
                }
                return false;
            };
            if check_name(name).is_err() || dirent.file == ROOT {
                done.push(format!("the entry '{}' of directory {directory} cannot be and was dropped", shown(name)));
                return false;
            }
            if record.kind != dirent.kind {
                dirent.kind = record.kind;
                done.push(format!("the entry '{}' of directory {directory} got the kind of its inode", shown(name)));
            }
            true
        });
        true
    });
    model.entries = entries;
    model.done.append(&mut done);
    model.lost.append(&mut lost);
}

/// A directory has one name: the one that its record says, if that is one of them.
fn one_entry_per_directory(model: &mut Model) {
    for (file, links) in model.links() {
        if links.len() < 2 || !model.is_directory(file) {
            continue;
        }
        let own = model.records.get(&file).map(|record| (record.parent, record.name.to_vec()));
        let keep = links.iter().find(|link| Some(*link) == own.as_ref()).unwrap_or(&links[0]).clone();
        for (directory, name) in links.iter().filter(|link| **link != keep) {
            if let Some(entries) = model.entries.get_mut(directory) {
                entries.remove(name);
            }
            model.done.push(format!(
                "the entry '{}' of directory {directory}, a second name of directory {file}, was dropped",
                shown(name)
            ));
        }
    }
}

/// Two entries that hold each other's file: each inode says that it belongs under the other name.
fn swap_back(model: &mut Model) {
    let mut swaps = Vec::new();
    for (&id, record) in &model.records {
        if record.nlink != 1 || record.kind == Kind::Directory {
            continue;
        }
        let own = (record.parent, record.name.to_vec());
        let Some(here) = find(model, &own).filter(|here| here.file != id) else { continue };
        let Some(other) = model.records.get(&here.file) else { continue };
        let there = (other.parent, other.name.to_vec());
        let fits = id < here.file && other.nlink == 1 && other.kind != Kind::Directory;
        if fits && find(model, &there).is_some_and(|dirent| dirent.file == id) {
            swaps.push((own, there));
        }
    }
    for (own, there) in swaps {
        let (Some(a), Some(b)) = (find(model, &own), find(model, &there)) else { continue };
        set(model, &own, Dirent { cookie: a.cookie, ..b });
        set(model, &there, Dirent { cookie: b.cookie, ..a });
        model.done.push(format!(
            "the entries '{}' and '{}' held each other's file and were swapped",
            shown(&own.1),
            shown(&there.1)
        ));
    }
}

fn find(model: &Model, (directory, name): &(FileId, Vec<u8>)) -> Option<Dirent> {
    model.entries.get(directory)?.get(name).copied()
}

fn set(model: &mut Model, (directory, name): &(FileId, Vec<u8>), dirent: Dirent) {
    model.entries.entry(*directory).or_default().insert(name.clone(), dirent);
}

/// Gives names back.
fn restore(model: &mut Model) {
    let counts: BTreeMap<FileId, u32> =
        model.links().into_iter().map(|(file, links)| (file, links.len() as u32)).collect();
    let mut wanted: Vec<(FileId, (FileId, Vec<u8>))> = Vec::new();
    for (&id, record) in &model.records {
        let count = counts.get(&id).copied().unwrap_or(0);
        let expected = if record.kind == Kind::Directory { u32::from(record.nlink > 0) } else { record.nlink };
        if id == ROOT || count >= expected.max(u32::from(!model.is_orphan(id))) {
            continue;
        }
        wanted.push((id, (record.parent, record.name.to_vec())));
        if record.kind != Kind::Directory {
            wanted.extend(model.names.get(&id).into_iter().flatten().map(|name| (id, name.clone())));
        }
    }
    for (file, (directory, name)) in wanted {
        let free = find(model, &(directory, name.clone())).is_none();
        if free && check_name(&name).is_ok() && model.is_directory(directory) && file != directory {
            model.done.push(format!("inode {file} got its name '{}' in directory {directory} back", shown(&name)));
            model.enter(directory, name, file);
        }
    }
}
