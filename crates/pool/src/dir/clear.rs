//! Leaving a directory that is a pool no longer.

use super::config::Uuid;
use super::{marker, name, notes, quarantine};
use crate::Error;
use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Removes from a pool's directory what is the pool's and has nothing in it, what else is called `also`, and then its marker: for a pool
/// that no file of its space lies in, and that nobody uses. Gives back how many other files are left there.
///
/// # Errors
/// [`Error::Unusable`] where the directory is not this pool: nothing is removed then.
pub fn clear(path: &Path, space: Uuid, pool: Uuid, also: &[&str]) -> Result<u64, Error> {
    if marker::identity(path)? != (space, pool) {
        return Err(Error::Unusable(format!("{} is another pool by now; nothing in it was touched", path.display())));
    }
    let fail = Error::io("clear", path);
    clear_root(path, also).map_err(fail)
}

fn clear_root(path: &Path, also: &[&str]) -> io::Result<u64> {
    let mut left = 0;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        let known = name.to_str().unwrap_or_default();
        if known == marker::NAME || known == "lost+found" {
            continue;
        }
        if known == notes::DIRECTORY || known == crate::tree::NAMES || also.contains(&known) {
            if entry.file_type()?.is_dir() { fs::remove_dir_all(entry.path())? } else { fs::remove_file(entry.path())? }
        } else {
            left += if is_ours(known) { sweep(&entry, known == quarantine::DIRECTORY)? } else { count(&entry)? };
        }
    }
    fs::remove_file(path.join(marker::NAME))?;
    Ok(left)
}

/// Whether a directory in a pool's is the pool's: below those of a shape, `DEPTH-ENTRIES`, are backing files. What else there is others have
/// made, who may have mounted something there too.
fn is_ours(name: &str) -> bool {
    let number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let shape = name.split_once('-').is_some_and(|(depth, entries)| number(depth) && number(entries));
    shape || matches!(name, quarantine::DIRECTORY | crate::tree::LIMBO)
}

/// How many files others have.
fn count(entry: &DirEntry) -> io::Result<u64> {
    if !entry.file_type()?.is_dir() {
        return Ok(1);
    }
    fs::read_dir(entry.path())?.map(|below| count(&below?)).sum()
}

/// Removes directories with nothing in them, and files that are called as backing files are: empty ones, and with `removed` all that have no other
/// name, which would say in a plain tree that they are somebody's. How many others there are.
fn sweep(entry: &DirEntry, removed: bool) -> io::Result<u64> {
    let kind = entry.file_type()?;
    if kind.is_dir() {
        let mut left = 0;
        for below in fs::read_dir(entry.path())? {
            left += sweep(&below?, removed)?;
        }
        if left == 0 {
            fs::remove_dir(entry.path())?;
        }
        return Ok(left);
    }
    let ours = entry.file_name().to_str().is_some_and(|name| name::parse(name).is_some());
    let is_nobodys = |it: fs::Metadata| it.len() == 0 || removed && it.nlink() == 1;
    if kind.is_file() && ours && is_nobodys(entry.metadata()?) {
        fs::remove_file(entry.path())?;
        return Ok(0);
    }
    Ok(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pool's directory could not be a pool's again: it held what had been removed while somebody wrote to it.
    #[test]
    fn files_in_quarantine_go_with_their_pool_but_those_that_have_another_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("quarantine")).unwrap();
        fs::write(path(marker::NAME), "").unwrap();
        for name in ["quarantine/1.2", "quarantine/3.4", "quarantine/theirs"] {
            fs::write(path(name), "content").unwrap();
        }
        fs::hard_link(path("quarantine/3.4"), path("named")).unwrap();
        assert_eq!(clear_root(dir.path(), &[]).unwrap(), 3);
        let left = ["quarantine/1.2", "quarantine/3.4", "quarantine/theirs"].map(|name| path(name).exists());
        assert_eq!(left, [false, true, true]);
    }

    /// Empty directories of others went, also of a file system that was mounted there, and empty files that were called by two numbers.
    #[test]
    fn what_others_have_put_into_a_pools_directory_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["2-512/000.0/000", "quarantine", "theirs/empty", "theirs/more", "2-x/empty"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        for name in [marker::NAME, "2-512/000.0/000/1.2", "theirs/more/1.2", "2-512/theirs"] {
            fs::write(path(name), "").unwrap();
        }
        assert_eq!(clear_root(dir.path(), &[]).unwrap(), 2);
        for name in ["theirs/empty", "theirs/more/1.2", "2-x/empty", "2-512/theirs"] {
            assert!(path(name).exists(), "{name}");
        }
        for name in [marker::NAME, "2-512/000.0", "quarantine"] {
            assert!(!path(name).exists(), "{name}");
        }
    }
}
