//! Owner, permissions and times of what is in the tree.

use super::{Directory, Tree};
use crate::Locator;
use crate::dir::record;
use crate::sys::chmod;
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use std::io;
use ullage_types::Timestamp;

/// What a file of the tree is to look like.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Times of last access and change of data; none where the backing file knows them better.
    pub times: Option<(Timestamp, Timestamp)>,
}

impl Tree {
    /// Brings a directory of the tree up to what it should look like. The top stays closed to others.
    pub fn show_directory(&self, directory: &Directory, shown: Shown) -> io::Result<()> {
        if std::sync::Arc::ptr_eq(directory, &self.root) {
            return Ok(());
        }
        self.show(&**directory, shown, 0o700)
    }

    /// The same for a backing file.
    pub fn show_file(&self, locator: &Locator, shown: Shown) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.files, &*locator.0, flags, Mode::empty())?;
        self.show(&file, shown, 0o600)?;
        Ok(record::bind(&file)?)
    }

    /// The same for a name that is no regular file and no directory. Who can write there may have put something else in its place, which
    /// counts as gone: what a link leads to is not ours.
    pub fn show_name(&self, above: &Directory, name: &[u8], shown: Shown, link: bool) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let what = rustix::fs::openat(above, name, flags, Mode::empty())?;
        let is_meant = match FileType::from_raw_mode(rustix::fs::fstat(&what)?.st_mode) {
            FileType::Symlink => link,
            FileType::RegularFile | FileType::Directory => false,
            _ => !link,
        };
        if !is_meant {
            return Err(Errno::NOENT.into());
        }
        let owner = (Some(Uid::from_raw(shown.uid)), Some(Gid::from_raw(shown.gid)));
        self.may(rustix::fs::chownat(&what, "", owner.0, owner.1, AtFlags::EMPTY_PATH))?;
        if !link {
            self.may(chmod(&what, shown.mode))?;
        }
        if let Some(times) = shown.times {
            rustix::fs::utimensat(above, name, &timestamps(times), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    /// `least` are the bits that we ourselves need where we are not root.
    fn show(&self, file: impl AsFd, shown: Shown, least: u32) -> io::Result<()> {
        let now = rustix::fs::fstat(&file)?;
        if (now.st_uid, now.st_gid) != (shown.uid, shown.gid) {
            let (uid, gid) = (Uid::from_raw(shown.uid), Gid::from_raw(shown.gid));
            self.may(rustix::fs::fchown(&file, Some(uid), Some(gid)))?;
        }
        let mode = if self.privileged { shown.mode } else { shown.mode | least };
        // Asked again: a change of owner takes bits away.
        if rustix::fs::fstat(&file)?.st_mode & 0o7777 != mode {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        }
        if let Some(times) = shown.times {
            rustix::fs::futimens(&file, &timestamps(times))?;
        }
        Ok(())
    }

    /// Who is not root cannot give files away; the tree is then its own.
    fn may(&self, outcome: rustix::io::Result<()>) -> io::Result<()> {
        match outcome {
            Err(Errno::PERM) if !self.privileged => Ok(()),
            other => Ok(other?),
        }
    }
}

fn timestamps((atime, mtime): (Timestamp, Timestamp)) -> Timestamps {
    let time = |time: Timestamp| Timespec { tv_sec: time.seconds, tv_nsec: i64::from(time.nanoseconds) };
    Timestamps { last_access: time(atime), last_modification: time(mtime) }
}

#[cfg(test)]
mod tests {
    use super::super::testing::tree;
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    /// Who could write in the tree put a link where a fifo had just been made, and root gave what it led to the fifo's permissions.
    #[test]
    fn a_link_that_came_to_stand_where_a_fifo_was_gives_nothing_outside_other_permissions() {
        let (dir, tree, root) = tree();
        let outside = tempfile::NamedTempFile::new().unwrap();
        std::fs::set_permissions(outside.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
        symlink(outside.path(), dir.path().join("x")).unwrap();
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let shown = Shown { mode: 0o666, uid, gid, times: None };
        let _ = tree.show_name(&root, b"x", shown, false);
        assert_eq!(std::fs::metadata(outside.path()).unwrap().mode() & 0o7777, 0o600);
        // What does belong there gets them.
        tree.special(&root, b"fifo", ullage_types::Kind::Fifo, 0).unwrap();
        tree.show_name(&root, b"fifo", shown, false).unwrap();
        assert_eq!(std::fs::symlink_metadata(dir.path().join("fifo")).unwrap().mode() & 0o7777, 0o666);
    }
}
