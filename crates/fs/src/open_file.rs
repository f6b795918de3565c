//! What is open behind a node: one inode, one mode (DESIGN, "One inode, one mode").
//!
//! The backing file is opened once a node and stays open for a while after the last handle, together with its
//! registration in the kernel: most files are used again soon or removed soon, and either way the system calls are saved.

use crate::headroom::grant::Grant;
use crate::headroom::refresh::Refresher;
use crate::lazy::Lazy;
use crate::{Errno, Outcome};
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use ullage_catalog::Record;
use ullage_kv::Seq;
use ullage_pool::{Binding, Fence};
use ullage_types::{PoolId, Timestamp};

/// The handles of a node and its backing file.
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
#[derive(Debug, Default)]
pub(crate) struct OpenFile {
    /// Handles given out and not released.
    pub handles: u32,
    /// Those among them that can write.
    pub writers: u32,
    /// The process that opened the last of these, 0 where that is not known.
    pub opener: u32,
    /// The backing file, while it is open.
    pub backing: Option<Box<OpenBacking>>,
    /// What is held for its writes.
    pub grant: Lazy<Grant>,
    /// Why something that was written to it cannot be on disk. All handles share one descriptor here, which tells of it once: so it
    /// is told to every fsync(2) until the last of them is closed.
    pub failed: Option<Errno>,
    /// Data may have moved in the kernel since pages of it were cached: they are not to be believed.
    pub stale_pages: bool,
    /// Little is left of its limit, and what is written to it unseen is to ask first (`brake.rs`), since then.
    pub braked: Option<std::time::Instant>,
    /// The kernel asks before every write to it (`mark.rs`).
    pub marked: bool,
    /// Who has the kernel ask before the next write, or did last.
    pub refresher: Option<Arc<Refresher>>,
    /// Is on the list of those that are looked at again and again.
    pub watched: bool,
    /// Waits for its turn to be settled.
    pub queued: bool,
    /// Closed, and to be measured soon: the record may be behind until then.
    pub unmeasured: bool,
}

impl OpenFile {
    /// Room is lent to it, or its writes ask: a limit bounds what is written to it unseen.
    pub(crate) fn lends(&self) -> bool {
        self.backing.as_deref().is_some_and(|backing| backing.lends)
    }

    /// Whether the kernel asks before every write to it, and need not any more: said once.
    pub(crate) fn asks_in_vain(&mut self) -> bool {
        self.braked.is_none() && self.writers > 0 && std::mem::take(&mut self.marked)
    }

    /// It is in a fence, and stores into mappings of it that are left may go on unseen.
    pub(crate) fn is_fenced(&self) -> bool {
        self.backing.as_deref().is_some_and(|backing| backing.fence.is_some() && backing.mappable && backing.lends)
    }

    /// The blocks that its file has, where its record may not know: something may have been written since it was measured.
    pub(crate) fn unrecorded(&self) -> Option<u64> {
        let may_be_behind = self.handles > 0 || self.unmeasured;
        let backing = self.backing.as_deref().filter(|backing| may_be_behind && backing.written)?;
        Some(Measure::of(&backing.file).ok()?.blocks)
    }

    /// Remembers a failure to write it out; gives back that, or the one before.
    pub(crate) fn told(&mut self, written: Outcome<()>) -> Outcome<()> {
        self.failed = self.failed.or(written.err());
        self.failed.map_or(Ok(()), Err)
    }

    /// All of it is known to be on disk: nothing was written since the last fsync(2).
    pub(crate) fn is_synced(&self) -> bool {
        let Some(backing) = &self.backing else { return false };
        let same = |synced: Measure, now: Measure| {
            (now.size, now.mtime, now.ctime) == (synced.size, synced.mtime, synced.ctime)
        };
        backing.synced.is_some_and(|synced| Measure::of(&backing.file).is_ok_and(|now| same(synced, now)))
    }

    /// It was written unseen before a limit bounded it, and may be still: through a handle, or without one through a mapping.
    pub(crate) fn is_unbound(&self) -> bool {
        let outlives = |backing: &OpenBacking| self.handles > 0 || backing.mappable;
        self.backing.as_deref().is_some_and(|backing| backing.unseen && !backing.lends && outlives(backing))
    }

    /// Blocks may be taken from it unseen that it is not charged for any more then: by madvise(2), on a mapping that is not bound.
    pub(crate) fn may_lose_blocks(&self) -> bool {
        self.backing.as_deref().is_some_and(|backing| backing.unseen && backing.mappable && !backing.solid)
    }

    /// It has no holes, or need not be without.
    pub(crate) fn is_solid_or_unbound(&self) -> bool {
        self.backing.as_deref().is_none_or(|backing| backing.solid) || self.is_unbound()
    }

    /// Somebody wanted to map the file for writing and could not open it. Unless others did, it may have holes as before.
    pub(crate) fn need_not_be_solid(&mut self) {
        if self.backing.as_deref().is_some_and(|backing| !backing.mappable) {
            self.is_mapped_by_nobody();
        }
    }

