//! RENAME2.

use crate::{Errno, Outcome, Space};
use ullage_types::NodeId;

impl Space {
    pub(crate) fn do_rename(
        &self,
        (from, name): (NodeId, &[u8]),
        (to, to_name): (NodeId, &[u8]),
        flags: u32,
    ) -> Outcome<()> {
        let from = self.inode(from)?;
        let to = self.inode(to)?;
        let now = crate::now();
        let renamed = match flags {
            0 => self.catalog.rename((&from, name), (&to, to_name), false, now)?,
            libc::RENAME_NOREPLACE => self.catalog.rename((&from, name), (&to, to_name), true, now)?,
            libc::RENAME_EXCHANGE => self.catalog.exchange((&from, name), (&to, to_name), now)?,
            // RENAME_WHITEOUT is for the upper layer of an overlay.
            _ => return Err(Errno::EINVAL),
        };
        if let Some(replaced) = renamed.replaced {
            self.after_unlink(replaced);
        }
        Ok(())
    }
}
