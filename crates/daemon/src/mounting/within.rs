//! Whether a path lies in a space that is up, by whatever way: by another name of its mount, or in a file system whose image lies there.

use super::mounts;
use crate::error::io_error;
use crate::{Error, PoolSettings, Result};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use ullage_fuse::Listed;

/// So many disks above one another are looked through.
const DEEPEST: u32 = 8;

/// Refuses a pool that lies in the space that it is to be one of, mounted as this device: its daemon would wait for itself.
pub(crate) fn refuse_inside(pool: &PoolSettings, mounted_as: Option<(u32, u32)>) -> Result<()> {
    let Some((major, minor)) = mounted_as else { return Ok(()) };
    let look = Look { own: rustix::fs::makedev(major, minor), mounts: mounts::list(None)? };
    if !look.has(&pool.path, DEEPEST).map_err(io_error("look at", &pool.path))? {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "pool '{}': {} lies in the space itself, whose daemon would wait for itself; put it elsewhere",
        pool.name,
        pool.path.display()
    )))
}

struct Look {
    /// The device that files of the space have.
    own: u64,
    mounts: Vec<Listed>,
}

impl Look {
    fn has(&self, path: &Path, depth: u32) -> std::io::Result<bool> {
        let device = fs::metadata(path)?.dev();
        Ok(device == self.own
            || depth > 0 && self.disk_of(path, device).is_some_and(|disk| self.is_above(&disk, depth - 1)))
    }

    /// What the kernel says of the disk that the file system of a path lies on, if it lies on one.
    fn disk_of(&self, path: &Path, device: u64) -> Option<PathBuf> {
        let known = |device| {
            let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
            fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
        };
        // btrfs has devices of its own for what files say.
        known(device).or_else(|| {
            let path = path.canonicalize().ok()?;
            let around = self.mounts.iter().filter(|mount| path.starts_with(&mount.point));
            let mount = around.max_by_key(|mount| mount.point.components().count())?;
            known(fs::metadata(&mount.source).ok()?.rdev())
        })
    }

    /// Whether a disk, a part of one, or what is put together of several, lies on an image in the space.
    fn is_above(&self, disk: &Path, depth: u32) -> bool {
        let whole = if disk.join("partition").exists() { disk.parent().unwrap_or(disk) } else { disk };
        if let Ok(image) = fs::read_to_string(whole.join("loop/backing_file")) {
            return self.has(Path::new(image.trim_end_matches('\n')), depth).unwrap_or(false);
        }
        let below = fs::read_dir(whole.join("slaves")).into_iter().flatten().flatten();
        let mut below = below.filter_map(|disk| disk.path().canonicalize().ok());
        depth > 0 && below.any(|disk| self.is_above(&disk, depth - 1))
    }
}
