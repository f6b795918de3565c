//! Files that another space has, too: taken in they would be lost to that, as a backing file says of which one space it is.

use crate::error::io_error;
use crate::{Error, Result, quoted};
use rustc_hash::FxHashMap;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use ullage_pool::{Directory, Tree};

/// Refuses a tree with a file of another space that has a name outside: that space may still be used. All names of what was left of a space that
/// was given up are in the tree.
pub(super) fn refuse(tree: &Tree, device: u64) -> Result<()> {
    // Above each directory is the one that it is opened from: a tree may be deeper than a path can be long.
    let mut todo: Vec<(Directory, Vec<u8>, PathBuf)> = vec![(tree.root(), b".".to_vec(), tree.path().to_owned())];
    let mut outside: FxHashMap<u64, (u64, PathBuf)> = FxHashMap::default();
    while let Some((above, own, path)) = todo.pop() {
        let fail = |errno: Errno| io_error("look through", &path)(errno.into());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match rustix::fs::openat(&above, &*own, flags, Mode::empty()) {
            // An ordinary user's, who cannot look at it just now: names may be there.
            Err(Errno::ACCESS) => return Ok(()),
            _ if own == b"." => above,
            opened => Arc::new(opened.map_err(fail)?),
        };
        let names = match tree.names(&directory) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(()),
            listed => listed.map_err(io_error("list", &path))?,
        };
        for name in names {
            let stat = match rustix::fs::statat(&directory, &*name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::ACCESS) => return Ok(()),
                looked => looked.map_err(fail)?,
            };
            let here = || path.join(OsStr::from_bytes(&name));
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory if stat.st_dev == device => {
                    let here = here();
                    todo.push((directory.clone(), name, here));
                }
                FileType::RegularFile if stat.st_nlink > 1 => {
                    if let Some((left, _)) = outside.get_mut(&stat.st_ino) {
                        *left = left.saturating_sub(1);
                    } else if tree.is_anothers(&directory, &name).unwrap_or(false) {
                        outside.insert(stat.st_ino, (stat.st_nlink - 1, here()));
                    }
                }
                _ => {}
            }
        }
    }
    let mut left = outside.into_values().filter(|(left, _)| *left > 0);
    let Some((_, path)) = left.next() else { return Ok(()) };
    let more = match left.count() {
        0 => String::new(),
        more => format!(" (so with {more} more)"),
    };
    let file = quoted(&path);
    Err(Error::Refused(format!(
        "{} is a file of another space, which has it by another name{more}: put a copy in its place (`cp -a`), or, if that space is given up, \
         remove its other names, or have the file say so no more: `setfattr -x user.ullage {file}`; and run `up` again",
        path.display()
    )))
}
