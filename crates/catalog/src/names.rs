//! The names of files that have several: kept beside the inode, so that a charge can follow a name that stays.

use crate::{Catalog, Inode, Result, keys};
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
    /// Visits every name of a file, which is locked meanwhile: who removes all but one takes that from those that are kept here.
    pub fn each_name(&self, file: &Inode, visit: &mut dyn FnMut(FileId, &[u8])) -> Result<()> {
        let state = file.lock();
        let record = &state.record;
        if record.nlink == 1 {
            visit(record.parent, &record.name);
        } else if record.nlink > 1 {
            self.kv.scan(&keys::names(file.id), &[], &mut |key, _| {
                keys::name_in(key).inspect(|(directory, name)| visit(*directory, name));
                true
            })?;
        }
        Ok(())
    }

    /// One of the names of a multiply-linked file other than the given one.
    pub(crate) fn other_name(&self, file: FileId, directory: FileId, name: &[u8]) -> Result<Option<Name>> {
        let given = keys::name(file, directory, name);
        // On from the given one: where names are removed in order, a scan from the beginning would pass all that are gone,
        // each time.
        match self.first_name_from(file, &given, &given)? {
            None => self.first_name_from(file, &[], &given),
            found => Ok(found),
        }
    }

    /// The first of a file's names whose key is not less than `from`, but for the given one.
    fn first_name_from(&self, file: FileId, from: &[u8], given: &[u8]) -> Result<Option<Name>> {
        let mut other = None;
        self.kv.scan(&keys::names(file), from, &mut |key, _| {
            other = keys::name_in(key)
                .filter(|_| key != given)
                .map(|(directory, name)| Name { directory, name: name.into() });
            other.is_none()
        })?;
        Ok(other)
    }
}
