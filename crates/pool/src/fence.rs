//! Fences: the kernel's own quota around single files. Whoever writes to a file in one, and however, stores into mappings
//! included, gets no more blocks for it than the fence is wide (DESIGN, "Exact limits on a data path we don't see", the first way).
//!
//! Each file in a fence is the only one of a project, whose limit is the fence. The numbers of those projects are a pool's own; a
//! directory below a project quota of somebody else's keeps that, and gets no fences.

use crate::Uuid;
use crate::fsxattr::{project, set_project};
use crate::quota::{self, Limits};
use crate::sys;
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

/// Most fences of a pool at a time, those included that a killed daemon left.
const PROJECTS: u32 = 4096;
/// What is tried: so much fits into the fence, and is written in pieces to a file of four times as much.
const WIDTH: u64 = 64 << 10;
/// As it is usually made it refuses to be mounted with the option alone; and with quotas it is not mounted at all without the module.
const OFF_ON_EXT4: &str = "project quotas are not switched on below (where the kernel has quota_v2: unmount it, run \
                           'tune2fs -O project,quota -Q prjquota' with its device, and mount it with prjquota)";

/// The fences of a pool.
#[derive(Debug)]
pub struct Fences {
    root: OwnedFd,
    first: u32,
    binds_root: bool,
    free: Mutex<Vec<u32>>,
}

/// A fence around one file. It ends by [`Fences::end`] alone; without that it stays, as after a kill.
#[derive(Debug)]
pub struct Fence {
    project: u32,
    width: Option<u64>,
}

impl Fence {
    /// What the file's blocks may be, in bytes; none while it is lifted.
    pub fn width(&self) -> Option<u64> {
        self.width
    }
}

impl Fences {
    /// Finds out whether the file system below has them, takes away what an earlier life left, and tries one.
    ///
    /// # Errors
    /// Why there are none, for people.
    pub(crate) fn find(root: &OwnedFd, pool: Uuid, fs_type: &str) -> Result<Self, String> {
        let off = |error: io::Error| match error.raw_os_error() {
            Some(libc::EPERM) => "only root may set project quotas".to_owned(),
            Some(libc::ENOSYS | libc::EINVAL) => "this kernel has no project quotas here".to_owned(),
            _ if error.kind() == ErrorKind::ResourceBusy => {
                "the pool belongs to a project of somebody else's".to_owned()
            }
            Some(libc::ESRCH) if fs_type == "ext4" => OFF_ON_EXT4.to_owned(),
            Some(libc::ESRCH) => "project quotas are not switched on below (mount it with prjquota)".to_owned(),
            _ => format!("project quotas cannot be used below ({error})"),
        };
        let first = first_project(pool);
        let left = leftovers(root, first).map_err(off)?;
        let root = root.try_clone().map_err(|error| error.to_string())?;
        let free = (first..first + PROJECTS).rev().filter(|project| !left.contains(project)).collect();
        // The quota of ext4 lets whoever has CAP_SYS_RESOURCE pass, that of xfs nobody.
        let fences = Self { root, first, binds_root: fs_type == "xfs", free: Mutex::new(free) };
        match fences.stop() {
            Ok(true) => Ok(fences),
            Ok(false) => Err("project quotas are counted below, but stop nobody (mount it with prjquota)".to_owned()),
            Err(error) => Err(off(error)),
        }
    }

    /// Whether root's stores into mappings stop at a fence too. All other writes do.
    pub fn binds_root(&self) -> bool {
        self.binds_root
    }

    /// Puts a file into a fence of this width in bytes; none where too many are in one. Changes the file's ctime.
    ///
    /// # Errors
    /// Those of the system calls; EBUSY for a file of somebody else's project.
    pub fn enclose(&self, file: &File, width: u64) -> io::Result<Option<Fence>> {
        let before = project(file)?;
        if before != 0 && !self.is_ours(before) {
            return Err(ErrorKind::ResourceBusy.into());
        }
        let Some(number) = self.free.lock().pop() else { return Ok(None) };
        match quota::limit(&self.root, number, Some(width)).and_then(|()| set_project(file, number)) {
            Ok(()) => Ok(Some(Fence { project: number, width: Some(width) })),
            Err(error) => {
                self.give_back(number);
                Err(error)
            }
        }
    }

