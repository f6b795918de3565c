//! Directories of which nobody else reads anything, whatever the modes of the files below.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// What group and others may do.
const OTHERS: u32 = 0o077;

/// Makes a directory of mode 0700, or takes from one that is there what group and others may do.
///
/// # Errors
/// When it cannot be made, or belongs to somebody else and is open to others.
pub fn private_directory(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)?;
    let mode = fs::metadata(path)?.mode();
    if mode & OTHERS == 0 {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(mode & 0o7777 & !OTHERS)).map_err(|error| {
        let hint =
            format!("others can read it, which cannot be changed ({error}): chown it to the user that this runs as");
        io::Error::new(error.kind(), hint)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_and_what_was_open_is_closed_to_others() {
        let directory = tempfile::tempdir().unwrap();
        let (made, open) = (directory.path().join("made"), directory.path().join("open"));
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o2755)).unwrap();
        for (path, mode) in [(made, 0o700), (open, 0o2700)] {
            private_directory(&path).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode, "{}", path.display());
        }
    }
}
