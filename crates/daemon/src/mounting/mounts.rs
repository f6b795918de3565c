//! Spaces in the kernel's list of mounts.

use super::mountpoint::is_dead_at;
use crate::error::io_error;
use crate::{Result, State};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use ullage_fuse::{Listed, list_mounts};

/// All mounts as a process sees them, this one when none is named.
pub(crate) fn list(process: Option<u32>) -> Result<Vec<Listed>> {
    list_mounts(process).map_err(io_error("read", "the kernel's list of mounts"))
}

/// Whether a mount may be of this state: anybody may mount something and say that it comes from there.
pub(crate) fn is_of(mount: &Listed, state: &State) -> bool {
    let owner = std::fs::symlink_metadata(state.settings_path()).ok().map(|settings| settings.uid());
    mount.owner.is_none_or(|by| by == 0 || owner.is_none_or(|owner| by == owner))
}

/// Where the space of this state is mounted, as this process sees it: a bind mount is one more place. What a daemon left that was
/// killed, while the space is up elsewhere, is none.
pub fn mounts_of(state: &State) -> Result<Vec<PathBuf>> {
    let of = |mount: &Listed| mount.may_be_a_space() && mount.source == state.dir() && is_of(mount, state);
    Ok(list(None)?.into_iter().filter(of).map(|mount| mount.point).filter(|point| !is_dead_at(point)).collect())
}

/// Whether a space is mounted there, as its daemon sees it: that may be in a container.
pub(crate) fn is_space(point: &Path, daemon: Option<u32>) -> Result<bool> {
    let mounts = list(daemon).or_else(|_| list(None))?;
    Ok(mounts.iter().any(|mount| mount.may_be_a_space() && mount.point == point))
}
