//! Taking backing files back (DESIGN, "Backing files outlive their names").
//!
//! Whoever was told to give a file back may be wrong: after a killed daemon a descriptor or a mapping still writes to the
//! backing file. So the kernel is asked: nobody else has it open, and it may be used again; only readers have, and it
//! may be removed, but must never show them the next owner's bytes; writers have, and it stays as it is, in quarantine. Where the
//! kernel does not say, it is removed: whoever holds it keeps what he holds, and nobody else ever gets it. In quarantine waits also what a
//! plain tree could not tell from a copy without its name in the pool.

use super::core::Core;
use super::leaf::Leaf;
use super::record::Record;
use super::stats::count;
use super::{name, quarantine, record};
use crate::sys::{self, Lease};
use crate::which::Which;
use crate::{Binding, Fresh};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use ullage_types::Generation;

/// Who else has a file open or mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holders {
    Nobody,
    Readers,
    Writers,
    /// The kernel tells only who owns the file, or has `CAP_LEASE`.
    Untold,
}

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Recycled,
    /// Kept empty and nobody's, its leaf still marked.
    Emptied,
    Removed,
    /// It must go into quarantine.
    Held,
    /// There was none.
    Gone,
}

impl Core {
    /// Empties and recycles, or removes, the backing file of a binding. Marks its leaf first.
    pub fn retire(&self, binding: &Binding) -> Result<Fate, crate::Error> {
        let Ok((path, file_name)) = name::split_binding(binding) else {
            tracing::warn!(?binding, "a backing file that is no name of ours was given back; it is left alone");
            return Ok(Fate::Gone);
        };
        self.retire_path(path, file_name, binding)
    }

    /// Makes an emptied file ready. Call for what [`super::series::Series::unstock`] gave.
    pub fn reuse(&self, binding: &Binding) -> Result<Fate, crate::Error> {
        self.stocked.fetch_sub(1, Ordering::Relaxed);
        self.retire(binding)
    }

    /// Removes emptied files.
    pub fn part(&self, all: bool) {
        for series in &self.series {
            for binding in series.part(all) {
                self.stocked.fetch_sub(1, Ordering::Relaxed);
                let Ok((path, file_name)) = name::split_binding(&binding) else { continue };
                let leaf = self.leaves.get(path);
                let removed = self.leaf_dir(&leaf).and_then(|dir| self.remove(&leaf, &dir, file_name));
                match removed {
                    Ok(_) => leaf.leave(binding.generation),
                    Err(error) => {
                        tracing::warn!(%error, "an emptied backing file stays behind until its leaf is looked through");
                        count(&self.counters.failed);
                    }
                }
            }
        }
    }

    fn retire_path(&self, path: &str, file_name: &str, binding: &Binding) -> Result<Fate, crate::Error> {
        let leaf = self.leaves.get(path);
        leaf.enter(binding.generation, &self.marks)?;
        let fate =
            self.retire_in(&leaf, file_name).map_err(crate::Error::io("take back", self.full_path(path, file_name)))?;
        match fate {
            Fate::Emptied => {
                if let Some((series, _)) = leaf.place {
                    self.series[series].stock(binding.clone());
                    self.stocked.fetch_add(1, Ordering::Relaxed);
                    count(&self.counters.emptied);
                }
            }
            Fate::Recycled | Fate::Removed | Fate::Held | Fate::Gone => leaf.leave(binding.generation),
        }
        Ok(fate)
    }

    fn retire_in(&self, leaf: &Leaf, file_name: &str) -> rustix::io::Result<Fate> {
        let dir = match self.leaf_dir(leaf) {
            Ok(dir) => dir,
            Err(Errno::NOENT) => return Ok(Fate::Gone),
            Err(errno) => return Err(errno),
        };
        match self.vouches(&dir, file_name) {
            Ok(true) => return self.hold(leaf, &dir, file_name),
            Ok(false) => {}
            Err(Errno::NOENT) => return Ok(Fate::Gone),
            Err(errno) => return Err(errno),
        }
        if !self.abilities.leases {
            return self.remove(leaf, &dir, file_name);
        }
        let (holders, file) = match holders(&dir, file_name) {
            Ok(answer) => answer,
            Err(Errno::NOENT) => return Ok(Fate::Gone),
            Err(errno) => return Err(errno),
        };
        match (holders, file) {
            (Holders::Writers, _) => self.hold(leaf, &dir, file_name),
            // In a plain tree it still has a name: what is read there is its own to the end, and that is known to be ours.
            (Holders::Nobody, Some(file)) if rustix::fs::fstat(&file)?.st_nlink > 1 => {
                if self.config.layout == "mirror" {
                    record::bind(&file)?;
                }
                self.remove(leaf, &dir, file_name)
            }
            (Holders::Nobody, Some(file)) if self.wants(leaf) => {
                let recycled = self.recycle(leaf, &dir, file_name, file)?;
                if recycled { Ok(Fate::Recycled) } else { self.remove(leaf, &dir, file_name) }
            }
            (Holders::Nobody, Some(file))
                if self.stocks(leaf) && empty(&file)? && self.disown(&file, file_name).is_ok() =>
            {
                Ok(Fate::Emptied)
            }
            _ => self.remove(leaf, &dir, file_name),
        }
    }

