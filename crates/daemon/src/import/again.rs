//! What an import that was refused or interrupted has taken in already: it may have another owner, other permissions and other attributes by now,
//! as the refusal asked for.

use super::xattrs::Attribute;
use super::{Import, brought};
use crate::Result;
use rustix::fs::Stat;
use std::sync::Arc;
use ullage_catalog::{Inode, XattrMode};
use ullage_types::Kind;

/// What the process lends itself of what its user owns (`lent.rs`): a kill may have left it.
const LENT: u32 = 0o700;

impl Import<'_> {
    /// Brings the record of what was taken in before up to what it is below, once in a run: of what lies in several trees by one name the
    /// first one says what it is.
    pub(super) fn bring_up(&mut self, known: &Arc<Inode>, stat: &Stat, xattrs: Vec<Attribute>) -> Result<()> {
        if !self.met.insert(known.id) {
            return Ok(());
        }
        let (mode, record) = (stat.st_mode & 0o7777, known.record());
        // One without a name in the pool is not the one that was taken in.
        if record.kind == Kind::Regular && stat.st_nlink > 1 {
            self.measure(known, stat)?;
        }
        let lent = !self.privileged && mode & !LENT == record.mode & !LENT && mode & record.mode == record.mode;
        if lent && mode != record.mode {
            return Ok(());
        }
        if (record.uid, record.gid, record.mode) != (stat.st_uid, stat.st_gid, mode) {
            self.catalog.update(known, |record| {
                (record.uid, record.gid, record.mode) = (stat.st_uid, stat.st_gid, mode);
                Ok(())
            })?;
        }
        let before = self.catalog.xattrs(known)?;
        for (name, _) in before.iter().filter(|(name, _)| xattrs.iter().all(|(new, _)| new != name)) {
            self.catalog.remove_xattr(known, name, ullage_fs::now(), |_| ())?;
        }
        for attribute in xattrs.iter().filter(|attribute| !before.contains(attribute)) {
            self.catalog.set_xattr(known, &attribute.0, &attribute.1, XattrMode::Any, ullage_fs::now(), |_| ())?;
        }
        Ok(())
    }

    /// Nobody has measured since what was written to it after it was taken in: a start that was refused has cleared its mark.
    fn measure(&self, known: &Arc<Inode>, stat: &Stat) -> Result<()> {
        let now = brought(stat);
        self.catalog.update(known, |record| {
            (record.size, record.blocks) = (now.size, now.blocks);
            (record.atime, record.mtime) = (now.atime, now.mtime);
            Ok(())
        })?;
        Ok(())
    }
}
