//! Entries and extended attributes against inodes.

use super::Seen;
use crate::directory::{Dirent, FIRST_COOKIE};
use crate::ops::check_name;
use crate::{Result, keys};
use rustc_hash::FxHashSet;
use ullage_kv::Kv;
use ullage_types::ROOT;

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
        match seen.files.get_mut(&directory) {
            None => wrong(format!("entry '{name}' is in directory {directory}, which does not exist")),
            Some(known) if !known.is_directory() => {
                wrong(format!("entry '{name}' is in inode {directory}, which is no directory"));
            }
            Some(known) => {
                known.met_entries += 1;
                if dirent.cookie >= known.next_cookie {
                    wrong(format!("entry '{name}' of directory {directory} has a place not yet given out"));
                }
            }
        }
        let Some(known) = seen.files.get_mut(&dirent.file) else {
            wrong(format!("entry '{name}' of directory {directory} names inode {}, which does not exist", dirent.file));
            return true;
        };
        known.links += 1;
        if known.kind != dirent.kind {
            wrong(format!("entry '{name}' of directory {directory} has another kind than inode {}", dirent.file));
        }
        known.primary |= known.parent == directory && *known.name == *bytes;
        if known.is_directory() {
            if known.parent != directory {
                wrong(format!("directory {} is listed in {directory} but says {}", dirent.file, known.parent));
            }
            if let Some(above) = seen.files.get_mut(&directory) {
                above.subdirectories += 1;
            }
        } else if known.nlink > 1
            && !seen.names.get(&dirent.file).is_some_and(|names| names.contains(&(directory, bytes.into())))
        {
            wrong(format!("inode {} has no record of its name '{name}' in directory {directory}", dirent.file));
        }
        true
    })?;
    Ok(count)
}

/// Extended attributes belong to inodes, which say how many there are and how long.
pub(super) fn count_attributes(kv: &dyn Kv, seen: &mut Seen, wrong: &mut dyn FnMut(String)) -> Result<()> {
    kv.scan(&[keys::XATTR], &[], &mut |key, value| {
        let Some(id) = keys::id_in(key) else { return true };
        let Some(known) = seen.files.get_mut(&id) else {
            wrong(format!("{} belongs to nothing: there is no such inode", crate::describe_key(key)));
            return true;
        };
        let (count, bytes) = &mut known.met_xattrs;
        *count += 1;
        *bytes = bytes.saturating_add((key.len() - 9 + value.len()) as u32);
        true
    })?;
    Ok(())
}