    /// Moves a fence; with none it is lifted. To where it stands costs nothing.
    ///
    /// # Errors
    /// Those of the system call. It stays where it was.
    pub fn set(&self, fence: &mut Fence, width: Option<u64>) -> io::Result<()> {
        if fence.width != width {
            quota::limit(&self.root, fence.project, width)?;
            fence.width = width;
        }
        Ok(())
    }

    /// Takes a file out of its fence. Changes its ctime.
    pub fn end(&self, fence: Fence, file: &File) {
        match set_project(file, 0) {
            Ok(()) => self.give_back(fence.project),
            Err(error) => {
                tracing::warn!(%error, "a file stays in its project");
                let _ = quota::limit(&self.root, fence.project, None);
            }
        }
    }

    /// Takes a file out of a fence that an earlier life left it in. Gives back whether it was in one.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn release(&self, file: &File) -> io::Result<bool> {
        let left = self.is_ours(project(file)?);
        if left {
            set_project(file, 0)?;
        }
        Ok(left)
    }

    fn is_ours(&self, project: u32) -> bool {
        (self.first..self.first + PROJECTS).contains(&project)
    }

    fn give_back(&self, project: u32) {
        match quota::limit(&self.root, project, None) {
            Ok(()) => self.free.lock().push(project),
            Err(error) => tracing::warn!(%error, project, "a project's limit stays"),
        }
    }

    /// Whether a file without a name stops at its fence.
    fn stop(&self) -> io::Result<bool> {
        let file: File = sys::unnamed(&self.root)?.into();
        let fence = self.enclose(&file, WIDTH)?.ok_or(ErrorKind::QuotaExceeded)?;
        let written = write_unprivileged(&file);
        self.end(fence, &file);
        Ok(written? <= WIDTH)
    }
}

/// Each pool has a range of its own, as far from others' as chance goes, and from small numbers that people give.
fn first_project(pool: Uuid) -> u32 {
    let number = u32::from_le_bytes(*pool.0.first_chunk().unwrap_or(&[0; 4]));
    (1 << 30) + (number % (1 << 18)) * PROJECTS
}

/// Lifts all fences of an earlier life, and gives back in which projects there are files still.
fn leftovers(root: &OwnedFd, first: u32) -> io::Result<Vec<u32>> {
    let (mut at, mut left) = (first, Vec::new());
    while let Some((project, limits)) = quota::next(root, at)?.filter(|(project, _)| *project < first + PROJECTS) {
        if limits.blocks.is_some() {
            quota::limit(root, project, None)?;
        }
        if limits != (Limits { blocks: limits.blocks, ..Limits::default() }) {
            left.push(project);
        }
        at = project + 1;
    }
    Ok(left)
}

/// How much of a file can be written by a thread without the capability to pass over quotas.
fn write_unprivileged(file: &File) -> io::Result<u64> {
    let write = || {
        let mut lowered = capabilities(None)?;
        lowered.effective.remove(CapabilitySet::SYS_RESOURCE);
        set_capabilities(None, lowered)?;
        let piece = [1; 4096];
        let fits = |at: &u64| file.write_all_at(&piece, *at).is_ok();
        Ok((0..4 * WIDTH).step_by(piece.len()).take_while(fits).count() as u64 * piece.len() as u64)
    };
    std::thread::scope(|scope| {
        let writer = std::thread::Builder::new().spawn_scoped(scope, write)?;
        writer.join().unwrap_or_else(|_| Err(ErrorKind::Other.into()))
    })
}