    /// Nothing is left that could store into the file unseen.
    pub(crate) fn is_mapped_by_nobody(&mut self) {
        if let Some(grant) = self.grant.changed() {
            grant.unkeep();
            // What had blocks may have lost them unseen.
            grant.unplace();
        }
        if let Some(backing) = &mut self.backing {
            (backing.solid, backing.filled) = (false, false);
        }
    }
}

/// An open backing file.
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
#[derive(Debug)]
pub(crate) struct OpenBacking {
    pub pool: PoolId,
    pub binding: Binding,
    pub file: Arc<File>,
    /// Whether `file` can be written through.
    pub writable: bool,
    /// The kernel's id of the registration, in passthrough mode.
    pub registered: Option<u32>,
    /// What the backing file looked like when the record was last known to be right.
    pub baseline: Measure,
    /// A handle could write since the backing file was opened: its attributes are measured, not remembered.
    pub written: bool,
    /// Among those handles was one through which the file can be mapped for writing, too.
    pub mappable: bool,
    /// Among those handles was one whose writes are not seen here.
    pub unseen: bool,
    /// There is one such handle, given out below a limit, and room is lent to it (`lend.rs`).
    pub lends: bool,
    /// It is gone: the next measurement ends that.
    pub lent_is_gone: bool,
    /// The kernel's own quota around it: it can be mapped, and stores unseen stop there (`fence.rs`).
    pub fence: Option<Fence>,
    /// A limit bounds the file, and it may be mapped in the kernel: it has, and gets, no holes (`solid.rs`).
    pub solid: bool,
    /// It had none: what is taken from it unseen stays charged (`removed.rs`).
    pub filled: bool,
    /// So many blocks it was charged for beside those that lie below its end and behind that.
    pub beside: Option<u64>,
    /// The pool was told that the file is open for writing, and is to be told when that has ended.
    pub claimed: bool,
    /// The newest commit when the record was last brought up to the backing file.
    pub recorded: Seq,
    /// It was looked at whether what is written to it takes blocks only when it is written out, and whether that is so (`late.rs`).
    pub looked: bool,
    /// How often its extents changed otherwise than by writes: a look that began before says nothing.
    pub changed: u32,
    pub late: bool,
    /// What it owes cannot be asked for: it is to be written out.
    pub pays_later: bool,
    /// What it looked like at the last fsync(2) of it.
    pub synced: Option<Measure>,
    /// The pool takes no data: reads give zeros, writes are only counted.
    pub discards: bool,
    /// The record was given times that the backing file has not yet: whether a read moves atime is decided there.
    pub times_behind: bool,
}

impl OpenBacking {
    /// One that nobody has a handle of yet. Where it can be written through the pool counts on being told when that has ended.
    pub(crate) fn new(pool: PoolId, binding: Binding, file: Arc<File>, baseline: Measure, writable: bool) -> Self {
        Self {
            pool,
            binding,
            file,
            writable,
            registered: None,
            baseline,
            written: false,
            mappable: false,
            unseen: false,
            lends: false,
            lent_is_gone: false,
            fence: None,
            solid: false,
            filled: false,
            beside: None,
            claimed: writable,
            recorded: Seq(0),
            looked: false,
            changed: 0,
            late: false,
            pays_later: false,
            synced: None,
            discards: false,
            times_behind: false,
        }
    }

    /// Its extents changed otherwise than by writes.
    pub(crate) fn is_changed(&mut self) {
        self.looked = false;
        self.beside = None;
        self.changed = self.changed.wrapping_add(1);
    }

    /// What is written to it may take more than was counted for that, and nothing stops it but we.
    pub(crate) fn outgrows(&self) -> bool {
        self.late && self.fence.is_none()
    }

    /// Nobody changed the file since it looked like this `before`: its times are as they were, also to the next measurement. A change of
    /// before that is not recorded yet is still to be noticed.
    pub(crate) fn keep_times(&mut self, before: Measure) -> Outcome<()> {
        set_times(&self.file, None, Some(before.mtime))?;
        if self.baseline.ctime == before.ctime {
            self.baseline.ctime = Measure::of(&self.file)?.ctime;
        }
        Ok(())
    }

    /// Gives the backing file the times that its record was given; of that of its data only `with_mtime`, since somebody may be
    /// writing.
    pub(crate) fn follow_times(&mut self, record: &Record, with_mtime: bool, written: bool) -> Outcome<()> {
        set_times(&self.file, Some(record.atime), with_mtime.then_some(record.mtime))?;
        self.times_behind = false;
        let now = Measure::of(&self.file)?;
        // As the file system below keeps it; what else changed, and was not set here, is still to be noticed.
        self.baseline.atime = now.atime;
        if with_mtime {
            self.baseline.mtime = if written { record.mtime } else { now.mtime };
        }
        Ok(())
    }

