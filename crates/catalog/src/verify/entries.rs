//! Entries and extended attributes against inodes.

use super::Seen;
use crate::directory::{Dirent, FIRST_COOKIE};
use crate::ops::check_name;
use crate::{Result, keys};
use rustc_hash::{FxHashMap, FxHashSet};
use ullage_kv::Kv;
use ullage_types::{Kind, ROOT};

/// Checks each entry, and notes what it says of its directory and its file. Gives how many there are.
pub(super) fn verify(kv: &dyn Kv, seen: &mut Seen, wrong: &mut dyn FnMut(String)) -> Result<u64> {
    let mut count = 0;
    let mut cookies = (ROOT, FxHashSet::default());
    kv.scan(&[keys::ENTRY], &[], &mut |key, value| {
        count += 1;
        let (Some(directory), Some(dirent)) = (keys::id_in(key), Dirent::decode(value)) else {
            wrong(format!("{} cannot be read", crate::describe_key(key)));
            return true;
        };
        let bytes = &key[9..];
        let name = String::from_utf8_lossy(bytes);
        if cookies.0 != directory {
            cookies = (directory, FxHashSet::default());
        }
        if dirent.cookie < FIRST_COOKIE || !cookies.1.insert(dirent.cookie) {
            wrong(format!("entry '{name}' of directory {directory} has the place of another"));
        }
        if check_name(bytes).is_err() || dirent.file == ROOT {
            wrong(format!("entry '{name}' of directory {directory} is none that can be"));
        }
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
        let Some(record) = seen.records.get(&dirent.file) else {
            wrong(format!("entry '{name}' of directory {directory} names inode {}, which does not exist", dirent.file));
            return true;
        };
        if record.kind != dirent.kind {
            wrong(format!("entry '{name}' of directory {directory} has another kind than inode {}", dirent.file));
        }
        if record.parent == directory && *record.name == *bytes {
            seen.primary.insert(dirent.file);
        }
        if record.kind == Kind::Directory {
            *seen.subdirectories.entry(directory).or_default() += 1;
            if record.parent != directory {
                wrong(format!("directory {} is listed in {directory} but says {}", dirent.file, record.parent));
            }
        } else if record.nlink > 1
            && !seen.names.get(&dirent.file).is_some_and(|names| names.contains(&(directory, bytes.into())))
        {
            wrong(format!("inode {} has no record of its name '{name}' in directory {directory}", dirent.file));
        }
        true
    })?;
    Ok(count)
}

/// Extended attributes belong to inodes, which say how many there are and how long.
pub(super) fn verify_attributes(kv: &dyn Kv, seen: &Seen, wrong: &mut dyn FnMut(String)) -> Result<()> {
    let mut counted: FxHashMap<_, (u32, u32)> = FxHashMap::default();
    kv.scan(&[keys::XATTR], &[], &mut |key, value| {
        let Some(id) = keys::id_in(key) else { return true };
        let (count, bytes) = counted.entry(id).or_default();
        *count += 1;
        *bytes = bytes.saturating_add((key.len() - 9 + value.len()) as u32);
        if !seen.records.contains_key(&id) {
            wrong(format!("{} belongs to nothing: there is no such inode", crate::describe_key(key)));
        }
        true
    })?;
    for (id, record) in &seen.records {
        let found = counted.get(id).copied().unwrap_or_default();
        if found != (record.xattrs, record.xattr_bytes) {
            wrong(format!(
                "inode {id} has {} extended attributes of {} bytes and says {} of {}",
                found.0, found.1, record.xattrs, record.xattr_bytes
            ));
        }
    }
    Ok(())
}
