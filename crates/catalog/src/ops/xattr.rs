//! Extended attributes. Policy (name spaces, ACLs) is the file system's; this stores them.

use crate::inode::Inode;
use crate::ops::after;
use crate::record::Record;
use crate::{Catalog, Error, Result, keys};
use std::sync::Arc;
use ullage_kv::Batch;
use ullage_types::Timestamp;

/// Most bytes of names and values together; ext4 without `ea_inode` has about one block.
const ALL_MAX: usize = 256 * 1024;

/// Whether an attribute must or must not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Either.
    Any,
    /// `XATTR_CREATE`.
    Create,
    /// `XATTR_REPLACE`.
    Replace,
}

impl Catalog {
    /// The value of an attribute. [`Error::NoAttribute`] when there is none.
    pub fn xattr(&self, inode: &Arc<Inode>, name: &[u8]) -> Result<Vec<u8>> {
        let state = inode.lock();
        if state.record.xattrs == 0 {
            return Err(Error::NoAttribute);
        }
        self.kv.get(&keys::xattr(inode.id, name))?.ok_or(Error::NoAttribute)
    }

    /// All attributes, in the order of their names.
    pub fn xattrs(&self, inode: &Arc<Inode>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let state = inode.lock();
        let mut all = Vec::new();
        if state.record.xattrs > 0 {
            self.kv.scan(&keys::xattrs(inode.id), &[], &mut |key, value| {
                all.push((key[9..].to_vec(), value.to_vec()));
                true
            })?;
        }
        Ok(all)
    }

    /// Sets an attribute; `change` may change the record with it (an ACL and the mode follow each other).
    pub fn set_xattr(
        &self,
        inode: &Arc<Inode>,
        name: &[u8],
        value: &[u8],
        mode: Mode,
        now: Timestamp,
        change: impl FnOnce(&mut Record),
    ) -> Result<()> {
        let _gate = self.enter()?;
        let mut state = inode.lock();
        let key = keys::xattr(inode.id, name);
        let before = if state.record.xattrs > 0 { self.kv.get(&key)? } else { None };
        match (&before, mode) {
            (Some(_), Mode::Create) => return Err(Error::Exists),
            (None, Mode::Replace) => return Err(Error::NoAttribute),
            _ => {}
        }
        let mut record = state.record.clone();
        let old = before.as_ref().map_or(0, |value| name.len() + value.len());
        let bytes = record.xattr_bytes as usize - old + name.len() + value.len();
        if bytes > ALL_MAX {
            return Err(Error::AttributesFull);
        }
        if before.as_ref().is_none_or(|before| before.len() < value.len()) {
            self.refuse_when_tight()?;
        }
        record.xattr_bytes = bytes as u32;
        record.xattrs += u32::from(before.is_none());
        change(&mut record);
        if before.as_deref() == Some(value) && record == state.record {
            // As ext4 does: what is the same is not a change.
            return Ok(());
        }
        if record.ctime == state.record.ctime {
            record.ctime = after(record.ctime, now);
        }
        let mut batch = Batch::new();
        batch.put(key, value.to_vec());
        self.store(inode, &mut state, record, batch)?;
        Ok(())
    }

    /// Removes an attribute; `change` may change the record with it. [`Error::NoAttribute`] when there is none.
    pub fn remove_xattr(
        &self,
        inode: &Arc<Inode>,
        name: &[u8],
        now: Timestamp,
        change: impl FnOnce(&mut Record),
    ) -> Result<()> {
        let _gate = self.enter()?;
        let mut state = inode.lock();
        let key = keys::xattr(inode.id, name);
        if state.record.xattrs == 0 {
            return Err(Error::NoAttribute);
        }
        let before = self.kv.get(&key)?.ok_or(Error::NoAttribute)?;
        let mut record = state.record.clone();
        record.xattrs -= 1;
        record.xattr_bytes -= (name.len() + before.len()) as u32;
        record.ctime = after(record.ctime, now);
        change(&mut record);
        let mut batch = Batch::new();
        batch.del(key);
        self.store(inode, &mut state, record, batch)?;
        Ok(())
    }
}