    /// The same for one that was just opened, and that nobody else has: all of it is as measured then.
    pub(crate) fn begin_with_times(&mut self, record: &Record) -> Outcome<()> {
        set_times(&self.file, Some(record.atime), Some(record.mtime))?;
        self.times_behind = false;
        self.baseline = Measure::of(&self.file)?;
        Ok(())
    }
}

/// What fstat(2) says of a backing file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measure {
    pub size: u64,
    pub blocks: u64,
    /// Size of a block; the same for the whole life of a file.
    pub block: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
}

impl Measure {
    pub(crate) fn of(file: &impl AsFd) -> rustix::io::Result<Self> {
        let stat = rustix::fs::fstat(file)?;
        let time = |seconds: i64, nanoseconds: u64| Timestamp { seconds, nanoseconds: nanoseconds as u32 };
        Ok(Self {
            size: stat.st_size as u64,
            blocks: stat.st_blocks as u64,
            block: block(stat.st_blksize as u64),
            atime: time(stat.st_atime, stat.st_atime_nsec),
            mtime: time(stat.st_mtime, stat.st_mtime_nsec),
            ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        })
    }
}

impl Measure {
    /// Whether the file has the times that its record says.
    pub(crate) fn has_times_of(&self, record: &Record) -> bool {
        (self.atime, self.mtime) == (record.atime, record.mtime)
    }

    /// Whether all that changes the file from `now` on shows in its times, which are cut to so much.
    pub(crate) fn shows_changes(&self, now: Timestamp, cut_to: Duration) -> bool {
        let nanoseconds = |time: Timestamp| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
        nanoseconds(now) - nanoseconds(self.ctime) >= cut_to.as_nanos() as i128
    }
}

/// What st_blksize says of the size of a block. Where it says more than blocks have anywhere it is what to transfer at once.
fn block(said: u64) -> u64 {
    const LARGEST: u64 = 64 << 10;
    const USUAL: u64 = 4096;
    if said > LARGEST { USUAL } else { said.max(512) }
}

/// Gives a backing file times: those that its record was given while it was closed, or that of its last write alone.
pub(crate) fn set_times(file: &File, atime: Option<Timestamp>, mtime: Option<Timestamp>) -> Outcome<()> {
    let time = |t: Timestamp| rustix::fs::Timespec { tv_sec: t.seconds, tv_nsec: t.nanoseconds.into() };
    let as_it_is = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let times = rustix::fs::Timestamps {
        last_access: atime.map_or(as_it_is, time),
        last_modification: mtime.map_or(as_it_is, time),
    };
    Ok(rustix::fs::futimens(file, &times)?)
}

/// A handle's number says by itself whether it can write (in bit 0), and whether it is what room was lent to (in bit 1).
pub(crate) fn handle(serial: u64, writes: bool, lent: bool) -> u64 {
    serial << 2 | u64::from(lent) << 1 | u64::from(writes)
}

/// Whether a handle is what room was lent to.
pub(crate) fn is_lent(handle: u64) -> bool {
    handle & 2 == 2
}

/// Whether a handle can write.
pub(crate) fn writes(handle: u64) -> bool {
    handle & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headroom::lend::tests::lending_file;
    use rustix::fs::FallocateFlags;

    /// What was written in the second of an fsync(2) looked as if that had it.
    #[test]
    fn where_times_are_cut_to_seconds_a_change_in_the_same_one_does_not_show() {
        let at = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
        let whole = Measure { ctime: at(7, 0), ..Measure::default() };
        let (second, nanosecond) = (Duration::from_secs(1), Duration::from_nanos(1));
        assert!(!whole.shows_changes(at(7, 999_999_999), second));
        assert!(whole.shows_changes(at(8, 0), second));
        assert!(whole.shows_changes(at(7, 1), nanosecond) && !whole.shows_changes(at(7, 0), nanosecond));
    }

    /// Regression: what a file said after its holes were filled was taken for what is recorded, and the time of a write before that went back
    /// to what it had been before the write: backups missed what was written.
    #[test]
    fn a_write_that_is_not_recorded_yet_keeps_its_time_when_blocks_are_given() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending_file(dir.path(), 4096);
        space.record_measure(&node, &mut node.open.lock()).unwrap();
        let mut open = node.open.lock();
        let backing = open.backing.as_deref_mut().unwrap();
        let written = Timestamp { seconds: 1_000_000, nanoseconds: 0 };
        set_times(&backing.file, None, Some(written)).unwrap();
        let before = Measure::of(&backing.file).unwrap();
        rustix::fs::fallocate(&backing.file, FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
        backing.keep_times(before).unwrap();
        assert_eq!(Measure::of(&backing.file).unwrap().mtime, written);
        space.record_measure(&node, &mut open).unwrap();
        assert_eq!(node.inode.record().mtime, written);
        drop(open);
        space.brake.stop();
    }
}
