//! Another name for a file.

use crate::directory::Dirent;
use crate::inode::{Inode, lock_in_order};
use crate::ops::{LINK_MAX, after, check_directory, check_name, touch};
use crate::{Catalog, Error, Result, keys, names};
use std::sync::Arc;
use ullage_kv::Batch;
use ullage_types::Timestamp;

impl Catalog {
    /// Gives `file` the name `name` in `parent`. A file without any name (O_TMPFILE) gets its first one.
    pub fn link(&self, file: &Arc<Inode>, parent: &Arc<Inode>, name: &[u8], now: Timestamp) -> Result<()> {
        check_name(name)?;
        if file.is_directory() {
            return Err(Error::IsDirectory);
        }
        // Before any lock: it may be the file itself.
        if !parent.is_directory() {
            return Err(Error::NotDirectory);
        }
        let _gate = self.enter()?;
        let [mut state, mut to] = lock_in_order([file, parent]);
        check_directory(&to)?;
        if state.removed {
            return Err(Error::NotFound);
        }
        if to.find(&*self.kv, parent.id, name)?.is_some() {
            return Err(Error::Exists);
        }
        if state.record.nlink >= LINK_MAX {
            return Err(Error::TooManyLinks);
        }
        self.refuse_when_tight()?;
        let mut batch = Batch::new();
        let mut record = state.record.clone();
        let before = self.charged_to(&record)?;
        let first = record.nlink == 0;
        if !first {
            self.same_domain(&before, parent)?;
        }
        record.nlink += 1;
        record.ctime = after(record.ctime, now);
        match record.nlink {
            1 => {
                batch.del(keys::orphan(file.id));
                record.parent = parent.id;
                record.name = name.into();
            }
            2 => names::add(&mut batch, file.id, record.parent, &record.name),
            _ => {}
        }
        if record.nlink >= 2 {
            names::add(&mut batch, file.id, parent.id, name);
        }
        let dirent = Dirent { file: file.id, kind: file.kind, cookie: to.record.next_cookie };
        let mut directory = to.record.clone();
        directory.next_cookie += 1;
        directory.entries += 1;
        touch(&mut directory, now);
        batch.put_new(keys::entry(parent.id, name), dirent.encode());
        batch.put(keys::inode(parent.id), directory.encode());
        batch.put(keys::inode(file.id), record.encode());
        let shift = if first { Some(self.ledger.shift(&before, parent, state.gain())?) } else { None };
        self.commit(batch)?;
        if let Some(shift) = shift {
            shift.keep();
        } else {
            self.ledger.count_linked(parent, 1);
            if record.nlink == 2 {
                self.ledger.count_linked(&before, 1);
            }
        }
        to.directory.insert(name, dirent);
        to.record = directory;
        state.record = record;
        drop((state, to));
        if first { self.retire(Some(before)) } else { Ok(()) }
    }
}