    /// Has an emptied file say that it is nobody's. It keeps its name, by which a rebuild from an older catalog would bring back, empty, what was
    /// removed since.
    fn disown(&self, file: &OwnedFd, file_name: &str) -> rustix::io::Result<()> {
        let generation = name::parse(file_name).map_or(Generation(0), |(_, generation)| generation);
        let record = self.record(record::NOBODY, generation);
        self.write_record(file, &record).and_then(|()| self.is_alone_with(file, &record))
    }

    /// Whether a plain tree has a file too, and nothing but this name would say there that it is ours: where there are no times of birth, what
    /// has one name only may be a copy. A file that was taken in twice has two names here: the one that it says itself is enough, else each
    /// would be kept for the other's sake.
    pub fn vouches(&self, dir: &OwnedFd, file_name: &str) -> rustix::io::Result<bool> {
        if self.config.layout != "mirror" || rustix::fs::statat(dir, file_name, AtFlags::SYMLINK_NOFOLLOW)?.st_nlink < 2
        {
            return Ok(false);
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir, file_name, flags, Mode::empty())?;
        if Which::of(&file)?.birth.is_some() {
            return Ok(false);
        }
        Ok(record::at_path(&file)?.is_none_or(|record| name::of(record.file, record.generation) == file_name))
    }

    fn hold(&self, leaf: &Leaf, dir: &OwnedFd, name: &str) -> rustix::io::Result<Fate> {
        self.take_out(leaf, || rustix::fs::renameat(dir, name, self.root(), quarantine::path(name)))?;
        count(&self.counters.quarantined);
        Ok(Fate::Held)
    }

    /// Says of a file that it could not be taken back.
    pub fn keep(&self, error: &crate::Error) {
        tracing::warn!(%error, "a backing file could not be taken back; it stays until its leaf is looked through");
        count(&self.counters.failed);
    }

    fn stocks(&self, leaf: &Leaf) -> bool {
        let open = self.config.ready && !self.closing.load(Ordering::Relaxed);
        let room = self.stocked.load(Ordering::Relaxed) < self.most_stock.load(Ordering::Relaxed);
        open && room && leaf.place.is_some()
    }

    fn wants(&self, leaf: &Leaf) -> bool {
        let open = self.config.ready && !self.closing.load(Ordering::Relaxed);
        open && leaf.place.is_some_and(|(series, _)| self.held(series).wants_used())
    }

    /// Gives an empty file new numbers, attribute and name, in this order: a crash in between leaves a name that no
    /// catalog knows, or one whose attribute carries numbers that no catalog knows.
    fn recycle(&self, leaf: &Leaf, dir: &OwnedFd, old: &str, opened: OwnedFd) -> rustix::io::Result<bool> {
        if !empty(&opened)? || self.descriptors.admit(&opened).is_err() {
            return Ok(false);
        }
        let Some((series, _)) = leaf.place else { return Ok(false) };
        let (file, generation) = self.numbers.next();
        let Ok(_) = leaf.enter(generation, &self.marks) else { return Ok(false) };
        let name = name::of(file, generation);
        let record = self.record(file, generation);
        let renamed = self
            .write_record(&opened, &record)
            .and_then(|()| self.is_alone_with(&opened, &record))
            .and_then(|()| rustix::fs::renameat_with(dir, old, dir, &*name, rustix::fs::RenameFlags::NOREPLACE));
        if renamed.is_err() {
            leaf.leave(generation);
            return Ok(false);
        }
        let binding = Binding { file, generation, locator: name::locator(&leaf.path, &name) };
        self.put(series, Fresh { binding, file: Arc::new(File::from(opened)), prepared: None });
        count(&self.counters.recycled);
        Ok(true)
    }

    /// Nobody who opened a file by the name and the numbers that it had before may write those to it any more, nor has done so.
    fn is_alone_with(&self, file: &OwnedFd, record: &Record) -> rustix::io::Result<()> {
        sys::probe_lease(file, Lease::Write)?;
        let numbers = |record: &Record| (record.file, record.generation);
        let now = if self.abilities.xattrs { self.read_record(file)? } else { Some(*record) };
        if now.as_ref().map(numbers) == Some(numbers(record)) { Ok(()) } else { Err(Errno::BUSY) }
    }

