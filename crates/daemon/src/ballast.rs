//! Room that the catalog has for itself on its disk.
//!
//! Who fills that disk, in the kernel where a pool is on it too, takes the catalog's room: it can write nothing more, and then no
//! file can be removed to make room. So what it has no room for stays in its log, whose room is its own; and a file holds some in
//! advance. When the space is started on a disk that is full the file goes, and the pools there leave as much free, until a start
//! finds plenty again.

mod given;
mod inodes;

use crate::State;
use crate::error::io_error;
use crate::settings::config::private;
pub(crate) use given::Given;
use inodes::Inodes;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use ullage_kv::Room;

const NAME: &str = "ballast";
/// The most that is held.
const MOST_BYTES: u64 = 64 << 20;
/// No more of the whole disk than one part in so many.
const PART: u64 = 16;
/// There is plenty when so many times as much is free.
const PLENTY: u64 = 4;

/// Less is not cut in halves.
const LEAST_BYTES: u64 = 4 << 20;

/// Of what is held, one part in so many is enough for any file of the state but the catalog.
const FILE_PART: u64 = 8;

/// Gives a part of what is held in a state directory to one of its files that finds no room. Whether there is anything to give.
pub(crate) fn give_to_file(state: &Path) -> std::io::Result<bool> {
    match cut(&state.join(NAME), |length| length - length / FILE_PART) {
        Ok(length) => Ok(length >= FILE_PART),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gives up half of what is held in a state directory, to a start that found no room: it may be the last one that can, until files are
/// removed. Whether there was anything.
pub(crate) fn give_up(state: &State) -> bool {
    let path = state.place().join(NAME);
    let was_cut = cut(&path, |length| length / 2).is_ok_and(|length| length >= LEAST_BYTES);
    // What is over its quota may be removed and not cut, and little is not worth to be cut.
    was_cut || std::fs::remove_file(&path).is_ok()
}

/// Makes what is held shorter; gives back how long it was.
fn cut(path: &Path, shorter: impl FnOnce(u64) -> u64) -> std::io::Result<u64> {
    let file = File::options().write(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
    let length = file.metadata()?.len();
    file.set_len(shorter(length))?;
    // Some file systems have it only then.
    file.sync_all()?;
    Ok(length)
}

/// The room held for the catalog of one space.
pub(crate) struct Ballast {
    path: PathBuf,
    state: State,
    bytes: u64,
    disk: u64,
    inodes: Inodes,
    /// What is held was given up in part, for want of room that the disk does not show.
    given_up: bool,
    /// There was no room when it was looked last.
    full: AtomicBool,
    /// Whether what the disk reserves is ours, once that was tried.
    claim: OnceLock<bool>,
}

impl Ballast {
    /// That of a space; its state directory exists.
    pub(crate) fn of(state: &State) -> crate::Result<Self> {
        let looked = std::fs::File::open(state.place()).and_then(|dir| Ok(ullage_pool::disk_of(dir)?));
        let disk = looked.map_err(io_error("look at", state.dir()))?;
        let room = measured(&state.place())?;
        let bytes = (room.f_blocks * room.f_frsize / PART).min(MOST_BYTES);
        let inodes = Inodes::of(state, &room);
        Ok(Self {
            path: state.place().join(NAME),
            state: state.clone(),
            bytes,
            disk,
            inodes,
            given_up: false,
            full: AtomicBool::default(),
            claim: OnceLock::new(),
        })
    }

    /// Gives the room to the catalog if the disk has none left for it, and nobody else has the catalog, whose room it is then. Whether there was
    /// any.
    pub(crate) fn release(&self) -> crate::Result<bool> {
        if self.state.is_in_use() {
            return Ok(false);
        }
        let disk = self.stat()?;
        let bytes = disk.f_bavail * disk.f_frsize < self.bytes && std::fs::remove_file(&self.path).is_ok();
        Ok(self.inodes.release(&disk) || bytes)
    }

    /// Holds again what is left of what was given, little as it may be: there is no more to be had.
    fn hold_left(&self) -> std::io::Result<()> {
        let disk = rustix::fs::statvfs(self.path.parent().unwrap_or(&self.path))?;
        let mut bytes = self.bytes.min(disk.f_bavail * disk.f_frsize);
        // As many as there are.
        let _ = self.inodes.hold();
        let file = private().truncate(true).open(&self.path)?;
        // Its map takes some, too.
        while rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes.max(1)).is_err() {
            bytes = bytes.saturating_sub(bytes / 16 + 1);
            if bytes <= self.bytes / 16 {
                return std::fs::remove_file(&self.path);
            }
        }
        Ok(())
    }

    /// Holds the room again where there is plenty. Gives back what pools on this device have to leave free instead, where there
    /// is not.
    pub(crate) fn take(&self) -> crate::Result<u64> {
        let disk = self.stat()?;
        if let Err(error) = self.inodes.take(&disk) {
            tracing::info!("no inodes are held for the catalog: {error}");
        }
        let held = std::fs::metadata(&self.path).is_ok_and(|meta| meta.blocks() * 512 >= self.bytes);
        if held || !self.given_up && self.hold(&disk) { Ok(0) } else { Ok(self.bytes) }
    }

    /// Has it be held as it is until the next start.
    pub(crate) fn keep_given_up(&mut self) {
        self.given_up = true;
    }

    /// The inodes that pools on this device have to leave free.
    pub(crate) fn least_inodes(&self) -> u64 {
        self.inodes.least()
    }

    /// The disk that the catalog lies on.
    pub(crate) fn disk(&self) -> u64 {
        self.disk
    }

    /// Whether a pool's files lie on the disk of the catalog.
    pub(crate) fn shares(&self, pool_disk: Option<u64>) -> bool {
        pool_disk == Some(self.disk)
    }

    fn hold(&self, disk: &rustix::fs::StatVfs) -> bool {
        if disk.f_bavail * disk.f_frsize < self.bytes * PLENTY {
            return false;
        }
        let mut bytes = self.bytes;
        let held = loop {
            match self.hold_beside(bytes) {
                Err(error) if error.kind() == ErrorKind::QuotaExceeded && bytes / 2 >= LEAST_BYTES => bytes /= 2,
                outcome => break outcome,
            }
        };
        if let Err(error) = held {
            tracing::info!("no room is held for the catalog: {error}");
            let _ = std::fs::remove_file(&self.path);
        }
        true
    }

    /// Holds so much where as much is left beside it: a quota may leave less than the disk has.
    fn hold_beside(&self, bytes: u64) -> std::io::Result<()> {
        let file = private().truncate(true).open(&self.path)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 2 * bytes)?;
        file.set_len(bytes)
    }

    /// Whether the catalog itself has room on the disk: what is reserved is for it too, where it may have that. Where nobody knows it has.
    fn has_room(&self) -> bool {
        self.stat().map_or(true, |disk| {
            let are_enough = |blocks: u64| disk.f_frsize * blocks >= self.bytes / 2;
            let room = are_enough(disk.f_bavail) || are_enough(disk.f_bfree) && self.has_claim();
            room && self.inodes.are_there(&disk)
        })
    }

    /// Whether we may have what the disk reserves. Root of a user namespace may not, nor root without its capabilities where it is
    /// reserved for somebody else. So it is tried, once, when that is all there is.
    fn has_claim(&self) -> bool {
        *self.claim.get_or_init(|| rustix::process::geteuid().is_root() && self.try_claim().is_ok())
    }

    /// Has as much as counts as room for a moment.
    fn try_claim(&self) -> rustix::io::Result<()> {
        let dir = self.path.parent().unwrap_or(&self.path);
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, self.bytes / 2)
    }

    fn stat(&self) -> crate::Result<rustix::fs::StatVfs> {
        measured(self.path.parent().unwrap_or(&self.path))
    }
}

fn measured(dir: &Path) -> crate::Result<rustix::fs::StatVfs> {
    rustix::fs::statvfs(dir).map_err(|errno| io_error("measure", dir)(errno.into()))
}

/// Once a second while there is something to write: statfs(2). What is held stays held: the next start may need it.
impl Room for Ballast {
    fn is_there(&self) -> bool {
        let full = !self.has_room();
        if self.full.swap(full, Relaxed) != full {
            if full {
                tracing::warn!("the disk of the catalog is full: changes stay in its log; make room");
            } else {
                tracing::info!("the disk of the catalog has room again");
            }
        }
        !full
    }

    /// A start brings all that waits into the engine, in what is held.
    fn most_waiting(&self) -> usize {
        (self.bytes / 8) as usize
    }
}
