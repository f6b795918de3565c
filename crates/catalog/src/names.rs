//! The names of files that have several: kept beside the inode, so that a charge can follow a name that stays.

use crate::{Catalog, Result, keys};
use ullage_kv::Batch;
use ullage_types::FileId;

/// A name and the directory it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub directory: FileId,
    pub name: Vec<u8>,
}

pub(crate) fn add(batch: &mut Batch, file: FileId, directory: FileId, name: &[u8]) {
    batch.put_new(keys::name(file, directory, name), Vec::new());
}

pub(crate) fn remove(batch: &mut Batch, file: FileId, directory: FileId, name: &[u8]) {
    batch.del(keys::name(file, directory, name));
}

impl Catalog {
    /// One of the names of a multiply-linked file other than the given one.
    pub(crate) fn other_name(&self, file: FileId, directory: FileId, name: &[u8]) -> Result<Option<Name>> {
        let given = keys::name(file, directory, name);
        let mut other = None;
        self.kv.scan(&keys::names(file), &[], &mut |key, _| {
            if key == given || key.len() < 17 {
                return true;
            }
            let directory = FileId(u64::from_be_bytes(key[9..17].try_into().expect("eight bytes")));
            other = Some(Name { directory, name: key[17..].to_vec() });
            false
        })?;
        Ok(other)
    }
}