    fn remove(&self, leaf: &Leaf, dir: &OwnedFd, file_name: &str) -> rustix::io::Result<Fate> {
        match self.take_out(leaf, || rustix::fs::unlinkat(dir, file_name, AtFlags::empty())) {
            Ok(()) => {
                count(&self.counters.removed);
                Ok(Fate::Removed)
            }
            Err(Errno::NOENT) => Ok(Fate::Gone),
            Err(errno) => Err(errno),
        }
    }

    /// Takes a file out of its leaf, which may make room in it.
    pub fn take_out(&self, leaf: &Leaf, how: impl FnOnce() -> rustix::io::Result<()>) -> rustix::io::Result<()> {
        let Some((series, number)) = leaf.place else { return how() };
        // Locked around both, so that a leaf being counted is neither counted too early nor too late.
        let mut leaves = self.series[series].leaves.lock();
        how()?;
        if let Some(leaves) = &mut *leaves {
            if leaves.knows(number) {
                leaves.gave_back(number);
            } else if let Ok(files) = self.count_files(&leaf.path) {
                leaves.learn(number, files);
            }
        }
        Ok(())
    }

    /// Puts an abandoned file back among the ready ones, if nobody wrote to it and nobody else has it; else gives it back.
    pub fn take_back(&self, fresh: Fresh) -> Option<Fresh> {
        let place = name::split_binding(&fresh.binding).ok().and_then(|(path, _)| {
            let leaf = self.leaves.get(path);
            let untouched = self.wants(&leaf)
                && self.abilities.leases
                && Arc::strong_count(&fresh.file) == 1
                && is_empty(&fresh.file).unwrap_or(false)
                && sys::probe_lease(&fresh.file, Lease::Write).is_ok();
            leaf.place.filter(|_| untouched)
        });
        let Some((series, _)) = place else { return Some(fresh) };
        self.put(series, fresh);
        None
    }
}

fn is_empty(file: impl AsFd) -> rustix::io::Result<bool> {
    let stat = rustix::fs::fstat(file)?;
    Ok(stat.st_size == 0 && stat.st_blocks == 0)
}

/// Empties a file; whether nothing is left: an attribute or the ACL of one that was imported would be its next owner's, and of an error he would be
/// told by fsync(2).
fn empty(file: impl AsFd) -> rustix::io::Result<bool> {
    if !is_empty(&file)? {
        rustix::fs::ftruncate(&file, 0)?;
        // ext4, xfs and btrfs take this for a program that replaces a file: at the next close they would write out at once
        // what the file's next owner has written (ext4 calls it `auto_da_alloc`). So that close is here.
        drop(sys::reopen(&file, OFlags::RDWR));
    }
    Ok(!sys::lost_writes(&file) && is_empty(&file)? && is_bare(&file)?)
}

/// Whether a file has no attributes but ours and those that any file gets where it lies. Not every file system keeps them in blocks that are counted.
fn is_bare(file: impl AsFd) -> rustix::io::Result<bool> {
    let mut names = [0u8; 256];
    let length = match rustix::fs::flistxattr(file, &mut names[..]) {
        Err(Errno::NOTSUP | Errno::NOSYS) => 0,
        Err(Errno::RANGE) => return Ok(false),
        listed => listed?,
    };
    let ours =
        |name: &[u8]| name == record::NAME.as_bytes() || name == b"security.selinux" || name.starts_with(b"btrfs.");
    Ok(names[..length].split(|byte| *byte == 0).all(|name| name.is_empty() || ours(name)))
}

/// Who has a file of a directory open; with it the file itself, open for reading and writing, when nobody has.
pub fn holders(dir: &OwnedFd, name: &str) -> rustix::io::Result<(Holders, Option<OwnedFd>)> {
    match ask(dir, name) {
        Err(Errno::ACCESS | Errno::PERM) => Ok((Holders::Untold, None)),
        answer => answer,
    }
}

fn ask(dir: &OwnedFd, name: &str) -> rustix::io::Result<(Holders, Option<OwnedFd>)> {
    let open = |access| rustix::fs::openat(dir, name, access | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    let file = open(OFlags::RDWR)?;
    match sys::probe_lease(&file, Lease::Write) {
        Ok(()) => return Ok((Holders::Nobody, Some(file))),
        Err(Errno::AGAIN) => drop(file),
        Err(errno) => return Err(errno),
    }
    let file = open(OFlags::RDONLY)?;
    match sys::probe_lease(&file, Lease::Read) {
        Ok(()) => Ok((Holders::Readers, None)),
        Err(Errno::AGAIN) => Ok((Holders::Writers, None)),
        Err(errno) => Err(errno),
    }
}
