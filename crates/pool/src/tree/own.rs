//! The directory of a pool is that of whoever runs the space: another user who owned it before could go on writing there, or lead root elsewhere.

use super::{FILES, Tree, open_directory};
use crate::Error;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::geteuid;
use std::path::Path;

impl Tree {
    /// Takes the pool's directory, if it is another user's, and closes it to others. The tree is for whoever runs the space: what is written to
    /// it behind the space's back is counted by nobody. Its path may lead elsewhere by now.
    pub fn close(&self) -> Result<(), Error> {
        let stat = rustix::fs::fstat(&self.root).map_err(Error::io("look at", &self.path))?;
        if self.privileged
            && stat.st_uid != geteuid().as_raw()
            && let Err(error) = rustix::fs::fchown(&self.root, Some(geteuid()), None)
        {
            let path = self.path.display();
            tracing::warn!("{path} stays user {}'s ({error}), who can write there what nobody counts", stat.st_uid);
        }
        close(&self.root, &self.path)
    }
}

pub(super) fn close(directory: impl AsFd, path: &Path) -> Result<(), Error> {
    rustix::fs::fchmod(directory, Mode::RWXU).map_err(Error::io("change the permissions of", path))
}

/// Where backing files lie below a directory that becomes a pool, if that is there.
pub(super) fn own_files(root: &OwnedFd, path: &Path) -> Result<Option<OwnedFd>, Error> {
    let path = path.join(FILES);
    let refuse = || {
        let shown = path.display();
        Error::Unusable(format!("{shown} is no directory of this user's: move it elsewhere, or name another directory"))
    };
    let found = match open_directory(root, FILES.as_bytes()) {
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::NOTDIR | Errno::LOOP) => return Err(refuse()),
        opened => opened.map_err(Error::io("open", &path))?,
    };
    let stat = rustix::fs::fstat(&found).map_err(Error::io("look at", &path))?;
    if stat.st_uid == geteuid().as_raw() { Ok(Some(found)) } else { Err(refuse()) }
}

#[cfg(test)]
mod tests {
    use super::super::testing::tree;
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

    /// Regression: who put a link in the place of a directory that was being imported had root close what that led to.
    #[test]
    fn what_is_closed_is_the_directory_that_the_tree_is_in() {
        let elsewhere = tempfile::tempdir().unwrap();
        let (dir, tree, _) = tree();
        let (path, moved) = (dir.path(), elsewhere.path().join("moved"));
        let victim = elsewhere.path().join("victim");
        fs::create_dir(&victim).unwrap();
        for open in [path, &victim] {
            fs::set_permissions(open, Permissions::from_mode(0o755)).unwrap();
        }
        fs::rename(path, &moved).unwrap();
        symlink(&victim, path).unwrap();
        tree.close().unwrap();
        let modes = [&victim, &moved].map(|path| path.metadata().unwrap().mode() & 0o777);
        fs::remove_file(path).unwrap();
        fs::rename(&moved, path).unwrap();
        assert_eq!(modes, [0o755, 0o700]);
    }

    /// Regression: whose directory root had imported went on owning it, and wrote there past all limits.
    #[test]
    fn a_directory_of_another_user_is_taken_from_them() {
        let (dir, tree, _) = tree();
        if !geteuid().is_root() {
            eprintln!("skipped: only root can give a directory away");
            return;
        }
        chown(dir.path(), Some(65534), Some(65534)).unwrap();
        tree.close().unwrap();
        let stat = dir.path().metadata().unwrap();
        assert_eq!((stat.uid(), stat.gid(), stat.mode() & 0o777), (0, 65534, 0o700));
    }

    /// Regression: a link to an empty directory, in the place where backing files are to lie, had root make the pool there.
    #[test]
    fn backing_files_come_to_lie_in_an_own_directory_alone() {
        let (dir, victim) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let files = dir.path().join(FILES);
        let prepare = || Tree::examine(dir.path(), true).and_then(|()| Tree::prepare(dir.path(), true));
        symlink(victim.path(), &files).unwrap();
        assert!(prepare().unwrap_err().to_string().contains("no directory of this user's"));
        assert!(Tree::prepare(dir.path(), true).is_err());
        fs::remove_file(&files).unwrap();
        prepare().unwrap();
        assert_eq!(files.metadata().unwrap().mode() & 0o777, 0o700);
        prepare().unwrap();
        if geteuid().is_root() {
            chown(&files, Some(65534), None).unwrap();
            assert!(prepare().is_err());
        }
    }
}
