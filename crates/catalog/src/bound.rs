//! Which files have backing files, read from the records alone.

use crate::record::{Backing, Record};
use crate::{Catalog, Result, keys};
use ullage_types::FileId;

impl Catalog {
    /// Visits every file that has a backing file. One scan of all inode records: for recovery, not for operations.
    pub fn each_backing(&self, visit: &mut dyn FnMut(FileId, &Backing)) -> Result<()> {
        let mut damaged = None;
        self.kv.scan(&[keys::INODE], &[], &mut |key, value| {
            let Some(id) = keys::id_in(key) else { return true };
            match Record::decode(id, value) {
                Ok(Record { backing: Some(backing), .. }) => visit(id, &backing),
                Ok(_) => {}
                Err(error) => damaged = Some(error),
            }
            damaged.is_none()
        })?;
        damaged.map_or(Ok(()), Err)
    }
}
