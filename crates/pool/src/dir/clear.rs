//! Leaving a directory that is a pool no longer.

use super::config::Uuid;
use super::{marker, name, notes};
use crate::Error;
use std::fs::{self, DirEntry};
use std::io;
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
            left += sweep(&entry)?;
        }
    }
    fs::remove_file(path.join(marker::NAME))?;
    Ok(left)
}

/// Removes directories with nothing in them, and empty files that are called as backing files are. How many others there are.
fn sweep(entry: &DirEntry) -> io::Result<u64> {
    let kind = entry.file_type()?;
    if kind.is_dir() {
        let mut left = 0;
        for below in fs::read_dir(entry.path())? {
            left += sweep(&below?)?;
        }
        if left == 0 {
            fs::remove_dir(entry.path())?;
        }
        return Ok(left);
    }
    let ours = entry.file_name().to_str().is_some_and(|name| name::parse(name).is_some());
    if kind.is_file() && ours && entry.metadata()?.len() == 0 {
        fs::remove_file(entry.path())?;
        return Ok(0);
    }
    Ok(1)
}
