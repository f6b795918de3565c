//! Making a file of any kind.

use crate::directory::{Directory, Dirent};
use crate::inode::Inode;
use crate::ledger::Totals;
use crate::ops::{check_directory, check_name, touch};
use crate::record::{Backing, Record};
use crate::{Catalog, Error, Result, keys};
use std::sync::Arc;
use ullage_kv::Batch;
use ullage_types::{Class, FileId, Kind, Timestamp};

/// What a new file is to be.
#[derive(Clone, Debug)]
pub struct New {
    /// Its id: the one its backing file was bound to, or one from [`Catalog::numbers`].
    pub id: FileId,
    /// Its kind.
    pub kind: Kind,
    /// Its class.
    pub class: Class,
    /// Its permission bits.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// For devices.
    pub rdev: u32,
    /// For symbolic links.
    pub target: Box<[u8]>,
    /// For regular files.
    pub backing: Option<Backing>,
    /// Extended attributes it is born with (inherited ACLs).
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// What it brings, where it was a file before.
    pub brought: Option<Brought>,
}

/// What a file brings that is there already: of the same commit as its record, so that no crash leaves one without the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brought {
    /// Its length in bytes; of regular files only.
    pub size: u64,
    /// Its blocks of 512 bytes; of regular files only.
    pub blocks: u64,
    /// When it was read last.
    pub atime: Timestamp,
    /// When it was written last.
    pub mtime: Timestamp,
}

impl New {
    fn record(&self, parent: FileId, name: &[u8], now: Timestamp) -> Record {
        assert_eq!(
            self.backing.is_some(),
            self.kind == Kind::Regular,
            "regular files and only they have a backing file"
        );
        let mut record = Record {
            class: self.class,
            rdev: self.rdev,
            size: self.target.len() as u64,
            name: name.into(),
            xattrs: self.xattrs.len() as u32,
            xattr_bytes: self.xattrs.iter().map(|(name, value)| (name.len() + value.len()) as u32).sum(),
            backing: self.backing.clone(),
            target: self.target.clone(),
            ..Record::empty(self.kind, parent, self.mode & 0o7777, (self.uid, self.gid), now)
        };
        if let Some(brought) = self.brought {
            (record.atime, record.mtime) = (brought.atime, brought.mtime);
            if self.kind == Kind::Regular {
                (record.size, record.blocks) = (brought.size, brought.blocks);
            }
        }
        record
    }
}

impl Catalog {
    /// Makes a file under a name that is free.
    pub fn create(&self, parent: &Arc<Inode>, name: &[u8], new: New, now: Timestamp) -> Result<Arc<Inode>> {
        check_name(name)?;
        let _gate = self.enter()?;
        let mut state = parent.lock();
        check_directory(&state)?;
        if state.find(&*self.kv, parent.id, name)?.is_some() {
            return Err(Error::Exists);
        }
        self.refuse_when_tight()?;
        let mut batch = Batch::new();
        let inode = self.born(parent, name, &new, now, &mut batch);
        let dirent = Dirent { file: new.id, kind: new.kind, cookie: state.record.next_cookie };
        batch.put_new(keys::entry(parent.id, name), dirent.encode());
        let mut record = state.record.clone();
        record.next_cookie += 1;
        record.entries += 1;
        record.nlink += u32::from(new.kind == Kind::Directory);
        touch(&mut record, now);
        batch.put(keys::inode(parent.id), record.encode());
        let charged = if new.kind == Kind::Directory { &inode } else { parent };
        let weight = inode.lock().weight();
        let admitted = self.ledger.admit(Some((charged, None)), Some(new.uid), new.class, weight)?;
        self.commit_born(batch, &inode)?;
        admitted.keep();
        state.directory.insert(name, dirent);
        state.record = record;
        Ok(inode)
    }

    /// Makes a regular file without a name (O_TMPFILE): charged to `parent`, gone with its last handle.
    pub fn create_unnamed(&self, parent: &Arc<Inode>, new: New, now: Timestamp) -> Result<Arc<Inode>> {
        let _gate = self.enter()?;
        // Held to the end, so that the directory cannot be removed before it is charged.
        let above = parent.lock();
        check_directory(&above)?;
        self.refuse_when_tight()?;
        let mut batch = Batch::new();
        let inode = self.born(parent, b"", &new, now, &mut batch);
        {
            let mut state = inode.lock();
            state.record.nlink = 0;
            batch.put(keys::inode(new.id), state.record.encode());
            batch.put_new(keys::orphan(new.id), Vec::new());
        }
        let weight = inode.lock().weight();
        let admitted = self.ledger.admit(Some((parent, None)), Some(new.uid), new.class, weight)?;
        self.commit_born(batch, &inode)?;
        admitted.keep();
        drop(above);
        Ok(inode)
    }

    /// The new file in memory, and its records in the batch.
    pub(super) fn born(
        &self,
        parent: &Arc<Inode>,
        name: &[u8],
        new: &New,
        now: Timestamp,
        batch: &mut Batch,
    ) -> Arc<Inode> {
        let record = new.record(parent.id, name, now);
        batch.put_new(keys::inode(new.id), record.encode());
        for (name, value) in &new.xattrs {
            batch.put_new(keys::xattr(new.id, name), value.clone());
        }
        let is_directory = new.kind == Kind::Directory;
        Arc::new(Inode::new(
            new.id,
            record,
            if is_directory { Directory::empty() } else { Directory::default() },
            is_directory.then(|| parent.clone()),
            is_directory.then(Totals::default),
            Arc::downgrade(&self.table),
        ))
    }

    /// Commits a new file. Anybody can guess its number (open_by_handle_at(2)), so it is in memory before its record can be read, and
    /// who finds it there waits for its lock. That is taken out of the order of ids: nobody else has had it, nor waits for another one
    /// with it.
    pub(super) fn commit_born(&self, batch: Batch, inode: &Arc<Inode>) -> Result<()> {
        let mut state = inode.lock();
        self.table.enter(inode);
        let outcome = self.commit(batch);
        if outcome.is_err() {
            (state.removed, state.record.nlink) = (true, 0);
            self.table.leave(inode.id);
        }
        outcome.map(drop)
    }
}
