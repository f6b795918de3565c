//! What an import that was refused or interrupted has taken in already: it may have another owner, other permissions and other attributes by now,
//! as the refusal asked for.

use super::Import;
use super::xattrs::Attribute;
use crate::Result;
use rustix::fs::Stat;
use std::sync::Arc;
use ullage_catalog::{Inode, XattrMode};

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
}
