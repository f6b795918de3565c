//! The catalog as it was before a repair.

use crate::State;
use crate::error::{Result, io_error};
use std::fs::{DirBuilder, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Copies the catalog's directory beside itself, durably and as private as it is; gives the copy's path. What has that name
/// is whole: after an error, and after a crash of an earlier one, no part of a copy is left.
pub(crate) fn save(state: &State) -> Result<PathBuf> {
    let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    let named = |again: u32| match again {
        0 => state.dir().join(format!("catalog.before-repair-{now}")),
        _ => state.dir().join(format!("catalog.before-repair-{now}-{again}")),
    };
    let copy = (0..=u32::MAX).map(named).find(|path| !path.exists()).unwrap_or_else(|| named(0));
    let new = state.dir().join("catalog.before-repair.new");
    let remove = || match std::fs::remove_dir_all(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io_error("remove", &new)(error)),
        _ => Ok(()),
    };
    remove()?;
    let make = || {
        DirBuilder::new().mode(0o700).create(&new)?;
        copy_tree(&state.catalog_path(), &new)?;
        std::fs::rename(&new, &copy)?;
        File::open(state.dir())?.sync_all()
    };
    if let Err(error) = make() {
        remove()?;
        return Err(io_error("save the catalog in", &copy)(error));
    }
    Ok(copy)
}

fn copy_tree(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            std::fs::create_dir(&target)?;
            copy_tree(&entry.path(), &target)?;
        } else {
            copy_sparse(&entry.path(), &target)?;
        }
    }
    File::open(to)?.sync_all()
}

/// Most of the log is zeros.
fn copy_sparse(from: &Path, to: &Path) -> std::io::Result<()> {
    let (mut from, mut to) = (File::open(from)?, File::create_new(to)?);
    let mut bytes = vec![0; 64 << 10];
    loop {
        let n = from.read(&mut bytes)?;
        let piece = &bytes[..n];
        if n == 0 {
            break;
        } else if piece.iter().all(|byte| *byte == 0) {
            to.seek(SeekFrom::Current(n as i64))?;
        } else {
            to.write_all(piece)?;
        }
    }
    to.set_len(from.metadata()?.len())?;
    to.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a full disk a part of a copy was left, under the name that says that it undoes the repair.
    #[test]
    fn a_copy_that_failed_leaves_nothing_and_the_next_one_is_whole() {
        let dir = tempfile::tempdir().expect("made");
        let state = State::at(dir.path().to_path_buf());
        let catalog = state.catalog_path();
        std::fs::create_dir_all(catalog.join("inner")).expect("made");
        std::fs::write(catalog.join("inner/a"), [7; 1000]).expect("written");
        std::os::unix::fs::symlink("nowhere", catalog.join("z")).expect("made");
        let names = || {
            let entries = std::fs::read_dir(dir.path()).expect("read").flatten();
            entries.map(|entry| entry.file_name()).filter(|name| name != "catalog").collect::<Vec<_>>()
        };
        save(&state).expect_err("a file of it cannot be read");
        assert_eq!(names(), Vec::<std::ffi::OsString>::new());
        std::fs::remove_file(catalog.join("z")).expect("removed");
        std::fs::create_dir(dir.path().join("catalog.before-repair.new")).expect("left by a crash");
        let (first, second) = (save(&state).expect("saved"), save(&state).expect("saved"));
        assert_ne!(first, second);
        for copy in [first, second] {
            assert_eq!(std::fs::read(copy.join("inner/a")).expect("there"), [7; 1000]);
        }
        assert_eq!(names().len(), 2);
    }
}
