//! Which files have backing files, read from the records alone.

use crate::record::{Backing, Record};
use crate::{Catalog, Facts, Result, keys};
use std::collections::BTreeSet;
use ullage_kv::Kv;
use ullage_types::{Bytes, FileId, PoolId};

impl Catalog {
    /// Visits every file that has a backing file. One scan of all inode records: for recovery, not for operations.
    pub fn each_backing(&self, visit: &mut dyn FnMut(FileId, &Backing)) -> Result<()> {
        each_bound(&*self.kv, &mut |file, backing, _| visit(file, backing))
    }

    /// The files that lie in a pool, and how many bytes their records say that each takes there.
    pub fn lies_in(&self, pool: PoolId) -> Result<Vec<(FileId, Bytes)>> {
        lies_in(&*self.kv, pool)
    }
}

/// [`Catalog::lies_in`] of a catalog that is not open.
pub fn lies_in(kv: &dyn Kv, pool: PoolId) -> Result<Vec<(FileId, Bytes)>> {
    let mut files = Vec::new();
    each_bound(kv, &mut |file, backing, blocks| {
        if backing.pool == pool {
            files.push((file, Bytes(blocks * 512)));
        }
    })?;
    Ok(files)
}

/// The pools in which files lie by these records, but none of those that were found: they were not looked at, or nothing that the records speak of
/// is left there.
pub fn pools_left_out(kv: &dyn Kv, facts: &Facts) -> Result<BTreeSet<PoolId>> {
    let (mut named, mut seen) = (BTreeSet::new(), BTreeSet::new());
    kv.scan(&[keys::INODE], &[], &mut |key, value| {
        // What is damaged a repair sees to.
        let record = keys::id_in(key).and_then(|id| Some((id, Record::decode(id, value).ok()?.backing?)));
        if let Some((id, backing)) = record {
            let found = facts.found.contains_key(&(id, backing.generation));
            if found {
                seen.insert(backing.pool)
            } else {
                named.insert(backing.pool)
            };
        }
        true
    })?;
    Ok(&named - &seen)
}

fn each_bound(kv: &dyn Kv, visit: &mut dyn FnMut(FileId, &Backing, u64)) -> Result<()> {
    let mut damaged = None;
    kv.scan(&[keys::INODE], &[], &mut |key, value| {
        let Some(id) = keys::id_in(key) else { return true };
        match Record::decode(id, value) {
            Ok(Record { backing: Some(backing), blocks, .. }) => visit(id, &backing, blocks),
            Ok(_) => {}
            Err(error) => damaged = Some(error),
        }
        damaged.is_none()
    })?;
    damaged.map_or(Ok(()), Err)
}
