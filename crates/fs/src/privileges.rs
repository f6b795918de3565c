//! When setuid, setgid and file capabilities go.

use crate::Outcome;
use crate::space::Space;
use std::sync::Arc;
use ullage_catalog::{Error, Inode, Record};
use ullage_types::Kind;

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

/// The extended attribute that holds file capabilities.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

/// Clears setuid, and setgid where it means what it says: without group execution it marks mandatory locking and stays.
pub(crate) fn clear(record: &mut Record) {
    if record.kind == Kind::Directory {
        return;
    }
    record.mode &= !SETUID;
    if record.mode & GROUP_EXECUTE != 0 {
        record.mode &= !SETGID;
    }
}

impl Space {
    /// Removes file capabilities, which any change of data or owner voids.
    pub(crate) fn drop_capability(&self, inode: &Arc<Inode>) -> Outcome<()> {
        if inode.lock().record.xattrs == 0 {
            return Ok(());
        }
        match self.catalog.remove_xattr(inode, CAPABILITY, crate::now(), |_| {}) {
            Ok(()) | Err(Error::NoAttribute) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Clears everything that a write by a stranger voids.
    pub(crate) fn kill_privileges(&self, inode: &Arc<Inode>) -> Outcome<()> {
        self.drop_capability(inode)?;
        self.catalog.update(inode, |record| {
            let before = record.mode;
            clear(record);
            if record.mode != before {
                record.ctime = crate::now();
            }
            Ok(())
        })?;
        self.trees.attributes(inode.id);
        Ok(())
    }
}
